from __future__ import annotations

import pytest

from app.session import planning
from app.session.verification import judge
from app.session.view_state import Choice


@pytest.mark.parametrize("sample", ["views", "A"])
def test_verdict_is_the_same_in_server_and_worker(sample: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = planning.make_plan(Choice(source=f"sample:{sample}"))
    monkeypatch.setattr(planning, "JUDGED_HERE_UP_TO", 0)
    job = planning.judgement(shown)
    assert job.wait(60)
    inside = judge(shown.plan, shown.graph, None)
    assert job.answer() == inside
    assert inside.verified.ok
