"""``tmmu gate``: limits on a plan, for continuous integration. Red is exit code 1."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Annotated

import typer

from app.cli.console import FINDING, FINE, Column, UsageFault, say, say_json, table
from app.cli.options import (
    FIRST_FINDINGS,
    AsJson,
    Resolved,
    Source,
    planning,
    read_bytes_option,
    resolve_either,
    say_invalid,
)
from app.cli.stores import StoreUrl, resolve_side
from app.say import words
from tmmu_core.plan.making.request import PlanRequest
from tmmu_core.plan.metrics import totals
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
        checks += [
            *_extents(found, max_extent or ()),
            *_peaks(found, max_peak or ()),
            *_gaps(found, max_gap or ()),
            *_reuse(found, min_reuse or ()),
        ]
        if before is not None:
            checks += _growth(before.plan, found, max_growth or "0")
    invalid = [side for side in (judged, before) if side is not None and side.findings]
    green = all(check.ok for check in checks)
    if json:
        findings = [asdict(finding) for side in invalid for finding in side.findings[:FIRST_FINDINGS]]
        record = {"ok": green, "valid": not invalid, "tmmu_plan_hash": found.tmmu_plan_hash.hex()}
        record["totals"] = asdict(totals(found))
        record["baseline"] = None if before is None else before.name
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
    return FINE if green else FINDING


def _validity(side: Resolved) -> Iterator[Check]:
    """A finished plan is valid, or the gate is red whatever its figures say."""
    if side.verdict is not None:
        errors = len(side.findings)
        yield Check("findings of the judge", side.name, words.count(errors), "0", not errors)


def _extents(plan: Plan, limits: list[str] | tuple[()]) -> Iterator[Check]:
    for arena, text in _split(plan, limits):
        limit = read_bytes_option("--max-extent", text)
        value = sum(a.extent_bytes for a in plan.arenas if arena in (ALL, a.name))
        yield Check("extent", arena, words.full_bytes(value), words.full_bytes(limit), value <= limit)


def _peaks(plan: Plan, limits: list[str] | tuple[()]) -> Iterator[Check]:
    for arena, text in _split(plan, limits):
        limit = read_bytes_option("--max-peak", text)
        value = totals(plan).peak_live_bytes if arena == ALL else plan.arena_of[arena].peak_live_bytes
        yield Check("peak live bytes", arena, words.full_bytes(value), words.full_bytes(limit), value <= limit)


def _gaps(plan: Plan, limits: list[str] | tuple[()]) -> Iterator[Check]:
    for arena, text in _split(plan, limits):
        limit = _percent("--max-gap", text)
        chosen = [a for a in plan.arenas if arena in (ALL, a.name)]
        extent, bound = sum(a.extent_bytes for a in chosen), sum(a.bound_bytes for a in chosen)
        # extent / bound − 1 ≤ limit, in whole numbers
        ok = extent - bound <= limit * bound
        yield Check("gap", arena, words.gap(extent, bound), f"{text.rstrip('% ')} %", ok)


def _reuse(plan: Plan, limits: list[str] | tuple[()]) -> Iterator[Check]:
    for arena, text in _split(plan, limits):
        limit = _percent("--min-reuse", text)
        chosen = [a for a in plan.arenas if arena in (ALL, a.name)]
        slots, storages = sum(a.slots for a in chosen), sum(a.storages for a in chosen)
        ok = storages - slots >= limit * storages
        yield Check("reuse", arena, words.percent(storages - slots, storages), f"{text.rstrip('% ')} %", ok)


def _growth(before: Plan, after: Plan, text: str) -> Iterator[Check]:
    relative = text.strip().endswith("%")
    allowed = _percent("--max-growth", text) if relative else Fraction(read_bytes_option("--max-growth", text))
    for name in sorted({**before.arena_of, **after.arena_of}):
        old, new = (side.arena_of[name].extent_bytes if name in side.arena_of else 0 for side in (before, after))
        limit = old + (allowed * old if relative else allowed)
        yield Check("growth", name, words.delta_bytes(new - old), words.delta_bytes(int(limit) - old), new <= limit)


def _split(plan: Plan, limits: list[str] | tuple[()]) -> Iterator[tuple[str, str]]:
    for text in limits:
        arena, separator, value = text.rpartition("=")
        if separator and arena not in plan.arena_of:
            raise UsageFault(f"the plan has no arena {arena!r}.", f"Its arenas are: {', '.join(plan.arena_of)}.")
        yield (arena, value) if separator else (ALL, value)


def _percent(option: str, text: str) -> Fraction:
    try:
        value = Fraction(text.strip().removesuffix("%").strip()) / 100
    except (ValueError, ZeroDivisionError):
        raise UsageFault(f"{option}: {text!r} is not a percentage.", "Write a number, with or without %.") from None
    if value < 0:
        raise UsageFault(f"{option}: {text!r} is negative.", "Give a percentage of 0 or more.")
    return value
