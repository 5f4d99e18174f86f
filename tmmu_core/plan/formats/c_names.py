"""What things are called in C: every name legal in C11 and C++17, no two alike, the same in header, source and JSON.

A model's, a memory's and a tensor's name are free text; in C only letters, digits and single underscores are left of
them. Where two of them then look alike, or one looks like a name made from the other (memory ``A_SIZE`` beside the size
of memory ``A``), they are told apart by their number. The two suffixes ``__blob`` and ``__source`` are the render
plan's own; nothing else has two underscores in a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

LONGEST = 80
"""Letters of a name that are kept; what is cut off is told apart by number, as what looks alike is."""
REGION_NAMES = ("", "_SIZE", "_ALIGNMENT")
TENSOR_NAMES = ("_REGION", "_OFFSET", "_SIZE")


@dataclass(frozen=True)
class RegionNames:
    """One arena's names."""

    stem: str
    """Upper case: the enumerator, and with ``_SIZE`` and ``_ALIGNMENT`` the macros."""
    symbol: str
    """Lower case: the arena's buffer; a cold constant's is its blob."""
    source: str = ""
    """The symbol of a staged arena's source blob."""

    @property
    def blob(self) -> str:
        """The symbol of a constant arena's bytes: its source where it is staged, else the arena itself."""
        return self.source or self.symbol


def identifier(text: str) -> str:
    """``text`` as part of a C identifier: lower case, runs of everything else one underscore, none at the ends."""
    plain = "".join(c if c.isascii() and c.isalnum() else " " for c in text[: 4 * LONGEST]).lower()
    return "_".join(plain.split())[:LONGEST].rstrip("_")


def c_prefix(module_prefix: str) -> str:
    """What the names in C begin with, and the names of both files: ``<c_prefix>_memory.h`` and ``.c``."""
    name = identifier(module_prefix)[:40].rstrip("_") or "model"
    return f"m_{name}" if name[0].isdigit() else name


def region_names(prefix: str, regions: Sequence[tuple[str, str, bool]]) -> tuple[RegionNames, ...]:
    """The names of arenas given as ``(role, memory, is_staged)`` in region order. ``prefix``: :func:`c_prefix`'s."""
    taken: set[str] = set()
    found = []
    for number, (role, memory, is_staged) in enumerate(regions):
        name = next(
            name
            for name in _spellings(identifier(memory), number)
            if taken.isdisjoint(f"{role}_{name}{suffix}".upper() for suffix in REGION_NAMES)
        )
        taken |= {f"{role}_{name}{suffix}".upper() for suffix in REGION_NAMES}
        symbol = f"{prefix}_{role}_{name}"
        blob = {True: "", False: "__blob"}[is_staged] if role == "constant" else ""
        source = f"{symbol}__source" if is_staged else ""
        found.append(RegionNames(f"{prefix}_region_{role}_{name}".upper(), symbol + blob, source))
    return tuple(found)


def _spellings(name: str, number: int) -> Iterator[str]:
    """``name`` as it is, then with its number, then with another one behind it, until somebody is content."""
    if name:
        yield name
    name = f"{name}_{number}".lstrip("_")
    yield name
    yield from (f"{name}_{again}" for again in count())


def tensor_stems(prefix: str, tensor_ids: Sequence[str]) -> dict[str, str]:
    """Tensor id → the stem of its macros, upper case; ids that look alike in C are told apart by their position."""
    plain = [identifier(tensor_id).upper() for tensor_id in tensor_ids]
    seen = Counter(plain)
    return {
        tensor_id: f"{prefix.upper()}_T{at}_{name}".rstrip("_")
        if seen[name] > 1 or not name
        else f"{prefix.upper()}_T_{name}"
        for at, (tensor_id, name) in enumerate(zip(tensor_ids, plain, strict=True))
    }
