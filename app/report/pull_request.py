"""The result of ``tmmu gate`` as Markdown for a pull request: bar chart, checked limits and changed tensors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.report.summary import code, rendered
from app.texts import numbers
from tmmu_core.base.escaping import for_markdown
from tmmu_core.formats.planfile.compare_plans import KINDS, compare
from tmmu_core.plans.analysis.gate import in_common
from tmmu_core.plans.figures.metrics import totals
from tmmu_core.plans.model import Plan
from tmmu_core.store.find_growth import GrowthCauses, Share, growth_causes

BAR = 40
MOST_CHECKS, MOST_ARENAS, MOST_TENSORS = 40, 6, 12
"""Maximum number of rows of each table. A GitHub comment has at most 65,536 characters, of which the action uses 20,000
for a comparison."""


@dataclass(frozen=True)
class Check:
    """A checked limit as texts."""

    what: str
    arena: str
    value: str
    limit: str
    ok: bool


@dataclass(frozen=True)
class Change:
    """Content of the summary: a plan, its baseline and the checked limits."""

    after: Plan
    before: Plan | None
    checks: Sequence[Check]
    link: str = ""
    """URL of the comparison in an explorer."""
    name: str = ""
    warnings: Sequence[str] = ()


def another_model(before: Plan, after: Plan, quoted: Callable[[str], str] = str) -> str:
    """Return a warning if baseline and plan have no tensor in common; else ""."""
    if before.ir_hash == after.ir_hash or in_common(after, before) or not len(after):
        return ""
    theirs, ours = quoted(before.ir_name or "a graph"), quoted(after.ir_name or "this graph")
    return (
        f"The baseline ({theirs}, {numbers.count(len(before), 'tensor')}) and the plan ({ours}, "
        f"{numbers.count(len(after), 'tensor')}) have no tensor in common. Check that both plans are of the same model."
    )


def markdown(change: Change) -> str:
    """Return the summary as Markdown."""
    before, after = change.before, change.after
    plans = [after] if before is None else [after, before]
    warnings = [for_markdown(text) for text in change.warnings]
    counted: list[tuple[str, int]] = []
    grown: list[GrowthCauses] = []
    if before is not None:
        warnings = [*filter(None, [another_model(before, after, code)]), *warnings]
        found = compare(before, after)
        counted = [(kind, found.totals[kind][0]) for kind in KINDS if found.totals[kind][0]]
        blamed = [growth_causes(before, after, arena.name) for arena in found.arenas]
        grown = [one for one in blamed if one.grown_bytes or one.shares]
    return rendered(
        "pull_request.md.j2",
        title=change.name or after.ir_name or "a graph",
        exceeded=sum(not check.ok for check in change.checks),
        bars=_bars(after, before),
        planned=[", ".join(map(for_markdown, (plan.planner, plan.mode, plan.preset))) for plan in plans],
        checks=sorted(change.checks, key=lambda check: check.ok),
        most_checks=MOST_CHECKS,
        warnings=warnings,
        before=before,
        counted=counted,
        grown=sorted(grown, key=lambda one: (-one.grown_bytes, one.arena)),
        most_arenas=MOST_ARENAS,
        most_tensors=MOST_TENSORS,
        largest=_largest,
        link=change.link,
    )


def _bars(after: Plan, before: Plan | None) -> list[str]:
    """Return the lines of a bar chart of baseline, plan and lower bound."""
    new = totals(after)
    rows = [] if before is None else [("baseline", totals(before).extent_bytes)]
    rows += [("plan", new.extent_bytes), ("lower bound", new.lower_bound_bytes)]
    most = max(1, *(n for _, n in rows))
    return [f"{name:<11}  {'█' * -(-n * BAR // most):<{BAR}}  {numbers.full_bytes(n)}" for name, n in rows]


def _largest(one: GrowthCauses) -> list[Share]:
    return sorted(one.shares, key=lambda share: (-abs(share.grown_bytes), share.tensor_id))[:MOST_TENSORS]
