"""What the judge says of a plan, as one value. Asked in the server or, of a large plan, by a worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tmmu_core.graph.model import Graph
from tmmu_core.judge.finding import Verdict
from tmmu_core.judge.lint import lint_verdict
from tmmu_core.judge.verifier import verify_plan
from tmmu_core.plan.model import Plan


@dataclass(frozen=True)
class Judgement:
    """What the verifier and the lint say."""

    verified: Verdict
    lint: Verdict


def judge(plan: Plan, graph: Graph | None, dims: Mapping[str, int] | None, cut_from: bytes | None = None) -> Judgement:
    """Judge now. ``cut_from`` is the ir_hash of the whole graph where ``graph`` is a rank's share of it."""
    return Judgement(
        verify_plan(plan, graph, dims=dims, cut_from=cut_from), lint_verdict(plan, graph, dims=dims, cut_from=cut_from)
    )
