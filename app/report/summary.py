"""The report in short, as Markdown that reads well in a pull request. Pure."""

from __future__ import annotations

from app.say import totals, words
from tmmu_core.judge.finding import Verdict
from tmmu_core.names import for_markdown, natural, visible
from tmmu_core.plan.figures.live import peak_of
from tmmu_core.plan.figures.storages import live_bytes, storages_of
from tmmu_core.plan.model import Plan

LARGEST = 8
FINDINGS = 5
LONGEST_NAME = 120
"""Characters of a name: GitHub takes a comment of 65,536 or none."""


def markdown(plan: Plan, verified: Verdict, title: str = "") -> bytes:
    """Verdict, totals, each arena's figures and what is largest at the peak, as Markdown (UTF-8)."""
    mode, planner = for_markdown(plan.mode), for_markdown(plan.planner)  # of a finished plan: any text
    lines = [f"### {code(title or plan.ir_name or 'a graph')}: {mode}, planned by {planner}", ""]
    lines += ["✓ verified" if verified.ok else f"✗ **{words.count(len(verified.errors), 'error')}**", ""]
    first = [words.shortened(finding.message, 4 * LONGEST_NAME) for finding in verified.errors[:FINDINGS]]
    lines += [f"* {for_markdown(message)}" for message in first] + ([""] if not verified.ok else [])
    lines += [f"* {name}: {figure}" for name, figure in totals.rows(plan, code)] + [""]
    lines += ["| arena | lower bound | extent | gap | capacity | certificate |", "|---|--:|--:|--:|--:|---|"]
    for a in plan.arenas:
        bound = a.bound_bytes
        cells = [words.full_bytes(bound), words.full_bytes(a.extent_bytes), words.gap(a.extent_bytes, bound)]
        cells += [words.capacity(a.capacity_bytes), for_markdown(a.status)]
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
    count = words.of(min(LARGEST, len(alive)), len(alive), "storage")
    lines = [
        f"Peak of {code(arena)}: {words.full_bytes(most)} at {code(words.step(step, plan.node_at(step)))}; {count}:"
    ]
    lines += ["", "| storage | bytes | held |", "|---|--:|---|"]
    for k in alive[:LARGEST]:
        held = words.live_range(int(s.birth[k]), int(s.death[k]))
        lines.append(f"| {code(plan.tensor_ids[int(s.head[k])])} | {words.full_bytes(int(s.size[k]))} | {held} |")
    return [*lines, ""]


def code(name: str) -> str:
    """A name as code: other people's text cannot leave it, nor a cell of a table; a long one is cut in its middle."""
    return "`" + words.shortened(visible(name), LONGEST_NAME).replace("`", "'").replace("|", "¦") + "`"
