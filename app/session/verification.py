"""Verification and lint of a plan as one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tmmu_core.graph.model import Graph
from tmmu_core.judge.finding import Verdict
from tmmu_core.judge.lint import lint_verdict
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans.model import Plan


@dataclass(frozen=True)
class Judgement:
    """Results of verifier and lint."""

    verified: Verdict
    lint: Verdict


def judge(plan: Plan, graph: Graph | None, dims: Mapping[str, int] | None, cut_from: bytes | None = None) -> Judgement:
    """Verify and lint a plan; ``cut_from`` is the hash of the whole graph if ``graph`` is a rank's share."""
    return Judgement(
        verify_plan(plan, graph, dims=dims, cut_from=cut_from), lint_verdict(plan, graph, dims=dims, cut_from=cut_from)
    )
