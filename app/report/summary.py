"""The summary of a plan as Markdown."""

from importlib.resources import files
from typing import Any

from app.texts import numbers, totals_text
from tmmu_core.base.escaping import for_markdown, natural, visible
from tmmu_core.judge.finding import Verdict
from tmmu_core.plans.analysis.explain_peak import explain_peak
from tmmu_core.plans.analysis.plan_notes import remarks, unplanned_parts
from tmmu_core.plans.figures.live_bytes import arena_number, live_bytes, peak_of, storages_of
from tmmu_core.plans.making.make import Better
from tmmu_core.plans.model import Plan

LARGEST = 8
FINDINGS = 5
LONGEST_NAME = 120
"""Maximum number of characters of a name. A GitHub comment has at most 65,536 characters."""


def rendered(template: str, **values: Any) -> str:
    """Render a Markdown template of this folder. Its filters ``code`` and ``md`` escape names from files."""
    import jinja2  # only commands with Markdown load it

    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
    environment.filters.update(code=code, md=for_markdown, full=numbers.full_bytes, delta=numbers.delta_bytes)
    text = (files(__package__) / template).read_text(encoding="utf-8")
    return environment.from_string(text).render(words=numbers, **values)


def markdown(plan: Plan, verified: Verdict, title: str = "", better: Better | None = None) -> bytes:
    """Return verdict, totals, arenas and the largest buffers at the peak as Markdown (UTF-8)."""
    busiest = max(plan.arenas, key=lambda a: (a.max_live < a.storages, a.extent_bytes, a.name), default=None)
    text = rendered(
        "summary.md.j2",
        plan=plan,
        title=title,
        explanation=str(explain_peak(plan)),
        errors=[error for error in verified.errors if error.rule != "capacity"],  # the explanation reports the capacity
        most_findings=FINDINGS,
        missing=unplanned_parts(plan),
        remarks=remarks(plan),
        totals=totals_text.rows(plan, code),
        hint=totals_text.better(better),
        peak=_peak(plan, busiest.name) if busiest is not None and plan.steps else None,
        most=LARGEST,
    )
    return text.encode("utf-8", "replace")


def _peak(plan: Plan, arena: str) -> dict[str, Any]:
    """Return the peak of an arena and ``(name, bytes, birth, death)`` of its live buffers, the largest first."""
    step, most = peak_of(live_bytes(plan, arena))
    s, number = storages_of(plan), arena_number(plan, arena)
    columns = (s.head.tolist(), s.arena.tolist(), s.size.tolist(), s.birth.tolist(), s.death.tolist())
    rows = [
        (plan.tensor_ids[head], size, birth, death)
        for head, of, size, birth, death in zip(*columns, strict=True)
        if of == number and birth <= step < death
    ]
    rows.sort(key=lambda row: (-row[1], natural(row[0])))
    return {"arena": arena, "step": step, "bytes": most, "rows": rows}


def code(name: str) -> str:
    """Return a name as inline code, escaped for Markdown tables and shortened in its middle."""
    return "`" + numbers.shortened(visible(name), LONGEST_NAME).replace("`", "'").replace("|", "¦") + "`"
