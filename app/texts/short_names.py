"""Shorten names to a number of letters. Words that many names share are omitted first: "layers.11" keeps its number."""

import re
from collections import Counter
from collections.abc import Callable, Iterable

from app.texts.numbers import shortened

_WORD = re.compile(r"([A-Za-z0-9]+)")  # ``split`` returns words at odd positions, separators at even ones


def shortener(names: Iterable[str]) -> Callable[[str, int], str]:
    """Return a function ``short(name, letters)`` for the names of a plan; "…" replaces omitted words."""
    names_with = Counter(word for name in names for word in set(_WORD.split(name)[1::2]))

    def short(name: str, letters: int) -> str:
        parts, text = _WORD.split(name), name
        for k in sorted(range(1, len(parts), 2), key=lambda k: -names_with[parts[k]])[:-1]:
            if len(text) <= letters:
                break
            parts[k - 1 : k + 2] = "", "…", ""
            text = re.sub("…+", "…", "".join(parts))
        return shortened(text, letters)

    return short
