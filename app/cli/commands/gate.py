"""``tmmu gate``: check a plan against limits in continuous integration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from app.cli.commands.checks import AgainstGraph, resolve_with_graph
from app.cli.console import FINDING, SUCCESS, UsageError, print_lines, table, write_json, write_output
from app.cli.options import AsJson, Source, option
from app.cli.plan_text import print_line_changes
from app.cli.resolve import FIRST_FINDINGS, Resolved, print_findings, resolve_either, show_warnings, warnings_of, whole
from app.cli.stores import PREFIX, StoreUrl, open_store, resolve_side
from app.report.pull_request import Change, Check, another_model, markdown
from app.texts import certificate_text, numbers
from tmmu_core.base import strict
from tmmu_core.base.escaping import for_annotation
from tmmu_core.formats.planfile.plan_file import to_json
from tmmu_core.library.arguments import growths_of, limit_of
from tmmu_core.plans.analysis import gate as core
from tmmu_core.plans.analysis.peak_lines import changes_at_peak
from tmmu_core.plans.figures.metrics import totals
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.model import CLAIMED, ArenaSummary, Plan

ALL = "all arenas"
CHECKED = {
    "graph": "rows and graph",
    "rows": "rows, not the graph (--graph MODEL)",
    "totals": "totals only: a digest has no rows",
    "planned": "planned by this command",
}
"""What a plan was checked against → its text."""


@dataclass(frozen=True)
class GateOptions:
    """The limits, the baseline and the outputs."""

    max_extent: list[str] | None = option(
        "Maximum size of all arenas together, or of one. Repeatable.", "[ARENA=]BYTES"
    )
    max_gap: list[str] | None = option("Maximum arena size above the lower bound. Repeatable.", "[ARENA=]PERCENT")
    max_peak: list[str] | None = option("Maximum live bytes at one step. Repeatable.", "[ARENA=]BYTES")
    min_reuse: list[str] | None = option("Minimum reuse ratio. Repeatable.", "[ARENA=]PERCENT")
    max_reuse_cost: list[str] | None = option("Maximum reuse cost. Repeatable.", "[ARENA=]COST")
    baseline: str | None = option(
        "Plan, trace, graph or stored run whose arenas must not be exceeded.", "FILE|store:MODEL@COMMIT|store:BRANCH"
    )
    max_growth: str | None = option(
        "Allowed growth of peak, size and lower bound of each arena over the baseline [0].", "BYTES|PERCENT%"
    )
    max_peak_growth: str | None = option("Allowed growth of the peak only [--max-growth].", "BYTES|PERCENT%")
    max_extent_growth: str | None = option("Allowed growth of the arena size only [--max-growth].", "BYTES|PERCENT%")
    allow_incomplete: bool = option("Accept a plan that does not cover its whole graph.", default=False)
    out: str | None = option(
        "Write summary.md, report.html and the plans to this folder, for a pull request.", "FOLDER"
    )
    explorer: str | None = option("URL of an explorer with the same store, for a link in the summary.", "URL")

    @property
    def growth(self) -> dict[str, str | None]:
        """The growth options with their texts."""
        return {
            "--max-growth": self.max_growth,
            "--max-peak-growth": self.max_peak_growth,
            "--max-extent-growth": self.max_extent_growth,
        }

    @property
    def amounts(self) -> dict[str, tuple[core.Measure, list[str] | None]]:
        """Option → its measure and its texts, for the options that limit one figure."""
        return {
            "--max-extent": ("extent", self.max_extent),
            "--max-peak": ("peak live bytes", self.max_peak),
            "--max-gap": ("gap", self.max_gap),
            "--min-reuse": ("reuse", self.min_reuse),
            "--max-reuse-cost": ("reuse cost", self.max_reuse_cost),
        }

    def refuse_missing(self, graph: str | None) -> None:
        """Raise :class:`UsageError` if there is nothing to check, or a growth limit without a baseline."""
        for name, text in self.growth.items():
            if text is not None and self.baseline is None:
                raise UsageError(f"{name} requires --baseline.", "Set the plan to compare against.")
        if not (graph or self.baseline or any(texts for _, texts in self.amounts.values())):
            hint = f"Set {', '.join(self.amounts)} or --baseline, or verify with --graph."
            raise UsageError("no limit is given.", hint)


def gate_command(
    plan: Source,
    request: PlanRequest,
    limits: GateOptions,
    graph: AgainstGraph = None,
    store: StoreUrl = None,
    json: AsJson = False,
) -> int:
    """Fail if a plan exceeds limits (for CI).

    At least one limit or --graph is required. Finished plans are verified first, with --graph also against their graph;
    an invalid plan fails. Gaps use the recomputed lower bound, not one that a file claims. --baseline store:BRANCH is
    the latest run on that branch that plans this graph, with the same planner if there is one.

    Exit code: 0 passed, 1 failed.
    """
    limits.refuse_missing(graph)
    judged = resolve_either(plan, request) if graph is None else resolve_with_graph(plan, graph, request)[0]
    if graph is not None:
        whole(judged)
    before = None if limits.baseline is None else resolve_side(limits.baseline, request, store, judged.plan)
    checks = _checks(limits, judged, before)
    if before is not None and not judged.ignored:  # the options apply to the candidate
        before = replace(before, ignored=())
    if limits.out is not None:
        write_out(Path(limits.out), judged, before, checks, _link(limits.explorer, store, judged.plan, before))
    if json:
        write_json(_json_record(judged, before, checks))
    else:
        _print_gate(judged, before, checks)
    return SUCCESS if all(check.ok for check in checks) else FINDING


def _checks(limits: GateOptions, judged: Resolved, before: Resolved | None) -> list[Check]:
    """Return validity and completeness; if both hold, also the limits (figures of an invalid plan are meaningless)."""
    found = judged.plan
    checks = [check for side in (judged, before) if side is not None for check in _validity(side)]
    if found.incomplete and not limits.allow_incomplete:
        checks.append(Check("completeness", ", ".join(found.incomplete), "incomplete", "complete", False))
    if not all(check.ok for check in checks):
        return checks
    amounts = [amount for name, (what, texts) in limits.amounts.items() for amount in _limits(name, what, found, texts)]
    amounts += [] if before is None else growths_of(limits.growth)
    return [*checks, *map(check_row, core.gate(found, amounts, None if before is None else before.plan))]


def _json_record(after: Resolved, before: Resolved | None, checks: Sequence[Check]) -> dict[str, Any]:
    found = after.plan
    invalid = [side for side in (after, before) if side is not None and side.findings]
    return {
        "ok": all(check.ok for check in checks),
        "valid": not invalid,
        "tmmu_plan_hash": found.tmmu_plan_hash.hex(),
        "totals": totals(found).written(),
        "checked": _checked(after),
        "baseline_checked": None if before is None else _checked(before),
        "certificates": {arena.name: _certificate(arena) for arena in found.arenas},
        "incomplete": certificate_text.missing(found),
        "planner": found.planner,
        "baseline_planner": None if before is None else before.plan.planner,
        "baseline": None if before is None else before.name,
        "tensors_in_common": None if before is None else core.in_common(found, before.plan),
        "not_checked": dict(after.verdict.left_out) if after.verdict else {},
        "warnings": _warnings(after, before),
        "findings": [asdict(finding) for side in invalid for finding in side.findings[:FIRST_FINDINGS]],
        "checks": [asdict(check) for check in checks],
    }


def _print_gate(after: Resolved, before: Resolved | None, checks: Sequence[Check]) -> None:
    found = after.plan
    sides = [side for side in (after, before) if side is not None]
    invalid = [side for side in sides if side.findings]
    reason = numbers.count(sum(not check.ok for check in checks), "limit") + " exceeded"
    if invalid:
        reason = f"{invalid[0].name} is an invalid plan: {invalid[0].findings[0].message}"
    result = "passed" if all(check.ok for check in checks) else f"failed: {reason}"
    differ = "" if before is None else core.baseline_warning(found, before.plan)
    print_lines("; ".join(filter(None, (result, differ))))
    print_lines(*(f"checked {side.name}: {CHECKED[_checked(side)]}; planner {side.plan.planner}" for side in sides))
    print_lines(*(f"{a.name}: {certificate_text.claimed(found, a)}" for a in found.arenas if a.status == CLAIMED), "")
    table(
        ("limit on", "arena", ">value", ">limit", "verdict"),
        [[c.what, c.arena, c.value, c.limit, "ok" if c.ok else "EXCEEDED"] for c in checks],
    )
    for side in invalid:
        print_findings(side)
    grown = () if before is None else changes_at_peak(before.plan, found)
    if grown:
        print_line_changes(grown)
    if before is not None:
        unrelated = another_model(before.plan, found)
        print_lines(*(("", unrelated) if unrelated else ()))
    show_warnings(_warnings(after, before)[bool(differ) :])


# --- for a pull request ------------------------------------------------------------------------------------------


def _warnings(after: Resolved, before: Resolved | None) -> list[str]:
    differ = "" if before is None else core.baseline_warning(after.plan, before.plan)
    return [*filter(None, [differ]), *warnings_of(after, before)]


def error_commands(after: Resolved, before: Resolved | None, checks: Sequence[Check]) -> str:
    """Return an ``::error`` command of GitHub Actions for each exceeded limit, with the planners."""
    against = "" if before is None else f", baseline by {before.plan.planner}"
    lines = [
        f"::error file={for_annotation(after.name, is_property=True)},title="
        f"{for_annotation(f'tmmu gate: {check.what} of {check.arena}', is_property=True)}::"
        f"{for_annotation(f'{check.value}, limit {check.limit} (planned by {after.plan.planner}{against})')}\n"
        for check in checks
        if not check.ok
    ]
    return "".join(lines)


def write_out(folder: Path, after: Resolved, before: Resolved | None, checks: Sequence[Check], link: str) -> None:
    """Write ``summary.md``, ``report.html``, ``annotations.txt`` and the plans as ``….plan.json``."""
    from app.report.html_report import build_report

    old = None if before is None else whole(before)
    summary = markdown(Change(whole(after), old, checks, link, after.plan.ir_name, _warnings(after, before)))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out: cannot create {folder}: {(error.strerror or str(error)).lower()}.") from error
    write_output(str(folder / "summary.md"), summary.encode("utf-8", "replace"), "the summary")
    write_output(str(folder / "annotations.txt"), error_commands(after, before, checks).encode(), "the annotations")
    write_output(str(folder / "candidate.plan.json"), to_json(after.plan), "the plan")
    if old is not None:
        write_output(str(folder / "baseline.plan.json"), to_json(old), "the baseline")
    report = build_report(after.solution or after.plan, baseline=old)
    write_output(str(folder / "report.html"), report, "the report")


def _link(explorer: str | None, url: str | None, after: Plan, before: Resolved | None) -> str:
    """Return the URL of the comparison in an explorer, or "" if its store does not contain both plans."""
    if explorer is None:
        return ""
    if urlsplit(explorer).scheme not in ("http", "https"):
        raise UsageError(f"--explorer: {explorer!r} is not a web address.", "Example: https://HOST/PATH.")
    store = open_store(url)
    sides = [after] if before is None else [after, before.plan]
    contents = [store.content_of(side) for side in sides]
    store.close()
    if not all(contents):
        return ""
    query = {name: f"{PREFIX}{content.hex()}" for name, content in zip(("graph", "baseline"), contents, strict=False)}
    page = "compare" if before is not None else "plan"
    return f"{explorer.rstrip('/')}/{page}?{urlencode(query)}"


# --- limits ------------------------------------------------------------------------------------------------------


def _validity(side: Resolved) -> Iterator[Check]:
    """Yield the check that a finished plan is valid."""
    if side.verdict is not None:
        errors = len(side.findings)
        yield Check(f"findings ({side.verdict.examined})", side.name, numbers.count(errors), "0", not errors)


def _checked(side: Resolved) -> str:
    """Return what a plan was checked against, a key of :data:`CHECKED`."""
    return "planned" if side.verdict is None else side.verdict.examined


def _certificate(arena: ArenaSummary) -> dict[str, Any]:
    claimed = arena.least_bytes_claimed if arena.status == CLAIMED else None
    return {"status": arena.status, "lower_bound_bytes": arena.bound_bytes, "claimed_bytes": claimed}


def _limits(option: str, what: core.Measure, plan: Plan, given: list[str] | None) -> Iterator[core.Limit]:
    """Parse the limits of one option, ``[ARENA=]AMOUNT`` each."""
    for text in given or ():
        arena, separator, value = text.rpartition("=")
        if separator and arena not in plan.arena_of:
            raise UsageError(f"the plan has no arena {arena!r}.", strict.closest_hint(arena, plan.arena_of))
        yield limit_of(option, what, value, arena if separator else core.ALL)


def check_row(check: core.Check) -> Check:
    """Return a check with its figures as texts."""
    texts: dict[str, Callable[[], tuple[str, str]]] = {
        "reuse cost": lambda: (numbers.count(check.value), numbers.count(int(check.limit))),
        "gap": lambda: (numbers.gap(check.value + check.of, check.of), _percentage(check.limit)),
        "reuse": lambda: (numbers.percent(check.value, check.of), _percentage(check.limit)),
    }
    if check.what in core.GROWTH:
        texts[check.what] = lambda: (numbers.delta_bytes(check.value), numbers.delta_bytes(int(check.limit)))
    plain = (numbers.full_bytes(check.value), numbers.full_bytes(int(check.limit)))
    value, limit = texts[check.what]() if check.what in texts else plain
    return Check(check.what, check.arena or ALL, value, limit, check.ok)


def _percentage(ratio: Fraction) -> str:
    return f"{float(ratio * 100):.10g} %"
