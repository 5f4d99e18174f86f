"""Pages wait long enough for their plans, also on a busy machine."""

import pytest

from app.session import opening, planning


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "WAIT_SECONDS", 120.0)
    monkeypatch.setattr(opening, "WAIT_SECONDS", 120.0)
