"""The summary of a plan as Markdown."""

from __future__ import annotations

from app.texts import certificate_text, numbers, totals_text
from tmmu_core.base.escaping import for_markdown, natural, visible
from tmmu_core.judge.finding import Verdict
from tmmu_core.plans.analysis.explain_peak import explain_peak
from tmmu_core.plans.analysis.plan_warnings import remarks
from tmmu_core.plans.figures.live_bytes import peak_of
from tmmu_core.plans.figures.plan_storages import live_bytes, storages_of
from tmmu_core.plans.making.make import Better
from tmmu_core.plans.model import Plan

LARGEST = 8
FINDINGS = 5
LONGEST_NAME = 120
"""Maximum characters of a name: a GitHub comment has at most 65,536."""


def markdown(plan: Plan, verified: Verdict, title: str = "", better: Better | None = None) -> bytes:
    """Return verdict, totals, arenas and the largest buffers at the peak as Markdown (UTF-8)."""
    mode, planner = for_markdown(plan.mode), for_markdown(plan.planner)  # any text in a finished plan
    lines = [f"### {code(title or plan.ir_name or 'a graph')}: {mode}, planned by {planner}", ""]
    lines += [for_markdown(str(explain_peak(plan))), ""]
    errors = [error for error in verified.errors if error.rule != "capacity"]  # the first line reports exceeded limits
    lines += [f"✗ **{numbers.count(len(errors), 'error')}**" if errors else "✓ verified", ""]
    first = [numbers.shortened(finding.message, 4 * LONGEST_NAME) for finding in errors[:FINDINGS]]
    lines += [f"* {for_markdown(message)}" for message in first] + [""] * bool(errors)
    lines += [line for text in certificate_text.missing(plan) for line in (f"✗ **{for_markdown(text)}**", "")]
    lines += [line for text in remarks(plan) for line in (f"Warning: {for_markdown(text)}", "")]
    lines += [f"* {name}: {figure}" for name, figure in totals_text.rows(plan, code)]
    lines += [f"* {totals_text.better(better)}"] * (better is not None) + [""]
    lines += ["| arena | lower bound | arena size | gap | capacity | optimality |", "|---|--:|--:|--:|--:|---|"]
    for a in plan.arenas:
        bound = a.bound_bytes
        cells = [numbers.full_bytes(bound), numbers.full_bytes(a.extent_bytes), numbers.gap(a.extent_bytes, bound)]
        cells += [numbers.capacity(a.capacity_bytes), for_markdown(a.status)]
        lines.append(f"| {code(a.name)} | {' | '.join(cells)} |")
    lines.append("")
    busiest = max(plan.arenas, key=lambda a: (a.max_live < a.storages, a.extent_bytes, a.name), default=None)
    if busiest is not None and plan.steps:
        lines += _largest(plan, busiest.name)
    lines += [f"plan `{plan.tmmu_plan_hash.hex()}`", ""]
    return "\n".join(lines).encode("utf-8", "replace")


def _largest(plan: Plan, arena: str) -> list[str]:
    step, most = peak_of(live_bytes(plan, arena))
    s = storages_of(plan)
    number = [a.name for a in plan.arenas].index(arena)
    alive = [k for k in range(len(s.head)) if int(s.arena[k]) == number and int(s.birth[k]) <= step < int(s.death[k])]
    alive.sort(key=lambda k: (-int(s.size[k]), natural(plan.tensor_ids[int(s.head[k])])))
    count = numbers.of(min(LARGEST, len(alive)), len(alive), "buffer")
    lines = [
        f"Peak of {code(arena)}: {numbers.full_bytes(most)} at {code(numbers.step(step, plan.node_at(step)))}; {count}:"
    ]
    lines += ["", "| buffer | bytes | live |", "|---|--:|---|"]
    for k in alive[:LARGEST]:
        held = numbers.live_range(int(s.birth[k]), int(s.death[k]))
        lines.append(f"| {code(plan.tensor_ids[int(s.head[k])])} | {numbers.full_bytes(int(s.size[k]))} | {held} |")
    return [*lines, ""]


def code(name: str) -> str:
    """Return a name as inline code, escaped for Markdown tables and shortened in its middle."""
    return "`" + numbers.shortened(visible(name), LONGEST_NAME).replace("`", "'").replace("|", "¦") + "`"
