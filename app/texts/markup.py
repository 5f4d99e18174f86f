"""HTML fragments: titles, the table of arenas, cards, tables. Names from files are escaped by :func:`esc`."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any
from urllib.parse import quote, urlencode

from app.texts import numbers as words
from app.texts.glossary import define as defined
from app.texts.glossary import explained
from app.texts.refusal_text import nearest, others
from tmmu_core.plans.figures.metrics import fragmentation_ratio, reuse_ratio
from tmmu_core.plans.model import ArenaSummary

ROLE_COLOURS: dict[str, str] = {
    "activation": "#0072B2",
    "input": "#56B4E9",
    "output": "#A3D9B1",
    "workspace": "#E69F00",
    "gradient": "#A0276B",
    "parameter": "#8A8F98",
    "buffer": "#8A8F98",
    "constant": "#8A8F98",
    "optimizer_state": "#8A8F98",
}
PERSISTENT_COLOUR = "#8A8F98"


def esc(text: object) -> str:
    """Escape a text for HTML."""
    return escape(str(text), quote=True)


def link_to(tensor_id: str, text: str) -> str:
    """Return ``text`` (HTML) as a link that selects a tensor; :func:`complete_links` adds the rest of the query."""
    href = f"{_LINK}{quote(tensor_id, safe='', errors='replace')}"
    return f'<a href="{esc(href)}" data-go="{esc(tensor_id)}" title="select {esc(tensor_id)}">{text}</a>'


def complete_links(html: str, query: Mapping[str, str]) -> str:
    """Add ``query`` to the links of tensors, so that they keep the page and its settings."""
    of_tensor = ("tensor", "tried")
    rest = urlencode({key: value for key, value in query.items() if key not in of_tensor}, errors="replace")
    return html.replace(f'href="{_LINK}', f'href="?{esc(rest)}&amp;tensor=') if rest else html


_LINK = "?tensor="


def help_on(label: str, definition: str) -> str:
    """Return a label with its definition as hover text."""
    return f'<abbr title="{esc(definition)}">{esc(label)}</abbr>' if definition else esc(label)


def headline(text: str, why: str, *, mark: str = "", bad: bool = False) -> str:
    """Return the first line of a page: what the plan needs, and why. ``mark`` is the verdict as HTML."""
    css = ' class="bad"' if bad else ""
    inner = f'<h1{css}>{explained(esc(text))}</h1> <span class="why">{explained(esc(why))}</span>'
    return f'<div class="tm tm-headline">{mark} {inner}</div>'


def claim(title: str, notes: Iterable[str] = ()) -> str:
    """Return the title of a view, which states its result, with notes (HTML) on its right."""
    return f'<div class="tm tm-claim"><h2>{explained(esc(title))}</h2>{chips(notes)}</div>'


def chips(notes: Iterable[str]) -> str:
    """Return notes (HTML) in one line."""
    return f'<div class="tm chips">{"".join(f"<span>{note}</span>" for note in notes if note)}</div>'


def heading(title: str, note: str = "") -> str:
    """Return the heading of a chart or table."""
    small = f"<small>{explained(esc(note))}</small>" if note else ""
    return f'<div class="tm tm-sub"><h2>{explained(esc(title))}{small}</h2></div>'


def picture(svg: str, what: str) -> str:
    """Return a picture as wide as the page, with an alternative text."""
    coded = b64encode(svg.encode()).decode()
    return f'<img class="tm-picture" alt="{esc(what)}" src="data:image/svg+xml;base64,{coded}">'


def empty(title: str, sentence: str) -> str:
    """Return the placeholder of an empty page or section: what is missing."""
    return f'<div class="tm tm-empty"><strong>{esc(title)}</strong>{explained(esc(sentence))}</div>'


# --- the verdict strip -------------------------------------------------------------------------------------------


def strip(arenas: Sequence[ArenaSummary], define: Mapping[str, str], *, slots: bool = True) -> str:
    """Return the table of arenas, with bars on one byte scale. ``define``: term → hover text."""
    scale = max([1, *(a.extent_bytes for a in arenas), *(a.capacity_bytes for a in arenas if _limited(a))])
    paged = any(arena.page_size for arena in arenas)
    head = "".join(
        f"<th{' class=bar' if key == 'bar' else ''}>{help_on(label, define.get(key, ''))}</th>"
        for key, label in (
            ("arena", "arena"),
            ("bar", f"0 … {words.short_bytes(scale)}"),
            ("lower bound", "lower bound"),
            ("extent", "arena size"),
            *((("committed bytes", "committed"),) if paged else ()),
            ("gap", "gap"),
            ("capacity", "capacity"),
            ("headroom", "headroom"),
            ("reuse", "reuse"),
            ("fragmentation", "fragmentation"),
            ("slot", "slots"),
            ("certificate", "optimality"),
        )
    )
    rows = "".join(_strip_row(arena, scale, paged, slots) for arena in arenas)
    return scrolling("tm-strip", "arenas", f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>")


def _limited(arena: ArenaSummary) -> bool:
    return arena.capacity_bytes < words.UNLIMITED


def _strip_row(arena: ArenaSummary, scale: int, paged: bool, has_slots: bool) -> str:
    bound, extent = arena.bound_bytes, arena.extent_bytes
    headroom = '<span class="soft">no limit</span>' if arena.headroom_bytes is None else _exact(arena.headroom_bytes)
    none = f'<span class="soft" title="{esc(words.WHY_NO_SLOTS)}">{words.NO_SLOTS}</span>'
    live = f"<span class=soft>(minimum {arena.max_live:,})</span>"
    slots = (
        f"{arena.slots:,} <span class=soft>(minimum)</span>"
        if arena.slots == arena.max_live
        else f"{arena.slots:,} {live}"
    )
    cells = [
        _exact(bound),
        _exact(extent),
        *([_exact(arena.committed_bytes)] if paged else []),
        esc(words.over_bound(*arena.gap)),
        _exact(arena.capacity_bytes) if _limited(arena) else '<span class="soft">unlimited</span>',
        headroom,
        esc(words.ratio(reuse_ratio(arena.slots, arena.storages))) if has_slots else none,
        esc(words.ratio(fragmentation_ratio(arena.peak_live_bytes, extent))),
        slots if has_slots else f"{none} {live}",
        f'<span class="{esc(arena.status)}">{esc(arena.status)}</span>',
    ]
    tds = "".join(f"<td>{cell}</td>" for cell in cells)
    css = ' class="invalid"' if arena.status == "invalid" else "" if extent else ' class="zero"'
    return f"<tr{css}><td>{esc(arena.name)}</td><td class=bar>{_bar(arena, bound, scale)}</td>{tds}</tr>"


def _exact(n: int) -> str:
    return f'<span title="{esc(words.exact_bytes(n))}">{esc(words.short_bytes(n))}</span>'


def _bar(arena: ArenaSummary, bound: int, scale: int) -> str:
    def at(n: int) -> str:
        return f"{n * 10_000 // scale / 100:.2f}%"

    title = f"bound {words.full_bytes(bound)}, arena size {words.full_bytes(arena.extent_bytes)}"
    parts = [f'<i class="live" style="left:0;width:{at(bound)}"></i>'] if bound else []
    if arena.extent_bytes > bound:
        parts.append(f'<i class="waste" style="left:{at(bound)};width:{at(arena.extent_bytes - bound)}"></i>')
    if _limited(arena):
        parts.append(f'<i class="capacity" style="left:calc({at(min(arena.capacity_bytes, scale))} - 2px)"></i>')
        title += f", capacity {words.full_bytes(arena.capacity_bytes)}"
    return f'<div class="tm-bar" title="{esc(title)}">{"".join(parts)}</div>'


# --- cards and tables --------------------------------------------------------------------------------------------


def error_card(card: Mapping[str, Any]) -> str:
    """Return an error card: code, place and fix; other readers' reasons and the record are folded."""
    code = ""
    if card.get("code"):
        number = f" {card['number']}" if card.get("number") else ""
        severity = f" · {card['severity']}" if card.get("severity") else ""
        code = f'<span class="code mono">{esc(card["code"])}{number}{esc(severity)}</span> '
    place = "".join(
        f" <span class=soft>{label}</span> <code>{esc(card[key])}</code>"
        for key, label in (("source", "in"), ("place", "at"))
        if card.get(key) and str(card[key]) not in card["title"]
    )
    tried, message = card.get("tried", ()), str(card["message"])
    near = nearest(tried, message, str(card.get("source", "")))
    blamed = f" <b>{esc(near[0])}</b>: {esc(near[1])}." if near and near[1] != message else ""
    hint = f"<p><b>Fix:</b> {esc(card['hint'])}</p>" if card.get("hint") else ""
    return (
        f'<div class="tm tm-error" role="alert"><div class="what"><h3>{esc(card["title"])}</h3> '
        f"<p>{code}{esc(message)}{blamed}{place}</p></div>"
        f'<div class="way">{hint}{_folded(card, others(tried, near))}</div></div>'
    )


def _folded(card: Mapping[str, Any], rest: Sequence[tuple[str, str]]) -> str:
    """Return the other readers and the error record, folded."""
    record = card.get("record")
    if not rest and not record:
        return ""
    count = sum(readers.count(",") + 1 for readers, _ in rest)
    parts = [words.count(count, "other reader")] if rest else []
    parts += ["the error record"] if record else []
    lines = "".join(f"<li><b>{esc(readers)}</b>: {esc(reason)}</li>" for readers, reason in rest)
    listed = f"<ul>{lines}</ul>" if lines else ""
    text = f"<pre>{esc(json.dumps(record, indent=2, ensure_ascii=False))}</pre>" if record else ""
    summary = " · ".join(parts)
    return f"<details><summary>{esc(summary[:1].upper() + summary[1:])}</summary>{listed}{text}</details>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Iterable[int] = (), now: int = -1) -> str:
    """Return a table of HTML cells. Columns in ``numbers`` are right-aligned; row ``now`` is highlighted.

    The last cell of a shorter row spans the missing columns.
    """
    right = set(numbers)

    def css(column: int, of: int = 0) -> str:
        if 0 < of < len(head) and column == of - 1:
            return f' colspan="{len(head) - of + 1}"'
        return ' class="n"' if column in right else ""

    ths = "".join(f"<th{css(i)}>{explained(esc(text))}</th>" for i, text in enumerate(head))
    trs = "".join(
        f"<tr{' class=now' if k == now else ''}>"
        + "".join(f"<td{css(i, len(row))}>{cell}</td>" for i, cell in enumerate(row))
        + "</tr>"
        for k, row in enumerate(rows)
    )
    return scrolling("tm-table", "table", f"<thead><tr>{ths}</tr></thead><tbody>{trs}</tbody>")


def scrolling(kind: str, name: str, body: str) -> str:
    """Return a table that scrolls horizontally if needed, also by keyboard. ``body`` is HTML."""
    return f'<div class="tm {kind}" tabindex="0" role="region" aria-label="{name}"><table>{body}</table></div>'


def bullets(items: Sequence[str], most: int, css: str = "") -> str:
    """Return the first items (HTML) as a list, with the number of the others."""
    more = f"<li class=soft>and {len(items) - most:,} more</li>" if len(items) > most else ""
    return f"<ul{css and f' class={css}'}>{''.join(f'<li>{item}</li>' for item in items[:most])}{more}</ul>"


TERM_OF = {
    "tensor live": "live range",
    "written by": "birth",
    "last read": "death",
    "memory freed": "death",
    "view of": "view",
    "idle": "idle step",
    "buffer of": "storage",
    "used by": "storage",
    "memory held": "storage",
    "slot before": "tenant",
    "slot after": "tenant",
    "reuses": "taken",
    "spilled": "spill",
}
"""Card label → glossary term, where the two differ."""


def definition_list(rows: Iterable[tuple[str, str] | None]) -> str:
    """Return a definition list of ``(term, HTML)``; ``None`` draws a line."""
    inner = "".join(
        '<div class="rule"></div>' if row is None else f"<dt>{_term(row[0])}</dt><dd>{row[1]}</dd>" for row in rows
    )
    return f"<dl>{inner}</dl>"


def _term(label: str) -> str:
    return help_on(label, defined(TERM_OF.get(label, label)))
