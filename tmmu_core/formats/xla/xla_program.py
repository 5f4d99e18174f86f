"""Read two texts of XLA: the origin of instructions in a program, and the offsets in a memory usage report.

A program (``*after_optimizations.txt``) has lines::

    %dot.3 = f32[16,128]{1,0} dot(%x, %w), metadata={op_name="jit(step)/jvp(GPT)/h_0/mlp/dot_general" stack_frame_id=7}
                                                              └ function ┘     └── module ──┘ └ operator ┘

``jvp(…)`` marks the forward phase of differentiated code, ``transpose(…)`` the backward phase. The source line is
``source_file`` and ``source_line``, or a stack frame: a row of the tables at the beginning of the text. A fusion
without metadata has the origin of its computation's root instruction.

A plan does not need the program: unreadable parts, and metadata after :data:`PARSED_CHARACTERS`, are ignored.

A report (``*-memory-usage-report.txt``) has no live ranges: all buffers are read as live at the same step. The printed
sizes are rounded: a buffer gets the size of its largest shape that rounds to the printed size::

    Memory Space: default (color=0)
    Total bytes: 112656 (110.0KiB)
      cumulative_size;       size;       offset; used_by_n_values; shapes_list        an allocation
      ------------------------------------------------------------
         8.0KiB( 80%);     8.0KiB;            0;                2; 2×f32[16,128]      a buffer in it
        10.0KiB(100%);     2.0KiB;         8192;                1; f32[16,32]
"""

import re
from collections.abc import Iterable
from fractions import Fraction
from math import prod

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.allocator_plan import MAX_VALUE, LiveRange, instance_of, stem_of
from tmmu_core.graph.model import Origin, Phase, StorageOrigin
from tmmu_core.graph.modules.module_paths import PARSED_CHARACTERS, line_of
from tmmu_core.planners.problem import PlainInstance

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
REPORT_HINT = "Dump the module again, or open its buffer assignment and live ranges, which are in the same folder."
_TOTAL = re.compile(r"Total bytes: (\d{1,19}) ", re.A)
_REPORT_ROW = re.compile(
    r"(?a)\s+[\d.]{1,20}\w{1,20}\(\s*\d{1,20}%\);\s+(\d{1,15}(?:\.\d{1,4})?)(B|KiB|MiB|GiB|TiB);"
    r"\s+(\d{1,19});\s+(\d{1,19}); (.*)"
)
_SHAPE = re.compile(r"\b(?:pred|token|([a-z]{1,8})(\d{1,3}))(?:[a-z]\w{0,20})?\[([\d,]{0,200})\]", re.A)
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def origins_of(lines: Iterable[str]) -> dict[str, StorageOrigin]:
    """Return instruction → origin of its value; instructions without a known origin are omitted."""
    tables: dict[str, dict[int, str]] = {name: {} for name in _TABLES}
    origins: dict[str, StorageOrigin] = {}
    root_of: dict[str, str] = {}  # computation → its root instruction
    callee_of: dict[str, str] = {}  # instruction without an origin → the computation that it calls
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
            metadata = line[instruction.end() :].partition(", metadata={")[2][:PARSED_CHARACTERS]
            text_of = {key: _ESCAPED.sub(r"\1", text) for key, text in _TEXT.findall(metadata)}
            numbers = {key: int(digits) for key, digits in _NUMBER.findall(metadata)}
            file, source_line = text_of.get("source_file", ""), numbers.get("source_line", 0)
            if not file and "stack_frame_id" in numbers:
                file, source_line = _frame(numbers["stack_frame_id"], tables)
            module, operator, phase = parse_op_name(text_of.get("op_name", ""))
            source = line_of(file, source_line) if file else ""
            if module or source or operator:
                origins[name] = StorageOrigin(Origin(module, source), operator, phase)
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


def read_report(data: bytes, name: str = "") -> PlainInstance:
    """Return the buffers of the report, all live at once, as a plan. Raises ``UnreadableInput``."""
    buffers: list[LiveRange] = []
    base = end = allocation = total = rounded_count = 0
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        if found := _TOTAL.match(line):
            total += int(found[1])
        elif "cumulative_size;" in line:
            base, allocation = end, allocation + 1
        elif ";" in line:
            row = _REPORT_ROW.match(line)
            size, is_exact = _size(row[1], row[2], row[5]) if row is not None else (0, False)
            start = base + int(row[3]) if row is not None else 0
            if row is None or not allocation or start + size > MAX_VALUE:
                what = f"invalid line of a memory usage report: {line.strip()[:80]!r}."
                raise UnreadableInput(what, place=f"line {number}", hint=REPORT_HINT)
            rounded_count += not is_exact
            end = max(end, start + size)
            if size:
                buffers.append(LiveRange(f"allocation {allocation}: {row[5].strip()[:120]}", 0, 1, size, start))
    if not buffers:
        raise UnreadableInput("the report contains no buffer.", hint=REPORT_HINT)
    notes = ["the report has no live ranges: all buffers are read as live at once. " + REPORT_HINT.rstrip(".")]
    notes.append(f"the report's total is {total:,} bytes, its buffers end at byte {end:,}")
    if rounded_count:
        notes.append(f"{rounded_count} sizes are rounded in the report")
    return instance_of(stem_of(name).removesuffix("-memory-usage-report") or "xla", buffers, notes)


def _size(digits: str, unit: str, shapes: str) -> tuple[int, bool]:
    """Return ``(bytes, is_exact)``. Without a shape that rounds to the printed size, the printed size is used."""
    printed = Fraction(digits) * _UNITS[unit]
    sizes = [_bytes(shape) for shape in _SHAPE.finditer(shapes)] if unit != "B" else []
    matching = [size for size in sizes if 20 * abs(size - printed) <= _UNITS[unit]]  # at most 0.05 units off
    return max(matching, default=int(printed)), bool(matching) or unit == "B"


def _bytes(shape: re.Match[str]) -> int:
    bits = int(shape[2] or 8)  # 8: ``pred``; a complex ``c64`` is two ``f32``
    return (prod(int(dim) for dim in shape[3].split(",") if dim and len(dim) < 20) * bits + 7) // 8
