from __future__ import annotations

from dataclasses import replace

import pytest

from app import judging
from tests.app.small import chain


def test_a_plan_is_judged_the_same_inside_and_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    solution = chain()
    inside = judging.judge(solution.plan, solution.graph, None)
    monkeypatch.setattr(judging, "OUTSIDE_FROM", 0)
    assert judging.judge_politely(solution.plan, solution.graph, None) == inside
    assert inside.verified.ok


def test_a_moved_offset_is_found_outside_too(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = chain(planner="naive").plan
    monkeypatch.setattr(judging, "OUTSIDE_FROM", 0)
    assert not judging.judge_politely(replace(plan, offset=plan.offset * 0), None, None).verified.ok
