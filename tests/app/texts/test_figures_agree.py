"""A figure that two places show has one value (§11): plan, gate, comparison, command line and page strip.

The expected figures are counted here from the rows alone, step by step.
"""

import contextlib
import io
import re
import time
from fractions import Fraction
from html import unescape
from typing import Any, NamedTuple

import pytest

from app.canvas.component import arena_title
from app.cli.commands import compare as cli_compare
from app.cli.commands import gate
from app.cli.commands.plan import print_plan
from app.texts import markup, numbers, totals_text
from tests.support.golden import sample_files
from tests.support.paths import SAMPLES, read_graph_file
from tmmu_core.formats.planfile.compare_plans import compare
from tmmu_core.formats.planfile.plan_file import from_document, to_json
from tmmu_core.graph.model import Graph
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.liveness.timeline import default_mode
from tmmu_core.planners import PLANNERS
from tmmu_core.plans.analysis import gate as core
from tmmu_core.plans.analysis.gate import ALL, Measure
from tmmu_core.plans.figures.live_bytes import live_bytes, peak_step_of
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.model import ArenaSummary, Plan

SHORT: dict[str, dict[str, Any]] = {"exact": {"budget": 200}, "search": {"iterations": 2}}
PATIENCE = 20.0  # seconds after which a planner is stopped
SMALL, LARGE = 400, 5_000  # tensors up to which every planner runs, and up to which ``greedy`` runs beside ``slots``


class Counted(NamedTuple):
    """Computed from rows: per arena ``(peak step, peak bytes, extent, slots)``; all arenas; hand-offs taken."""

    arenas: dict[str, tuple[int, int, int, int]]
    peak: tuple[int, int]
    taken: int


def counted(plan: Plan) -> Counted:
    lives: dict[tuple[str, int, int], list[int]] = {}
    key_of = {}
    for row in plan.rows():
        key = key_of[row.tensor_id] = (row.arena, row.logical_slot, row.generation)
        end = row.offset_bytes + row.size_bytes
        first = lives.setdefault(key, [row.birth, row.death, row.offset_bytes, end])
        lives[key] = [
            min(first[0], row.birth),
            max(first[1], row.death),
            min(first[2], row.offset_bytes),
            max(first[3], end),
        ]
    taken = 0
    for step, giver, taker in plan.handoffs:
        if lives[key_of[giver]][2] == lives[key_of[taker]][2]:
            taken += 1
        else:
            lives[key_of[giver]][1] = step + 1
    arenas = {}
    for arena in plan.arenas:
        mine = [life for (name, _, _), life in lives.items() if name == arena.name]
        extent = max((max(end, start + 1) for _, _, start, end in mine), default=0)
        slots = len({slot for name, slot, _ in lives if name == arena.name})
        arenas[arena.name] = (*_peak(mine), extent, slots)
    return Counted(arenas, _peak(list(lives.values())), taken)


def _peak(lives: list[list[int]]) -> tuple[int, int]:
    change: dict[int, int] = {}
    for birth, death, start, end in lives:
        change[birth] = change.get(birth, 0) + end - start
        change[death] = change.get(death, 0) - (end - start)
    live, when, most = 0, 0, 0
    for step in sorted(change):
        live += change[step]
        if live > most:
            when, most = step, live
    return when, most


def arena_is_one_value(plan: Plan, arena: ArenaSummary, truth: Counted) -> None:
    step, most, extent, slots = truth.arenas[arena.name]
    gap = numbers.percent(arena.extent_bytes - arena.bound_bytes, arena.bound_bytes)
    assert (arena.peak_live_bytes, arena.extent_bytes, arena.slots) == (most, extent, slots)
    assert peak_step_of(plan, arena.name) == (step, most)
    assert int(live_bytes(plan, arena.name)[step]) == most
    assert from_document(to_json(plan)).arena_of[arena.name] == arena
    assert arena_title(plan, arena, step).endswith(f"gap {gap}")
    assert gate_text(plan, "gap", arena.name) == gap
    assert gate_text(plan, "peak live bytes", arena.name) == numbers.full_bytes(most)
    assert gate_text(plan, "extent", arena.name) == numbers.full_bytes(extent)
    table = unescape(markup.arena_table([arena], slots=plan.has_slots))
    cells = re.findall(r"<td[^>]*>(.*?)</td>", table)
    assert numbers.exact_bytes(arena.bound_bytes) in cells[2]
    assert numbers.exact_bytes(extent) in cells[3]
    assert gap in cells


def gate_text(plan: Plan, what: Measure, arena: str = ALL) -> str:
    """Return a figure as the gate writes it."""
    (check,) = core.gate(plan, [core.Limit(what, Fraction(0), arena)])
    return gate.check_row(check).value


def totals_are_one_value(plan: Plan, truth: Counted) -> None:
    step, peak = truth.peak
    expected = {
        "peak_live_bytes": peak,
        "peak_step": step,
        "extent_bytes": sum(extent for _, _, extent, _ in truth.arenas.values()),
        "lower_bound_bytes": sum(arena.bound_bytes for arena in plan.arenas),
    }
    assert plan.metrics["totals"] == expected
    same = cli_compare.as_json(compare(plan, plan), 0)
    assert same["left_totals"] == same["right_totals"] == expected
    assert plan.metrics["peak_live_bytes"] == peak
    assert gate_text(plan, "peak live bytes") == numbers.full_bytes(peak)
    assert gate_text(plan, "extent") == numbers.full_bytes(expected["extent_bytes"])
    assert gate_text(plan, "gap") == dict(totals_text.rows(plan))[totals_text.GAP]
    assert totals_text.chips(plan)[0].endswith(f"{numbers.short_bytes(peak)} at {numbers.step(step)}")
    assert sum(plan.taken) == truth.taken


def same_on_the_command_line(plan: Plan, truth: Counted, out: str) -> None:
    step, peak = truth.peak
    for name, figure in totals_text.rows(plan):  # the report, the page and the comparison show these very rows
        assert re.search(rf"^{name} +{re.escape(figure)}$", out, re.MULTILINE)
    assert f"{numbers.full_bytes(peak)} at {numbers.step(step, plan.node_at(step))}" in out
    others = f" of {len(plan.handoffs):,} possible" if truth.taken < len(plan.handoffs) else ""
    assert f"in-place reuse: {truth.taken:,}{others}" in out
    for arena in plan.arenas:
        (line,) = re.findall(rf"^{re.escape(arena.name)} .*$", out, re.MULTILINE)
        for figure in (arena.bound_bytes, arena.extent_bytes):
            assert numbers.full_bytes(figure) in line
        assert numbers.percent(*arena.gap) in line
        at = truth.arenas[arena.name][0]
        assert numbers.step(at, plan.node_at(at)) in line


def same_in_every_face(graph: Graph, planner: str) -> dict[str, int]:
    """Assert that every display has the figures of the rows; return the bound of each arena."""
    until, options = time.monotonic() + PATIENCE, SHORT.get(planner, {})
    solution = plan_graph(
        graph, planner=planner, mode=default_mode(graph), options=options, progress=lambda *_: time.monotonic() < until
    )
    plan = solution.plan
    truth = counted(plan)
    for arena in plan.arenas:
        assert arena.lower_bound_bytes is not None
        arena_is_one_value(plan, arena, truth)
    totals_are_one_value(plan, truth)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        print_plan(plan)
    same_on_the_command_line(plan, truth, out.getvalue())
    if len(plan) <= SMALL:
        assert verify_plan(plan, graph).ok
    return {arena.name: arena.bound_bytes for arena in plan.arenas}


def planners_for(graph: Graph) -> list[str]:
    if len(graph.tensors) <= SMALL:
        return [name for name in PLANNERS if name != "auto"]
    return ["slots", "greedy"] if len(graph.tensors) <= LARGE else ["slots"]


def marks(file: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.slow] if (SAMPLES / file).stat().st_size > 6_000 else []


@pytest.mark.parametrize("file", [pytest.param(file, marks=marks(file)) for file in sample_files()])
def test_every_figure_has_one_value(file: str) -> None:
    graph = read_graph_file(SAMPLES / file)
    bounds: dict[str, set[int]] = {}
    for planner in planners_for(graph):
        for arena, bound in same_in_every_face(graph, planner).items():
            bounds.setdefault(arena, set()).add(bound)
    assert all(len(found) == 1 for found in bounds.values()), bounds
