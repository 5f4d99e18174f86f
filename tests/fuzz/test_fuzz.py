"""A taste of the fuzzing: ``make fuzz`` runs the same targets for hours (``tests/fuzz/run.py``)."""

from __future__ import annotations

from random import Random

import pytest

from tests.fuzz.targets import outcome, targets

INPUTS = {"native": 15, "node-centric": 15, "torch": 8, "tflite": 8}
"""Graphs are planned eight times each."""


@pytest.mark.parametrize("name", targets())
def test_hostile_files_are_read_or_refused(name: str) -> None:
    target = targets()[name]
    for k in range(INPUTS.get(name, 60)):
        assert outcome(target, target.make(Random(f"taste/{name}/{k}"))) in ("read", "refused")
