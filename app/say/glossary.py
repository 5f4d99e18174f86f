"""The definitions of ``docs/glossary.md``, for hover help: one noun, one word, one meaning."""

from __future__ import annotations

import re
from functools import cache

from app.places import place

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


def define(term: str) -> str:
    """The definition of a term; an empty text where there is none."""
    return definitions().get(term.lower(), "")
