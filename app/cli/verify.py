"""``tmmu verify``: is a plan valid, says who did not make it."""

from __future__ import annotations

from typing import Any

from app.cli.judge import AgainstGraph, Replay, replay_findings, replay_record, replayed, resolve_with_graph, tell
from app.cli.options import AsJson, Source, planning, whole
from app.say import words
from tmmu_core.plan.making.request import PlanRequest


@planning
def command(
    plan: Source, request: PlanRequest, graph: AgainstGraph = None, replay: Replay = False, json: AsJson = False
) -> int:
    """Verify a plan: no overlap in time and bytes, alignment, bounds, capacity, slots = max live, hashes.

    A graph is planned first. With a finished plan, --graph gives the graph to check its live ranges against
    (and --shard its shard spec, where the plan is one rank's).
    Exit code: 0 nothing found, 1 a finding.
    """
    from tmmu_core.judge.verifier import verify_plan

    found, against = resolve_with_graph(plan, graph, request)
    how: dict[str, Any] = {"dims": request.dims or None, "arenas": request.arenas, "cut_from": found.cut_from}
    verdict = (against and found.verdict) or verify_plan(whole(found), against, **how)
    checked = words.count(len(verdict.checked), "rule")
    headlines = [f"{str(verdict).rstrip('.')}; {checked} checked: {', '.join(verdict.checked)}"]
    if verdict.left_out:
        headlines.append("not checked: " + "; ".join(f"{rule} ({why})" for rule, why in verdict.left_out))
    record = {"checked": list(verdict.checked), "not_checked": dict(verdict.left_out)}
    if not replay:
        return tell(verdict.findings, headlines, json, **record)
    run = replayed(found, against, request)
    findings = [*verdict.findings, *replay_findings(run)]
    return tell(findings, [*headlines, f"{run}"], json, **record, replay=replay_record(run))
