"""XLA dump folders: list the modules of a folder, and join the files of one module.

``--xla_dump_to=DIR`` writes dozens of files per module. A module can be opened if both its buffer assignment and its
live ranges exist; the program's text adds the origin of buffers. :mod:`.xla_dump` reads the joined files.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.xla import xla_dump

LISTED = 12
MOST_PROGRAM = 1 << 28
"""Bytes up to which a program's text is read: it may print constants of any size, and only adds names."""


@dataclass(frozen=True)
class Module:
    """A module of a dump that can be opened."""

    name: str
    """XLA's name with its number: ``module_0008.jit_step.cpu_after_optimizations``."""
    files: tuple[str, ...]
    """Its buffer assignment, its live ranges and, if it is there and not too large, its program's text."""
    size: int
    """Bytes of its buffer assignment, used to sort modules."""


def modules(files: Mapping[str, int]) -> tuple[Module, ...]:
    """Return the modules among the files ``name → bytes``, the largest first."""
    found = []
    for assignment, size in files.items():
        stem = assignment.removesuffix(xla_dump.ASSIGNMENT_ENDING)
        ranges, program = xla_dump.companions(assignment) or ("", "")
        if stem != assignment and ranges in files:
            is_readable = files.get(program, MOST_PROGRAM + 1) <= MOST_PROGRAM
            found.append(Module(stem, (assignment, ranges, *([program] if is_readable else [])), size))
    return tuple(sorted(found, key=lambda module: (-module.size, module.name)))


def sizes_in(folder: Path) -> dict[str, int]:
    """Return ``name → bytes`` of the files in a folder, without those deleted meanwhile. Raises ``OSError``."""
    sizes = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                if entry.is_file():
                    sizes[entry.name] = entry.stat().st_size
    return sizes


def only(found: Sequence[Module], folder: str) -> Module:
    """Return the only module of a dump. Raises ``UnreadableInput`` with a list if there are several, or none."""
    if len(found) == 1:
        return found[0]
    if not found:
        raise UnreadableInput(
            "the folder contains no module of an XLA dump.",
            source=folder,
            hint="Dump with XLA_FLAGS='--xla_dump_to=DIR --xla_dump_hlo_as_text': a module is a "
            f"*{xla_dump.ASSIGNMENT_ENDING} with its *{xla_dump.RANGES_ENDING}.",
        )
    offered = [f"  {PurePath(folder) / module.files[0]}" for module in found[:LISTED]]
    if len(found) > LISTED:
        offered.append(f"  and {len(found) - LISTED} smaller ones")
    raise UnreadableInput(
        f"the dump holds {len(found)} modules.",
        source=folder,
        hint="\n".join(["Open one of these files (largest first), or open the folder with tmmu explore:", *offered]),
    )


def joined(files: Sequence[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """Return uploaded files with the files of each module of an XLA dump joined.

    Other files of a dump (earlier and later programs, objects, reports) are dropped if their module is complete; all
    other files are unchanged.
    """
    data = dict(files)
    found = modules({name: len(content) for name, content in files})
    stems = tuple({module.name.partition(".")[0] + "." for module in found})
    left = [(name, content) for name, content in files if not name.startswith(stems)]
    return [*left, *(of_module(module, data.__getitem__) for module in found)]


def of_module(module: Module, read: Callable[[str], bytes]) -> tuple[str, bytes]:
    """Return ``(name, bytes)`` of a module's files, joined for :func:`.xla_dump.read`."""
    return f"{module.name}.txt", b"\n".join(map(read, module.files))
