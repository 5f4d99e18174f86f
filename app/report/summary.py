"""Markdown for pull requests: the summary of a plan, and the result of ``tmmu gate``."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from app.texts import numbers, totals_text
from tmmu_core.base.escaping import for_markdown, visible
from tmmu_core.formats.planfile.compare_plans import KINDS, compare
from tmmu_core.judge.finding import Verdict
from tmmu_core.plans.analysis.plan_notes import remarks, unplanned_parts
from tmmu_core.plans.analysis.waste_ledger import explain_peak
from tmmu_core.plans.figures.live_bytes import peak_step_of, storages_alive, storages_of
from tmmu_core.plans.figures.metrics import totals
from tmmu_core.plans.making.make import BetterPlanner
from tmmu_core.plans.model import Plan
from tmmu_core.store.runs import GrowthCauses, growth_causes

LONGEST_NAME = 120  # characters, so that a comment is not too long
BAR_WIDTH = 40  # of the longest bar, in characters


def _rendered(template: str, **values: Any) -> str:
    import jinja2  # loaded only when Markdown is written

    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
    environment.filters.update(code=code, md=for_markdown, full=numbers.full_bytes, delta=numbers.delta_bytes)
    text = (files(__package__) / template).read_text(encoding="utf-8")
    return environment.from_string(text).render(numbers=numbers, **values)


def markdown(plan: Plan, verified: Verdict, title: str = "", better: BetterPlanner | None = None) -> bytes:
    """Return the summary as Markdown: verdict, totals, arenas, and the largest buffers at the main arena's peak."""
    arena, peak = totals_text.main_arena(plan), None
    if arena and plan.steps:  # the live buffers at the peak as (name, bytes, birth, death), the largest first
        (step, peak_bytes), storages, rows = peak_step_of(plan, arena), storages_of(plan), []
        for row, size in storages_alive(plan, step, arena):
            storage = plan.storage[row]
            rows.append((plan.tensor_ids[row], size, int(storages.birth[storage]), int(storages.death[storage])))
        peak = {"arena": arena, "step": step, "bytes": peak_bytes, "rows": rows}
    text = _rendered(
        "summary.md.j2",
        plan=plan,
        title=title,
        explanation=str(explain_peak(plan)),
        errors=[error for error in verified.errors if error.rule != "capacity"],  # the explanation reports the capacity
        missing=unplanned_parts(plan),
        remarks=remarks(plan),
        totals=totals_text.rows(plan, code),
        hint=totals_text.better(better),
        peak=peak,
    )
    return text.encode("utf-8", "replace")


def code(name: str) -> str:
    """Return a name as inline code, escaped for Markdown tables and shortened in its middle."""
    return "`" + numbers.shortened(visible(name), LONGEST_NAME).replace("`", "'").replace("|", "¦") + "`"


@dataclass(frozen=True)
class CheckRow:
    """A limit of ``tmmu gate`` and its result, as texts."""

    what: str
    arena: str
    value: str
    limit: str
    ok: bool


def different_models_warning(before: Plan, after: Plan, quoted: Callable[[str], str] = str) -> str:
    """Return a warning if the plans of different graphs have no tensor in common, else an empty text."""
    if before.ir_hash == after.ir_hash or before.row_of.keys() & after.row_of.keys() or not len(after):
        return ""
    names = quoted(before.ir_name or "a graph"), quoted(after.ir_name or "this graph")
    return (
        f"The baseline ({names[0]}, {numbers.count(len(before), 'tensor')}) and the plan ({names[1]}, "
        f"{numbers.count(len(after), 'tensor')}) have no tensor in common. Check that both plans are of the same model."
    )


def gate_markdown(
    after: Plan, before: Plan | None, checks: Sequence[CheckRow], *, link: str = "", warnings: Sequence[str] = ()
) -> str:
    """Return the result of ``tmmu gate`` as Markdown; ``link``: URL of the plan or comparison in an explorer."""
    plans = [after] if before is None else [after, before]
    warnings = [for_markdown(text) for text in warnings]
    counted: list[tuple[str, int]] = []
    grown: list[GrowthCauses] = []
    if before is not None:
        warnings = [*filter(None, [different_models_warning(before, after, code)]), *warnings]
        comparison = compare(before, after)
        counted = [(kind, comparison.totals[kind][0]) for kind in KINDS if comparison.totals[kind][0]]
        causes = [growth_causes(before, after, arena.name) for arena in comparison.arenas]
        grown = [cause for cause in causes if cause.grown_bytes or cause.storages]
    sizes = [] if before is None else [("baseline", totals(before).extent_bytes)]
    sizes += [("plan", totals(after).extent_bytes), ("lower bound", totals(after).lower_bound_bytes)]
    most = max(1, *(n for _, n in sizes))
    drawn = [(name, "█" * -(-n * BAR_WIDTH // most), numbers.full_bytes(n)) for name, n in sizes]  # rounded up
    return _rendered(
        "pull_request.md.j2",
        title=after.ir_name or "a graph",
        exceeded=sum(not check.ok for check in checks),
        bars=[f"{name:<11}  {bar:<{BAR_WIDTH}}  {size}" for name, bar, size in drawn],
        planned=[", ".join(map(for_markdown, (plan.planner, plan.mode, plan.preset))) for plan in plans],
        checks=sorted(checks, key=lambda check: check.ok),
        warnings=warnings,
        before=before,
        counted=counted,
        grown=sorted(grown, key=lambda cause: (-cause.grown_bytes, cause.arena)),
        largest=lambda cause: sorted(cause.storages, key=lambda row: (-abs(row.grown_bytes), row.tensor_id)),
        link=link,
    )
