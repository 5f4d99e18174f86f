"""``python -m tests.verdicts``: write anew what the engine, the simulator and the judge say of small odd graphs.

``golden/odd.json`` has a line for each graph of ``tests/odd.py``: how often a planner's answer or its refusal comes to
what (hashes, counts, words), and the same of the reference simulator, which may be asked for other things than plans.
``golden/verdicts.json`` has a line for each of some thousand plans with one thing wrong (``tests/judge/faults.py``, and
any cell, figure, note or hand-off changed at random): which rules found it, how often, and a digest of their words, of
what ``apply`` would raise, of the rows in conflict and of what the lint makes of it. A change of a rule, a border or a
word is a difference of lines to be read like code.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

from tests.judge import faults
from tests.odd import digest, drawn, spelled, twisted
from tests.strategies import Case
from tmmu_core.errors import ContractError
from tmmu_core.graph.model import MODES, PRESETS
from tmmu_core.judge.canonical import token_from_seed
from tmmu_core.judge.equivalence import differences
from tmmu_core.judge.finished import conflicting_rows, finished, refuse_invalid
from tmmu_core.judge.lint import lint_verdict
from tmmu_core.judge.referee import faults as referee_faults
from tmmu_core.judge.simulator import Asked, SimulatedPlan, simulate
from tmmu_core.judge.verifier import check_columns, verify_plan
from tmmu_core.plan.making.engine import Solution, plan_graph
from tmmu_core.plan.making.sparse import with_sparse_addresses
from tmmu_core.plan.model import CHANGED, UNHELD, UNSAID, ArenaSummary, Plan
from tmmu_core.writing import replace_file

GOLDEN = Path(__file__).resolve().parents[1] / "sample_graphs" / "golden"
ODD, VERDICTS = GOLDEN / "odd.json", GOLDEN / "verdicts.json"
GRAPHS = 110
TWISTS = 3
"""Of each, with one thing in it that may not be."""
JUDGED = 42
"""Plans that are broken."""
EDITS = 26
"""Broken plans of each, beside those of every kind of fault."""
PLANNERS = ("slots", "helia", "greedy", "naive", "slots", "sparse", "ffd")


# --- what is planned -----------------------------------------------------------------------------------------------


def refusal(error: ContractError) -> str:
    """Its code, words and record."""
    record = error.record()
    return f"{record['code_id']} {record['diagnostics'].get('reason', '')} {digest(record)}".replace("  ", " ")


def planned(case: Case, planner: str = "slots", **how: Any) -> Solution:
    """The case by a planner; ``sparse`` are its slots at hashed addresses."""
    by = "slots" if planner == "sparse" else planner
    solution = plan_graph(case.graph, planner=by, seed=case.seed, **{**case.arguments(), **how})
    return replace(solution, plan=with_sparse_addresses(solution.plan)) if planner == "sparse" else solution


def _solution(case: Case, how: dict[str, Any]) -> str:
    try:
        solution = planned(case, **how)
    except ContractError as error:
        return refusal(error)
    plan, lives = solution.plan, solution.liveness
    assert verify_plan(plan, case.graph, arenas=case.arenas).ok, (case, how)
    counts = f"{plan.steps} steps, {len(plan)} rows, {len(plan.handoffs)} of {len(lives.refusals) + len(plan.handoffs)}"
    figures = ", ".join(f"{a.name} {a.slots}/{a.storages} {a.extent_bytes} B" for a in plan.arenas)
    return f"{counts}; {figures}; {digest([plan, plan.held_until, lives, lives.refusals])}"


def _simulated(case: Case, how: dict[str, Any], **rest: Any) -> str:
    try:
        asked = Asked(token=token_from_seed(case.seed), **{**case.arguments(), **how}, **rest)
        found = simulate(case.graph, asked)
    except ContractError as error:
        return refusal(error)
    return f"{found.layout_hash.hex()[:12]} {digest(_without_its_judge(found))}"


def _without_its_judge(found: SimulatedPlan) -> list[Any]:
    lives = found.lives
    steps = [lives.run.node_name(step) for step in range(found.steps)]
    waste = [[found.waste(arena.name, step) for step in range(found.steps)] for arena in found.arenas]
    said = [getattr(found, name) for name in found.__dataclass_fields__ if name != "lives"]
    lived = [getattr(lives, name) for name in lives.__dataclass_fields__ if name not in ("judge", "run")]
    run = lives.run
    resolved = [run.order, run.root, run.root_offset, run.written_at, run.reads, run.sizes, run.retain, run.end]
    return [*said, *lived, *resolved, run.graph, steps, waste, found.bound_to(bytes(32))]


def odd_answer(k: int) -> list[str]:
    """What is said of one graph: as asked, and in another mode and preset."""
    case = drawn(k)
    other = {"mode": MODES[k % 3], "preset": PRESETS[k // 3 % 3]}
    tight = _simulated(case, other, budget=200 + k) if k % 4 == 0 else "-"
    said = [_solution(case, {}), _simulated(case, {}), _solution(case, other), _simulated(case, other), tight]
    random = Random(f"twisted/{k}")
    for _ in range(TWISTS):
        wrong = twisted(case, random)
        said += [f"twisted: {_solution(wrong, {})}", f"twisted: {_simulated(wrong, {})}"]
    return [*said, _alike(case, other)]


def _alike(case: Case, how: dict[str, Any]) -> str:
    """Whether what came of the case in another way is the simulator's: of two plans that differ, in what."""
    try:
        theirs = simulate(case.graph, Asked(token=token_from_seed(case.seed), **{**case.arguments(), **how}))
        mine = planned(case, "naive", **how).plan
    except ContractError:
        return "-"
    found = list(differences(mine, theirs))
    return f"{len(found)} {digest(found)}"


# --- what is broken ------------------------------------------------------------------------------------------------


@cache
def judged() -> tuple[tuple[Case, str, Solution], ...]:
    """The plans that are broken, with their graphs and planners: the first graphs that can be planned so."""
    found: list[tuple[Case, str, Solution]] = []
    k = 1000
    while len(found) < JUDGED:
        case, planner = drawn(k), PLANNERS[len(found) % len(PLANNERS)]
        k += 1
        try:
            solution = planned(case, planner)
        except ContractError:
            continue
        if len(solution.plan) > 3:
            assert verify_plan(solution.plan, case.graph, arenas=case.arenas).ok
            found.append((case, planner, solution))
    return tuple(found)


Edit = Callable[[Plan, Random], Plan | None]
COLUMNS = ("arena", "logical_slot", "offset", "size", "alignment", "birth", "death", "generation", "storage")
TEXTS = {
    "roles": ("activation", "parameter", "gradient", "nothing"),
    "dtypes": ("float32", "int4", "bool", "nothing"),
    "shapes": ((), (1,), (8,), (0, 4), (2**33, 2**33), (-1,)),
    "alias_group_ids": (None, "g", "x"),
    "base_tensor_uids": (None, "nobody"),
    "tensor_ids": ("A", "zz"),
}


def a_cell(plan: Plan, random: Random) -> Plan | None:
    """One number of one row: a little more or less, that of another row, or an edge."""
    name, row, other = random.choice(COLUMNS), random.randrange(len(plan)), random.randrange(len(plan))
    here = int(getattr(plan, name)[row])
    value = random.choice((here + 1, here - 1, int(getattr(plan, name)[other]), 0, 2 * here, 2**31, 2**63 - 1))
    if value == here or (value < 0 and name in ("offset", "size", "alignment")) or (name == "arena" and value > 2**30):
        return None
    return faults.changed(plan, name, row, value)


def a_text(plan: Plan, random: Random) -> Plan | None:
    """One text or shape of one row: another one, or that of another row."""
    name, row = random.choice(sorted(TEXTS)), random.randrange(len(plan))
    column = list(getattr(plan, name))
    value = random.choice((*TEXTS[name], random.choice(column), plan.tensor_ids[0] if "uid" in name else column[0]))
    if value == column[row]:
        return None
    column[row] = value
    return replace(plan, **{name: tuple(column)})


def a_figure(plan: Plan, random: Random) -> Plan | None:
    """One figure of an arena."""
    at = random.randrange(len(plan.arenas))
    name = random.choice([name for name in ArenaSummary.__dataclass_fields__ if name != "name"])
    here = getattr(plan.arenas[at], name)
    value: Any
    if name == "status":
        value = random.choice(("optimal", "unproven", "feasible", "whatever"))
    elif name == "witness":
        value = tuple(random.sample(plan.tensor_ids, min(len(plan), random.randrange(4))))
    else:
        base = here if here is not None else plan.arenas[at].extent_bytes
        value = random.choice((base + 1, base - 1, 0, 2 * base, 3))
    arena = replace(plan.arenas[at], **{name: value})
    return None if value == here else replace(plan, arenas=(*plan.arenas[:at], arena, *plan.arenas[at + 1 :]))


def two_figures(plan: Plan, random: Random) -> Plan | None:
    """Two of them, which may hide each other."""
    first = a_figure(plan, random)
    return None if first is None else a_figure(first, random)


def a_metric(plan: Plan, random: Random) -> Plan | None:
    """One of the metrics, or one of the totals or of what stands per arena."""
    metrics = {key: dict(value) if isinstance(value, dict) else value for key, value in plan.metrics.items()}
    inside = random.choice([metrics, *[value for value in metrics.values() if isinstance(value, dict) and value]])
    key = random.choice(sorted(inside))
    how = random.randrange(4)
    if how == 0:
        del inside[key]
    elif isinstance(inside[key], dict):
        inside[key] = random.choice(({}, 7))
    else:
        inside[key] = random.choice((inside[key] + 1, 0, inside[key] - 1, 2 * inside[key], 0.5))
    return replace(plan, metrics=metrics)


def a_handoff(plan: Plan, random: Random) -> Plan | None:
    """One hand-off: another step, other tensors, said twice, or taken otherwise."""
    if not plan.handoffs:
        row, other = random.choice(plan.tensor_ids), random.choice(plan.tensor_ids)
        return replace(plan, handoffs=((random.randrange(plan.steps + 1), row, other),))
    rows, taken = list(plan.handoffs), list(plan.taken)
    at = random.randrange(len(rows))
    step, x, y = rows[at]
    how = random.randrange(6)
    if how == 0:
        taken[at] = not taken[at]
    elif how == 1:  # said twice, or what gives or takes does so a second time
        rows.append(random.choice((rows[at], (step, x, random.choice(plan.tensor_ids)))))
        taken.append(taken[at])
    else:
        other = random.choice((*plan.tensor_ids, "nobody"))
        rows[at] = ((step + 1, x, y), (step - 1, x, y), (step, other, y), (step, x, other))[how - 2]
    return replace(plan, handoffs=tuple(rows), taken=tuple(taken))


def the_head(plan: Plan, random: Random) -> Plan | None:
    """What is said of all rows."""
    how = random.randrange(9)
    if how == 0:
        return replace(plan, places=random.choice(("slots", "bytes", "sparse")))
    if how == 1:
        return replace(plan, mode=random.choice(MODES), preset=random.choice((*PRESETS, "nothing")))
    if how == 2:
        return replace(plan, steps=plan.steps + random.choice((1, -1)))
    if how == 3:
        return replace(plan, has_inputs_step=not plan.has_inputs_step)
    if how == 4:
        return replace(plan, own_arenas=not plan.own_arenas)
    if how == 5:
        key = random.choice((CHANGED, UNHELD, UNSAID))
        return replace(plan, notes={**plan.notes, key: "somebody says so"})
    if how == 6:
        return replace(plan, execution_order=plan.execution_order[: random.randrange(len(plan.execution_order) + 1)])
    if how == 7:
        return replace(plan, arenas=plan.arenas[::-1] if random.randrange(2) else plan.arenas[:-1])
    return replace(plan, execution_order=(), handoffs=(), taken=())


def a_column_cut(plan: Plan, random: Random) -> Plan | None:
    """A column that is a row short."""
    name = random.choice((*COLUMNS, *TEXTS))
    return replace(plan, **{name: getattr(plan, name)[:-1]})


ANYHOW: tuple[Edit, ...] = (
    *(a_cell, a_cell, a_cell, a_cell, a_cell, a_text, a_text, a_figure, a_figure, two_figures),
    *(a_metric, a_handoff, a_handoff, the_head, the_head, a_column_cut),
)


def broken(which: int) -> Iterator[tuple[str, Plan]]:
    """One plan of the judged, broken in every way in turn: its hashes made anew, or left, or all figures made anew."""
    plan = judged()[which][2].plan
    random = Random(f"verdicts/{which}")
    kinds = {**faults.IN_CONTENT, **faults.IN_HASHES}
    mine = [name for k, name in enumerate(sorted(kinds)) if (k + which) % 4 == 0]
    edits: list[tuple[str, Edit]] = [(name, kinds[name]) for name in mine]
    for _ in range(EDITS):
        edit = random.choice(ANYHOW)
        edits.append((edit.__name__, edit))
    for name, edit in edits:
        found = edit(plan, random)
        if found is not None:
            counted = "figure" in name or name in faults.FIGURES  # to count these anew would undo them
            after = random.choice(("", "", "rehashed", "rehashed" if counted else "refigured"))
            yield f"{name} {after}".strip(), _honest(found, after) if name not in faults.IN_HASHES else found


def _honest(plan: Plan, after: str) -> Plan:
    if next(check_columns(plan), None) is not None:  # nothing can be looked up in such a plan
        return plan
    try:
        if after == "refigured":
            plan = faults.refigured(plan)
        return faults.rehashed(plan) if after else plan
    except (IndexError, ValueError, OverflowError, KeyError, ZeroDivisionError):  # of some nothing can be counted
        return plan


def verdicts(which: int) -> list[str]:
    """A line for each broken plan: how it was broken, and what is said of it."""
    case, _, _ = judged()[which]
    lines = []
    for k, (how, plan) in enumerate(broken(which)):
        graph = case.graph if k % 2 else None
        found = finished(plan, graph, arenas=case.arenas if k % 3 else None)
        verdict = found.verdict
        counts = Counter(finding.rule for finding in verdict.findings)
        also: list[Any] = [str(verdict), spelled(verdict), [arena.status for arena in found.plan.arenas]]
        try:
            refuse_invalid(plan, "apply", verdict)
        except ContractError as error:
            also.append(spelled(error.record()))
        also.append(conflicting_rows(plan))
        if k % 8 == 3:
            also.append(lint_verdict(plan, graph))
            also.append(finished(plan, complete=False).verdict)
        named = {name for _, *pair in plan.handoffs for name in pair} <= set(plan.tensor_ids)
        if named and not {"columns", "row"} & counts.keys() and k % 2 == 0:
            also.append(list(referee_faults(plan)))
        lines.append(f"{how}: {_counted(counts)} · {digest(also)}")
    return lines


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{rule} {n}" for rule, n in sorted(counts.items())) or "nothing"


# --- the files -----------------------------------------------------------------------------------------------------


@cache
def kept(file: Path) -> dict[str, list[str]]:
    """Question → lines, as a file has them."""
    return json.loads(file.read_text())  # type: ignore[no-any-return]


def written(file: Path, answers: Iterator[tuple[str, list[str]]]) -> None:
    """Write a file, a line for each line of each answer."""
    blocks = []
    for question, lines in answers:
        inside = ",\n".join(f"  {json.dumps(line, ensure_ascii=False)}" for line in lines)
        blocks.append(f"{json.dumps(question)}: [\n{inside}\n]")
    data = ("{\n" + ",\n".join(blocks) + "\n}\n").encode()
    replace_file(file, data)
    print(f"{file.name}: {len(blocks)} blocks, {len(data):,} bytes, {sha256(data).hexdigest()[:12]}")


def main() -> None:
    """Write both files."""
    written(ODD, ((str(k), odd_answer(k)) for k in range(GRAPHS)))
    written(VERDICTS, ((str(which), verdicts(which)) for which in range(JUDGED)))


if __name__ == "__main__":
    main()
