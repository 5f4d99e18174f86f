"""Parse the subgraphs of a TensorFlow Lite model into plain values, and check them for consistency."""

import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tmmu_core.base.errors import InvalidIrShapes, UnreadableInput
from tmmu_core.graph import checks, dtypes
from tmmu_core.graph.index import fixed_bytes
from tmmu_core.graph.model import Inplace, Role, Tensor
from tmmu_core.graph.operators import words

ABSENT = -1  # number of an omitted optional operand
HANDLE_DTYPE = "int32"  # of a tensor that refers to a variable (type ``RESOURCE``)
LATER_TYPES = {19: "INT2", 20: "UINT4", 21: "FLOAT8_E4M3FN", 22: "FLOAT8_E5M2"}  # types without a name in ``tflite``
EXTERNAL_BUFFER = 10  # number of a tensor's field; if the field is not 0, the data are in another file
OFFLINE_PLAN = b"OfflineMemoryAllocation"  # name of the metadata with a plan for TensorFlow Lite Micro
OFFLINE_HEADER = 3  # number of integers before the offsets: version, number of subgraphs, number of offsets
ELEMENTS_PER_BYTE = 4  # maximum operands, axes and letters per byte of the file; a vector in n tables counts n times
LETTERS_PER_ITEM = 64  # letters of names that count as one item (:attr:`Subgraph.item_count`)
DAMAGED = "The model is damaged: copy it again, or convert it again."
SUBGRAPH_FIELDS = {
    "CALL": ("CallOptions", ("Subgraph",)),
    "CALL_ONCE": ("CallOnceOptions", ("InitSubgraphIndex",)),
    "IF": ("IfOptions", ("ThenSubgraphIndex", "ElseSubgraphIndex")),
    "STABLEHLO_COMPOSITE": ("StableHLOCompositeOptions", ("DecompositionSubgraphIndex",)),
    "STABLEHLO_REDUCE": ("StablehloReduceOptions", ("BodySubgraphIndex",)),
    "STABLEHLO_REDUCE_WINDOW": ("StablehloReduceWindowOptions", ("BodySubgraphIndex",)),
    "STABLEHLO_SCATTER": ("StablehloScatterOptions", ("UpdateComputationSubgraphIndex",)),
    "STABLEHLO_SORT": ("StablehloSortOptions", ("ComparatorSubgraphIndex",)),
    "STABLEHLO_WHILE": ("StablehloWhileOptions", ("CondSubgraphIndex", "BodySubgraphIndex")),
    "WHILE": ("WhileOptions", ("CondSubgraphIndex", "BodySubgraphIndex")),
}
"""Operator → its table of options, and the fields with numbers of subgraphs."""

UNARY = words(
    "ABS CEIL COS ELU EXP FLOOR GELU HARD_SWISH LEAKY_RELU LOG LOGICAL_NOT LOGISTIC NEG RELU RELU6 RELU_0_TO_1 "
    "RELU_N1_TO_1 ROUND RSQRT SIGN SIN SOFTMAX SQRT SQUARE TANH ZEROS_LIKE"
)
"""Kernels that read an element (or row) of operand 0 before they write this element (or row) of the result."""
BINARY = words(
    "ADD ATAN2 BITWISE_XOR DIV FLOOR_DIV FLOOR_MOD LOGICAL_AND LOGICAL_OR MAXIMUM MINIMUM MUL POW RIGHT_SHIFT "
    "SQUARED_DIFFERENCE SUB"
)
"""Kernels that read an element of both operands before they write this element of the result."""
SAME_SIZE = UNARY | {"BITCAST", "EXPAND_DIMS", "RESHAPE", "SQUEEZE"}  # the result has the size of operand 0


def permission(tensors: Sequence[Tensor], instr: str, reads: list[int], writes: list[int]) -> Inplace:
    """Return ``(operand, 0)`` for each operand that the only result may overwrite; ``"none"`` without such operands."""
    if len(writes) != 1:
        return "none"
    operands = 2 if instr in BINARY else int(instr in SAME_SIZE)
    size = fixed_bytes(tensors[writes[0]])
    return tuple((i, 0) for i, read in enumerate(reads[:operands]) if fixed_bytes(tensors[read]) == size) or "none"


@dataclass(frozen=True)
class Operator:
    """One operator. Operands are tensor numbers, ``ABSENT`` for an omitted one."""

    instr: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    bodies: tuple[int, ...] = ()  # numbers of the subgraphs that the operator runs
    variable: str = ""  # container and shared name of the variable of a ``VAR_HANDLE``
    is_custom: bool = False


@dataclass(frozen=True)
class Subgraph:
    """One subgraph."""

    number: int
    label: str  # its name, else ``subgraph_<number>``
    table: Any
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[Operator, ...]
    tensors: tuple[Tensor, ...]
    dynamic_tensors: frozenset[int]  # tensors with a dynamic dimension in ``shape_signature``; ``shape`` has its size

    @property
    def item_count(self) -> int:
        """Items that each use adds to the graph: operators, operands, and one per ``LETTERS_PER_ITEM`` id letters."""
        operands = sum(1 + len(each.inputs) + len(each.outputs) for each in self.operators)
        return 1 + operands + sum(len(tensor.id) for tensor in self.tensors) // LETTERS_PER_ITEM


class ModelFile:
    """The tables of a model."""

    def __init__(self, tflite: Any, data: Any) -> None:
        self.tflite = tflite
        self.model = tflite.Model.GetRootAs(data, 0)
        named = {number: word for word, number in vars(tflite.TensorType).items() if isinstance(number, int)}
        self.dtypes = LATER_TYPES | named
        self.subgraphs: dict[int, Subgraph] = {}
        self.counted = 0  # number of operands, dimensions and letters that were read so far

    def label(self, number: int) -> str:
        """Return the name of a subgraph, or ``subgraph_<number>``. Raises ``UnreadableInput`` for an unknown one."""
        if not 0 <= number < self.model.SubgraphsLength():
            what = f"an operator runs subgraph {number}; there are {self.model.SubgraphsLength()}."
            raise UnreadableInput(what, hint=DAMAGED)
        return _text(self.model.Subgraphs(number).Name())[:1000] or f"subgraph_{number}"

    def subgraph(self, number: int) -> Subgraph:
        """Return one subgraph. Raises ``UnreadableInput``, or ``InvalidIrShapes`` for a tensor without a size."""
        if number in self.subgraphs:
            return self.subgraphs[number]
        label, table, size = self.label(number), self.model.Subgraphs(number), len(self.model._tab.Bytes)
        operators = [table.Operators(k) for k in range(length(table, "Operators"))]
        rows = [table.Tensors(i) for i in range(length(table, "Tensors"))]
        self.counted += sum(length(each, "Inputs") + length(each, "Outputs") for each in operators)
        self.counted += sum(length(row, side) for row in rows for side in ("Shape", "ShapeSignature"))
        self.counted += sum(len(row.Name() or b"") for row in rows)
        if self.counted > ELEMENTS_PER_BYTE * size:  # thousands of operators may share one vector
            raise self.damaged(f"the model has more operands, axes and characters than {size:,} bytes hold.", number)
        inputs, outputs = (tuple(numbers(table, side)) for side in ("Inputs", "Outputs"))
        parsed = tuple([self._operator(operator) for operator in operators])
        lists = [("the subgraph", "inputs", inputs, 0), ("the subgraph", "outputs", outputs, 0)]
        for k, operator in enumerate(parsed):
            owner = f"operator {k} ({operator.instr})"
            lists += [(owner, "inputs", operator.inputs, ABSENT), (owner, "outputs", operator.outputs, ABSENT)]
        for owner, side, operands, least in lists:
            wrong = next((i for i in operands if not least <= i < len(rows)), None)
            if wrong is not None:
                raise self.damaged(f"{owner} has tensor number {wrong} in its {side}; there are {len(rows)}.", number)
        names = [_text(row.Name()) for row in rows]
        name_count = Counter(names)
        ids: list[str] = []  # the name; plus the tensor number if the name is empty or repeated
        for i, name in enumerate(names):
            own = name if name and name_count[name] == 1 else f"{name or 'tensor'}:{i}"
            while own != name and own in name_count:  # another tensor has this name
                own += f":{i}"
            ids.append(own)
        written = {i: k for k, operator in enumerate(parsed) for i in operator.outputs if i != ABSENT}
        for i, k in written.items():
            if self.data_bytes(rows[i]) and not rows[i].IsVariable():
                what = f"operator {k} ({parsed[k].instr}) writes tensor {i}, which has constant data in the file."
                raise self.damaged(what, number)
        roles: dict[int, Role] = {**dict.fromkeys(outputs, "output"), **dict.fromkeys(inputs, "input")}
        tensors = [self._tensor(number, i, row, ids[i], roles.get(i), i in written) for i, row in enumerate(rows)]
        dynamic = frozenset(i for i, row in enumerate(rows) if min(numbers(row, "ShapeSignature"), default=0) < 0)
        subgraph = Subgraph(number, label, table, inputs, outputs, parsed, tuple(tensors), dynamic)
        self.subgraphs[number] = subgraph
        return subgraph

    def place(self, tensor: Any) -> tuple[int, int]:
        """Return ``(offset in the file, bytes)`` of a tensor's data; ``(0, 0)`` if the file has none."""
        number = tensor.Buffer()
        if not 0 < number < self.model.BuffersLength():
            return 0, 0
        buffer = self.model.Buffers(number)
        if buffer.DataLength():
            return int(buffer._tab.Vector(buffer._tab.Offset(4))), int(buffer.DataLength())
        return (int(buffer.Offset()), int(buffer.Size())) if buffer.Size() > 1 else (0, 0)  # 0 and 1 mean no data

    def data_bytes(self, tensor: Any) -> int:
        """Return the size of a tensor's data in the file, in bytes."""
        return self.place(tensor)[1]

    def offline_offsets(self) -> tuple[int, ...]:
        """Return the plan in the file: an offset per tensor of each subgraph; empty without a plan."""
        for k in range(length(self.model, "Metadata")):
            entry = self.model.Metadata(k)
            if entry.Name() == OFFLINE_PLAN and entry.Buffer() < self.model.BuffersLength():
                buffer = self.model.Buffers(entry.Buffer())
                content = buffer.DataAsNumpy().tobytes() if buffer.DataLength() else b""
                return struct.unpack(f"<{len(content) // 4}i", content[: len(content) // 4 * 4])[OFFLINE_HEADER:]
        return ()

    def damaged(self, what: str, number: int) -> UnreadableInput:
        """Return the error of an inconsistent subgraph."""
        return UnreadableInput(what, place=f"subgraph {number}", hint=DAMAGED)

    def _operator(self, operator: Any) -> Operator:
        code = self.model.OperatorCodes(operator.OpcodeIndex())
        builtin = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())  # the older field ends at 127
        is_custom = builtin == self.tflite.BuiltinOperator.CUSTOM
        instr = self.tflite.BUILTIN_OPCODE2NAME.get(builtin, f"BUILTIN_{builtin}")
        if is_custom:
            instr = _text(code.CustomCode() or b"CUSTOM")
        name, fields = ("VarHandleOptions", ()) if instr == "VAR_HANDLE" else SUBGRAPH_FIELDS.get(instr, ("", ()))
        union = (operator.BuiltinOptions() or operator.BuiltinOptions2()) if name else None
        bodies: tuple[int, ...] = ()
        variable = ""
        if union is not None:
            options = getattr(self.tflite, name)()
            options.Init(union.Bytes, union.Pos)
            bodies = tuple([int(getattr(options, field)()) for field in fields])
            if not fields:
                variable = "/".join(filter(None, (_text(options.Container()), _text(options.SharedName()))))
        inputs, outputs = (tuple(numbers(operator, side)) for side in ("Inputs", "Outputs"))
        return Operator(instr, inputs, outputs, bodies, variable, is_custom)

    def _tensor(self, number: int, i: int, row: Any, name: str, io_role: Role | None, is_written: bool) -> Tensor:
        type_name = self.dtypes.get(row.Type(), f"type {row.Type()}")
        dtype = HANDLE_DTYPE if type_name == "RESOURCE" else dtypes.canonical(type_name)
        shape = tuple(numbers(row, "Shape"))
        if dtype is None or any(dim < 0 for dim in shape):
            what, reason = f"has the type {type_name}, which has no fixed size", "unknown_dtype"
            hint = "Only tensors of numbers and booleans can be planned."
            if dtype is not None:
                what, reason = f"has the dynamic shape {list(shape)}", "dynamic_shape"
                hint = "Give the inputs fixed shapes and convert the model again."
            path = f"subgraph {number}, tensor {i}"
            what = f"the tensor {name!r} {what}."
            raise InvalidIrShapes(what, hint=hint, reason=reason, node_id="", tensor=name, path=path)
        is_elsewhere = is_external(row)
        is_empty = not is_written and 0 in shape  # a constant without data, such as an empty list of axes
        role: Role = "activation"
        if row.IsVariable():
            role = "buffer"
        elif (self.data_bytes(row) or is_elsewhere or is_empty) and io_role != "input":
            role = "constant"
            if row.Sparsity() is not None and not is_elsewhere:
                shape, dtype = (self.data_bytes(row),), "uint8"  # as compressed in the file
        elif io_role is not None and not number:  # inputs and outputs of a body are copies
            role = io_role
        tensor = Tensor(name, shape, dtype, role)
        checks.size_of(tensor, shape, i)  # its error names the tensor
        return tensor


def is_external(tensor: Any) -> bool:
    """Return whether the data of ``tensor`` are in another file. The parser cannot read ``EXTERNAL_BUFFER``."""
    table = tensor._tab
    place = table.Offset(4 + 2 * EXTERNAL_BUFFER)
    return bool(place and int.from_bytes(table.Bytes[table.Pos + place : table.Pos + place + 4], "little"))


def numbers(table: Any, field: str) -> list[int]:
    """Return a vector of a table, element by element: ``…AsNumpy`` of an absent vector returns the integer 0."""
    return [int(getattr(table, field)(i)) for i in range(length(table, field))]


def length(table: Any, field: str) -> int:
    """Return the length of a vector of four-byte elements. Raises ``IndexError`` if it exceeds the file."""
    count = int(getattr(table, f"{field}Length")())
    if count * 4 > len(table._tab.Bytes):
        raise IndexError(field)
    return count


def _text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "replace")
