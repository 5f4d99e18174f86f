from __future__ import annotations

from dataclasses import replace

import pytest

from app.session import judging
from tests.app.small import chain
from tmmu_core.graph import native


def test_a_plan_is_judged_the_same_inside_and_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    solution = chain()
    inside = judging.judge(solution.plan, solution.graph, None)
    monkeypatch.setattr(judging, "OUTSIDE_FROM", 0)
    assert judging.judge_politely(solution.plan, solution.graph, None) == inside
    assert inside.verified.ok


def test_a_graph_that_is_handed_over_as_its_file_is_judged_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    solution = chain()
    inside = judging.judge(solution.plan, solution.graph, None)
    monkeypatch.setattr(judging, "OUTSIDE_FROM", 0)
    file = (native.encode_json(solution.graph), "chain.tmmu.json")
    assert judging.judge_politely(solution.plan, solution.graph, None, file=file) == inside
    other = (native.encode_json(chain(4).graph), "other.tmmu.json")
    assert not judging.judge_politely(solution.plan, solution.graph, None, file=other).verified.ok


def test_a_moved_offset_is_found_outside_too(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = chain(planner="naive").plan
    monkeypatch.setattr(judging, "OUTSIDE_FROM", 0)
    assert not judging.judge_politely(replace(plan, offset=plan.offset * 0), None, None).verified.ok
