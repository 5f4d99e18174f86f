"""``tmmu compare``: two plans or traces, comparable or not, identical or where they part."""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from typing import Annotated, Any

import msgspec
import typer

from app.cli.console import FINDING, FINE, NOT_COMPARABLE, Column, say, say_json, table
from app.cli.options import FIRST_FINDINGS, AsJson, Resolved, planning, say_invalid
from app.cli.stores import StoreUrl, resolve_side, tells_its_model
from app.say import totals, words
from tmmu_core.plan.figures.metrics import totals as plan_totals
from tmmu_core.plan.formats.compare import KINDS, Comparison, Difference, TensorChange, compare
from tmmu_core.plan.making.request import PlanRequest
from tmmu_core.plan.model import ArenaSummary, Plan, TensorRow

Baseline = Annotated[
    str, typer.Argument(metavar="A", help="The baseline: a plan, trace, checkpoint, graph or store:MODEL@COMMIT.")
]
Candidate = Annotated[str, typer.Argument(metavar="B", help="The candidate: likewise.")]
Limit = Annotated[int, typer.Option(min=0, help="How many changed tensors to list.")]


@planning
def command(
    a: Baseline,
    b: Candidate,
    request: PlanRequest,
    limit: Limit = 20,
    store: StoreUrl = None,
    json: AsJson = False,
) -> int:
    """Compare two plans, baseline → candidate. Graphs are planned first, under the options given.

    Exit code: 0 identical, 1 diverged or a plan that does not verify, 3 not comparable.
    """
    left, right = _sides(a, b, request, store)
    verdict = compare(left.trace or left.plan, right.trace or right.plan)
    if json:
        say_json({**as_json(verdict, limit), "invalid": {"left": _findings(left), "right": _findings(right)}})
    else:
        in_words(verdict, limit, left.plan, right.plan)
        say_invalid(left)
        say_invalid(right)
    invalid = left.findings or right.findings
    return NOT_COMPARABLE if not verdict.comparable else FINE if verdict.identical and not invalid else FINDING


def _sides(a: str, b: str, request: PlanRequest, store: str | None) -> tuple[Resolved, Resolved]:
    """Both sides; a run of the store that names no model is of the model of the other side, which is read first."""
    if not tells_its_model(a) and tells_its_model(b):
        right = resolve_side(b, request, store)
        return resolve_side(a, request, store, right.plan), right
    left = resolve_side(a, request, store)
    return left, resolve_side(b, request, store, left.plan)


def _findings(side: Resolved) -> list[dict[str, Any]]:
    return [asdict(finding) for finding in side.findings[:FIRST_FINDINGS]]


# --- in words ----------------------------------------------------------------------------------------------------


def in_words(verdict: Comparison, limit: int, baseline: Plan, candidate: Plan) -> None:
    """The comparison, to standard output."""
    if not verdict.comparable:
        say("not comparable: " + "; ".join(_why(d) for d in verdict.incomparable))
    elif verdict.identical:
        say("identical: same order, same layout, same live ranges")
    else:
        say(verdict.word)
    if verdict.first is not None:
        first = verdict.first
        say(f"first divergence at {first.path}: {_text_of(first.left)} → {_text_of(first.right)}")
    for difference in verdict.context:
        say(f"context {difference.path[2:]}: {_text_of(difference.left)} → {_text_of(difference.right)}")
    if not verdict.complete:
        say("one side is a digest: its tensors are compared by the hashes of their ranges, slots and offsets")
    if verdict.identical:
        return
    say("")
    table(
        (Column("arena"), Column("extent", True), Column("change", True), Column("slots", True), Column("bound", True)),
        [_arena_row(c.name, (c.left, baseline), (c.right, candidate)) for c in verdict.arenas],
    )
    pairs = zip(totals.rows(baseline), totals.rows(candidate), strict=True)
    say("", *(f"{name:<20}  {words.change(before, after)}" for (name, before), (_, after) in pairs))
    changed = {kind: total for kind, total in verdict.totals.items() if total[0]}
    if not changed:
        return
    say("")
    table(
        (Column("tensors"), Column("count", True), Column("bytes", True)),
        [
            [kind, words.count(n), words.delta_bytes(size) if kind == "resized" else words.full_bytes(size)]
            for kind, (n, size) in changed.items()
        ],
    )
    rows = [_change_row(change, baseline, candidate) for change in islice(verdict.changes(), limit)]
    if rows:
        say("")
        table((Column("tensor"), Column("changed"), Column("baseline"), Column("candidate")), rows)
        total = int((verdict.kinds != 0).sum())
        say(words.of(len(rows), total, "changed tensor"))


def _why(difference: Difference) -> str:
    names = {"$.ir_hash": "another graph", "$.replay_token": "another replay token"}
    names["$.digests"] = "a digest of an older version, which does not hold the hashes of its live ranges"
    names["$.arena_config_hash"] = "another arena configuration"
    return names.get(difference.path, f"{difference.path[2:]} {difference.left} → {difference.right}")


def _text_of(value: Any) -> str:
    return "nothing" if value is None else value if isinstance(value, str) else msgspec.json.encode(value).decode()


Side = tuple[ArenaSummary | None, Plan]


def _arena_row(name: str, *sides: Side) -> list[str]:
    left, right = (arena for arena, _ in sides)
    before, after = (words.full_bytes(side.extent_bytes) if side else "–" for side in (left, right))
    change = (right.extent_bytes if right else 0) - (left.extent_bytes if left else 0)
    slots = words.change(
        *(words.count(arena.slots) if arena and plan.has_slots else words.NO_SLOTS for arena, plan in sides)
    )
    bound = words.change(*(words.short_bytes(side.bound_bytes) if side else "–" for side in (left, right)))
    return [name, words.change(before, after), words.delta_bytes(change), slots, bound]


def _change_row(change: TensorChange, baseline: Plan, candidate: Plan) -> list[str]:
    sides = _place(change.left, baseline), _place(change.right, candidate)
    return [change.tensor_id, ", ".join(change.kinds), *sides]


def _place(row: TensorRow | None, plan: Plan) -> str:
    if row is None:
        return "–"
    slot = f" slot {row.logical_slot}" if plan.has_slots else ""
    place = f"{row.arena}[{row.offset_bytes:,}, {row.offset_bytes + row.size_bytes:,}){slot}"
    return f"{place} {words.live_range(row.birth, row.death)}"


# --- as JSON -----------------------------------------------------------------------------------------------------


def as_json(verdict: Comparison, limit: int) -> dict[str, Any]:
    """The comparison as JSON-ready values; keys do not depend on the verdict."""
    return {
        "comparable": verdict.comparable,
        "identical": verdict.identical,
        "complete": verdict.complete,
        "incomparable": [_difference(d) for d in verdict.incomparable],
        "first_divergence": None if verdict.first is None else _difference(verdict.first),
        "divergences": [_difference(d) for d in verdict.divergences],
        "context": [_difference(d) for d in verdict.context],
        "totals": {kind: {"tensors": verdict.totals[kind][0], "bytes": verdict.totals[kind][1]} for kind in KINDS},
        "left_totals": asdict(plan_totals(verdict.left)),
        "right_totals": asdict(plan_totals(verdict.right)),
        "arenas": [
            {"name": change.name, "left": _arena(change.left), "right": _arena(change.right)}
            for change in verdict.arenas
        ],
        "changed_tensors": int((verdict.kinds != 0).sum()),
        "changes": [
            {
                "tensor_id": change.tensor_id,
                "kinds": list(change.kinds),
                "left": _row(change.left),
                "right": _row(change.right),
            }
            for change in islice(verdict.changes(), limit)
        ],
    }


def _difference(difference: Difference) -> dict[str, Any]:
    return {"path": difference.path, "left": difference.left, "right": difference.right}


def _arena(arena: ArenaSummary | None) -> dict[str, Any] | None:
    return None if arena is None else vars(arena)


def _row(row: TensorRow | None) -> dict[str, Any] | None:
    return None if row is None else vars(row)
