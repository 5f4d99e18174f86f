"""The details of one tensor, as HTML: what it is, where it lies, who makes and reads it, why it dies. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from app.say import words
from app.say.markup import PERSISTENT_COLOUR, ROLE_COLOURS, definition_list, esc, link_to
from tmmu_core.graph.assumed import SAID_BY
from tmmu_core.graph.model import Made, Origin
from tmmu_core.liveness.idle import Idle
from tmmu_core.liveness.why import REFUSAL_WORDS, Event, Explanation, explain
from tmmu_core.plan.analysis.uplift import Uplift, uplift
from tmmu_core.plan.making.engine import Solution
from tmmu_core.plan.model import Plan

MOST_AT_PEAK = 12
MOST = 6
"""Names listed before "and N more"."""


@dataclass(frozen=True)
class Neighbours:
    """The storages that hold the same slot before and after, by the ids of their heads; ``None`` at either end."""

    before: str | None
    after: str | None
    tenants: int


def neighbours(plan: Plan, tensor_id: str) -> Neighbours:
    """Who else lives in the tensor's slot."""
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
    """Why the tensor lives when it lives; ``None`` for a plan without its graph."""
    if solution is None:
        return None
    try:
        return explain(solution.liveness, tensor_id)
    except KeyError:
        return None


def details(
    plan: Plan, solution: Solution | None, tensor_id: str, idle: Idle | None = None, made: Made | None = None
) -> str:
    """The card of one tensor, with how long its storage is ``idle``; ``made``, without a graph, says who made it.

    ``KeyError`` for one that is not there.
    """
    i = plan.row_of[tensor_id]
    row, why, near = plan.row(i), explanation(solution, tensor_id), neighbours(plan, tensor_id)
    colour = ROLE_COLOURS.get(row.role, PERSISTENT_COLOUR)
    rows: list[tuple[str, str] | None] = [
        ("size", _exact(row.size_bytes)),
        (
            "shape",
            f"{esc(words.shape(row.shape))} <span class=soft>{esc(row.dtype)}{_said(solution, tensor_id)}</span>",
        ),
        None,
        ("arena", esc(row.arena)),
        ("offset", f'<span class="mono">{esc(words.offset(row.offset_bytes))}</span>'),
        ("aligned", esc(words.exact_bytes(row.alignment))),
        (
            "slot",
            f"{row.logical_slot}, tenant {row.generation + 1} of {near.tenants}" if plan.has_slots else words.NO_SLOTS,
        ),
        None,
        ("lives", f"{esc(words.live_range(row.birth, row.death))} <span class=soft>{_steps(row)}</span>"),
        ("born", _born(plan, why, row.birth)),
        *_made_in(solution, tensor_id, made),
        ("read by", _readers(why)),
        ("dies", _dies(plan, why, row.death)),
    ]
    if why is not None:
        rows += [("takes over", _name(why.takes_over))] if why.takes_over else []
        rows += [("hand-off", _handoff(why))]
    else:
        rows += [("hand-off", _handoff_of(plan, tensor_id))]
    rows += [None, *_storage(plan, solution, i), *_memory(plan, tensor_id)]
    if idle is not None and solution is not None:
        rows += _idle(plan, solution, tensor_id, idle)
    if row.base_tensor_uid is not None:
        rows.append(("view of", _name(row.base_tensor_uid)))
    if row.alias_group_id is not None:
        rows.append(("alias group", esc(row.alias_group_id)))
    if plan.has_slots:
        rows.append(("slot before", _name(near.before) if near.before else '<span class="soft">nobody</span>'))
        rows.append(("slot after", _name(near.after) if near.after else '<span class="soft">nobody</span>'))
    if rows[-1] is None:
        rows.pop()
    return (
        f'<div class="tm tm-card" data-tensor="{esc(tensor_id)}"><h3>{esc(tensor_id)}</h3>'
        f'<div class="kind"><span class="swatch" style="background:{colour}"></span>{esc(row.role)}</div>'
        f"{definition_list(rows)}</div>"
    )


def _said(solution: Solution | None, tensor_id: str) -> str:
    """Who said the shape, where that is not a matter of course."""
    who = solution.graph.shapes_from.get(tensor_id) if solution is not None else None
    return f" · {esc(SAID_BY[who])}" if who else ""


def _made_in(solution: Solution | None, tensor_id: str, made: Made | None) -> list[tuple[str, str] | None]:
    """The module and the line of source of who writes it, where the file keeps them."""
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
    """Of a plan over memories: who put it there, why it is not where it belongs, what one memory up would take."""
    found = uplift(plan, tensor_id)
    if found is None:
        return []
    rows: list[tuple[str, str] | None] = [("memory", f"{esc(found.memory)}, by {esc(put_there_by(found))}")]
    if found.spilled:
        rows.append(("spilled", esc(found.spilled)))
    if found.above:
        rows.append((f"for {esc(found.above)}", esc(_lacking(found))))
    return rows


def put_there_by(found: Uplift) -> str:
    """``rule 2``, ``its own arena`` or ``the order of the memories``."""
    return {"order": "the order of the memories", "tensor": "its own arena"}.get(found.said_by, found.said_by)


def one_up(found: Uplift) -> str:
    """What the next better memory lacks: ``DTCM: 12.0 KiB (12,288 B) more``; empty where there is no better one."""
    return f"{found.above}: {_lacking(found)}" if found.above else ""


def _lacking(found: Uplift) -> str:
    return f"{words.full_bytes(found.lacking_bytes)} more" if found.lacking_bytes else "there is room: a rule moves it"


def largest(
    plan: Plan, where: tuple[str, int], storages: Sequence[tuple[int, int]], colour_of: Callable[[int], str]
) -> str:
    """The largest storages alive in an arena at a step, as (row of the head, bytes), in a short list.

    ``colour_of`` a row is that of its box on the map; ``""`` for none.
    """
    arena, step = where
    items = [
        f"<dt>{esc(words.short_bytes(size))}</dt><dd>{_swatch(colour_of(row))}{_name(plan.tensor_ids[row], 30)}</dd>"
        for row, size in storages[:MOST_AT_PEAK]
    ]
    note = words.of(min(len(storages), MOST_AT_PEAK), len(storages), "storage")
    return (
        f'<div class="tm tm-card"><h3>Largest at the peak</h3><div class="kind">{esc(arena)} at '
        f"{esc(words.step(step, words.shortened(plan.node_at(step), 20)))}: {esc(note)}</div>"
        f"<dl>{''.join(items)}</dl></div>"
    )


def _swatch(colour: str) -> str:
    return f'<span class="swatch" style="background:{colour}"></span> ' if colour else ""


_WALKING = (
    "In the drawing arrow keys follow the edges, <code>Enter</code> selects or opens, <code>Backspace</code> closes, "
    "<code>p</code> goes to the peak, <code>s</code> to the selection, <code>Esc</code> lets go."
)
_PLANNED = (
    "<code>/</code> searches, <code>p</code> goes to the peak, <code>[</code> and <code>]</code> walk the tenants of a "
    "slot, <code>Esc</code> lets go."
)


def nothing_selected(*, walking: bool = False) -> str:
    """The card's place before anything is selected: how to select, in a plan's drawing or in the graph's."""
    return (
        '<div class="tm tm-card"><h3>No tensor selected</h3>'
        '<p class="hint">Click a box in the drawing or a row of the table. Hover for a preview.</p>'
        f'<p class="hint">Wheel zooms, drag pans, double-click fits. {_WALKING if walking else _PLANNED}</p></div>'
    )


def _steps(row: object) -> str:
    return words.count(row.death - row.birth, "step")  # type: ignore[attr-defined]


def _exact(n: int) -> str:
    return esc(words.full_bytes(n))


def _name(tensor_id: str | None, width: int = 10_000) -> str:
    """A tensor's name as a link that selects it."""
    if tensor_id is None:
        return '<span class="soft">unknown</span>'
    return link_to(tensor_id, f"<code>{esc(words.shortened(tensor_id, width))}</code>")


def _storage(plan: Plan, solution: Solution | None, row: int) -> list[tuple[str, str] | None]:
    """Of a storage that several tensors share: by whom it was born, who holds its bytes and how long, who frees it."""
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
        f"{esc(words.live_range(int(plan.birth[r]), int(plan.death[r])))}</span></li>"
        for r in listed
    ]
    if len(listed) < len(chain):
        items.insert(-1, f"<li class=soft>{len(chain) - len(listed):,} more</li>")
    steps, freed = words.count(death - birth, "step"), _dies(plan, explanation(solution, holder), death)
    return [
        ("storage of", f"{_name(head)} <span class=soft>{words.count(len(chain), 'tensor')}</span>"),
        ("bytes held", f"{esc(words.live_range(birth, death))} <span class=soft>{steps}</span>"),
        ("held by", f"<ul>{''.join(items)}</ul>"),
        ("freed", f"{freed} <span class=soft>(the end of {esc(holder)})</span>"),
        None,
    ]


def _idle(plan: Plan, solution: Solution, tensor_id: str, idle: Idle) -> list[tuple[str, str] | None]:
    """For how long its storage is only kept, and what it would take to free it earlier."""
    liveness = solution.liveness
    k = int(liveness.storage_of[liveness.timeline.index.tensor_of[tensor_id]])
    steps, held = int(idle.idle[k]), int(idle.held[k])
    if not steps:
        return [("idle", f"never: used at each of its {words.count(held, 'step')}"), None]
    a, b = int(idle.gap_from[k]), int(idle.gap_to[k])
    said = f"{steps:,} of {words.count(held, 'step')}, the longest stretch {words.live_range(a, b)}"
    last, before = int(idle.last[k]), int(idle.before[k])
    rows: list[tuple[str, str] | None] = [("idle", esc(said))]
    if last >= 0 and before >= 0 and last - before > 1 and not bool(liveness.storages.persistent[k]):
        saved = words.short_bytes(int(liveness.storages.size[k]))
        who, then = _at(plan, last), _at(plan, before)
        earlier = f"Without its use by {who} it would be free after {then}, {last - before:,} steps earlier ({saved})"
        rows.append(("to free it", f"{esc(earlier)}. Recompute it there, or copy it out in between."))
    return [*rows, None]


def _at(plan: Plan, step: int) -> str:
    return words.step(step, words.shortened(plan.node_at(step), 30))


def _names(ids: list[str]) -> str:
    more = f"<li class=soft>and {len(ids) - MOST:,} more</li>" if len(ids) > MOST else ""
    return f"<ul>{''.join(f'<li>{_name(i)}</li>' for i in ids[:MOST])}{more}</ul>"


def _event(event: Event) -> str:
    instr = f' <span class="soft">{esc(event.instr)}</span>' if event.instr and event.instr != event.node_id else ""
    return f"{esc(words.step(event.step, event.node_id))}{instr}"


def _born(plan: Plan, why: Explanation | None, birth: int) -> str:
    if why is None:
        return f"{esc(words.step(birth, plan.node_at(birth)))}"
    return "by nobody: resident from the start" if why.producer is None else f"by {_event(why.producer)}"


def _readers(why: Explanation | None) -> str:
    if why is None:
        return '<span class="soft">unknown: a plan does not name them</span>'
    if not why.readers:
        return '<span class="soft">nobody</span>'
    items = "".join(f"<li>{_event(event)}</li>" for event in why.readers[:MOST])
    more = f"<li class=soft>and {len(why.readers) - MOST:,} more</li>" if len(why.readers) > MOST else ""
    return f"<ul>{items}{more}</ul>"


def _dies(plan: Plan, why: Explanation | None, death: int) -> str:
    if why is None:
        return f"before {esc(words.step(death, plan.node_at(death)))}" if death < plan.steps else "at the end"
    return esc(why.sentence.removeprefix("dies "))


def _handoff(why: Explanation) -> str:
    lines = [f"<li>{_given(why.handed_to, why.handed_over)}</li>"] if why.handed_to else []
    if why.granted_by and not why.takes_over:
        lines.append(f"<li>{_got(why.granted_by, False)}</li>")
    lines += [
        f"<li>to {_name(r.target)} refused: {esc(REFUSAL_WORDS.get(r.condition, r.condition))}</li>"
        for r in why.refusals
    ]
    if not lines:
        return '<span class="soft">none asked for: no last reader permits it</span>'
    return f"<ul>{''.join(lines)}</ul>"


def _handoff_of(plan: Plan, tensor_id: str) -> str:
    rows = list(zip(plan.handoffs, plan.taken, strict=True))
    lines = [f"<li>{_given(to, taken)}</li>" for (_, source, to), taken in rows if source == tensor_id]
    lines += [f"<li>{_got(source, taken)}</li>" for (_, source, to), taken in rows if to == tensor_id]
    return f"<ul>{''.join(lines)}</ul>" if lines else '<span class="soft">none in the plan</span>'


def _given(to: str, taken: bool) -> str:
    return f"granted to {_name(to)}, " + ("which lies on its bytes" if taken else "which lies elsewhere: not taken")


def _got(source: str, taken: bool) -> str:
    return f"took over {_name(source)}" if taken else f"granted the place of {_name(source)}, not taken"
