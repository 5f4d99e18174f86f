"""Every kind by its name, and its inputs by the test that asks for them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from random import Random

from tests.made import costs, documents, graphs, models, programs, values
from tests.made.saying import Kind, said

GOLDEN = Path(__file__).resolve().parents[2] / "sample_graphs" / "golden"
FILES: dict[str, dict[str, Kind]] = {
    "made_of_graphs.json": {**costs.KINDS, **graphs.KINDS, **values.KINDS},
    "made_of_files.json": {**models.KINDS, **programs.KINDS, **documents.KINDS},
}
"""Golden file → the kinds that it holds."""
KINDS: dict[str, Kind] = {name: kind for kinds in FILES.values() for name, kind in kinds.items()}
TOGETHER = 40
"""Inputs of one test."""


def questions(file: str) -> dict[str, tuple[str, range]]:
    """Of a golden file: a test's name → the kind, and which of its inputs."""
    return {
        f"{name} {first}": (name, range(first, min(first + TOGETHER, kind.count)))
        for name, kind in FILES[file].items()
        for first in range(0, kind.count, TOGETHER)
    }


def answer(name: str, k: int) -> str:
    """The line of input ``k`` of a kind."""
    return said(lambda: KINDS[name].say(Random(f"made/{name}/{k}"), k))


def answers(file: str, question: str) -> list[str]:
    """The lines of one test."""
    name, which = questions(file)[question]
    return [answer(name, k) for k in which]


@cache
def kept(file: str) -> dict[str, list[str]]:
    """Test → its lines, as the file has them."""
    return json.loads((GOLDEN / file).read_text())  # type: ignore[no-any-return]
