"""XLA's dump folder: which modules are in it, and the files that are one module's finished plan.

``--xla_dump_to=DIR`` writes dozens of files for each module. A module can be opened where its buffer assignment lies
beside its live ranges; the program's text, if it lies there too, says where buffers come from. All is read by
:mod:`tmmu_core.graph.importers.xla`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath

from tmmu_core.errors import UnreadableInput
from tmmu_core.graph.importers import xla, xla_program

LISTED = 12
MOST_PROGRAM = 1 << 28
"""Bytes of a program's text up to which it is read: a dump may print constants of any size, and it only says names."""


@dataclass(frozen=True)
class Module:
    """A module of a dump that can be opened."""

    name: str
    """As XLA calls it with its number: ``module_0008.jit_step.cpu_after_optimizations``."""
    assignment: str
    ranges: str
    size: int
    """Bytes of its buffer assignment, by which the largest module is told."""
    program: str = ""
    """The text of its program; ``""`` where it is not there, or is larger than :data:`MOST_PROGRAM`."""


def modules(files: Mapping[str, int]) -> tuple[Module, ...]:
    """The modules among the files ``name → bytes``, the largest first."""
    stems = [name.removesuffix(xla.ASSIGNMENT_ENDING) for name in files if name.endswith(xla.ASSIGNMENT_ENDING)]
    both = [(stem, stem + xla.ASSIGNMENT_ENDING, stem + xla.RANGES_ENDING) for stem in stems]
    found = [
        Module(stem, assignment, ranges, files[assignment], _program(stem, files))
        for stem, assignment, ranges in both
        if ranges in files
    ]
    return tuple(sorted(found, key=lambda module: (-module.size, module.name)))


def sizes_in(folder: Path) -> dict[str, int]:
    """The files of a folder, ``name → bytes``; one that goes while one looks is none of them. Raises ``OSError``."""
    sizes = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                if entry.is_file():
                    sizes[entry.name] = entry.stat().st_size
    return sizes


def _program(stem: str, files: Mapping[str, int]) -> str:
    name = stem + xla_program.PROGRAM_ENDING
    return name if name in files and files[name] <= MOST_PROGRAM else ""


def only(found: Iterable[Module], folder: str) -> Module:
    """The one module of a dump. Raises ``UnreadableInput`` that offers them where there are several, or none."""
    listed = tuple(found)
    if len(listed) == 1:
        return listed[0]
    if not listed:
        raise UnreadableInput(
            "the folder holds no module of an XLA dump.",
            source=folder,
            hint="Dump with XLA_FLAGS='--xla_dump_to=DIR --xla_dump_hlo_as_text': a module is a "
            f"*{xla.ASSIGNMENT_ENDING} with its *{xla.RANGES_ENDING}.",
        )
    offered = [f"  {PurePath(folder) / module.assignment}" for module in listed[:LISTED]]
    if len(listed) > LISTED:
        offered.append(f"  and {len(listed) - LISTED} smaller ones")
    raise UnreadableInput(
        f"the dump holds {len(listed)} modules.",
        source=folder,
        hint="\n".join(["Name one of them, the largest first, or open the folder with tmmu explore:", *offered]),
    )


def joined(files: Iterable[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """Uploaded files, those of an XLA dump as one for each module.

    What else lies in a dump beside a module (its programs before and after, objects, reports) is left out where its
    module is there; everything else stays as it is.
    """
    given = list(files)
    data = dict(given)
    found = modules({name: len(content) for name, content in given})
    stems = tuple({module.name.partition(".")[0] + "." for module in found})
    left = [(name, content) for name, content in given if not name.startswith(stems)]
    return [*left, *(of_module(module, data.__getitem__) for module in found)]


def of_module(module: Module, read: Callable[[str], bytes]) -> tuple[str, bytes]:
    """``(name, bytes)`` of a module's files as the one that the reader of XLA takes."""
    names = [module.assignment, module.ranges, *([module.program] if module.program else [])]
    return f"{module.name}.txt", b"\n".join([read(name) for name in names])
