"""``tmmu gate``: check a plan against limits in continuous integration. ``tmmu report``: write a report of a plan."""

import os
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from app.cli import console, resolve
from app.cli.commands.plan import print_line_changes
from app.cli.commands.specification import resolve_with_graph
from app.cli.console import FINDING, SUCCESS, UsageError, print_lines, table, write_json, write_output
from app.cli.options import AS_JSON, GRAPH, OUTPUT, REQUIRED, SOURCE, STORE, flag, option, usage_errors
from app.cli.resolve import Resolved
from app.report.summary import CheckRow, different_models_warning, gate_markdown, markdown
from app.texts import numbers, totals_text
from tmmu_core.base import strict
from tmmu_core.base.atomic_files import write_error
from tmmu_core.base.escaping import for_annotation
from tmmu_core.formats.planfile.plan_file import to_json
from tmmu_core.judge.verifier.finished_plan import with_bounds_of_rows
from tmmu_core.library.arguments import LIMITS, limits_of
from tmmu_core.plans.analysis import gate as plan_gate
from tmmu_core.plans.analysis.plan_notes import unplanned_parts
from tmmu_core.plans.figures.metrics import changes_at_peak, totals
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.model import CLAIMED, Plan
from tmmu_core.store.runs import PREFIX

SCOPES = {
    "graph": "rows and graph",
    "rows": "rows only",
    "totals": "totals only, because a digest has no rows",
    "planned": "planned by this command",
}
"""Verified part of a plan (``Verdict.examined``, or ``planned`` for a new plan) → description."""


@dataclass(frozen=True)
class LimitOptions:
    """Options that decide whether a plan passes, as in ``GateOptions`` of the library."""

    max_extent: list[str] | None = option("Maximum sum of arena sizes, or of one arena. Repeatable.", "[ARENA=]BYTES")
    max_gap: list[str] | None = option("Maximum gap, in percent of the lower bound. Repeatable.", "[ARENA=]PERCENT")
    max_peak: list[str] | None = option("Maximum live bytes at one step. Repeatable.", "[ARENA=]BYTES")
    min_reuse: list[str] | None = option("Minimum buffer reuse, 1 − slots ÷ buffers. Repeatable.", "[ARENA=]PERCENT")
    max_reuse_cost: list[str] | None = option("Maximum reuse cost. Repeatable.", "[ARENA=]COST")
    baseline: str | None = option(
        "Plan, trace, graph or stored run from which growth is measured.", "FILE|store:MODEL@COMMIT|store:BRANCH"
    )
    max_growth: str | None = option("Allowed growth of each peak, size and bound [0].", "BYTES|PERCENT%")
    max_peak_growth: str | None = option("Allowed growth of each peak [--max-growth].", "BYTES|PERCENT%")
    max_extent_growth: str | None = option("Allowed growth of each arena size [--max-growth].", "BYTES|PERCENT%")
    allow_incomplete: bool = flag("--allow-incomplete", "Accept a plan that does not cover its whole graph.")


def gate_command(
    request: PlanRequest,
    options: LimitOptions,
    out: str | None = option("Write summary, annotations, report and plans to this folder, for CI.", "FOLDER"),
    explorer: str | None = option("URL of an explorer with the same store, for a link in summary.md.", "URL"),
    plan: str = SOURCE,
    graph: str | None = GRAPH,
    store: str | None = STORE,
    json: bool = AS_JSON,
) -> int:
    """Fail if a plan exceeds limits (for CI).

    At least one limit, --baseline or --graph is required. A plan file is verified first; --graph verifies it against
    its graph too. An invalid plan fails. Gaps are relative to the recomputed lower bound, not to a claimed bound.
    --baseline store:BRANCH uses the model with the plan's graph name: its latest run on the branch, if possible with
    the same planner, mode and preset. Without --max-growth, --max-peak-growth also limits bounds.

    Exit code: 0 passed, 1 failed.
    """
    with usage_errors():
        limits = limits_of(vars(options), _option_of)
    if explorer is not None and out is None:
        raise UsageError("--explorer has no effect without --out.", "Set --out FOLDER: its summary.md has the link.")
    if not (graph or limits):
        raise UsageError("no limit is given.", f"Set {', '.join(map(_option_of, LIMITS))}, --baseline or --graph.")
    if graph is None:
        after = resolve.resolve_ignoring_options(plan, request)
    else:
        after = resolve_with_graph(plan, graph, request)[0]
        after.complete_plan()
    before = None if options.baseline is None else resolve.resolve_side(options.baseline, request, store, after.plan)
    checks = _checks(limits, after, before, options.allow_incomplete)
    if before is not None and not after.ignored:  # the candidate uses the options, so do not warn about them
        before = replace(before, ignored=())
    if out is not None:
        _write_out(Path(out), after, before, checks, _link(explorer, store, after.plan, before))
    if json:
        write_json(_json_record(after, before, checks))
    else:
        _print_gate(after, before, checks)
    return SUCCESS if all(check.ok for check in checks) else FINDING


def _option_of(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _checks(
    limits: list[plan_gate.Limit], after: Resolved, before: Resolved | None, allow_incomplete: bool
) -> list[CheckRow]:
    """Return the checks of the verdicts and of completeness. If all of these pass, add the checks of the limits."""
    plan = after.plan
    checks: list[CheckRow] = []
    for side in (after, before):
        if side is not None and side.verdict is not None:
            what, errors = f"findings ({side.verdict.examined})", numbers.count(len(side.findings))
            checks.append(CheckRow(what, side.name, errors, "0", not side.findings))
    if plan.incomplete and not allow_incomplete:
        checks.append(CheckRow("completeness", ", ".join(plan.incomplete), "incomplete", "complete", False))
    if not all(check.ok for check in checks):
        return checks
    if before is None:
        return [*checks, *map(check_row, plan_gate.gate(plan, limits))]
    # Without a graph, the bounds of a plan file come from its rows. Then compute the other plan's bounds from rows too.
    with_bounds = with_bounds_of_rows if "rows" in map(_scope, (after, before)) else None
    return [*checks, *map(check_row, plan_gate.gate(plan, limits, before.plan, with_bounds))]


def _scope(side: Resolved) -> str:
    return "planned" if side.verdict is None else side.verdict.examined


def _json_record(after: Resolved, before: Resolved | None, checks: Sequence[CheckRow]) -> dict[str, Any]:
    plan = after.plan
    invalid = [side for side in (after, before) if side is not None and side.findings]
    return {
        "ok": all(check.ok for check in checks),
        "valid": not invalid,
        "tmmu_plan_hash": plan.tmmu_plan_hash.hex(),
        "totals": totals(plan).as_dict(),
        "checked": _scope(after),
        "baseline_checked": before and _scope(before),
        "certificates": {
            arena.name: {"status": arena.status, "lower_bound_bytes": arena.bound_bytes}
            | {"claimed_bytes": arena.stated_bound_bytes if arena.status == CLAIMED else None}
            for arena in plan.arenas
        },
        "incomplete": unplanned_parts(plan),
        "planner": plan.planner,
        "baseline_planner": before and before.plan.planner,
        "baseline": before and before.name,
        "tensors_in_common": before and len(plan.row_of.keys() & before.plan.row_of.keys()),
        "not_checked": dict(after.verdict.not_checked) if after.verdict else {},
        "warnings": _warnings(after, before),
        "findings": [finding for side in invalid for finding in side.findings[: resolve.MAX_FINDINGS]],
        "checks": checks,
    }


def _print_gate(after: Resolved, before: Resolved | None, checks: Sequence[CheckRow]) -> None:
    sides = [side for side in (after, before) if side is not None]
    invalid = [side for side in sides if side.findings]
    reason = f"{sum(not check.ok for check in checks)} of {numbers.count(len(checks), 'check')}"
    if invalid:
        reason = f"{invalid[0].name} is an invalid plan: {invalid[0].findings[0].message}"
    result = "passed" if all(check.ok for check in checks) else f"failed: {reason}"
    baseline_warning = plan_gate.baseline_warning(after.plan, before.plan) if before else ""
    print_lines("; ".join(filter(None, (result, baseline_warning))))
    hint = ("", " (add --graph MODEL to verify against the graph)" * (_scope(after) == "rows"))
    print_lines(*(f"checked {s.name}: {SCOPES[_scope(s)]}{hint[s is after]}; planner {s.plan.planner}" for s in sides))
    claimed = [arena for arena in after.plan.arenas if arena.status == CLAIMED]
    print_lines(*(f"{arena.name}: {totals_text.status_text(after.plan, arena)}" for arena in claimed), "")
    rows = [[c.what, c.arena, c.value, c.limit, "ok" if c.ok else "FAILED"] for c in checks]
    table(("measure", "arena", ">value", ">limit", "verdict"), rows)
    for side in invalid:
        resolve.print_findings(side)
    if before is not None:
        if lines := changes_at_peak(before.plan, after.plan):
            print_line_changes(lines)
        if warning := different_models_warning(before.plan, after.plan):
            print_lines("", warning)
    resolve.show_warnings(resolve.warnings_of(after, before))


def _warnings(after: Resolved, before: Resolved | None) -> list[str]:
    baseline_warning = plan_gate.baseline_warning(after.plan, before.plan) if before else ""
    return [*filter(None, [baseline_warning]), *resolve.warnings_of(after, before)]


def _write_out(folder: Path, after: Resolved, before: Resolved | None, checks: Sequence[CheckRow], link: str) -> None:
    from app.report.html_report import build_report

    old = before.complete_plan() if before else None
    summary = gate_markdown(after.complete_plan(), old, checks, link=link, warnings=_warnings(after, before))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(folder, error) from error
    # Each line is a command of GitHub Actions that reports a failed check.
    file = for_annotation(after.name, is_property=True)
    planners = f"planned by {after.plan.planner}" + (f", baseline by {before.plan.planner}" if before else "")
    annotations = ""
    for check in checks:
        if not check.ok:
            title = for_annotation(f"tmmu gate: {check.what} of {check.arena}", is_property=True)
            message = for_annotation(f"{check.value}, limit {check.limit} ({planners})")
            annotations += f"::error file={file},title={title}::{message}\n"
    outputs = {
        "summary.md": (summary.encode("utf-8", "replace"), "the summary"),
        "annotations.txt": (annotations.encode(), "the annotations"),
        "candidate.plan.json": (to_json(after.plan), "the plan"),
        "report.html": (build_report(after.solution or after.plan, baseline=old), "the report"),
    }
    if old is not None:
        outputs["baseline.plan.json"] = (to_json(old), "the baseline")
    # A plan may replace its own input file, but not the input file of the other plan.
    for name, other in (("candidate.plan.json", before), ("baseline.plan.json", after)):
        if other is not None and os.path.realpath(folder / name) == os.path.realpath(other.name) and name in outputs:
            raise UsageError(f"--out: {folder / name} would replace the input {other.name}.", "Use another folder.")
    for name, (data, what) in outputs.items():
        write_output(str(folder / name), data, what)


def _link(explorer: str | None, store_url: str | None, after: Plan, before: Resolved | None) -> str:
    """Return the explorer URL of the plan or comparison; "" without ``explorer``, or if the store lacks a plan."""
    if explorer is None:
        return ""
    address = None
    with suppress(ValueError):  # urlsplit raises for a "[" without "]"
        address = urlsplit(explorer)
    if address is None or address.scheme not in ("http", "https") or not address.hostname:
        raise UsageError(f"--explorer: {explorer!r} is not a web address.", "Example: https://HOST/PATH.")
    with closing(resolve.open_store(store_url)) as store:
        contents = [store.content_of(side) for side in ([after, before.plan] if before else [after])]
    if not all(contents):
        return ""
    query = {name: f"{PREFIX}{content.hex()}" for name, content in zip(("graph", "baseline"), contents, strict=False)}
    return f"{explorer.rstrip('/')}/{'compare' if before else 'plan'}?{urlencode(query)}"


def check_row(check: plan_gate.Check) -> CheckRow:
    """Return a check with its figures as texts."""
    if check.what in ("gap", "reuse"):
        ratio = numbers.over_bound if check.what == "gap" else numbers.percent
        value, limit = ratio(check.value, check.denominator), f"{float(check.limit * 100):.10g} %"
    else:
        amount = numbers.delta_bytes if check.what in plan_gate.GROWTH else numbers.full_bytes
        amount = numbers.count if check.what == "reuse cost" else amount
        value, limit = amount(check.value), amount(int(check.limit))
    return CheckRow(check.what, check.arena or "all arenas", value, limit, check.ok)


def report_command(
    request: PlanRequest,
    plan: str = SOURCE,
    output: str = option("Write to this .html, .pdf or .md file; - prints HTML.", "FILE", *OUTPUT, default=REQUIRED),
    baseline: str | None = option("Plan, trace, graph or store:MODEL@COMMIT to compare against.", "FILE"),
    title: str = option("Title of the report [graph, mode and planner].", "TEXT", default=""),
    theme: str = option("Theme of the report.", "light|dark", default="light"),
    store: str | None = STORE,
    json: bool = AS_JSON,
) -> int:
    """Write a report of a plan (HTML, PDF or Markdown).

    The extension of the output file selects the format. An HTML report (.html, or no extension) works offline. A PDF
    report (.pdf) needs an installed Chrome, Chromium or Edge. A Markdown file (.md) is a short summary for a pull
    request, without the comparison to --baseline.

    Exit code: 0 valid plan, 1 invalid plan.
    """
    from app.report.html_report import build_report, pdf
    from app.report.pictures import THEMES
    from tmmu_core.judge.verifier.verify import verify_plan

    formats = {".html": "html", ".htm": "html", ".pdf": "pdf", ".md": "md"}
    format_ = "html" if not Path(output).suffix else console.format_by_ending(output, formats, "html")
    if theme not in THEMES:
        raise UsageError(f"unknown theme {theme!r}.", strict.closest_hint(theme, THEMES))
    resolved = resolve.resolve(plan, request)
    resolved_baseline = None if baseline is None else resolve.resolve_side(baseline, request, store, resolved.plan)
    resolve.show_warnings(resolve.warnings_of(resolved_baseline), on_stderr=True)
    baseline_plan = None if resolved_baseline is None else resolved_baseline.complete_plan()
    complete_plan = resolved.complete_plan()
    verified = verify_plan(complete_plan, resolved.graph, dims=request.dims, whole_hash=resolved.whole_hash)
    if format_ == "md":
        write_output(output, markdown(complete_plan, verified, title, resolved.better), "the summary")
    else:
        settings: dict[str, Any] = {"title": title, "theme": theme, "verified": verified}
        data = build_report(resolved.solution or complete_plan, baseline=baseline_plan, **settings)
        write_output(output, pdf(data) if format_ == "pdf" else data, "the report")
    if not verified.ok:
        console.print_note(f"{plan} is an invalid plan: {verified}")
        return FINDING
    return SUCCESS
