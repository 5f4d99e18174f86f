"""``python -m tests.answers``: write anew what everything that can be asked of a plan answers, for odd small plans.

``golden/answers.json`` has a block for each question (an analysis, a writer, a reader of what was written, a replay)
and in it a line for each group of plans, with a digest for each plan: a difference says which question is answered
otherwise, and for which plans. They are those of ``tests/verdicts.py`` by slots, bytes and hashed addresses, plans over
memories, instances with gaps, given offsets and hand-offs, and some that are broken and are drawn all the same.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from random import Random
from typing import Any

import numpy as np

from tests.build import graph, node, tensor, view
from tests.judge import faults
from tests.odd import digest, drawn, twisted
from tests.runtime import faults as runtime_faults
from tests.strategies import Case
from tests.verdicts import GOLDEN, a_cell, a_handoff, a_text, judged, planned, the_head, written
from tmmu_core.errors import ContractError, TmmuError
from tmmu_core.graph.model import Graph
from tmmu_core.judge.verifier import check_columns, verify_plan
from tmmu_core.liveness.idle import idle_of
from tmmu_core.liveness.phases import phases_of, phases_told
from tmmu_core.liveness.timeline import build_timeline
from tmmu_core.liveness.why import explain
from tmmu_core.plan.analysis import gate, placing, tenants, uplift, waste, writers
from tmmu_core.plan.analysis.course import course
from tmmu_core.plan.analysis.ledger import resource_ledger
from tmmu_core.plan.figures import live, metrics, storages
from tmmu_core.plan.formats import (
    c_project,
    checkpoint,
    compare,
    documents,
    files,
    held,
    parquet,
    render,
    render_c,
    trace,
)
from tmmu_core.plan.formats.reading import read_any
from tmmu_core.plan.making import instance, over, sequence
from tmmu_core.plan.making.engine import plan_graph
from tmmu_core.plan.making.memory_plan import memory_plan
from tmmu_core.plan.making.sparse import in_memory, with_sparse_addresses
from tmmu_core.plan.model import Plan
from tmmu_core.planners.problem import Packing, PlainInstance, Problem
from tmmu_core.runtime.apply import apply_plan
from tmmu_core.runtime.commit import commit_execution
from tmmu_core.runtime.shadow import kinds, shadow_replay

ANSWERS = GOLDEN / "answers.json"
MEMORIES = (
    [{"name": "MRAM", "writable": False}, {"name": "TCM", "max_size": 600}, {"name": "SRAM"}],
    [{"name": "TCM", "max_size": 100}, {"name": "SRAM", "max_size": 4000}, {"name": "FAR"}],
)
PLACED = (a_cell, a_cell, a_cell, a_cell, a_text, a_handoff, a_handoff, the_head)
"""What changes where a row lies and when it lives, and what is said of it."""
EDITED = 12
SEARCHED = {"exact": {"budget": 60}, "search": {"iterations": 12}}


@dataclass(frozen=True)
class Subject:
    """A plan that is asked, with what it was made from, where there is that."""

    plan: Plan
    solution: Any = None
    graph: Graph | None = None


@cache
def subjects() -> dict[str, tuple[Subject, ...]]:
    """Group → its plans. All of them are verified, but for the broken ones."""
    groups: dict[str, list[Subject]] = {}
    for case, planner, solution in judged()[:30]:
        groups.setdefault(planner, []).append(Subject(solution.plan, solution, case.graph))
    for k in range(2000, 2018):
        for planner, options in (("helia", {"memories": MEMORIES[k % 2]}), *SEARCHED.items()):
            case = drawn(k)
            try:
                made = planned(replace(case, arenas=None), planner, options=options)
            except ContractError:
                continue
            groups.setdefault(planner, []).append(Subject(made.plan, made, case.graph))
    groups["parts"] = [found for k in range(150) if (found := _parts(k)) is not None][:14]
    groups["instances"] = [Subject(_instance(k)) for k in range(10)]
    for group in groups.values():
        for subject in group:
            verdict = verify_plan(subject.plan, subject.graph)
            assert verdict.ok, verdict
    groups["broken"] = list(_broken())
    return {name: tuple(group) for name, group in groups.items()}


def _parts(k: int) -> Subject | None:
    """A tensor that is looked into, written over in place, looked into further, and read on the way.

    ``None`` where the contract denies one of the writes.
    """
    random = Random(f"parts/{k}")
    tensors = [tensor("h", 16, role=random.choice(("activation", "input", "buffer"))), tensor("y", 4)]
    nodes = [] if tensors[0].role != "activation" else [node("a", "", "h")]
    now, floats = "h", 16
    for step in range(5):
        if floats > 4 and random.randrange(2):  # a look into what is there now
            floats //= 2
            tensors.append(view(f"v{step}", now, floats, random.choice((0, 4 * floats))))
            now = f"v{step}"
        if random.randrange(3):
            tensors.append(tensor(f"p{step}", floats))
            nodes.append(node(f"n{step}", now, f"p{step}", in_place_write=((0, 0),), inplace="none"))
            now = f"p{step}"
        else:
            tensors.append(tensor(f"z{step}", 2))
            nodes.append(
                node(f"r{step}", random.choice((now, "h") if step < 2 else (now,)), f"z{step}", inplace="none")
            )
    nodes.append(node("w", now, "y", inplace="none"))
    order = tuple(each.node_id for each in nodes)
    random.shuffle(tensors)
    loaded = "h" if any(each.id == "h" and each.role == "input" for each in tensors) else ""
    made = graph(tensors, nodes, loaded, "y", execution_order=order)
    try:
        solution = plan_graph(made, mode="inference", planner=random.choice(("slots", "greedy")))
    except ContractError:
        return None
    return Subject(solution.plan, solution, made) if any(each.in_place_write for each in nodes) else None


def _instance(k: int) -> Plan:
    """A problem without a graph: lives with gaps, offsets given for some or all, hand-offs, several grids."""
    random = Random(f"answers/{k}")
    count, floor = 7, random.choice((1, 16))
    birth = sorted(random.randrange(12) for _ in range(count))
    death = [b + random.randrange(1, 7) for b in birth]
    size = [random.choice((0, 1, 8, 24, 100)) for _ in range(count)]
    gaps = [((b + 1, d - 1),) if k % 3 == 1 and d - b > 3 else () for b, d in zip(birth, death, strict=True)]
    problem = Problem(
        arena="arena",
        ids=tuple(f"{'bé'[i % 2]}{i}" for i in range(count)),
        birth=np.array(birth, np.int64),
        death=np.array(death, np.int64),
        size=np.array(size, np.uint64),
        alignment=np.array([max(floor, random.choice((1, 1, 8, 64))) for _ in range(count)], np.uint64),
        arena_alignment=floor,
        **({"gaps": tuple(gaps)} if any(gaps) else {}),
    )
    if k % 3 == 2:
        top = np.cumsum([0, *(-(-s // 64) * 64 for s in size)])[:-1]
        return instance.plan_problem(PlainInstance(f"given {k}", problem, Packing(top.astype(np.uint64))))
    return instance.plan_problem(problem, planner=("greedy", "slots", "ffd", "naive")[k % 4] if k % 3 else "greedy")


def _broken() -> Iterator[Subject]:
    """Plans whose columns fit and whose places do not: they are drawn with their conflicts, and replayed."""
    random = Random("answers/broken")
    for case, _, solution in judged()[:24]:
        for fault in (faults.storage_moved, faults.death_brought_forward, faults.handoff_dropped, faults.wrong_view):
            plan = fault(solution.plan, random)
            if plan is not None and next(check_columns(plan), None) is None:
                yield Subject(plan, replace(solution, plan=plan), case.graph)
                break


def answered(ask: Callable[[], Any]) -> str:
    """The digest of an answer, or of a refusal's words."""
    try:
        return digest(ask())
    except TmmuError as error:
        return digest(error.record()) + "!"  # type: ignore[attr-defined]


# --- the questions -------------------------------------------------------------------------------------------------


def _arenas(ask: Callable[[Plan, str], Any]) -> Callable[[Subject], Any]:
    return lambda subject: [ask(subject.plan, arena.name) for arena in subject.plan.arenas]


def _tensors(ask: Callable[[Subject, str], Any]) -> Callable[[Subject], Any]:
    return lambda subject: [ask(subject, name) for name in subject.plan.tensor_ids]


def _steps(plan: Plan) -> range:
    return range(min(plan.steps, 9))


def _ghosts(subject: Subject, name: str) -> Any:
    plan = subject.plan
    here = int(plan.offset[plan.row_of[name]])
    tried = [(here, None), (0, None), (here + 1, None), (here // 2, 0), (here + 64, 2), (here, plan.steps)]
    found = [placing.ghost(plan, name, offset, birth) for offset, birth in tried]
    return [*found, [each.legal for each in found], [placing.on_grid(plan, name, here + by) for by in (0, 1, 31, 64)]]


def _orders(subject: Subject) -> Any:
    found: list[Any] = []
    for arena in subject.plan.arenas:
        problem = None if subject.solution is None else sequence.problem_of(subject.solution, arena.name)
        placed = sequence.placed_in(subject.plan, arena.name, problem)
        members = [
            n
            for n, at in zip(subject.plan.tensor_ids, subject.plan.arena, strict=True)
            if subject.plan.arenas[at].name == arena.name
        ]
        why = [placing.why_here(subject.plan, name, placed.storages) for name in members]
        found.append([placed, placed.own, problem, why])
    return found


def _partings(subject: Subject) -> Any:
    if subject.solution is None:
        return None
    other = replace(subject.plan, offset=subject.plan.offset + np.uint64(64))
    names = [arena.name for arena in subject.plan.arenas]
    return [placing.parting(subject.plan, right, name) for right in (subject.plan, other) for name in [*names, "none"]]


def _gates(subject: Subject) -> Any:
    plan = subject.plan
    total = sum(arena.extent_bytes for arena in plan.arenas)
    before = replace(plan, arenas=tuple(replace(a, extent_bytes=a.extent_bytes * 3 // 4) for a in plan.arenas[:-1]))
    limits = [gate.Limit("extent", Fraction(total + by)) for by in (-1, 0)]
    limits += [gate.Limit("peak live bytes", Fraction(total // 2)), gate.Limit("gap", Fraction(1, 20))]
    limits += [gate.Limit("reuse", Fraction(k, 4)) for k in (0, 1, 2, 3)]
    limits += [gate.Limit("growth", Fraction(1, 3), relative=True), gate.Limit("growth", Fraction(100))]
    for arena in plan.arenas:
        limits += [gate.Limit(what, Fraction(1, 10), arena.name) for what in ("gap", "extent", "peak live bytes")]
        limits += [gate.Limit("growth", Fraction(64), arena.name), gate.Limit("reuse", Fraction(1, 2), arena.name)]
    return gate.gate(plan, limits, before)


def _rows(subject: Subject) -> Any:
    own, beats = storages.storages_of(subject.plan), storages.beats_of(subject.plan)
    at = [beats.at(step) for step in range(-1, subject.plan.steps + 2)]
    curves = [storages.live_bytes(subject.plan, a.name, own, beats) for a in subject.plan.arenas]
    counts = [live.change_points(curve) for curve in curves]
    first = [storages.by_birth(subject.plan, own, arena.name) for arena in subject.plan.arenas]
    alive = [
        storages.alive_at(subject.plan, step, a)
        for step in _steps(subject.plan)
        for a in (None, "activations")
        if a is None or a in subject.plan.arena_of
    ]
    return [own, beats, at, curves, counts, first, alive]


def _totals(subject: Subject) -> Any:
    plan = subject.plan
    found = [metrics.totals(plan), metrics.counted_totals(plan), metrics.counted_totals(plan).gap]
    more = replace(plan, arenas=tuple(replace(a, extent_bytes=a.extent_bytes + 64) for a in plan.arenas))
    figures = [[a.bound_bytes, a.over_bound_bytes, a.gap, a.open_bytes, a.headroom_bytes] for a in plan.arenas]
    limits = [over.over_limits(plan, k * 100) for k in range(4)] + [over.over_limits(plan)]
    may = [over.packing_may_do(plan, k * 100) for k in range(40)]
    return [*found, metrics.renewed_metrics(plan, more), figures, limits, may, metrics.written_metrics(plan.metrics)]


def _lives(subject: Subject) -> Any:
    if subject.solution is None:
        return None
    lives = subject.solution.liveness
    ids = lives.timeline.index.tensor_ids
    known = [(int(b), "backward" if k % 3 else "forward") for k, b in enumerate(subject.plan.birth.tolist()) if k % 2]
    why = [explain(lives, name) for k, name in enumerate(ids) if lives.birth[k] >= 0]
    return [idle_of(lives), phases_of(lives.timeline), phases_told(subject.plan.steps, known), why]  # type: ignore[arg-type]


def _writers(subject: Subject) -> Any:
    if subject.solution is None:
        return None
    own, index = storages.storages_of(subject.plan), subject.solution.liveness.timeline.index
    ask = writers.held_by_writer
    return [ask(subject.plan, own, index, t, a.name) for t in _steps(subject.plan) for a in subject.plan.arenas]


def _documents(subject: Subject) -> Any:
    plan = replace(subject.plan, metrics=metrics.written_metrics(subject.plan.metrics))
    plan = replace(plan, metrics={k: v for k, v in plan.metrics.items() if k != "allocation_time_ns"})
    texts = [write(plan) for write in (files.to_json, files.to_cbor, files.to_csv, trace.to_json_lines)]
    texts += [trace.to_cbor_sequence(plan, digest=True), trace.to_json_lines(plan, digest=True)]
    texts += [answered(lambda: files.to_instance(plan)), *[files.to_instance(plan, a.name) for a in plan.arenas]]
    return [texts, documents.head_document(plan), documents.handoff_documents(plan), held.held_by(plan)]


def _read_back(subject: Subject) -> Any:
    plan = subject.plan
    wrote = [files.to_json(plan), files.to_cbor(plan), parquet.to_parquet(plan), trace.to_json_lines(plan)]
    wrote += [trace.to_cbor_sequence(plan), trace.to_json_lines(plan, digest=True)]
    wrote += [files.to_instance(plan, arena.name) for arena in plan.arenas]
    return [answered(lambda data=data: read_any(data, "odd")) for data in wrote]


def _checkpoints(subject: Subject) -> Any:
    if subject.solution is None:
        return None
    plan, lives = subject.plan, subject.solution.liveness
    data = checkpoint.checkpoint(plan, lives)
    back = [checkpoint.restore(data, "odd"), checkpoint.restore(data, "odd", token=plan.replay_token)]
    other = answered(lambda: checkpoint.restore(data, "odd", token=bytes(32)))
    return [data, back, other, checkpoint.positions(lives), checkpoint.rows_in_order(data)]


def _rendered(subject: Subject) -> Any:
    random = Random(str(subject.plan.tmmu_plan_hash))
    plan = subject.plan
    wanted = [
        n for n, role in zip(plan.tensor_ids, plan.roles, strict=True) if role in ("parameter", "constant", "buffer")
    ]
    bytes_of = {name: random.randbytes(int(plan.size[plan.row_of[name]])) for name in wanted}
    return [
        answered(lambda blobs=blobs: _c_of(plan, blobs)) for blobs in (None, bytes_of, dict(list(bytes_of.items())[1:]))
    ]


def _c_of(plan: Plan, known: dict[str, bytes] | None) -> Any:
    made = render.build_render_plan(plan, known, module_prefix="odd model")
    projects = []
    for blobs in ("auto", "sidecar"):
        with zipfile.ZipFile(io.BytesIO(c_project.zipped(c_project.c_project(made, blobs)))) as archive:  # type: ignore[arg-type]
            projects.append([[item.filename, item.date_time, archive.read(item)] for item in archive.infolist()])
    return [made, render_c.c_header(made), render_c.c_source(made), render.residency(made), projects]


def _compared(subject: Subject) -> Any:
    plan, random = subject.plan, Random(7)
    others = [plan, replace(plan, mode="forward"), replace(plan, replay_token=bytes(32))]
    edits = (
        faults.size_grown,
        faults.death_put_off,
        faults.storage_moved,
        faults.row_lost,
        faults.offset_moved_up,
        faults.handoff_dropped,
        faults.alignment_odd,
        faults.extent_shrunk,
        faults.arena_swapped,
    )
    others += [edited for edit in edits if (edited := edit(plan, random)) is not None]
    whole = trace.read_trace(trace.to_json_lines(plan))
    brief = trace.read_trace(trace.to_json_lines(plan, digest=True))
    found = [compare.compare(plan, other) for other in (*others, whole, brief)]
    found += [compare.compare(brief, trace.read_trace(trace.to_json_lines(other, digest=True))) for other in others[1:]]
    verdicts = [[each.comparable, each.identical, each.first, each.totals] for each in found]
    verdicts += [[each.largest(kind, 2) for kind in (None, *compare.KINDS)] for each in found]
    return [found, verdicts, [compare.same_plan(plan, other) for other in others]]


def _replayed(subject: Subject) -> Any:
    subjects_ = [subject.plan] if subject.solution is None else [subject.plan, subject.solution]
    found = [shadow_replay(each) for each in subjects_]
    return [[verdict, str(verdict), kinds(verdict.findings)] for verdict in found]


def _broken_runs(subject: Subject) -> Any:
    if subject.solution is None:
        return None
    broken = [
        plan for kind in runtime_faults.KINDS.values() for plan in runtime_faults.spread(kind(subject.solution), 2)
    ]
    runs = [shadow_replay(plan, subject.solution.liveness.timeline) for plan in broken]
    alone = [shadow_replay(plan) for plan in broken[::2]]
    return [[verdict, str(verdict)] for verdict in (*runs, *alone)]


def _edited_runs(subject: Subject) -> Any:
    """Runs of the plan with anything in it changed, with its graph and by its rows alone; sums do not fit any more."""
    random = Random(str(subject.plan.tmmu_plan_hash))
    edited = [plan for _ in range(EDITED) if (plan := random.choice(PLACED)(subject.plan, random)) is not None]
    runs = []
    for plan in edited:
        if next(check_columns(plan), None) is None:
            timeline = None if subject.solution is None else subject.solution.liveness.timeline
            runs += [shadow_replay(plan, timeline), shadow_replay(plan)]
    return [[verdict, str(verdict)] for verdict in runs]


def _other_graphs(subject: Subject) -> Iterator[Graph]:
    """The graph of a plan with one thing in it changed."""
    random = Random(str(subject.plan.tmmu_plan_hash))
    for _ in range(6):
        if subject.graph is not None and subject.graph.nodes:
            case = Case(subject.graph, "inference", "inference", None, None, None, 0)
            yield twisted(case, random).graph


def _judged_by_others(subject: Subject) -> Any:
    return [verify_plan(subject.plan, other) for other in _other_graphs(subject)]


def _replayed_by_others(subject: Subject) -> Any:
    found: list[Any] = []
    for other in _other_graphs(subject):
        try:
            timeline = build_timeline(other, subject.plan.mode, subject.plan.preset)  # type: ignore[arg-type]
            verdict = shadow_replay(subject.plan, timeline)
            found.append([verdict, str(verdict)])
        except ContractError as error:
            found.append(error.record())
    return found


def _applied(subject: Subject) -> Any:
    if any(arena.extent_bytes > 1 << 24 for arena in in_memory(subject.plan).arenas):
        return None
    applied = apply_plan(subject.plan)
    plan = applied.placed
    for arena in applied.arenas.values():
        arena.memory[:] = 255
    states = []
    for step in range(subject.plan.steps):
        entered = applied.enter(step)
        for row in np.flatnonzero(plan.birth == step).tolist()[:2]:
            applied.debug_fill(plan.tensor_ids[row], step)
        states.append([entered, [arena.memory[: 1 << 12].tobytes() for arena in applied.arenas.values()]])
        if step % 3 == 2:
            sealed = commit_execution(applied)
            states.append([sealed, applied.journal_digest])
    refused = [answered(lambda name=name: len(applied.view(name))) for name in (*plan.tensor_ids, "nobody")]
    bound = [[b.tensor_id, b.arena, b.logical_address, b.size, b.lifetime] for b in applied.tensor_map().values()]
    return [states, bound, refused, applied.blocks, applied.ledger.rows(), commit_execution(applied)]


def _hashed(subject: Subject) -> Any:
    plan = subject.plan
    near = answered(lambda: with_sparse_addresses(plan, bits=8)) if plan.has_slots else None
    return [in_memory(plan), near, plan.held_until, list(plan.rows()), [plan.node_at(t) for t in range(plan.steps + 2)]]


QUESTIONS: dict[str, Callable[[Subject], Any]] = {
    "waste by step": _arenas(waste.waste_ledger),
    "waste at a step": _arenas(lambda plan, arena: [waste.waste_at(plan, arena, t) for t in _steps(plan)]),
    "regions": _arenas(lambda plan, arena: [waste.regions_at(plan, arena, t) for t in _steps(plan)]),
    "resource ledger": lambda subject: [resource_ledger(subject.plan), resource_ledger(subject.plan).rows()],
    "gates": _gates,
    "why here": _tensors(lambda subject, name: placing.why_here(subject.plan, name)),
    "why here, in order": _orders,
    "another place": _tensors(_ghosts),
    "where plans part": _partings,
    "a memory up": _tensors(lambda subject, name: uplift.uplift(subject.plan, name)),
    "tenants": _arenas(tenants.slot_reports),
    "course": _arenas(course),
    "rows gathered": _rows,
    "peaks": _arenas(lambda plan, arena: [storages.peak(plan, arena), storages.peak_step_of(plan, arena)]),
    "totals": _totals,
    "lives": _lives,
    "who wrote what": _writers,
    "files": _documents,
    "files read back": _read_back,
    "checkpoints": _checkpoints,
    "C": _rendered,
    "comparisons": _compared,
    "replay": _replayed,
    "replay of broken plans": _broken_runs,
    "replay of changed plans": _edited_runs,
    "judged by another graph": _judged_by_others,
    "replayed by another graph": _replayed_by_others,
    "in memory": _applied,
    "hashed addresses": _hashed,
    "memory plan": lambda subject: memory_plan(subject.plan) if subject.plan.planner == "helia" else None,
}
THINNED = {
    "judged by another graph": 2,
    "replayed by another graph": 2,
    "replay of broken plans": 3,
    "comparisons": 6,
    "files read back": 4,
    "C": 2,
    "in memory": 2,
}
"""What takes longer is asked of every so-manieth plan."""
SOUND_ALONE = ("in memory", "checkpoints", "C", "replay of broken plans")
"""Not asked of broken plans."""


def answer(question: str) -> list[str]:
    """A line for each group of plans."""
    lines = []
    for name, group in subjects().items():
        if name != "broken" or question not in SOUND_ALONE:
            group = group[:: THINNED.get(question, 1)]
            said = [answered(lambda subject=subject: QUESTIONS[question](subject)) for subject in group]
            lines.append(f"{name}: {' '.join(said)}")
    return lines


def main() -> None:
    """Write the file."""
    written(ANSWERS, ((question, answer(question)) for question in QUESTIONS))


if __name__ == "__main__":
    main()
