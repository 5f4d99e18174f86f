"""The app reads the files that its command line names; these tests' own command line names none for it."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def no_files_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", sys.argv[:1])
