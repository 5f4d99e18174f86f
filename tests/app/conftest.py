"""Pages in the tests wait for their answers: on a busy machine a progress bar is no fault, and no answer either."""

from __future__ import annotations

import pytest

from app.session import planning


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "PATIENCE", 120.0)
