"""XLA: where instructions come from, by the text of a module's program (``*after_optimizations.txt``).

::

    %dot.3 = f32[16,128]{1,0} dot(%x, %w), metadata={op_name="jit(step)/jvp(GPT)/h_0/mlp/dot_general" stack_frame_id=7}
                                                              └ a function ┘   └── module ──┘ └ operator ┘

``jvp(…)`` says that gradients will be asked for, ``transpose(…)`` that one is computed: forward and backward. The line
is ``source_file`` and ``source_line``, or a number in the tables ``FileNames``, ``FileLocations`` and ``StackFrames``
that the text begins with. A fusion that says nothing itself is what the last instruction of its computation is.

Everything here is others' text, and none of it is needed to plan: what cannot be made out is left out, nothing is
refused, and of one line no more than :data:`LONGEST` letters behind ``metadata=`` are looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from tmmu_core.graph.model import Made, Origin, Phase
from tmmu_core.graph.origin import LONGEST, line_of

HEADING = "HloModule "
PROGRAM_ENDING = ".txt"
DEEPEST = 64
"""Parts of one module's path, transformations of one part, and calls from fusion to computation that are followed."""

_INSTRUCTION = re.compile(r"\s+(ROOT )?%?([^\s=]{1,1000}) = ", re.A)
_COMPUTATION = re.compile(r"(?:ENTRY )?%?([^\s(]{1,1000}) \(", re.A)
_CALLS = re.compile(r", calls=%?([^\s,]{1,1000})", re.A)
_TEXT = re.compile(r'(op_name|source_file)="((?:[^"\\]|\\.)*)"')
_NUMBER = re.compile(r"(source_line|stack_frame_id)=(\d{1,9})\b", re.A)
_TABLES = ("FileNames", "FileLocations", "StackFrames")
_NAMED = re.compile(r'(\d{1,9}) "((?:[^"\\]|\\.)*)"', re.A)
_REFERRING = re.compile(r"(\d{1,9}) \{(.*)\}", re.A)
_FIELD = re.compile(r"(\w+)=(\d{1,9})\b", re.A)
_ESCAPED = re.compile(r"\\(.)")
_WRAPPED = re.compile(r"(\w+)\((.*)\)", re.A | re.S)
_KEYED = re.compile(r"\[(?:'([^']*)'|\"([^\"]*)\"|(\d+))\]")
_FUNCTIONS = ("jit", "pjit", "xla_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat", "checkpoint")
_CONTROL = frozenset(
    {"while", "body", "cond", "closed_call", "checkpoint", "remat", "rematted_computation", *_FUNCTIONS}
)


def origins_of(lines: Iterable[str]) -> dict[str, Made]:
    """Who made the values of a program, by the names of its instructions; those of which the text says nothing are not
    in it."""
    tables: dict[str, dict[int, str]] = {name: {} for name in _TABLES}
    found: dict[str, Made] = {}
    roots: dict[str, str] = {}
    calls: dict[str, str] = {}
    table = computation = ""
    for line in lines:
        if not line.startswith(" "):
            if line[:1].isdigit():
                _keep(tables.get(table, {}), line[:LONGEST])
                continue
            table = line.strip()
            head = _COMPUTATION.match(line)
            computation = head[1] if head else computation
            continue
        instruction = _INSTRUCTION.match(line)
        if instruction is None:
            continue
        name = instruction[2]
        if instruction[1]:
            roots[computation] = name
        made = _made(line[instruction.end() :].partition(", metadata={")[2][:LONGEST], tables)
        if made is not None:
            found[name] = made
        elif (called := _CALLS.search(line, instruction.end())) is not None:
            calls[name] = called[1]
    for name in calls:
        made = next((found[each] for each in _roots(name, roots, calls) if each in found), None)
        if made is not None:
            found[name] = made
    return found


def _roots(name: str, roots: dict[str, str], calls: dict[str, str]) -> Iterator[str]:
    """The last instruction of the computation that one calls, that of the one which that one calls, and so on."""
    for _ in range(DEEPEST):
        if name not in calls:
            return
        name = roots.get(calls[name], "")
        yield name


def _keep(table: dict[int, str], line: str) -> None:
    row = _NAMED.match(line) or _REFERRING.match(line)
    if row is not None:
        table[int(row[1])] = row[2]


def _made(metadata: str, tables: dict[str, dict[int, str]]) -> Made | None:
    said = {key: _ESCAPED.sub(r"\1", text) for key, text in _TEXT.findall(metadata)}
    numbers = {key: int(digits) for key, digits in _NUMBER.findall(metadata)}
    file, line = said.get("source_file", ""), numbers.get("source_line", 0)
    if not file and "stack_frame_id" in numbers:
        file, line = _frame(numbers["stack_frame_id"], tables)
    module, operator, phase = scopes_of(said.get("op_name", ""))
    source = line_of(file, line) if file else ""
    return Made(Origin(module, source), operator, phase) if module or source or operator else None


def _frame(frame: int, tables: dict[str, dict[int, str]]) -> tuple[str, int]:
    """The file and the line of a stack's innermost frame; ``("", 0)`` where the tables do not say."""

    def fields(table: str, row: int) -> dict[str, int]:
        return {key: int(digits) for key, digits in _FIELD.findall(tables[table].get(row, ""))}

    place = fields("FileLocations", fields("StackFrames", frame).get("file_location_id", 0))
    return _ESCAPED.sub(r"\1", tables["FileNames"].get(place.get("file_name_id", 0), "")), place.get("line", 0)


def scopes_of(op_name: str) -> tuple[tuple[str, ...], str, Phase | None]:
    """``(module, operator, phase)`` of what a framework called an operation.

    Scopes are the model's own names: those of functions (``jit(step)``) and of control flow are no modules, and
    transformations are taken off (``transpose(jvp(GPT))`` is ``GPT``, and backward). Without any transformation the
    phase is not known. A parameter is called by the way to it: ``params['h_0']['kernel']`` belongs to ``h_0``.
    """
    keys = [a or b or c for a, b, c in _KEYED.findall(op_name[:LONGEST])]
    parts = _scopes(op_name[:LONGEST])
    if not parts[1:]:
        return tuple([key for key in keys[:-1][:DEEPEST] if key != "params"]), "", None
    module: list[str] = []
    phase: Phase | None = None
    for part in parts[:-1]:
        depth = 0
        while depth < DEEPEST and (wrapped := _WRAPPED.fullmatch(part)) is not None:
            depth += 1
            if wrapped[1] == "transpose":
                phase = "backward"
            elif wrapped[1] == "jvp" and phase is None:
                phase = "forward"
            part = "" if wrapped[1] in _FUNCTIONS else wrapped[2]
        if part not in _CONTROL:
            module += _scopes(part)
    return tuple(module[:DEEPEST]), parts[-1], phase


def _scopes(text: str) -> list[str]:
    """The parts between slashes; those in brackets belong to what is in brackets."""
    parts, depth, begins = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "/" and depth <= 0:
            parts.append(text[begins:at])
            begins = at + 1
    return [part for part in [*parts, text[begins:]] if part]


def apart(lines: Sequence[str], others: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """``(lines of the program, all the other lines, as they stand)`` of the texts of a dump, one after the other.

    The others keep their numbers: where the program stood they are empty.
    """
    program: list[str] = []
    rest: list[str] = []
    inside = False
    for line in lines:
        if line.startswith(HEADING):
            inside = True
        elif line.startswith(others):
            inside = False
        (program if inside else rest).append(line)
        if inside:
            rest.append("")
    return program, rest
