"""``python -m tests.support.one_value [--pages] [SAMPLE …]``: a figure that two places show has one value (§11).

Every sample under every planner, through every face: command line, page, report, gate, comparison, and the scripts of
the pages Planners and Compare; with ``--pages`` those scripts alone. What is expected is counted here from the rows
alone, step by step. The suite runs a short form (``tests/app/test_one_value.py``): planners that search on small
samples, and some samples' pages.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache, partial
from html import unescape
from typing import Any, NamedTuple

from app.canvas.pack import claim
from app.cli.first import compare as cli_compare
from app.cli.first import gate
from app.cli.plan_text import print_plan
from app.texts import markup, numbers, totals_text
from tests.app.test_pages import html, opened
from tests.support.golden import SAMPLES, sample_files
from tmmu_core.formats.open_file import read_graph_file
from tmmu_core.formats.planfile.compare_plans import compare
from tmmu_core.formats.planfile.plan_file import from_document, to_json
from tmmu_core.graph.model import Graph
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.liveness.timeline import default_mode
from tmmu_core.planners import PLANNERS
from tmmu_core.plans.analysis import gate as core
from tmmu_core.plans.analysis.gate import ALL, Measure
from tmmu_core.plans.figures.plan_storages import live_bytes, peak
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.model import ArenaSummary, Plan

SHORT: dict[str, dict[str, Any]] = {"exact": {"budget": 200}, "search": {"iterations": 2}}
PATIENCE = 20.0
"""Seconds after which a planner that asks is told to stop: ``auto`` lets the others search for as long as they take."""
VERIFIED = 400
"""Tensors up to which each plan is also held against its graph."""
PAGES = 1_000
"""Tensors up to which the pages are driven with every planner at its full length; beyond, Compare with ``QUICK``."""
QUICK = ("naive", "ffd", "helia", "greedy")
LONG = 600
"""Seconds that a page may take."""


class Counted(NamedTuple):
    """What the rows make: per arena ``(peak step, peak bytes, extent, slots)``; all arenas; hand-offs taken."""

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
    # Found the way each face finds it.
    assert (peak(plan, arena.name).step, peak(plan, arena.name).bytes) == (step, most)
    assert int(live_bytes(plan, arena.name)[step]) == most
    assert from_document(to_json(plan)).arena_of[arena.name] == arena
    assert claim(plan, arena.name).endswith(f"gap {gap}")
    assert numbers.step(step, plan.node_at(step)) in claim(plan, arena.name)
    assert held_to(plan, "gap", arena.name) == gap
    assert held_to(plan, "peak live bytes", arena.name) == numbers.full_bytes(most)
    assert held_to(plan, "extent", arena.name) == numbers.full_bytes(extent)
    strip = unescape(markup.strip([arena], {}, slots=plan.has_slots))
    cells = re.findall(r"<td[^>]*>(.*?)</td>", strip)
    assert numbers.exact_bytes(arena.bound_bytes) in cells[2]
    assert numbers.exact_bytes(extent) in cells[3]
    assert gap in cells


def held_to(plan: Plan, what: Measure, arena: str = ALL) -> str:
    """What the gate says that a figure is."""
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
    assert held_to(plan, "peak live bytes") == numbers.full_bytes(peak)
    assert held_to(plan, "extent") == numbers.full_bytes(expected["extent_bytes"])
    assert held_to(plan, "gap") == dict(totals_text.rows(plan))[totals_text.GAP]
    assert totals_text.chips(plan)[0].endswith(f"{numbers.short_bytes(peak)} at {numbers.step(step)}")
    assert sum(plan.taken) == truth.taken


def same_on_the_command_line(plan: Plan, truth: Counted, out: str) -> None:
    step, peak = truth.peak
    for name, figure in totals_text.rows(plan):  # the report, the page and the comparison show these very rows
        assert re.search(rf"^{name} +{re.escape(figure)}$", out, re.MULTILINE)
    assert f"{numbers.full_bytes(peak)} at {numbers.step(step, plan.node_at(step))}" in out
    used = (
        f"{truth.taken:,}"
        if truth.taken == len(plan.handoffs)
        else f"{truth.taken:,} of {len(plan.handoffs):,} possible"
    )
    assert f"in-place reuse: {used}" in out
    for arena in plan.arenas:
        (line,) = re.findall(rf"^{re.escape(arena.name)} .*$", out, re.MULTILINE)
        for figure in (arena.bound_bytes, arena.extent_bytes):
            assert numbers.full_bytes(figure) in line
        assert numbers.percent(*arena.gap) in line
        at = truth.arenas[arena.name][0]
        assert numbers.step(at, plan.node_at(at)) in line


def same_in_every_face(graph: Graph, planner: str) -> dict[str, int]:
    """Plan, hold every face against what the rows make, and give the bound of each arena."""
    until, options = time.monotonic() + PATIENCE, SHORT.get(planner, {})
    asked = plan_graph(
        graph, planner=planner, mode=default_mode(graph), options=options, progress=lambda *_: time.monotonic() < until
    )
    plan = asked.plan
    truth = counted(plan)
    for arena in plan.arenas:
        assert arena.lower_bound_bytes is not None
        arena_is_one_value(plan, arena, truth)
    totals_are_one_value(plan, truth)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        print_plan(plan)
    same_on_the_command_line(plan, truth, out.getvalue())
    if len(plan) <= VERIFIED:
        assert verify_plan(plan, graph).ok
    return {arena.name: arena.bound_bytes for arena in plan.arenas}


# --- the pages' scripts ------------------------------------------------------------------------------------------


def cells(page: str) -> Iterator[list[str]]:
    """The texts of every table row of a page; the ``title`` of a cell (bytes in full) behind its text."""
    for row in re.findall(r"<tr[^>]*>(.*?)</tr>", page, re.DOTALL):
        found = re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)
        yield [unescape(re.sub(r"<[^>]+>", "", cell)) for cell in found]


@lru_cache(maxsize=2 * len(PLANNERS))
def planned(sample: str, planner: str) -> tuple[Plan, Counted]:
    """The plan that a page shows of a sample, and what its rows make."""
    graph = read_graph_file(next(SAMPLES / file for file in sample_files() if file.split(".")[0] == sample))
    plan = plan_graph(graph, planner=planner, mode=default_mode(graph)).plan
    return plan, counted(plan)


def same_on_the_planners_page(sample: str, planners: tuple[str, ...] = tuple(PLANNERS)) -> None:
    """Run the script of Planners until all have answered, and hold each row against what its plan's rows make."""
    at = opened("planners", seconds=LONG, graph=f"sample:{sample}")
    until = time.monotonic() + LONG
    while not re.search(rf">{len(PLANNERS)} planners<", html(at)):
        assert time.monotonic() < until, "not all planners have finished"
        at.run()
    page = html(at)
    arena = re.search(r"Size of (\S+) against planning time", page)
    assert arena
    rows = {row[0].split()[0]: row for row in cells(page) if len(row) == 9}
    for planner in planners:
        plan, truth = planned(sample, planner)
        if arena[1] not in truth.arenas:
            assert planner not in rows
            continue
        _, peak, extent, _ = truth.arenas[arena[1]]
        del peak
        over, bound = plan.arena_of[arena[1]].gap
        row = rows[planner]
        assert row[1] == numbers.short_bytes(extent)
        assert row[2] == numbers.short_bytes(over)
        assert row[3] == numbers.gap(extent, bound)
        assert row[4] == plan.arena_of[arena[1]].status
        assert row[6] == numbers.short_bytes(truth.peak[1])
        assert row[7] == numbers.short_bytes(sum(extent for _, _, extent, _ in truth.arenas.values()))


def same_on_the_compare_page(sample: str, left: str, right: str) -> None:
    """Run the script of Compare, baseline ``left``, and hold both sides against what their plans' rows make."""
    at = opened("compare", seconds=LONG, graph=f"sample:{sample}", planner=right, baseline=f"planner:{left}")
    until = time.monotonic() + LONG
    while totals_text.PEAK not in (page := html(at)):  # while a plan is being made, the page shows how far it is
        assert time.monotonic() < until, "the page compares nothing"
        at.run()
    both, truths = zip(*(planned(sample, name) for name in (left, right)), strict=True)
    rows = {row[0]: row for row in cells(page) if row}
    for name in truths[0].arenas.keys() & truths[1].arenas.keys():
        row, arenas = rows[name], [plan.arena_of[name] for plan in both]
        for cell, pair in ((1, [a.bound_bytes for a in arenas]), (2, [t.arenas[name][2] for t in truths])):
            for number in pair:
                assert numbers.short_bytes(number) in row[cell]
        assert row[3] == numbers.change(*(numbers.over_bound(*a.gap) for a in arenas))
        slots = [
            f"{t.arenas[name][3]:,}" if p.has_slots else numbers.NO_SLOTS for t, p in zip(truths, both, strict=True)
        ]
        assert row[5] == numbers.change(*slots)
    figures = []
    for plan, truth in zip(both, truths, strict=True):
        step, peak = truth.peak
        figures.append(f"{numbers.full_bytes(peak)} at {numbers.step(step, plan.node_at(step))}")
    assert rows[totals_text.PEAK][1] == numbers.change(*figures)
    sums = [numbers.full_bytes(sum(extent for _, _, extent, _ in t.arenas.values())) for t in truths]
    assert rows[totals_text.EXTENT][1] == numbers.change(*sums)


def main() -> int:
    """All of it, a line each, small samples first; 1 where a figure differs."""
    asked, fine = set(sys.argv[1:]) - {"--pages"}, True
    chosen = [file for file in sample_files() if not asked or file.split(".")[0] in asked]
    graphs = {file.split(".")[0]: read_graph_file(SAMPLES / file) for file in chosen}
    by_size = sorted(graphs, key=lambda name: (len(graphs[name].tensors), name))
    for sample in () if "--pages" in sys.argv else by_size:
        bounds: dict[str, set[int]] = {}
        for planner in PLANNERS:
            fine &= agrees(sample, planner, partial(_faces, graphs[sample], planner, bounds))
        fine &= agrees(sample, "bounds", partial(_one_each, bounds))
    for sample in by_size:
        small = len(graphs[sample].tensors) <= PAGES
        if small:
            fine &= agrees(sample, "Planners", partial(same_on_the_planners_page, sample))
        for planner in PLANNERS if small else QUICK:
            if planner != "slots":
                look = partial(same_on_the_compare_page, sample, "slots", planner)
                fine &= agrees(sample, f"Compare {planner}", look)
    return int(not fine)


def _faces(graph: Graph, planner: str, bounds: dict[str, set[int]]) -> None:
    for arena, bound in same_in_every_face(graph, planner).items():
        bounds.setdefault(arena, set()).add(bound)


def _one_each(bounds: dict[str, set[int]]) -> None:
    assert all(len(found) == 1 for found in bounds.values()), bounds


def agrees(sample: str, what: str, look: Callable[[], None]) -> bool:
    """Look, and say in a line what was seen."""
    began = time.monotonic()
    try:
        look()
    except (AssertionError, RuntimeError) as error:  # a page that takes too long is the latter
        print(f"{sample:36} {what:18} DIFFERS: {error!r:.300}", flush=True)
        return False
    print(f"{sample:36} {what:18} one value  {time.monotonic() - began:.1f} s", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
