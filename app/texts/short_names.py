"""Shorten names to a number of letters. Words that many names share are omitted first: "layers.11" keeps its number."""

import re
from collections import Counter
from collections.abc import Callable, Iterable

from app.texts.numbers import shortened

_PART = re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9]")


def shortener(names: Iterable[str]) -> Callable[[str, int], str]:
    """Return a function ``short(name, letters)`` for the names of a plan; "…" replaces omitted words."""
    holders = Counter(part for name in names for part in set(_PART.findall(name)))

    def short(name: str, letters: int) -> str:
        parts = _PART.findall(name)
        words = [k for k, part in enumerate(parts) if part.isalnum()]
        kept, text = set(words), name
        for k in sorted(words, key=lambda k: -holders[parts[k]])[:-1]:
            if len(text) <= letters:
                break
            kept.remove(k)
            text = _elided(parts, kept)
        return shortened(text, letters)

    return short


def _elided(parts: list[str], kept: set[int]) -> str:
    """Return the words ``kept`` with their separators, and "…" in place of the other words."""
    text, between = "", ""
    for k, part in enumerate(parts):
        if not part.isalnum():
            between = between if between == "…" else between + part
        elif k in kept:
            text, between = text + between + part, ""
        else:
            between = "…"
    return text + between
