"""``tmmu verify``: check a plan with rules that share no code with the planners."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from app.cli.findings import AgainstGraph, report_findings, resolve_with_graph
from app.cli.options import AsJson, Source, planning, whole
from app.texts import numbers
from tmmu_core.plans.making.request import PlanRequest


@planning
def command(plan: Source, request: PlanRequest, graph: AgainstGraph = None, json: AsJson = False) -> int:
    """Check that a plan is valid.

    Rules cover overlaps, alignment, bounds, capacity, slots and hashes. A graph is planned first. Use --graph to check
    the live ranges of a finished plan against its graph, with --shard if the plan is of one rank.

    Exit code: 0 valid, 1 invalid.
    """
    from tmmu_core.judge.verifier.verify import verify_plan

    found, against = resolve_with_graph(plan, graph, request)
    how: dict[str, Any] = {"dims": request.dims or None, "arenas": request.arenas, "cut_from": found.cut_from}
    verdict = (against and found.verdict) or verify_plan(whole(found), against, **how)
    checked = numbers.count(len(verdict.checked), "rule")
    headlines = [f"{str(verdict).rstrip('.')}; {checked} checked: {', '.join(verdict.checked)}"]
    if verdict.left_out:
        headlines.append("not checked: " + "; ".join(f"{rule} ({why})" for rule, why in verdict.left_out))
    headlines += [
        f"{each.arena}: the file claims a lower bound of {numbers.full_bytes(each.claimed_bytes)}; recomputed: "
        f"{numbers.full_bytes(each.lower_bound_bytes)}"
        for each in verdict.certificates
        if found.verdict is not None and each.claimed_bytes is not None
    ]
    record = {
        "checked": list(verdict.checked),
        "not_checked": dict(verdict.left_out),
        "examined": verdict.examined,
        "warnings": found.warnings,
        "certificates": [asdict(each) for each in verdict.certificates],
    }
    return report_findings(verdict.findings, headlines, json, **record)
