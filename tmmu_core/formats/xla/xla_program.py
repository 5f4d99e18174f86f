"""Read the origin of instructions from the text of an XLA program (``*after_optimizations.txt``).

::

    %dot.3 = f32[16,128]{1,0} dot(%x, %w), metadata={op_name="jit(step)/jvp(GPT)/h_0/mlp/dot_general" stack_frame_id=7}
                                                              └ function ┘     └── module ──┘ └ operator ┘

``jvp(…)`` marks the forward phase of differentiated code, ``transpose(…)`` the backward phase. The source line is
``source_file`` and ``source_line``, or a stack frame: a row of the tables at the beginning of the text. A fusion
without metadata has the origin of its computation's root instruction.

Planning does not need the text, so unreadable parts are ignored. At most
:data:`PARSED_CHARACTERS` characters of metadata are read.
"""

import re
from collections.abc import Iterable

from tmmu_core.graph.model import Origin, Phase, StorageOrigin
from tmmu_core.graph.modules.module_paths import PARSED_CHARACTERS, line_of

HEADING = "HloModule "
PROGRAM_ENDING = ".txt"
DEEPEST = 64  # maximum number of parts of a module's path, of nested transformations, and of nested fusions

_INSTRUCTION = re.compile(r"\s+(ROOT )?%?([^\s=]{1,1000}) = ", re.A)
_COMPUTATION = re.compile(r"(?:ENTRY )?%?([^\s(]{1,1000}) \(", re.A)
_CALLS = re.compile(r", calls=%?([^\s,]{1,1000})", re.A)
_TEXT = re.compile(r'(op_name|source_file)="((?:[^"\\]|\\.)*)"')
_NUMBER = re.compile(r"(source_line|stack_frame_id)=(\d{1,9})\b", re.A)
_TABLES = ("FileNames", "FileLocations", "StackFrames")
_NAME_ROW = re.compile(r'(\d{1,9}) "((?:[^"\\]|\\.)*)"', re.A)
_FIELDS_ROW = re.compile(r"(\d{1,9}) \{(.*)\}", re.A)
_FIELD = re.compile(r"(\w+)=(\d{1,9})\b", re.A)
_ESCAPED = re.compile(r"\\(.)")
_WRAPPED = re.compile(r"(\w+)\((.*)\)", re.A | re.S)
_KEYED = re.compile(r"\[(?:'([^']*)'|\"([^\"]*)\"|(\d+))\]")
_FUNCTIONS = ("jit", "pjit", "xla_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat", "checkpoint")
_CONTROL = frozenset({"while", "body", "cond", "closed_call", "rematted_computation", *_FUNCTIONS})


def origins_of(lines: Iterable[str]) -> dict[str, StorageOrigin]:
    """Return instruction → origin of its value; instructions without a known origin are omitted."""
    tables: dict[str, dict[int, str]] = {name: {} for name in _TABLES}
    origins: dict[str, StorageOrigin] = {}
    root_of: dict[str, str] = {}  # computation → its root instruction
    callee_of: dict[str, str] = {}  # instruction without metadata → the computation that it calls
    table = computation = ""
    for line in lines:
        instruction = _INSTRUCTION.match(line)
        if line[:1].isdigit():
            row = _NAME_ROW.match(line[:PARSED_CHARACTERS]) or _FIELDS_ROW.match(line[:PARSED_CHARACTERS])
            if row is not None and table in tables:
                tables[table][int(row[1])] = row[2]
        elif not line.startswith(" "):
            table = line.strip()
            head = _COMPUTATION.match(line)
            computation = head[1] if head else computation
        elif instruction is not None:
            name = instruction[2]
            if instruction[1]:
                root_of[computation] = name
            origin = _origin_in(line[instruction.end() :].partition(", metadata={")[2][:PARSED_CHARACTERS], tables)
            if origin is not None:
                origins[name] = origin
            elif (called := _CALLS.search(line, instruction.end())) is not None:
                callee_of[name] = called[1]
    for name in callee_of:
        root = name
        for _ in range(DEEPEST):
            root = root_of.get(callee_of.get(root, ""), "")
            if root in origins:
                origins[name] = origins[root]
                break
    return origins


def _origin_in(metadata: str, tables: dict[str, dict[int, str]]) -> StorageOrigin | None:
    text_of = {key: _ESCAPED.sub(r"\1", text) for key, text in _TEXT.findall(metadata)}
    numbers = {key: int(digits) for key, digits in _NUMBER.findall(metadata)}
    file, line = text_of.get("source_file", ""), numbers.get("source_line", 0)
    if not file and "stack_frame_id" in numbers:
        file, line = _frame(numbers["stack_frame_id"], tables)
    module, operator, phase = parse_op_name(text_of.get("op_name", ""))
    source = line_of(file, line) if file else ""
    return StorageOrigin(Origin(module, source), operator, phase) if module or source or operator else None


def _frame(frame: int, tables: dict[str, dict[int, str]]) -> tuple[str, int]:
    def fields(table: str, row: int) -> dict[str, int]:
        return {key: int(digits) for key, digits in _FIELD.findall(tables[table].get(row, ""))}

    place = fields("FileLocations", fields("StackFrames", frame).get("file_location_id", 0))
    return _ESCAPED.sub(r"\1", tables["FileNames"].get(place.get("file_name_id", 0), "")), place.get("line", 0)


def parse_op_name(op_name: str) -> tuple[tuple[str, ...], str, Phase | None]:
    """Return ``(module, operator, phase)`` of an operation's name.

    The module consists of the model's names: functions (``jit(step)``) and control flow are omitted, and
    transformations are removed (``transpose(jvp(GPT))`` is ``GPT``, backward). Without ``jvp`` and ``transpose`` the
    phase is ``None``. A parameter's name is its path: ``params['h_0']['kernel']`` belongs to ``h_0``.
    """
    keys = [a or b or c for a, b, c in _KEYED.findall(op_name[:PARSED_CHARACTERS])]
    parts = _scopes(op_name[:PARSED_CHARACTERS])
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
    """Split a name at the slashes that are outside of parentheses."""
    parts, depth, start = [], 0, 0
    for position, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "/" and depth <= 0:
            parts.append(text[start:position])
            start = position + 1
    return [part for part in [*parts, text[start:]] if part]
