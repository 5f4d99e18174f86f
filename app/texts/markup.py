"""HTML fragments: titles, tables, cards, glossary definitions. Texts are escaped, except those called HTML."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any
from urllib.parse import quote, urlencode

from markupsafe import Markup

from app.texts import numbers
from tmmu_core.base.app_package import project_path
from tmmu_core.formats.open_file import nearest_reader, other_readers
from tmmu_core.plans.model import FEASIBLE, UNPROVEN, ArenaSummary

_LINK = "?tensor="
_ENTRY = re.compile(r"^\*\*([^*]+)\*\* — (.+)$", re.M)  # (terms separated by commas, definition)
TERM_OF = {
    **dict.fromkeys(("memory held", "buffer of", "used by"), "storage"),
    **dict.fromkeys(("written by", "first write"), "birth"),
    **dict.fromkeys(("idle", "idle steps", "bytes × idle steps", "longest idle range"), "idle step"),
    **dict.fromkeys(("previous in slot", "next in slot", "order in slot"), "tenant"),
    **dict.fromkeys(("operator", "producer"), "node"),
    "tensor live": "live range",
    "memory": "platform memory",
    "memory freed": "last read",
    "freed": "death",
    "view of": "view",
    "spilled": "spill",
    "steps": "step",
    "hex": "offset",
}
"""Label in a card or table → term of the glossary, for labels that are not terms."""


def esc(text: object) -> str:
    """Return a text escaped for HTML."""
    return escape(str(text), quote=True)


def complete_links(html: str, query: Mapping[str, str]) -> str:
    """Return ``html`` with ``query`` added to each tensor link. A link still selects its own tensor."""
    kept = urlencode({key: text for key, text in query.items() if key != "tensor"}, errors="replace")
    return html.replace(f'href="{_LINK}', f'href="?{esc(kept)}&amp;tensor=') if kept else html


def optimality(status: str) -> str:
    """Return the text of an optimality status: ``not proven`` for a valid plan without a proof."""
    return "not proven" if status in (FEASIBLE, UNPROVEN) else status


def size(nbytes: int) -> str:
    """Return a byte count in short form as HTML, with the exact count as hover text."""
    return f'<span title="{numbers.exact_bytes(nbytes)}">{numbers.short_bytes(nbytes)}</span>'


def headline(text: str, why: str, *, mark: str = "", bad: bool = False) -> str:
    """Return the first line of a page: the memory that the plan needs, and why. ``mark``: the verdict as HTML."""
    css = ' class="bad"' if bad else ""
    title = f'<h1{css}>{explained(esc(text))}</h1> <span class="why">{explained(esc(why))}</span>'
    return f'<div class="tm tm-headline">{mark} {title}</div>'


def view_title(title: str, notes: Iterable[str] = ()) -> str:
    """Return the title of a view with notes (HTML) on its right. The title states the result of the view."""
    return f'<div class="tm tm-title"><h2>{explained(esc(title))}</h2>{chips(notes)}</div>'


def chips(notes: Iterable[str]) -> str:
    """Return notes (HTML) in one line."""
    return f'<div class="tm chips">{"".join(f"<span>{note}</span>" for note in notes if note)}</div>'


def heading(title: str, note: str = "") -> str:
    """Return the heading of a chart or table, with a note in small letters."""
    small = f"<small>{explained(esc(note))}</small>" if note else ""
    return f'<div class="tm tm-sub"><h2>{explained(esc(title))}{small}</h2></div>'


def empty(title: str, sentence: str) -> str:
    """Return the text of a page or section without data: its title, and a sentence about the reason or next step."""
    return f'<div class="tm tm-empty"><strong>{esc(title)}</strong>{explained(esc(sentence))}</div>'


def fragment(name: str, **values: Any) -> str:
    """Render the template ``name.html.j2`` of this folder; ``values`` are escaped unless they are ``Markup``."""
    return str(_environment().get_template(f"{name}.html.j2").render(values))


def tensor_link(name: str, letters: int = 0, text: str = "") -> Markup:
    """Return a link that selects a tensor; :func:`complete_links` adds the query of the page."""
    label = text or (numbers.shortened(name, letters) if letters else name)
    href, escaped = _LINK + quote(name, safe="", errors="replace"), esc(name)
    return Markup(f'<a href="{esc(href)}" data-go="{escaped}" title="select {escaped}"><code>{esc(label)}</code></a>')


@cache
def _environment() -> Any:
    import jinja2  # only commands with HTML load it

    def term(label: str, name: str = "") -> Markup:
        """Return a label with the definition of its term, or of the term ``name``, as hover text."""
        definition = esc(define(name or label))
        return Markup(f'<abbr title="{definition}">{esc(label)}</abbr>' if definition else esc(label))

    loader = jinja2.FunctionLoader(lambda name: (files(__package__) / name).read_text(encoding="utf-8"))
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, loader=loader
    )
    environment.filters |= {"full": numbers.full_bytes, "short": numbers.short_bytes, "exact": numbers.exact_bytes}
    environment.filters |= {"offset": numbers.offset, "tensor": tensor_link, "term": term, "optimality": optimality}
    environment.filters["explained"] = lambda text: Markup(explained(esc(text)))
    environment.globals["numbers"] = numbers
    return environment


def arena_table(arenas: Sequence[ArenaSummary], *, slots: bool) -> str:
    """Return the table of arenas with a bar per arena. ``slots``: whether the plan has slots."""
    limits = (a.capacity_bytes for a in arenas if a.capacity_bytes < numbers.UNLIMITED)
    scale, paged = max([1, *(a.extent_bytes for a in arenas), *limits]), any(a.page_size for a in arenas)
    return fragment("arenas", arenas=arenas, slots=slots, scale=scale, paged=paged)


def error_card(card: Mapping[str, Any]) -> str:
    """Return the card of an error: code, message, place and fix. Other file readers and the error record are folded."""
    record = card.get("record", {})
    tried = [(row["reader"], row["reason"]) for row in record.get("tried", ())]
    near = nearest_reader(tried, str(card["message"]), str(card.get("source", "")))
    others = len(tried) - (near in tried)
    folded = [f"why {numbers.count(others, 'other reader')} rejected the file"] if others else []
    summary = " · ".join([*folded, "the error as JSON"] if record else folded)
    return fragment(
        "error_card",
        card={**dict.fromkeys(("source", "hint", "code_id", "numeric_code", "severity")), **record, **card},
        place=record.get("place") or record.get("diagnostics", {}).get("path"),
        near=near,
        rest=other_readers(tried, near),
        record=json.dumps(record, indent=2, ensure_ascii=False) if record else "",
        folded=summary[:1].upper() + summary[1:],
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Iterable[int] = (), now: int = -1) -> str:
    """Return a table of HTML cells. ``numbers``: right-aligned columns; ``now``: the highlighted row, or −1."""
    right_aligned = set(numbers)

    def cells(tag: str, texts: Sequence[str]) -> str:
        attributes = [' class="n"' if column in right_aligned else "" for column in range(len(texts))]
        if 0 < len(texts) < len(head):  # the last cell of a short row spans the remaining columns
            attributes[-1] = f' colspan="{len(head) - len(texts) + 1}"'
        return "".join(f"<{tag}{attribute}>{text}</{tag}>" for attribute, text in zip(attributes, texts, strict=True))

    ths = cells("th", [explained(esc(text)) for text in head])
    trs = "".join(f"<tr{' class=now' if k == now else ''}>{cells('td', row)}</tr>" for k, row in enumerate(rows))
    keyboard_scroll = 'tabindex="0" role="region" aria-label="table"'
    body = f"<thead><tr>{ths}</tr></thead><tbody>{trs}</tbody>"
    return f'<div class="tm tm-table" {keyboard_scroll}><table>{body}</table></div>'


@cache
def definitions() -> dict[str, str]:
    """Return term (lower case) → definition, from the glossary."""
    entries = _ENTRY.findall(project_path("docs/glossary.md").read_text(encoding="utf-8"))
    return {term: text.replace("`", "") for terms, text in entries for term in terms.lower().split(", ")}


@cache
def _terms() -> tuple[re.Pattern[str], dict[str, str]]:
    """Return ``(pattern, term → definition)`` of all terms and their plurals; the pattern prefers longer terms."""
    definition_of = {f"{term}s": definition for term, definition in definitions().items()} | definitions()
    alternatives = "|".join(re.escape(term) for term in sorted(definition_of, key=lambda term: (-len(term), term)))
    # The pattern does not match a part of the name of a tensor or a file.
    return re.compile(rf"(?<![\w./@:#=-])(?:{alternatives})(?![\w/@=-]|\.\w)"), definition_of


def explained(html: str) -> str:
    """Return ``html``, an escaped text, with the definition of each term as hover text at its first occurrence."""
    pattern, definition_of = _terms()
    shown: set[str] = set()

    def mark(found: re.Match[str]) -> str:
        definition = definition_of[found[0]]
        if definition in shown:
            return found[0]
        shown.add(definition)
        return f'<abbr title="{escape(definition, quote=True)}">{found[0]}</abbr>'

    return pattern.sub(mark, html)


def define(label: str) -> str:
    """Return the definition of a term, or of a label's term; "" for an unknown label."""
    return definitions().get(TERM_OF.get(label, label).lower(), "")
