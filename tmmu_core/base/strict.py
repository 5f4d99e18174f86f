"""Hints and values for errors about user input, and a strict parser of whole numbers."""

import re
from collections.abc import Collection, Iterable, Iterator
from difflib import get_close_matches
from typing import Any

import msgspec
from msgspec import inspect

from tmmu_core.base.errors import U64_MAX

SHOWN = 40  # characters of a long rejected value that an error message repeats
LISTED = 24  # maximum number of known names that an error message lists
_UNKNOWN = re.compile(r"(?:Object contains unknown field `(.*?)`|Invalid enum value '?(.*?)'?)(?: - at `(.*)`)?", re.S)


def _similar(name: str, known: Collection[str], least: float) -> str | None:
    """Return the name in ``known`` that is most similar to ``name``, ignoring case; ``None`` below ``least``."""
    folded = {other[: 4 * SHOWN].casefold(): other for other in sorted(known, reverse=True)}
    found = get_close_matches(str(name)[: 4 * SHOWN].casefold(), folded, 1, least)
    return folded[found[0]] if found else None


def resembles(name: str, known: Collection[str]) -> bool:
    """Return whether ``name`` is probably a misspelling of a name in ``known``."""
    return _similar(name, known, 0.6) is not None


def closest_hint(name: str, known: Iterable[str]) -> str:
    """Return the hint of an error about an unknown name: a similar known name, and a list of known names."""
    names = list(dict.fromkeys(known))
    if not names:
        return "No name is defined here."
    more = f" and {len(names) - LISTED} more" * (len(names) > LISTED)
    similar = _similar(name, names, 0.5)
    question = f"Did you mean {similar!r}? " if similar else ""
    return f"{question}Known: {', '.join(names[:LISTED])}{more}."


def field_hint(error: msgspec.ValidationError, shape: Any) -> str:
    """Return the hint for an unknown field or enum value in a document of type ``shape``; ``""`` for other errors."""
    match = _UNKNOWN.fullmatch(str(error))
    if match is None:
        return ""
    kinds = [inspect.type_info(shape)]
    for step in re.findall(r"\.[^.\[\]]+|\[[^\]]*\]", match[3] or ""):
        kinds = [inner for kind in kinds for inner in _types_at(kind, step)]
    names = [name for kind in kinds for name in _types_at(kind)]
    return closest_hint(match[1] or match[2], names) if names else ""


def _types_at(kind: inspect.Type, step: str = "") -> Iterator[Any]:
    """Yield the types of the field ``.name`` or the element ``[…]``; without a step, the names of fields or values."""
    for one in kind.types if isinstance(kind, inspect.UnionType) else (kind,):
        if isinstance(one, inspect.StructType | inspect.DataclassType):
            yield from (f.type if step else f.encode_name for f in one.fields if step in ("", f".{f.encode_name}"))
        elif isinstance(one, inspect.LiteralType) and not step:
            yield from map(str, one.values)
        elif isinstance(one, inspect.ListType | inspect.VarTupleType) and step:
            yield one.item_type
        elif isinstance(one, inspect.TupleType) and step:
            yield from one.item_types
        elif isinstance(one, inspect.DictType) and step:
            yield one.value_type


def shown(value: Any) -> str:
    """Return a rejected value for an error message; of a long one, the first :data:`SHOWN` characters."""
    if isinstance(value, int) and value.bit_length() > 4 * SHOWN:
        return f"a number of {value.bit_length():,} bits"
    text = repr(value)
    return text if len(text) <= 2 * SHOWN else f"{text[:SHOWN]}… ({len(text):,} characters)"


def limit_text(most: int) -> str:
    """Return a limit for an error message: ``2^64 − 1`` in place of the digits of such a number."""
    return f"2^{most.bit_length()} − 1" if most > 255 and most & (most + 1) == 0 else str(most)


def whole_number(text: str, most: int = U64_MAX, base: int = 10) -> int:
    """Parse a whole number in digits of ``base`` (at most 16). Raises ``ValueError`` if it is over ``most``."""
    word = text.strip().lower()
    digits = word.lstrip("0") or "0"
    if not word or word.strip("0123456789abcdef"[:base]):
        raise ValueError(f"{shown(text)} is not a whole number.")
    if len(digits) > len(str(most)) or int(digits, base) > most:  # ``int`` rejects more than 4,300 decimal digits
        raise ValueError(f"{shown(text)} is over {limit_text(most)}.")
    return int(digits, base)
