from __future__ import annotations

from dataclasses import replace

import pytest

from app.session import planning
from app.session.verification import judge
from app.session.view_state import Choice
from tests.app.small import chain


@pytest.mark.parametrize("sample", ["views", "A"])
def test_verdict_is_the_same_in_server_and_worker(sample: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = planning.make_plan(Choice(source=f"sample:{sample}"))
    monkeypatch.setattr(planning, "JUDGED_HERE_UP_TO", 0)
    job = planning.judgement(shown)
    assert job.wait(60)
    inside = judge(shown.plan, shown.graph, None)
    assert job.answer() == inside
    assert inside.verified.ok


def test_worker_finds_a_moved_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = chain(planner="naive").plan
    shown = planning.make_plan(Choice(source="sample:views"))
    moved = replace(shown, plan=replace(plan, offset=plan.offset * 0), solution=None)
    monkeypatch.setattr(planning, "JUDGED_HERE_UP_TO", 0)
    job = planning.judgement(moved)
    assert job.wait(60)
    assert not job.answer().verified.ok
