"""Write texts of errors about user input (hints, rejected values, limits), parse whole numbers, register types."""

import re
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from typing import Any

import msgspec
from msgspec import inspect

from tmmu_core.base.errors import U64_MAX

SHOWN_CHARACTERS = 40  # number of characters of a long rejected value in an error message
LISTED_NAMES = 24  # maximum number of known names in an error message
_UNKNOWN = re.compile(r"(?:Object contains unknown field `(.*?)`|Invalid enum value '?(.*?)'?)(?: - at `(.*)`)?", re.S)


def similar(name: str, known: Collection[str], cutoff: float) -> str | None:
    """Return the name in ``known`` most similar to ``name``, ignoring case; ``None`` if all are below ``cutoff``."""
    folded = {other[: 4 * SHOWN_CHARACTERS].casefold(): other for other in sorted(known, reverse=True)}
    found = get_close_matches(str(name)[: 4 * SHOWN_CHARACTERS].casefold(), folded, 1, cutoff)
    return folded[found[0]] if found else None


def closest_hint(name: str, known: Iterable[str]) -> str:
    """Return the hint of an error about an unknown name: a similar known name, and a list of known names."""
    names = list(dict.fromkeys(known))
    if not names:
        return "No name is allowed here. Remove it."
    more = f" and {len(names) - LISTED_NAMES} more" * (len(names) > LISTED_NAMES)
    closest = similar(name, names, 0.5)
    question = f"Did you mean {closest!r}? " if closest else ""
    return f"{question}Choose from: {', '.join(names[:LISTED_NAMES])}{more}."


def wrong_field(error: msgspec.ValidationError) -> tuple[str, str]:
    """Return what is wrong with a field, such as ``expected 'int', got 'str'``, and its path, such as ``$.size``."""
    what, _, path = str(error).partition(" - at `")
    return what[:1].lower() + what[1:].replace("`", "'"), path.rstrip("`") or "$"


def field_hint(error: msgspec.ValidationError, document_type: Any) -> str:
    """Return the hint for an unknown field or enum value in a ``document_type``; ``""`` for other errors."""
    match = _UNKNOWN.fullmatch(str(error))
    if match is None:
        return ""
    types = _alternatives(inspect.type_info(document_type))
    for part in re.findall(r"\.[^.\[\]]+|\[[^\]]*\]", match[3] or ""):
        inner: list[inspect.Type] = []  # types of the field ``.name`` or of the element ``[…]``
        for kind in types:
            if isinstance(kind, inspect.StructType | inspect.DataclassType):
                inner += [field.type for field in kind.fields if part == f".{field.encode_name}"]
            elif isinstance(kind, inspect.TupleType):
                inner += kind.item_types
            elif isinstance(kind, inspect.ListType | inspect.VarTupleType | inspect.DictType):
                inner.append(kind.value_type if isinstance(kind, inspect.DictType) else kind.item_type)
        types = [alternative for kind in inner for alternative in _alternatives(kind)]
    names: list[str] = []
    for kind in types:
        if isinstance(kind, inspect.StructType | inspect.DataclassType):
            names += [field.encode_name for field in kind.fields]
        elif isinstance(kind, inspect.LiteralType):
            names += map(str, kind.values)
    return closest_hint(match[1] or match[2], names) if names else ""


def _alternatives(kind: inspect.Type) -> list[inspect.Type]:
    return list(kind.types) if isinstance(kind, inspect.UnionType) else [kind]


def shown(value: Any) -> str:
    """Return a rejected value for an error message: shortened if long; the number of bits of a huge integer."""
    if isinstance(value, int) and value.bit_length() > 4 * SHOWN_CHARACTERS:
        return f"a number of {value.bit_length():,} bits"
    text = repr(value)
    return text if len(text) <= 2 * SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}… ({len(text):,} characters)"


def limit_text(limit: int) -> str:
    """Return a limit for an error message: its digits, or ``2^64 − 1`` for a limit of this form."""
    return f"2^{limit.bit_length()} − 1" if limit > 255 and limit & (limit + 1) == 0 else str(limit)


def whole_number(text: str, maximum: int = U64_MAX, base: int = 10) -> int:
    """Parse a whole number in ``base`` 10 or 16. Raises ``ValueError`` for other text, and above ``maximum``."""
    word = text.strip().lower()
    digits = word.lstrip("0") or "0"
    if not word or word.strip("0123456789abcdef"[:base]):
        raise ValueError(f"{shown(text)} is not a whole number of at least 0.")
    if len(digits) > len(str(maximum)) or int(digits, base) > maximum:  # ``int`` rejects more than 4,300 decimal digits
        raise ValueError(f"{shown(text)} is over {limit_text(maximum)}.")
    return int(digits, base)


def register_types(*types: Any) -> None:
    """Register types with msgspec. A module calls this after it defines them."""
    for kind in types:  # msgspec crashes if two threads at once are the first to use a type
        msgspec.json.Decoder(kind)
