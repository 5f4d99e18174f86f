"""``NAME=VALUE,…`` in options and links. Pure.

A name is whatever a graph calls its dimensions and arenas. One that would be read otherwise (with a comma, a quote or
a space at an end) stands as a JSON string: ``"a,b"=8``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

_QUOTED = json.JSONDecoder()


def read_pairs(text: str) -> list[tuple[str | None, str]]:
    """``(name, value)`` of each part, in their order; the name is ``None`` where a part has none.

    Raises ``ValueError`` with a sentence where a name stands twice.
    """
    pairs: list[tuple[str | None, str]] = []
    rest = text.strip()
    while rest:
        name, rest = _quoted(rest)
        part, _, rest = rest.partition(",")
        if name is None:
            said, _, part = part.rpartition("=")
            name = said.strip() or None
        if name is not None or part.strip():
            pairs.append((name, part.strip()))
        rest = rest.strip()
    seen: set[str | None] = set()
    for name, _ in pairs:
        if name in seen:
            raise ValueError(f"{name!r} stands twice." if name else f"{text[:80]!r} gives more than one value.")
        seen.add(name)
    return pairs


def _quoted(rest: str) -> tuple[str | None, str]:
    """``(name, what stands behind its =)`` where a part begins with a quoted name; else ``(None, all of it)``."""
    if rest.startswith('"'):
        try:
            name, end = _QUOTED.raw_decode(rest)
        except ValueError:
            return None, rest
        behind = rest[end:].lstrip()
        if behind.startswith("="):
            return name, behind[1:]
    return None, rest


def pair_texts(pairs: Iterable[tuple[str | None, int]]) -> list[str]:
    """Each pair as it is read; the value alone where there is no name."""
    return [str(value) if name is None else f"{_name(name)}={value}" for name, value in pairs]


def _name(name: str) -> str:
    plain = name and name == name.strip() and "," not in name and not name.startswith('"')
    return name if plain else json.dumps(name, ensure_ascii=False)
