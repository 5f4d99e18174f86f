"""``tmmu gate``: limits on a plan, for continuous integration. Red is exit code 1."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode, urlsplit

import typer

from app.cli.console import FINDING, FINE, Column, UsageFault, say, say_json, table, write_output
from app.cli.options import (
    FIRST_FINDINGS,
    AsJson,
    Resolved,
    Source,
    planning,
    read_bytes_option,
    resolve_either,
    say_invalid,
    whole,
)
from app.cli.stores import PREFIX, StoreUrl, open_store, resolve_side
from app.say import words
from tmmu_core.graph.quantities import parse_percent
from tmmu_core.plan.analysis import gate as core
from tmmu_core.plan.figures.metrics import totals
from tmmu_core.plan.formats.files import to_json
from tmmu_core.plan.making.request import PlanRequest
from tmmu_core.plan.model import Plan

ALL = "all arenas"

MaxExtent = Annotated[
    list[str] | None,
    typer.Option(metavar="[ARENA=]BYTES", help="The most bytes, over all arenas or in one; repeatable."),
]
MaxGap = Annotated[
    list[str] | None,
    typer.Option(metavar="[ARENA=]PERCENT", help="The most that an extent may be over its lower bound; repeatable."),
]
MaxPeak = Annotated[
    list[str] | None, typer.Option(metavar="[ARENA=]BYTES", help="The most bytes alive together; repeatable.")
]
MinReuse = Annotated[
    list[str] | None, typer.Option(metavar="[ARENA=]PERCENT", help="The least reuse ratio; repeatable.")
]
Against = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|store:MODEL@COMMIT|store:BRANCH",
        help="A plan, trace or graph, or a run of the store; the arenas may not outgrow its arenas.",
    ),
]
MaxGrowth = Annotated[
    str | None,
    typer.Option(metavar="BYTES|PERCENT%", help="How much each arena may grow over the baseline [0]."),
]


OutFolder = Annotated[
    str | None,
    typer.Option(
        "--out",
        metavar="FOLDER",
        help="Write what a pull request shows there: summary.md, report.html and the plans.",
    ),
]
Explorer = Annotated[
    str | None,
    typer.Option("--explorer", metavar="URL", help="The team's explorer with the same store: the summary links to it."),
]


@dataclass(frozen=True)
class Check:
    """One limit and how the plan stands to it; ``ok`` is the verdict, the texts are for people."""

    what: str
    arena: str
    value: str
    limit: str
    ok: bool


@planning
def command(
    plan: Source,
    request: PlanRequest,
    max_extent: MaxExtent = None,
    max_gap: MaxGap = None,
    max_peak: MaxPeak = None,
    min_reuse: MinReuse = None,
    baseline: Against = None,
    max_growth: MaxGrowth = None,
    store: StoreUrl = None,
    out: OutFolder = None,
    explorer: Explorer = None,
    json: AsJson = False,
) -> int:
    """Hold a plan (or a graph's plan) to limits. Exit code: 0 green, 1 red. Without any limit there is no gate.

    A finished plan is verified first, and so is the baseline: an invalid one is red. A baseline store:main is the
    latest run on that branch of the model whose runs plan this graph, with the same planner where there is one.
    """
    if max_growth is not None and baseline is None:
        raise UsageFault("--max-growth needs a --baseline.", "Name the plan to grow from.")
    if not any((max_extent, max_gap, max_peak, min_reuse, baseline)):
        raise UsageFault(
            "a gate without a limit can never be red.",
            "Give --max-extent, --max-gap, --max-peak, --min-reuse or --baseline.",
        )
    judged = resolve_either(plan, request)
    before = None if baseline is None else resolve_side(baseline, request, store, judged.plan)
    found = judged.plan
    checks = [check for side in (judged, before) if side is not None for check in _validity(side)]
    if all(check.ok for check in checks):  # figures of an invalid plan are nobody's
        limits = [
            *_limits("--max-extent", "extent", found, max_extent),
            *_limits("--max-peak", "peak live bytes", found, max_peak),
            *_limits("--max-gap", "gap", found, max_gap),
            *_limits("--min-reuse", "reuse", found, min_reuse),
            *([] if before is None else [_growth(max_growth or "0")]),
        ]
        checks += map(in_words, core.gate(found, limits, None if before is None else before.plan))
    invalid = [side for side in (judged, before) if side is not None and side.findings]
    green = all(check.ok for check in checks)
    if out is not None:
        write_out(Path(out), judged, before, checks, _link(explorer, store, judged.plan, before))
    if json:
        findings = [asdict(finding) for side in invalid for finding in side.findings[:FIRST_FINDINGS]]
        record = {"ok": green, "valid": not invalid, "tmmu_plan_hash": found.tmmu_plan_hash.hex()}
        record["totals"] = asdict(totals(found))
        record["baseline"] = None if before is None else before.name
        record["tensors_in_common"] = None if before is None else core.in_common(found, before.plan)
        say_json({**record, "findings": findings, "checks": [asdict(c) for c in checks]})
    else:
        exceeded = words.count(sum(not c.ok for c in checks), "limit") + " exceeded"
        why = f"{invalid[0].name} is an invalid plan: {invalid[0].findings[0].message}" if invalid else exceeded
        say("green" if green else f"red: {why}", "")
        table(
            (Column("limit on"), Column("arena"), Column("value", True), Column("limit", True), Column("verdict")),
            [[c.what, c.arena, c.value, c.limit, "ok" if c.ok else "EXCEEDED"] for c in checks],
        )
        for side in invalid:
            say_invalid(side)
        if before is not None:
            from app.report.change import another_model

            stranger = another_model(before.plan, found)
            say(*(("", stranger) if stranger else ()))
    return FINE if green else FINDING


# --- for a pull request ------------------------------------------------------------------------------------------


def write_out(folder: Path, after: Resolved, before: Resolved | None, checks: Sequence[Check], link: str) -> None:
    """``summary.md``, ``report.html``, ``candidate.plan.json`` and, where there is one, ``baseline.plan.json``."""
    from app.report import change
    from app.report.build import build_report

    rows = [change.Check(**vars(check)) for check in checks]
    old = None if before is None else whole(before)
    summary = change.markdown(change.Change(whole(after), old, rows, link, after.plan.ir_name))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageFault(f"--out: {folder} cannot be made: {(error.strerror or str(error)).lower()}.") from error
    write_output(str(folder / "summary.md"), summary.encode("utf-8", "replace"), "the summary")
    write_output(str(folder / "candidate.plan.json"), to_json(after.plan), "the plan")
    if old is not None:
        write_output(str(folder / "baseline.plan.json"), to_json(old), "the baseline")
    report = build_report(after.solution or after.plan, baseline=old)
    write_output(str(folder / "report.html"), report, "the report")


def _link(explorer: str | None, url: str | None, after: Plan, before: Resolved | None) -> str:
    """The address of the comparison in a team's explorer; ``""`` where that does not hold both plans."""
    if explorer is None:
        return ""
    if urlsplit(explorer).scheme not in ("http", "https"):
        raise UsageFault(f"--explorer: {explorer!r} is no address of a page.", "Write https://HOST/PATH.")
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
    """A finished plan is valid, or the gate is red whatever its figures say."""
    if side.verdict is not None:
        errors = len(side.findings)
        yield Check("findings of the judge", side.name, words.count(errors), "0", not errors)


def _limits(option: str, what: core.Measure, plan: Plan, given: list[str] | None) -> Iterator[core.Limit]:
    """The limits that an option says, ``[ARENA=]AMOUNT`` each."""
    for text in given or ():
        arena, separator, value = text.rpartition("=")
        if separator and arena not in plan.arena_of:
            raise UsageFault(f"the plan has no arena {arena!r}.", f"Its arenas are: {', '.join(plan.arena_of)}.")
        amount = _percent(option, value) if what in ("gap", "reuse") else Fraction(read_bytes_option(option, value))
        yield core.Limit(what, amount, arena if separator else core.ALL)


def _growth(text: str) -> core.Limit:
    relative = text.strip().endswith("%")
    amount = _percent("--max-growth", text) if relative else Fraction(read_bytes_option("--max-growth", text))
    return core.Limit("growth", amount, relative=relative)


def in_words(check: core.Check) -> Check:
    """A check with its figures as texts."""
    said: dict[str, Callable[[], tuple[str, str]]] = {
        "gap": lambda: (words.gap(check.value + check.of, check.of), _percentage(check.limit)),
        "reuse": lambda: (words.percent(check.value, check.of), _percentage(check.limit)),
        "growth": lambda: (words.delta_bytes(check.value), words.delta_bytes(int(check.limit))),
    }
    plain = (words.full_bytes(check.value), words.full_bytes(int(check.limit)))
    value, limit = said[check.what]() if check.what in said else plain
    return Check(check.what, check.arena or ALL, value, limit, check.ok)


def _percentage(ratio: Fraction) -> str:
    return f"{float(ratio * 100):.10g} %"


def _percent(option: str, text: str) -> Fraction:
    try:
        return parse_percent(text)
    except ValueError as error:
        raise UsageFault(f"{option}: {error}") from None
