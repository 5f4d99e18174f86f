"""The conformance table has no empty cell, and points at nothing that is not there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "conformance.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| clause")
]


def test_there_are_rows_for_every_part_of_the_seed_and_the_contract() -> None:
    clauses = {row[0] for row in ROWS}
    assert {"0.B", "I.E", "II.G", "II.K", "VII.A", "VIII.C", "10", *(f"§{n}" for n in range(1, 11))} <= clauses


def test_no_cell_is_empty() -> None:
    assert [row for row in ROWS if len(row) != 4 or not all(row)] == []


def test_every_module_is_there() -> None:
    modules = {name for row in ROWS for name in re.findall(r"`([^`]+)`", row[2])}
    assert [m for m in sorted(modules) if not (ROOT / "tmmu_core" / m).exists() and not (ROOT / m).exists()] == []


def test_every_test_is_there() -> None:
    named = [re.fullmatch(r"`(tests/[\w/]+\.py)::(test_\w+)`", row[3]) for row in ROWS]
    assert all(named)
    missing = [
        match.group(0)
        for match in named
        if match
        and not ((ROOT / match.group(1)).exists() and f"def {match.group(2)}(" in (ROOT / match.group(1)).read_text())
    ]
    assert missing == []
