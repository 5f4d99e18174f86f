"""``python -m tests.refusals``: write anew what every reader says of damaged files, and what it reads of them.

The fuzz targets (``tests/fuzz/``) make the same hostile inputs from the same numbers. ``golden/refusals.json`` holds a
line for each: the refusal's words (thing, place, way out), or, where the file was read all the same, the hashes of
what was made of it and the findings of the verifier and the lint. A change of what is accepted, or of how it is
refused, is a difference of lines to be read like code.
"""

from __future__ import annotations

import json
from hashlib import sha256
from random import Random
from typing import Any

from tests.fuzz.targets import _use_archive, targets
from tests.fuzz.uses import MODES, use
from tests.searches import SAMPLES
from tmmu_core.errors import TmmuError
from tmmu_core.graph.importers import pt2_graph, pt2_program
from tmmu_core.graph.model import Graph
from tmmu_core.judge.canonical import ir_hash
from tmmu_core.judge.lint import lint_plan
from tmmu_core.judge.verifier import verify_plan
from tmmu_core.plan.analysis import waste
from tmmu_core.plan.analysis.ledger import resource_ledger
from tmmu_core.plan.figures.storages import peak
from tmmu_core.plan.formats import render
from tmmu_core.plan.formats.reading import PlainInstance, read_any
from tmmu_core.plan.formats.trace import Trace
from tmmu_core.plan.making.engine import plan_graph
from tmmu_core.plan.making.instance import plan_problem
from tmmu_core.plan.model import Plan
from tmmu_core.writing import replace_file

REFUSALS = SAMPLES / "golden" / "refusals.json"
INPUTS = 80
TOGETHER = 10
"""Inputs of one test."""
NOT_THE_SAME_EVERYWHERE = ("gzip", "parquet", "stored", "sidecar", "torch-snapshot")
"""Inputs that a library packs, whose bytes differ from one of its releases to the next, as Python's own pickles do."""
LONG = 200


def names() -> list[str]:
    """The targets that are asked: the readers of the core."""
    return [name for name in targets() if name not in NOT_THE_SAME_EVERYWHERE and not name.startswith("link-")]


def said_of(name: str, k: int) -> str:
    """What input ``k`` of a target comes to."""
    target = targets()[name]
    data = target.make(Random(f"refusals/{name}/{k}"))
    try:
        if target.use is use:
            return _short(" · ".join(_of(read_any(data, "given"))))
        if target.use is _use_archive:
            return _short(" · ".join(_of_graph(pt2_graph.as_saved(pt2_program.read_program(data, "given"), "given"))))
        target.use(data)
        return "read"
    except TmmuError as error:
        return _short(_refusal(error))


def _refusal(error: TmmuError) -> str:
    record = error.record()  # type: ignore[attr-defined]
    return f"{record['code_id']}: {record['message']} {json.dumps(record, ensure_ascii=False)}"


def _short(text: str) -> str:
    """Printable, and at most ``LONG`` and a digest of the rest."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= LONG else f"{text[:LONG]}… {sha256(text.encode()).hexdigest()[:12]}"


def _of(found: Any) -> list[str]:
    if isinstance(found, Graph):
        return _of_graph(found)
    if isinstance(found, PlainInstance):
        return ["instance", *_of_plan(plan_problem(found))]
    return ["plan", *_of_plan(found.plan if isinstance(found, Trace) else found)]


def _of_graph(graph: Graph) -> list[str]:
    parts = [f"graph {ir_hash(graph).hex()[:12]}"]
    for mode, preset in MODES:
        try:
            plan = plan_graph(graph, mode=mode, preset=preset).plan  # type: ignore[arg-type]
        except TmmuError as error:
            parts.append(_refusal(error))
            continue
        parts.append(plan.tmmu_plan_hash.hex()[:12])
        parts += [f"{each.rule}: {each.message}" for each in lint_plan(plan, graph)]
    return parts


def _of_plan(plan: Plan) -> list[str]:
    verdict = verify_plan(plan)
    parts = [plan.tmmu_plan_hash.hex()[:12], *(f"{each.rule}: {each.message}" for each in verdict.findings)]
    for arena in plan.arenas:
        ledger = waste.waste_ledger(plan, arena.name)
        columns = (ledger.steps, ledger.live, ledger.alignment_gaps, ledger.slot_rounding, ledger.holes, ledger.tail)
        parts.append(sha256(b"".join(column.tobytes() for column in columns)).hexdigest()[:12])
        parts.append(str(peak(plan, arena.name)))
    parts.append(sha256(repr(resource_ledger(plan)).encode()).hexdigest()[:12])
    if verdict.ok:
        try:
            parts.append(sha256(repr(render.build_render_plan(plan)).encode()).hexdigest()[:12])
        except TmmuError as error:
            parts.append(_refusal(error))
    return parts


def questions() -> dict[str, tuple[str, range]]:
    """A test's name → the target, and which of its inputs."""
    return {
        f"{name} {first}": (name, range(first, first + TOGETHER))
        for name in names()
        for first in range(0, INPUTS, TOGETHER)
    }


def answer(question: str) -> list[str]:
    """What is said of the inputs of one test, one after the other."""
    name, which = questions()[question]
    return [said_of(name, k) for k in which]


def kept() -> dict[str, list[str]]:
    """Test → what is said, as the file has it."""
    return json.loads(REFUSALS.read_text())  # type: ignore[no-any-return]


def main() -> None:
    """Write the file, a line for each input."""
    blocks = []
    for question in questions():
        lines = ",\n".join(f"  {json.dumps(text, ensure_ascii=False)}" for text in answer(question))
        blocks.append(f"{json.dumps(question)}: [\n{lines}\n]")
    replace_file(REFUSALS, ("{\n" + ",\n".join(blocks) + "\n}\n").encode())
    print(f"{len(blocks)} blocks")


if __name__ == "__main__":
    main()
