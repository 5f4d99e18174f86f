"""A gate's verdict for a pull request, as Markdown: three bars, the limits, and what changed, by bytes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.report.summary import code
from app.say import words
from tmmu_core.plan.analysis.gate import in_common
from tmmu_core.plan.figures.metrics import totals
from tmmu_core.plan.formats.compare import KINDS, compare
from tmmu_core.plan.model import Plan
from tmmu_core.planners import PLANNERS
from tmmu_core.store.growth import Blame, blame

BAR = 40
"""Characters of the longest bar."""
LARGEST = 12
MOST_CHECKS = 40
LONGEST = 40_000
"""Characters up to which arenas are told of: GitHub takes no comment of more than 65,536, and the action puts 20,000 of
a comparison behind it."""


@dataclass(frozen=True)
class Check:
    """One limit in words."""

    what: str
    arena: str
    value: str
    limit: str
    ok: bool


@dataclass(frozen=True)
class Change:
    """What is told: the plan, what it is compared with, and how it stands to its limits."""

    after: Plan
    before: Plan | None
    checks: Sequence[Check]
    link: str = ""
    """Opens the same comparison in a team's explorer."""
    name: str = ""


def another_model(before: Plan, after: Plan, quoted: Callable[[str], str] = str) -> str:
    """That the baseline is none of this model, as a sentence; an empty text where it is the same one, or was once."""
    if before.ir_hash == after.ir_hash or in_common(after, before) or not len(after):
        return ""
    theirs, ours = quoted(before.ir_name or "a graph"), quoted(after.ir_name or "this graph")
    return (
        f"The baseline, {words.count(len(before), 'tensor')} of {theirs}, has none of the "
        f"{words.count(len(after), 'tensor')} of {ours}: is it the plan of another model?"
    )


def markdown(change: Change) -> str:
    """The whole summary."""
    green = all(check.ok for check in change.checks)
    exceeded = words.count(sum(not check.ok for check in change.checks), "limit")
    title = code(change.name or change.after.ir_name or "a graph")
    lines = [f"### {'🟢' if green else '🔴'} {title}: {'within its limits' if green else f'{exceeded} exceeded'}", ""]
    lines += ["```text", *bars(change.after, change.before), "```", ""]
    lines += ["| limit on | arena | value | limit | verdict |", "|---|---|--:|--:|---|"]
    shown = sorted(change.checks, key=lambda check: check.ok)[:MOST_CHECKS]
    for check in shown:
        verdict = "ok" if check.ok else "**EXCEEDED**"
        lines.append(f"| {check.what} | {code(check.arena)} | {check.value} | {check.limit} | {verdict} |")
    lines.append("")
    if len(shown) < len(change.checks):
        lines += [f"{words.of(len(shown), len(change.checks), 'limit')}, those exceeded first", ""]
    if change.before is not None:
        stranger = another_model(change.before, change.after, code)
        lines += [f"⚠ {stranger}", ""] if stranger else []
        lines += _changes(change.before, change.after, LONGEST - sum(map(len, lines)))
    lines.append(_way(change))
    return "\n".join(lines) + "\n"


def bars(after: Plan, before: Plan | None) -> list[str]:
    """``before`` (or ``theirs``, where a planner that is not ours made it), ``after`` and ``bound``, to one scale."""
    new = totals(after)
    rows = [("after", new.extent_bytes), ("bound", new.lower_bound_bytes)]
    if before is not None:
        ours = before.planner in PLANNERS
        rows[0] = ("after" if ours else "ours", new.extent_bytes)
        rows.insert(0, ("before" if ours else "theirs", totals(before).extent_bytes))
    most = max(1, *(n for _, n in rows))
    return [f"{name:<6}  {'█' * -(-n * BAR // most):<{BAR}}  {words.full_bytes(n)}" for name, n in rows]


def _changes(before: Plan, after: Plan, room: int) -> list[str]:
    found = compare(before, after)
    counted = [f"{words.count(n, 'tensor')} {kind.replace('_', ' ')}" for kind in KINDS if (n := found.totals[kind][0])]
    lines = ["No tensor changed." if not counted else "Changed: " + ", ".join(counted) + ".", ""]
    blamed = [blame(before, after, arena.name) for arena in found.arenas]
    parts = [part for one in sorted(blamed, key=lambda one: (-one.grown_bytes, one.arena)) if (part := _arena(one))]
    shown = 0
    for part in parts:
        room -= sum(map(len, part))
        if room < 0:
            break
        lines += part
        shown += 1
    return lines + ([] if shown == len(parts) else [words.of(shown, len(parts), "changed arena"), ""])


def _arena(one: Blame) -> list[str]:
    if not one.grown_bytes and not one.shares:
        return []
    peak = one.peak_bytes[1] - one.peak_bytes[0]
    parts = f"peak {words.delta_bytes(peak)} + between tensors {words.delta_bytes(one.slack_bytes)}"
    lines = [f"{code(one.arena)}: extent {words.delta_bytes(one.grown_bytes)} = {parts}", ""]
    if not one.shares:
        return lines
    shown = sorted(one.shares, key=lambda share: (-abs(share.grown_bytes), share.tensor_id))[:LARGEST]
    lines += ["| alive at the peak | change | before | after |", "|---|--:|--:|--:|"]
    for share in shown:
        sizes = (words.full_bytes(n) if n else "–" for n in (share.before_bytes, share.after_bytes))
        lines.append(f"| {code(share.tensor_id)} | {words.delta_bytes(share.grown_bytes)} | {' | '.join(sizes)} |")
    return [*lines, "", f"{words.of(len(shown), len(one.shares), 'changed tensor')}, the largest first", ""]


def _way(change: Change) -> str:
    if change.link:
        return f"[Open this comparison]({change.link})"
    files = "candidate.plan.json" + (" baseline.plan.json" if change.before is not None else "")
    return f"In the artefact: `report.html`, and the plans, which `tmmu explore {files}` opens."
