"""XLA dump folders: list the modules of a folder, and join the files of one module.

``--xla_dump_to=DIR`` writes dozens of files per module. A module can be opened if both its buffer assignment and its
live ranges exist; the program's text adds the origin of buffers. :mod:`.xla_dump` reads the joined files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.xla import xla_dump, xla_program

LISTED = 12
MOST_PROGRAM = 1 << 28
"""Bytes up to which a program's text is read: it may print constants of any size, and only adds names."""


@dataclass(frozen=True)
class Module:
    """A module of a dump that can be opened."""

    name: str
    """XLA's name with its number: ``module_0008.jit_step.cpu_after_optimizations``."""
    assignment: str
    ranges: str
    size: int
    """Bytes of its buffer assignment, used to sort modules."""
    program: str = ""
    """File with the program's text; ``""`` if it is missing or larger than :data:`MOST_PROGRAM`."""


def modules(files: Mapping[str, int]) -> tuple[Module, ...]:
    """Return the modules among the files ``name → bytes``, the largest first."""
    found = []
    for assignment, size in files.items():
        stem = assignment.removesuffix(xla_dump.ASSIGNMENT_ENDING)
        ranges, program = stem + xla_dump.RANGES_ENDING, stem + xla_program.PROGRAM_ENDING
        if stem != assignment and ranges in files:
            is_readable = files.get(program, MOST_PROGRAM + 1) <= MOST_PROGRAM
            found.append(Module(stem, assignment, ranges, size, program if is_readable else ""))
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


def only(found: Iterable[Module], folder: str) -> Module:
    """Return the only module of a dump. Raises ``UnreadableInput`` with a list if there are several, or none."""
    listed = tuple(found)
    if len(listed) == 1:
        return listed[0]
    if not listed:
        raise UnreadableInput(
            "the folder contains no module of an XLA dump.",
            source=folder,
            hint="Dump with XLA_FLAGS='--xla_dump_to=DIR --xla_dump_hlo_as_text': a module is a "
            f"*{xla_dump.ASSIGNMENT_ENDING} with its *{xla_dump.RANGES_ENDING}.",
        )
    offered = [f"  {PurePath(folder) / module.assignment}" for module in listed[:LISTED]]
    if len(listed) > LISTED:
        offered.append(f"  and {len(listed) - LISTED} smaller ones")
    raise UnreadableInput(
        f"the dump holds {len(listed)} modules.",
        source=folder,
        hint="\n".join(["Open one of these files (largest first), or open the folder with tmmu explore:", *offered]),
    )


def joined(files: Iterable[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """Return uploaded files with the files of each module of an XLA dump joined.

    Other files of a dump (earlier and later programs, objects, reports) are dropped if their module is complete; all
    other files are unchanged.
    """
    given = list(files)
    data = dict(given)
    found = modules({name: len(content) for name, content in given})
    stems = tuple({module.name.partition(".")[0] + "." for module in found})
    left = [(name, content) for name, content in given if not name.startswith(stems)]
    return [*left, *(of_module(module, data.__getitem__) for module in found)]


def of_module(module: Module, read: Callable[[str], bytes]) -> tuple[str, bytes]:
    """Return ``(name, bytes)`` of a module's files, joined for :func:`.xla_dump.read`."""
    names = [module.assignment, module.ranges, *([module.program] if module.program else [])]
    return f"{module.name}.txt", b"\n".join([read(name) for name in names])
