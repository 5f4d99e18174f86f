"""Every figure that stands in two places is one value: every sample, every planner, every face (contract §11).

What is expected is counted here from the rows alone, step by step; the faces are the functions behind the command line,
the page, the report, the gate and the comparison.
"""

from __future__ import annotations

import re
from html import unescape
from typing import Any, NamedTuple

import pytest

from app.canvas.pack import claim
from app.cli import compare as cli_compare
from app.cli import gate
from app.cli.show import plan_in_words
from app.report import build as report
from app.say import markup, totals, words
from tests.golden import SAMPLES, sample_files
from tmmu_core.graph.model import Graph
from tmmu_core.judge.verifier import verify_plan
from tmmu_core.liveness.timeline import default_mode
from tmmu_core.plan import metrics
from tmmu_core.plan.formats.compare import compare
from tmmu_core.plan.formats.files import from_document, to_json
from tmmu_core.plan.formats.reading import read_graph_file
from tmmu_core.plan.making.engine import plan_graph
from tmmu_core.plan.model import ArenaSummary, Plan
from tmmu_core.planners import PLANNERS

SMALL, LARGE = 400, 5_000
"""Tensors up to which every planner is asked, and up to which ``greedy`` is asked beside ``slots``."""
SHORT: dict[str, dict[str, Any]] = {"exact": {"budget": 200}, "search": {"iterations": 2}}


def planners_for(graph: Graph) -> list[str]:
    if len(graph.tensors) <= SMALL:
        return [name for name in PLANNERS if name != "auto"]  # it asks exact and search for as long as they take
    return ["slots", "greedy"] if len(graph.tensors) <= LARGE else ["slots"]


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


@pytest.mark.parametrize("file", sample_files())
def test_every_figure_is_one_value_in_every_face(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    graph = read_graph_file(SAMPLES / file)
    bounds: dict[str, set[int]] = {}
    for planner in planners_for(graph):
        plan = plan_graph(graph, planner=planner, mode=default_mode(graph), options=SHORT.get(planner, {})).plan
        truth = counted(plan)
        for arena in plan.arenas:
            assert arena.lower_bound_bytes is not None
            bounds.setdefault(arena.name, set()).add(arena.lower_bound_bytes)
            _arena_is_one_value(plan, arena, truth)
        _totals_are_one_value(plan, truth)
        plan_in_words(plan)
        _told_on_the_command_line(plan, truth, capsys.readouterr().out)
        if len(plan) <= SMALL:
            assert verify_plan(plan, graph).ok
    assert all(len(found) == 1 for found in bounds.values()), bounds


def _arena_is_one_value(plan: Plan, arena: ArenaSummary, truth: Counted) -> None:
    step, peak, extent, slots = truth.arenas[arena.name]
    gap = words.percent(arena.extent_bytes - arena.bound_bytes, arena.bound_bytes)
    assert (arena.peak_live_bytes, arena.extent_bytes, arena.slots) == (peak, extent, slots)
    # Found the way each face finds it.
    assert (metrics.peak(plan, arena.name).step, metrics.peak(plan, arena.name).bytes) == (step, peak)
    assert int(metrics.live_bytes(plan, arena.name)[step]) == peak
    assert from_document(to_json(plan)).arena_of[arena.name] == arena
    assert claim(plan, arena.name).endswith(f"gap {gap}")
    assert words.step(step, plan.node_at(step)) in claim(plan, arena.name)
    told = report._arena(plan, arena)
    assert (told.bound, told.gap, told.peak_step) == (arena.bound_bytes, gap, step)
    assert (told.headroom == "no capacity given") == (arena.headroom_bytes is None)
    (check,) = gate._gaps(plan, [f"{arena.name}=0"])
    assert check.value == gap
    (check,) = gate._peaks(plan, [f"{arena.name}=0"])
    assert check.value == words.full_bytes(peak)
    strip = unescape(markup.strip([arena], {}, slots=plan.has_slots))
    cells = re.findall(r"<td[^>]*>(.*?)</td>", strip)
    assert words.exact_bytes(arena.bound_bytes) in cells[2]
    assert words.exact_bytes(extent) in cells[3]
    assert gap in cells
    row = cli_compare._arena_row(arena.name, (arena, plan), (arena, plan))
    assert row[1] == words.full_bytes(extent)
    assert row[-1] == words.short_bytes(arena.bound_bytes)


def _totals_are_one_value(plan: Plan, truth: Counted) -> None:
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
    (check,) = gate._peaks(plan, ["0"])
    assert check.value == words.full_bytes(peak)
    (check,) = gate._extents(plan, ["0"])
    assert check.value == words.full_bytes(expected["extent_bytes"])
    (check,) = gate._gaps(plan, ["0"])
    assert check.value == dict(totals.rows(plan))[totals.GAP]
    assert totals.chips(plan)[0].endswith(f"{words.short_bytes(peak)} at {words.step(step)}")
    assert sum(plan.taken) == truth.taken


def _told_on_the_command_line(plan: Plan, truth: Counted, out: str) -> None:
    step, peak = truth.peak
    for name, figure in totals.rows(plan):  # the report, the page and the comparison show these very rows
        assert re.search(rf"^{name} +{re.escape(figure)}$", out, re.MULTILINE)
    assert f"{words.full_bytes(peak)} at {words.step(step, plan.node_at(step))}" in out
    granted = words.count(len(plan.handoffs), "hand-off")
    assert granted in out
    if truth.taken != len(plan.handoffs):
        assert f"{granted} granted, {truth.taken:,} of them taken" in out
    for arena in plan.arenas:
        (line,) = re.findall(rf"^{re.escape(arena.name)} .*$", out, re.MULTILINE)
        for figure in (arena.bound_bytes, arena.extent_bytes):
            assert words.full_bytes(figure) in line
        assert words.percent(*arena.gap) in line
        at = truth.arenas[arena.name][0]
        assert words.step(at, plan.node_at(at)) in line


def test_the_peak_of_llama_3_8b_is_that_of_one_step() -> None:
    plan = plan_graph(read_graph_file(SAMPLES / "llama3_8b_train_b1_s2048.tmmu.cbor.gz")).plan
    assert metrics.totals(plan).peak_live_bytes == 59_009_696_260
