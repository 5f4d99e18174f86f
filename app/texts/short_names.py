"""Shorten names to a number of letters. Words that many names share are omitted first: "layers.11" keeps its number."""

import re
from collections import Counter
from collections.abc import Callable, Iterable

from app.texts.numbers import shortened

_WORD = re.compile(r"([A-Za-z0-9]+)")  # ``split`` returns words at odd positions, separators at even ones


def shortener(names: Iterable[str]) -> Callable[[str, int], str]:
    """Return a function ``short(name, letters)`` for the names of a plan; "…" replaces omitted words."""
    names_with_word = Counter(word for name in names for word in set(_WORD.split(name)[1::2]))

    def short(name: str, letters: int) -> str:
        parts, text = _WORD.split(name), name
        most_common_first = sorted(range(1, len(parts), 2), key=lambda k: -names_with_word[parts[k]])
        for k in most_common_first[:-1]:
            if len(text) <= letters:
                break
            parts[k - 1 : k + 2] = "", "…", ""  # a word and the separators around it
            text = re.sub("…+", "…", "".join(parts))
        return shortened(text, letters)

    return short
