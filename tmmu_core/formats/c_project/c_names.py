"""Compute unique C names, legal in C11 and C++17, from the names of a model, its memories and its tensors.

The name of a model, memory or tensor is any text. Its C name keeps the ASCII letters and digits, and has one underscore
for each run of other characters. A C name that is already taken gets a number: memory ``A_SIZE`` does if memory ``A``
has the macro ``A_SIZE``. Only the suffixes ``__blob`` and ``__source`` have double underscores.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, count

MAX_LENGTH = 80  # maximum number of characters of a memory or tensor name in a C name


@dataclass(frozen=True)
class RegionNames:
    """The C names of one arena."""

    stem: str  # the enumerator, and the prefix of the macros ``…_SIZE`` and ``…_ALIGNMENT``; in upper case
    symbol: str  # the array that is the arena's memory: a buffer, or the blob of an unstaged constant arena
    source: str = ""  # the array that is copied to a staged arena; ``""`` if the arena is not staged

    @property
    def blob(self) -> str:
        """The array with the bytes of a constant arena."""
        return self.source or self.symbol


def identifier(text: str) -> str:
    """Return ``text`` as part of a C name: words of lower-case ASCII letters and digits, joined by underscores."""
    words = "".join(c if c.isascii() and c.isalnum() else " " for c in text[: 4 * MAX_LENGTH]).lower()
    return "_".join(words.split())[:MAX_LENGTH].rstrip("_")


def c_prefix(module_prefix: str) -> str:
    """Return the prefix of all names in C and of the files: ``<c_prefix>_memory.h`` and ``.c``."""
    name = identifier(module_prefix)[:40].rstrip("_") or "model"
    return f"m_{name}" if name[0].isdigit() else name


def region_names(prefix: str, regions: Sequence[tuple[str, str, bool]]) -> tuple[RegionNames, ...]:
    """Return the names of ``regions``, which are ``(role, memory, is_staged)`` in region order."""
    taken: set[str] = set()
    names = []
    for number, (role, memory, is_staged) in enumerate(regions):
        stem = identifier(memory)
        numbered = f"{stem}_{number}".lstrip("_")
        for name in chain([stem] if stem else [], [numbered], (f"{numbered}_{k}" for k in count())):
            macros = {f"{role}_{name}{suffix}".upper() for suffix in ("", "_SIZE", "_ALIGNMENT")}
            if taken.isdisjoint(macros):
                break
        taken |= macros
        symbol = f"{prefix}_{role}_{name}"
        blob = "__blob" if role == "constant" and not is_staged else ""
        source = f"{symbol}__source" if is_staged else ""
        names.append(RegionNames(f"{prefix}_region_{role}_{name}".upper(), symbol + blob, source))
    return tuple(names)


def tensor_stems(prefix: str, tensor_ids: Sequence[str]) -> dict[str, str]:
    """Return tensor id → upper-case prefix of its macros. An empty or repeated C name gets the tensor's position."""
    names = [identifier(tensor_id).upper() for tensor_id in tensor_ids]
    uses = Counter(names)
    stems = {}
    for position, (tensor_id, name) in enumerate(zip(tensor_ids, names, strict=True)):
        number = position if uses[name] > 1 or not name else ""
        stems[tensor_id] = f"{prefix.upper()}_T{number}_{name}".rstrip("_")
    return stems
