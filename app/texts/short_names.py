"""Names shortened to a width: words that many names share are left out first, so that "layers.11" keeps its number."""

import re
from collections import Counter
from collections.abc import Callable, Iterable

from app.texts.numbers import shortened

_PART = re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9]")


def shortener(names: Iterable[str]) -> Callable[[str, int], str]:
    """Return ``short(name, letters)`` for names of a plan; "…" replaces the omitted words."""
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
    """Return the kept words with their separators, and "…" for the removed words."""
    text, between = "", ""
    for k, part in enumerate(parts):
        if not part.isalnum():
            between = between if between == "…" else between + part
        elif k in kept:
            text, between = text + between + part, ""
        else:
            between = "…"
    return text + between
