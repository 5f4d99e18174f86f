"""The conformance table covers every clause, and its modules and tests exist."""

import re

from tests.support.clauses import rows_wanted
from tests.support.paths import ROOT

ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "conformance.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| clause")
]


def test_every_clause_has_a_row() -> None:
    clauses = {row[0] for row in ROWS}
    assert [clause for clause in rows_wanted() if clause not in clauses] == []


def test_every_row_has_a_clause() -> None:
    wanted = set(rows_wanted())
    assert [row[0] for row in ROWS if row[0] not in wanted and not row[0].startswith("§")] == []


def test_every_part_of_the_contract_has_a_row() -> None:
    assert {f"§{n}" for n in range(1, 12)} <= {row[0] for row in ROWS}


def test_referenced_decisions_exist() -> None:
    numbers = re.findall(r"\bdecision (\d+)\b", (ROOT / "docs" / "conformance.md").read_text())
    assert numbers
    assert [
        number for number in numbers if not list((ROOT / "docs" / "decisions").glob(f"{int(number):02}-*.md"))
    ] == []


def test_no_cell_is_empty() -> None:
    assert [row for row in ROWS if len(row) != 4 or not all(row)] == []


def test_referenced_modules_exist() -> None:
    modules = {name for row in ROWS for name in re.findall(r"`([^`]+)`", row[2])}
    assert [m for m in sorted(modules) if not (ROOT / "tmmu_core" / m).exists() and not (ROOT / m).exists()] == []


def test_referenced_tests_exist() -> None:
    named = [re.fullmatch(r"`(tests/[\w/]+\.py)::(test_\w+)`", row[3]) for row in ROWS]
    assert all(named)
    missing = [
        match.group(0)
        for match in named
        if match
        and not ((ROOT / match.group(1)).exists() and f"def {match.group(2)}(" in (ROOT / match.group(1)).read_text())
    ]
    assert missing == []
