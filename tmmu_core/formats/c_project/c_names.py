"""Compute names in C: legal in C11 and C++17, unique, the same in header, source and JSON.

The names of models, memories and tensors are any text. Letters, digits and single underscores are kept. If two names
become equal, or a name becomes equal to a derived name (memory ``A_SIZE`` and the size of memory ``A``), a number is
added to the name. Only the suffixes ``__blob`` and ``__source`` have two underscores in a row.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count

LONGEST = 80
"""Maximum characters of a name; truncated names are made unique by number."""
REGION_NAMES = ("", "_SIZE", "_ALIGNMENT")


@dataclass(frozen=True)
class RegionNames:
    """The names of one arena."""

    stem: str
    """Upper case: the name of the enumerator; with ``_SIZE`` and ``_ALIGNMENT``, the names of the macros."""
    symbol: str
    """In lower case: the symbol of the arena's buffer, or of the blob of a constant arena that is not staged."""
    source: str = ""
    """The symbol of a staged arena's source blob."""

    @property
    def blob(self) -> str:
        """The symbol of a constant arena's bytes: its source if it is staged, else the arena itself."""
        return self.source or self.symbol


def identifier(text: str) -> str:
    """Return ``text`` as part of a C identifier: letters and digits in lower case, joined by single underscores."""
    plain = "".join(c if c.isascii() and c.isalnum() else " " for c in text[: 4 * LONGEST]).lower()
    return "_".join(plain.split())[:LONGEST].rstrip("_")


def c_prefix(module_prefix: str) -> str:
    """Return the prefix of all names in C and of the files: ``<c_prefix>_memory.h`` and ``.c``."""
    name = identifier(module_prefix)[:40].rstrip("_") or "model"
    return f"m_{name}" if name[0].isdigit() else name


def region_names(prefix: str, regions: Sequence[tuple[str, str, bool]]) -> tuple[RegionNames, ...]:
    """Return the names of arenas given as ``(role, memory, is_staged)`` in region order."""
    taken: set[str] = set()
    found = []
    for number, (role, memory, is_staged) in enumerate(regions):
        for name in _spellings(identifier(memory), number):
            macros = {f"{role}_{name}{suffix}".upper() for suffix in REGION_NAMES}
            if taken.isdisjoint(macros):
                break
        taken |= macros
        symbol = f"{prefix}_{role}_{name}"
        blob = "__blob" if role == "constant" and not is_staged else ""
        source = f"{symbol}__source" if is_staged else ""
        found.append(RegionNames(f"{prefix}_region_{role}_{name}".upper(), symbol + blob, source))
    return tuple(found)


def _spellings(name: str, number: int) -> Iterator[str]:
    """Return ``name``, then ``name`` with its number, then with further numbers."""
    numbered = f"{name}_{number}".lstrip("_")
    return chain([name] if name else [], [numbered], (f"{numbered}_{again}" for again in count()))


def tensor_stems(prefix: str, tensor_ids: Sequence[str]) -> dict[str, str]:
    """Return tensor id → the prefix of its macros, upper case; ids that become equal get their position."""
    names = [identifier(tensor_id).upper() for tensor_id in tensor_ids]
    times = Counter(names)
    stems = {}
    for at, (tensor_id, name) in enumerate(zip(tensor_ids, names, strict=True)):
        number = str(at) if times[name] > 1 or not name else ""
        stems[tensor_id] = f"{prefix.upper()}_T{number}_{name}".rstrip("_")
    return stems
