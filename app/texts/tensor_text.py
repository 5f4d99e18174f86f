"""HTML card of one tensor: type, place, producer, readers, live range, in-place reuse. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from app.texts import numbers
from app.texts.markup import PERSISTENT_COLOUR, ROLE_COLOURS, bullets, definition_list, esc, link_to
from app.texts.short_names import shortener
from tmmu_core.graph.assumed_sizes import SHAPE_SOURCES
from tmmu_core.graph.model import Origin, StorageOrigin
from tmmu_core.liveness.idle_time import Idle
from tmmu_core.liveness.why_live import REFUSAL_WORDS, Event, Explanation, explain
from tmmu_core.plans.analysis.peak_lines import line_of
from tmmu_core.plans.analysis.why_memory import Uplift, uplift
from tmmu_core.plans.figures.plan_storages import align_up
from tmmu_core.plans.making.engine import Solution
from tmmu_core.plans.model import Plan

MOST_AT_PEAK = 12
MOST = 6
"""Names listed before "and N more"."""


@dataclass(frozen=True)
class Neighbours:
    """The tensors that use the same slot before and after; ``None`` at either end."""

    before: str | None
    after: str | None
    tenants: int


def neighbours(plan: Plan, tensor_id: str) -> Neighbours:
    """Return the neighbours of a tensor in its slot."""
    row = plan.row_of[tensor_id]
    same = (plan.arena == plan.arena[row]) & (plan.logical_slot == plan.logical_slot[row])
    rows = np.flatnonzero(same)
    views = np.array([plan.base_tensor_uids[r] is not None for r in rows], np.bool_)
    rows = rows[np.lexsort((rows, views, plan.birth[rows], plan.generation[rows]))]
    heads: dict[int, int] = {}
    for r in rows.tolist():
        heads.setdefault(int(plan.generation[r]), r)
    generations = sorted(heads)
    place = generations.index(int(plan.generation[row]))
    before = plan.tensor_ids[heads[generations[place - 1]]] if place else None
    after = plan.tensor_ids[heads[generations[place + 1]]] if place + 1 < len(generations) else None
    return Neighbours(before, after, len(generations))


def explanation(solution: Solution | None, tensor_id: str) -> Explanation | None:
    """Return the reasons for a tensor's live range; ``None`` for a plan without its graph."""
    if solution is None:
        return None
    try:
        return explain(solution.liveness, tensor_id)
    except KeyError:
        return None


def details(
    plan: Plan, solution: Solution | None, tensor_id: str, idle: Idle | None = None, made: StorageOrigin | None = None
) -> str:
    """Return the card of one tensor. ``made`` names its producer if the plan has no graph.

    Raises ``KeyError`` for a tensor that the plan does not have.
    """
    i = plan.row_of[tensor_id]
    row, why, near = plan.row(i), explanation(solution, tensor_id), neighbours(plan, tensor_id)
    padded, steps = align_up(row.size_bytes, row.alignment), numbers.count(row.death - row.birth, "step")
    colour, source = ROLE_COLOURS.get(row.role, PERSISTENT_COLOUR), _shape_from(solution, tensor_id)
    rows: list[tuple[str, str] | None] = [
        ("size", _exact(row.size_bytes)),
        *([] if padded == row.size_bytes else [("padded", _exact(padded))]),
        ("shape", f"{esc(numbers.shape(row.shape))} <span class=soft>{esc(row.dtype)}{source}</span>"),
        None,
        ("arena", esc(row.arena)),
        ("offset", f'<span class="mono">{esc(numbers.offset(row.offset_bytes))}</span>'),
        ("alignment", esc(numbers.exact_bytes(row.alignment))),
        (
            "slot",
            f"{row.logical_slot} <span class=soft>{numbers.ordinal(row.generation + 1)} of "
            f"{numbers.count(near.tenants, 'tensor')} in this slot</span>"
            if plan.has_slots
            else numbers.NO_SLOTS,
        ),
        None,
        (
            "tensor live",
            f"{esc(numbers.live_range(row.birth, row.death))} <span class=soft>{steps}</span>",
        ),
        ("written by", _born(plan, why, row.birth)),
        *_made_in(solution, tensor_id, made),
        ("read by", _readers(why)),
        ("last read", _dies(plan, why, row.death)),
    ]
    if why is not None:
        rows += [("reuses", _name(why.takes_over))] if why.takes_over else []
        rows += [("in-place reuse", _handoff(why))]
    else:
        rows += [("in-place reuse", _handoff_of(plan, tensor_id))]
    rows += [None, *_storage(plan, solution, i), *_memory(plan, tensor_id)]
    if idle is not None and solution is not None:
        rows += _idle(plan, solution, tensor_id, idle)
    if row.base_tensor_uid is not None:
        rows.append(("view of", _name(row.base_tensor_uid)))
    if row.alias_group_id is not None:
        rows.append(("alias group", esc(row.alias_group_id)))
    if plan.has_slots:
        rows.append(("slot before", _name(near.before) if near.before else '<span class="soft">none</span>'))
        rows.append(("slot after", _name(near.after) if near.after else '<span class="soft">none</span>'))
    if rows[-1] is None:
        rows.pop()
    return (
        f'<div class="tm tm-card" data-tensor="{esc(tensor_id)}"><h3>{esc(tensor_id)}</h3>'
        f'<div class="kind"><span class="swatch" style="background:{colour}"></span>{esc(row.role)}</div>'
        f"{definition_list(rows)}</div>"
    )


def _shape_from(solution: Solution | None, tensor_id: str) -> str:
    """Return the source of the shape if it is not the file itself."""
    who = solution.graph.shapes_from.get(tensor_id) if solution is not None else None
    return f" · {esc(SHAPE_SOURCES[who])}" if who else ""


def _made_in(solution: Solution | None, tensor_id: str, made: StorageOrigin | None) -> list[tuple[str, str] | None]:
    """Return rows for the producer's module and source line, if the file has them."""
    if solution is None and made is not None:
        rows = (("operator", made.operator), ("phase", made.phase or ""))
        return [*((name, esc(text)) for name, text in rows if text), *_came_from(made.origin)]
    if solution is None:
        return []
    index = solution.liveness.timeline.index
    node = int(index.producer[index.tensor_of[tensor_id]]) if tensor_id in index.tensor_of else -1
    origin = index.graph.origins.get(index.node_ids[node]) if node >= 0 else None
    return [] if origin is None else _came_from(origin)


def _came_from(origin: Origin) -> list[tuple[str, str] | None]:
    rows: list[tuple[str, str] | None] = []
    if origin.module:
        rows.append(("module", f"<code>{esc('.'.join(origin.module))}</code>"))
    if origin.source:
        rows.append(("source", f"<code>{esc(origin.source)}</code>"))
    return rows


def _memory(plan: Plan, tensor_id: str) -> list[tuple[str, str] | None]:
    """Rows for a plan over several memories: placed by, spill reason, bytes missing in the next better memory."""
    found = uplift(plan, tensor_id)
    if found is None:
        return []
    rows: list[tuple[str, str] | None] = [("memory", f"{esc(found.memory)}, placed by {esc(put_there_by(found))}")]
    if found.spilled:
        rows.append(("spilled", esc(found.spilled)))
    if found.above:
        rows.append((f"for {esc(found.above)}", esc(_lacking(found))))
    return rows


def put_there_by(found: Uplift) -> str:
    """Return what selected the memory: ``rule 2``, ``its own arena`` or ``the order of the memories``."""
    return {"order": "the order of the memories", "tensor": "its own arena"}.get(found.decided_by, found.decided_by)


def one_up(found: Uplift) -> str:
    """Return the bytes that the next better memory lacks: ``DTCM: 12.0 KiB (12,288 B) more``; empty for the best."""
    return f"{found.above}: {_lacking(found)}" if found.above else ""


def _lacking(found: Uplift) -> str:
    return (
        f"{numbers.full_bytes(found.lacking_bytes)} more"
        if found.lacking_bytes
        else "has room, but a rule selects another memory"
    )


NAME_LETTERS = 26
"""Letters of a name in a list, so that it fits into one line of the card."""


def largest(
    plan: Plan, where: tuple[str, int], storages: Sequence[tuple[int, int]], colour_of: Callable[[int], str]
) -> str:
    """Return a card of the largest buffers live in an arena at a step, given as (row of the first tensor, bytes).

    ``colour_of`` maps a row to the colour of its box on the map, or ``""``.
    """
    arena, step = where
    groups: dict[object, list[tuple[int, int]]] = {}
    for row, size in storages:  # equal buffers of one line of a snapshot are one entry
        alike = (size, line_of(plan.tensor_ids[row])) if plan.categories else row
        groups.setdefault(alike, []).append((row, size))
    shown = sorted(groups.values(), key=lambda group: -len(group) * group[0][1])[:MOST_AT_PEAK]
    short = shortener(plan.tensor_ids[row] for row, _ in storages)
    items = []
    for group in shown:
        row, name = group[0][0], plan.tensor_ids[group[0][0]]
        named = link_to(name, f"<code>{esc(short(name, NAME_LETTERS))}</code>")
        items.append(f"<dt>{_many(len(group), group[0][1])}</dt><dd>{_swatch(colour_of(row))}{named}</dd>")
    note = numbers.of(sum(map(len, shown)), len(storages), "buffer")
    return (
        f'<div class="tm tm-card"><h3>Largest at the peak</h3><div class="kind">{esc(arena)} at '
        f"{esc(numbers.step(step, numbers.shortened(plan.node_at(step), 20)))}: {esc(note)}</div>"
        f"<dl>{''.join(items)}</dl></div>"
    )


def _many(count: int, size: int) -> str:
    """Return equal buffers: ``12 × 96.0 MiB``, with the exact sum on hover."""
    text = numbers.short_bytes(size) if count == 1 else f"{count:,} × {numbers.short_bytes(size)}"
    return f'<span title="{count * size:,} B">{esc(text)}</span>'


def _swatch(colour: str) -> str:
    return f'<span class="swatch" style="background:{colour}"></span> ' if colour else ""


_WALKING = (
    "In the drawing arrow keys follow the edges, <code>Enter</code> selects or opens, <code>Backspace</code> closes, "
    "<code>p</code> goes to the peak, <code>s</code> to the selection, <code>Esc</code> clears the selection."
)
_PLANNED = (
    "<code>/</code> searches, <code>p</code> goes to the peak, <code>[</code> and <code>]</code> select the next "
    "tensor of the slot, <code>Esc</code> clears the selection."
)


def nothing_selected(*, walking: bool = False) -> str:
    """Return the card shown without a selection: how to select."""
    return (
        '<div class="tm tm-card"><h3>No tensor selected</h3>'
        '<p class="hint">Click a box in the drawing or a row of the table. Hover for a preview.</p>'
        f'<p class="hint">Wheel zooms, drag pans, double-click fits. {_WALKING if walking else _PLANNED}</p></div>'
    )


def _exact(n: int) -> str:
    return esc(numbers.full_bytes(n))


def _name(tensor_id: str | None) -> str:
    """Return a tensor's name as a link that selects it."""
    if tensor_id is None:
        return '<span class="soft">unknown</span>'
    return link_to(tensor_id, f"<code>{esc(tensor_id)}</code>")


def _storage(plan: Plan, solution: Solution | None, row: int) -> list[tuple[str, str] | None]:
    """Rows for a buffer that several tensors share: its tensors, its live range, the event that frees it."""
    rows = np.flatnonzero(plan.storage == plan.storage[row])
    if len(rows) < 2:
        return []
    views = np.array([plan.base_tensor_uids[r] is not None for r in rows.tolist()], np.bool_)
    chain = rows[np.lexsort((rows, views, plan.birth[rows]))].tolist()
    birth, death = int(plan.birth[rows].min()), int(plan.death[rows].max())
    last = max(chain, key=lambda r: (int(plan.death[r]), -chain.index(r)))
    head, holder = plan.tensor_ids[chain[0]], plan.tensor_ids[last]
    listed = chain if len(chain) <= MOST else [*chain[: MOST - 1], last]
    items = [
        f"<li>{_name(plan.tensor_ids[r])} <span class=soft>"
        f"{esc(numbers.live_range(int(plan.birth[r]), int(plan.death[r])))}</span></li>"
        for r in listed
    ]
    if len(listed) < len(chain):
        items.insert(-1, f"<li class=soft>{len(chain) - len(listed):,} more</li>")
    steps, freed = numbers.count(death - birth, "step"), _dies(plan, explanation(solution, holder), death)
    return [
        ("buffer of", f"{_name(head)} <span class=soft>{numbers.count(len(chain), 'tensor')}</span>"),
        ("memory held", f"{esc(numbers.live_range(birth, death))} <span class=soft>{steps}</span>"),
        ("used by", f"<ul>{''.join(items)}</ul>"),
        ("memory freed", f"{freed} <span class=soft>(last tensor: {esc(holder)})</span>"),
        None,
    ]


def _idle(plan: Plan, solution: Solution, tensor_id: str, idle: Idle) -> list[tuple[str, str] | None]:
    """Rows for the steps at which the buffer is held but not used, and for how to free it earlier."""
    liveness = solution.liveness
    k = int(liveness.storage_of[liveness.timeline.index.tensor_of[tensor_id]])
    steps, held = int(idle.idle[k]), int(idle.held[k])
    if not steps:
        return [("idle", f"0 of {numbers.count(held, 'step')}"), None]
    a, b = int(idle.gap_from[k]), int(idle.gap_to[k])
    text = f"{steps:,} of {numbers.count(held, 'step')}, longest {numbers.live_range(a, b)}"
    last, before = int(idle.last[k]), int(idle.before[k])
    rows: list[tuple[str, str] | None] = [("idle", esc(text))]
    if last >= 0 and before >= 0 and last - before > 1 and not bool(liveness.storages.persistent[k]):
        saved = numbers.short_bytes(int(liveness.storages.size[k]))
        who, then = _at(plan, last), _at(plan, before)
        earlier = f"Without the read by {who} it is free after {then}, {last - before:,} steps earlier ({saved})"
        rows.append(("to free it", f"{esc(earlier)}. Recompute it there, or offload it in between."))
    return [*rows, None]


def _at(plan: Plan, step: int) -> str:
    return numbers.step(step, numbers.shortened(plan.node_at(step), 30))


def _event(event: Event) -> str:
    instr = f' <span class="soft">{esc(event.instr)}</span>' if event.instr and event.instr != event.node_id else ""
    return f"{esc(numbers.step(event.step, event.node_id))}{instr}"


def _born(plan: Plan, why: Explanation | None, birth: int) -> str:
    if why is None:
        return f"{esc(numbers.step(birth, plan.node_at(birth)))}"
    return "none: in memory from the start" if why.producer is None else _event(why.producer)


def _readers(why: Explanation | None) -> str:
    if why is None:
        return '<span class="soft">unknown: a plan file does not list readers</span>'
    if not why.readers:
        return '<span class="soft">none</span>'
    return bullets([_event(event) for event in why.readers], MOST)


def _dies(plan: Plan, why: Explanation | None, death: int) -> str:
    if why is None:
        return f"before {esc(numbers.step(death, plan.node_at(death)))}" if death < plan.steps else "at the end"
    return esc(why.sentence)


def _handoff(why: Explanation) -> str:
    lines = [_given(why.handed_to, why.handed_over)] if why.handed_to else []
    lines += [_got(why.granted_by, False)] if why.granted_by and not why.takes_over else []
    lines += [
        f"by {_name(r.target)}: not allowed, {esc(REFUSAL_WORDS.get(r.condition, r.condition))}" for r in why.refusals
    ]
    return bullets(lines, len(lines)) if lines else '<span class="soft">none: no last reader allows it</span>'


def _handoff_of(plan: Plan, tensor_id: str) -> str:
    rows = list(zip(plan.handoffs, plan.taken, strict=True))
    lines = [_given(to, taken) for (_, source, to), taken in rows if source == tensor_id]
    lines += [_got(source, taken) for (_, source, to), taken in rows if to == tensor_id]
    return bullets(lines, len(lines)) if lines else '<span class="soft">none in the plan</span>'


def _given(to: str, taken: bool) -> str:
    return f"{_name(to)} reuses its memory" if taken else f"{_name(to)} could reuse its memory; the planner did not"


def _got(source: str, taken: bool) -> str:
    return (
        f"reuses the memory of {_name(source)}"
        if taken
        else f"could reuse {_name(source)}'s memory; the planner did not"
    )
