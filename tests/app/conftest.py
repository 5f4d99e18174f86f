"""Pages wait long enough for their plans, also on a busy machine."""

import pytest

from app.session import opening, planning


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "PATIENCE", 120.0)
    monkeypatch.setattr(opening, "PATIENCE", 120.0)
