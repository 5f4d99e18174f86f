"""The definitions of ``docs/glossary.md``, for hover help: one noun, one word, one meaning."""

from __future__ import annotations

import re
from functools import cache
from html import escape

from tmmu_core.door import place

PATH = place("docs/glossary.md")
_ENTRY = re.compile(r"^\s*(?:[-*|]\s*)?\*\*(?P<term>[^*]+?)\*\*\s*(?:\([^)]*\))?\s*(?:[-—–:|.]\s*)?(?P<text>.*)$")


def parse(text: str) -> dict[str, str]:
    """Term (lower case) → definition, from entries that begin with the term in bold, up to a blank line or the next."""
    entries: dict[str, str] = {}
    terms: list[str] = []
    for line in text.splitlines():
        match = _ENTRY.match(line)
        if match:
            terms = [part.strip().lower() for part in re.split(r"[,/]", match["term"]) if part.strip()]
            for term in terms:
                entries.setdefault(term, match["text"].strip(" |"))
        elif not line.strip() or line.startswith("#"):
            terms = []
        else:
            for term in terms:
                entries[term] = f"{entries[term]} {line.strip()}".strip()
    return {term: re.sub(r"[*`]|\[([^\]]+)\]\([^)]*\)", r"\1", text) for term, text in entries.items()}


@cache
def definitions() -> dict[str, str]:
    """Every definition; none where the docs are not beside the package."""
    return parse(PATH.read_text(encoding="utf-8")) if PATH.exists() else {}


@cache
def _terms() -> tuple[re.Pattern[str], dict[str, str]]:
    """What finds a term in a text, the longest first and in the plural too; and what it finds → its definition."""
    known = {form: text for term, text in definitions().items() for form in (term, f"{term}s")}
    known |= definitions()
    longest = "|".join(re.escape(form) for form in sorted(known, key=lambda form: (-len(form), form)))
    # A name of a tensor or a file is no term, though a term may be a part of it.
    return re.compile(rf"(?<![\w./@:#=-])(?:{longest})(?![\w/@=-]|\.\w)"), known


def explained(html: str, once: bool = True) -> str:
    """Escaped text whose terms have their definitions one hover away; each is explained where it comes first."""
    finds, known = _terms()
    if not known:
        return html
    met: set[str] = set()

    def mark(found: re.Match[str]) -> str:
        text = known[found[0]]
        if once and text in met:
            return found[0]
        met.add(text)
        return f'<abbr title="{escape(text, quote=True)}">{found[0]}</abbr>'

    return finds.sub(mark, html)


def define(term: str) -> str:
    """The definition of a term; an empty text where there is none."""
    return definitions().get(term.lower(), "")
