"""HTML fragments: titles, tables, the table of arenas and cards. Texts are escaped, unless a parameter is HTML."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from markupsafe import Markup

from app.texts import numbers as words
from app.texts.glossary import define as defined
from app.texts.glossary import explained
from app.texts.refusal_text import nearest, others
from tmmu_core.plans.figures.metrics import fragmentation_ratio, reuse_ratio
from tmmu_core.plans.model import FEASIBLE, UNPROVEN, ArenaSummary

if TYPE_CHECKING:
    import jinja2

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
    """Return a text escaped for HTML."""
    return escape(str(text), quote=True)


def link_to(tensor_id: str, text: str) -> str:
    """Return ``text`` (HTML) as a link that selects a tensor; :func:`complete_links` adds the query of the page."""
    href = f"{_LINK}{quote(tensor_id, safe='', errors='replace')}"
    return f'<a href="{esc(href)}" data-go="{esc(tensor_id)}" title="select {esc(tensor_id)}">{text}</a>'


def complete_links(html: str, query: Mapping[str, str]) -> str:
    """Return ``html`` with ``query`` added to the tensor links, so that a link keeps the settings of the page."""
    of_tensor = ("tensor", "tried")
    rest = urlencode({key: value for key, value in query.items() if key not in of_tensor}, errors="replace")
    return html.replace(f'href="{_LINK}', f'href="?{esc(rest)}&amp;tensor=') if rest else html


_LINK = "?tensor="


def optimality(status: str) -> str:
    """Return the text of an optimality status; the interface has one text for all sizes without a proof."""
    return "not proven" if status in (FEASIBLE, UNPROVEN) else status


def help_on(label: str, definition: str) -> str:
    """Return a label as HTML with its definition as hover text."""
    return f'<abbr title="{esc(definition)}">{esc(label)}</abbr>' if definition else esc(label)


def size(nbytes: int) -> str:
    """Return a byte count in short form as HTML, with the exact count as hover text."""
    return f'<span title="{words.exact_bytes(nbytes)}">{words.short_bytes(nbytes)}</span>'


def headline(text: str, why: str, *, mark: str = "", bad: bool = False) -> str:
    """Return the first line of a page: memory that the plan needs, and the reason. ``mark``: the verdict as HTML."""
    css = ' class="bad"' if bad else ""
    inner = f'<h1{css}>{explained(esc(text))}</h1> <span class="why">{explained(esc(why))}</span>'
    return f'<div class="tm tm-headline">{mark} {inner}</div>'


def claim(title: str, notes: Iterable[str] = ()) -> str:
    """Return the title of a view with notes (HTML) on its right. The title states the result of the view."""
    return f'<div class="tm tm-claim"><h2>{explained(esc(title))}</h2>{chips(notes)}</div>'


def chips(notes: Iterable[str]) -> str:
    """Return notes (HTML) in one line."""
    return f'<div class="tm chips">{"".join(f"<span>{note}</span>" for note in notes if note)}</div>'


def heading(title: str, note: str = "") -> str:
    """Return the heading of a chart or table."""
    small = f"<small>{explained(esc(note))}</small>" if note else ""
    return f'<div class="tm tm-sub"><h2>{explained(esc(title))}{small}</h2></div>'


def picture(svg: str, what: str) -> str:
    """Return an SVG picture as an image of full width; ``what`` is its alternative text."""
    coded = b64encode(svg.encode()).decode()
    return f'<img class="tm-picture" alt="{esc(what)}" src="data:image/svg+xml;base64,{coded}">'


def empty(title: str, sentence: str) -> str:
    """Return the text of an empty page or section: its title, and a sentence about the next action."""
    return f'<div class="tm tm-empty"><strong>{esc(title)}</strong>{explained(esc(sentence))}</div>'


def fragment(name: str, **values: Any) -> str:
    """Render the template ``name.html.j2`` in this folder; all values are escaped."""
    return str(_environment().get_template(f"{name}.html.j2").render(values))


@cache
def _environment() -> jinja2.Environment:
    import jinja2  # only commands with HTML load it

    def tensor(name: str, letters: int = 0, text: str = "") -> Markup:
        shown = text or (words.shortened(name, letters) if letters else name)
        return Markup(link_to(name, f"<code>{esc(shown)}</code>"))

    def term(label: str) -> Markup:
        return Markup(help_on(label, defined(label)))

    loader = jinja2.FunctionLoader(lambda name: (files(__package__) / name).read_text(encoding="utf-8"))
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, loader=loader
    )
    environment.filters |= {"full": words.full_bytes, "short": words.short_bytes, "exact": words.exact_bytes}
    environment.filters |= {"offset": words.offset, "tensor": tensor, "term": term, "optimality": optimality}
    environment.filters["explained"] = lambda text: Markup(explained(esc(text)))
    environment.globals["words"] = words
    return environment


def strip(arenas: Sequence[ArenaSummary], define: Mapping[str, str], *, slots: bool = True) -> str:
    """Return the table of arenas with a bar per arena. ``define``: term → hover text."""
    limits = (a.capacity_bytes for a in arenas if a.capacity_bytes < words.UNLIMITED)
    return fragment(
        "arenas",
        arenas=arenas,
        define=define,
        slots=slots,
        scale=max([1, *(a.extent_bytes for a in arenas), *limits]),
        paged=any(arena.page_size for arena in arenas),
        reuse_ratio=reuse_ratio,
        fragmentation_ratio=fragmentation_ratio,
    )


def error_card(card: Mapping[str, Any]) -> str:
    """Return the card of an error: code, message, place and fix, with a folded part of further details."""
    near = nearest(card.get("tried", ()), str(card["message"]), str(card.get("source", "")))
    rest, record = others(card.get("tried", ()), near), card.get("record")
    folded = [words.count(sum(readers.count(",") + 1 for readers, _ in rest), "other reader")] if rest else []
    folded += ["the error record"] if record else []
    text = " · ".join(folded)
    keys = ("title", "code", "number", "severity", "message", "source", "place", "hint")
    return fragment(
        "error_card",
        card={key: card.get(key) for key in keys},
        near=near,
        rest=rest,
        record=json.dumps(record, indent=2, ensure_ascii=False) if record else "",
        folded=text[:1].upper() + text[1:],
    )


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
    scrollable = 'tabindex="0" role="region" aria-label="table"'  # also with the keyboard
    body = f"<thead><tr>{ths}</tr></thead><tbody>{trs}</tbody>"
    return f'<div class="tm tm-table" {scrollable}><table>{body}</table></div>'
