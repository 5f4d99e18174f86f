"""The result of ``tmmu gate`` as Markdown for a pull request: bar chart, limits and changed tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.report.summary import code
from app.texts import numbers
from tmmu_core.base.escaping import for_markdown
from tmmu_core.formats.planfile.compare_plans import KINDS, compare
from tmmu_core.plans.analysis.gate import in_common
from tmmu_core.plans.figures.metrics import totals
from tmmu_core.plans.model import Plan
from tmmu_core.store.find_growth import Blame, blame

BAR = 40
"""Length of the longest bar in characters."""
LARGEST = 12
MOST_CHECKS = 40
LONGEST = 40_000
"""Maximum characters: a GitHub comment has at most 65,536, and the action appends 20,000 of a comparison."""


@dataclass(frozen=True)
class Check:
    """One limit as texts."""

    what: str
    arena: str
    value: str
    limit: str
    ok: bool


@dataclass(frozen=True)
class Change:
    """A plan, its baseline and its limits."""

    after: Plan
    before: Plan | None
    checks: Sequence[Check]
    link: str = ""
    """URL of the comparison in an explorer."""
    name: str = ""
    warnings: Sequence[str] = ()
    """Conditions that changed the answer."""


def another_model(before: Plan, after: Plan, quoted: Callable[[str], str] = str) -> str:
    """Return a warning if the baseline has no tensor of this model, else ""."""
    if before.ir_hash == after.ir_hash or in_common(after, before) or not len(after):
        return ""
    theirs, ours = quoted(before.ir_name or "a graph"), quoted(after.ir_name or "this graph")
    return (
        f"The baseline ({theirs}, {numbers.count(len(before), 'tensor')}) and the plan ({ours}, "
        f"{numbers.count(len(after), 'tensor')}) have no tensor in common. Check that both are of the same model."
    )


def markdown(change: Change) -> str:
    """Return the summary as Markdown."""
    green = all(check.ok for check in change.checks)
    exceeded = numbers.count(sum(not check.ok for check in change.checks), "limit")
    title = code(change.name or change.after.ir_name or "a graph")
    lines = [f"### {'🟢' if green else '🔴'} {title}: {'within its limits' if green else f'{exceeded} exceeded'}", ""]
    lines += ["```text", *bars(change.after, change.before), "```", "", planned_by(change.after, change.before), ""]
    lines += ["| limit on | arena | value | limit | verdict |", "|---|---|--:|--:|---|"]
    shown = sorted(change.checks, key=lambda check: check.ok)[:MOST_CHECKS]
    for check in shown:
        verdict = "ok" if check.ok else "**EXCEEDED**"
        lines.append(f"| {check.what} | {code(check.arena)} | {check.value} | {check.limit} | {verdict} |")
    lines.append("")
    if len(shown) < len(change.checks):
        lines += [f"{numbers.of(len(shown), len(change.checks), 'limit')}, those exceeded first", ""]
    if change.before is not None:
        unrelated = another_model(change.before, change.after, code)
        lines += [f"⚠ {unrelated}", ""] if unrelated else []
    for text in change.warnings:
        lines += [f"⚠ {for_markdown(text)}", ""]
    if change.before is not None:
        lines += _changes(change.before, change.after, LONGEST - sum(map(len, lines)))
    lines.append(_link_text(change))
    return "\n".join(lines) + "\n"


def planned_by(after: Plan, before: Plan | None) -> str:
    """Planner, mode and preset of the plan, and of the baseline where they differ."""
    plans = [plan for plan in (after, before) if plan is not None]
    texts = [", ".join(map(for_markdown, (plan.planner, plan.mode, plan.preset))) for plan in plans]
    if len(set(texts)) < 2:
        return f"Planned by {texts[0]}" + (", as the baseline." if before is not None else ".")
    return f"Planned by {texts[0]}; the baseline by {texts[1]}."


def bars(after: Plan, before: Plan | None) -> list[str]:
    """Return a bar chart of baseline, plan and lower bound, on one scale."""
    new = totals(after)
    rows = [] if before is None else [("baseline", totals(before).extent_bytes)]
    rows += [("plan", new.extent_bytes), ("lower bound", new.lower_bound_bytes)]
    most = max(1, *(n for _, n in rows))
    return [f"{name:<11}  {'█' * -(-n * BAR // most):<{BAR}}  {numbers.full_bytes(n)}" for name, n in rows]


def _changes(before: Plan, after: Plan, room: int) -> list[str]:
    found = compare(before, after)
    counted = [
        f"{numbers.count(n, 'tensor')} {kind.replace('_', ' ')}" for kind in KINDS if (n := found.totals[kind][0])
    ]
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
    return lines + ([] if shown == len(parts) else [numbers.of(shown, len(parts), "changed arena"), ""])


def _arena(one: Blame) -> list[str]:
    if not one.grown_bytes and not one.shares:
        return []
    peak = one.peak_bytes[1] - one.peak_bytes[0]
    parts = f"peak {numbers.delta_bytes(peak)} + between tensors {numbers.delta_bytes(one.slack_bytes)}"
    lines = [f"{code(one.arena)}: arena size {numbers.delta_bytes(one.grown_bytes)} = {parts}", ""]
    if not one.shares:
        return lines
    shown = sorted(one.shares, key=lambda share: (-abs(share.grown_bytes), share.tensor_id))[:LARGEST]
    lines += ["| live at the peak | change | before | after |", "|---|--:|--:|--:|"]
    for share in shown:
        sizes = (numbers.full_bytes(n) if n else "–" for n in (share.before_bytes, share.after_bytes))
        lines.append(f"| {code(share.tensor_id)} | {numbers.delta_bytes(share.grown_bytes)} | {' | '.join(sizes)} |")
    return [*lines, "", f"{numbers.of(len(shown), len(one.shares), 'changed tensor')}, largest first", ""]


def _link_text(change: Change) -> str:
    if change.link:
        return f"[Open this comparison]({change.link})"
    files = "candidate.plan.json" + (" baseline.plan.json" if change.before is not None else "")
    return f"The artifact contains `report.html` and the plans. Open them with `tmmu explore {files}`."
