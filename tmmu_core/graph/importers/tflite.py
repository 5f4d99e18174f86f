"""TensorFlow Lite models: the first subgraph, in the file's own order. The extra ``tflite`` brings the parser.

* A tensor with data in the file is a ``constant``; a variable tensor, which keeps its value from run to run and which
  no operator need write, is a ``buffer``. Both are persistent.
* ``inplace`` is what the kernels of TensorFlow Lite and of its Micro runtime can bear: element-wise kernels may write
  over an operand as large as their result, and ``RESHAPE`` and its kin move bytes only where they are apart. Where no
  hand-off is used, tensors are planned as the Micro runtime plans them, each for itself; its kernels' scratch buffers
  are not in the file and not in the graph.
* A variable behind a handle (``VAR_HANDLE``) is a ``buffer`` as large as what is read from it or assigned to it, and
  read by the operators that do so; the handle itself is a number of 32 bits, as in the Micro runtime.
* Constants whose data are one buffer of the file are one storage: converters keep what is alike once, and runtimes read
  it there.
* Bytes of a constant may lie in another file (``external_buffer``): it is planned, and its bytes are not had.
* A sparse constant takes the bytes that it has in the file. A plan that the file brings along for its tensors
  (``OfflineMemoryAllocation``) is not used, which the graph's name says.
* Further subgraphs are not planned: the graph's name says how many there are, and an operator that runs some names them
  in its ``params``.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, chain
from pathlib import Path, PurePath
from typing import Any

from msgspec import structs

from tmmu_core.errors import InvalidIrShapes, MissingExtra, UnreadableInput
from tmmu_core.extras import install
from tmmu_core.graph import dtypes
from tmmu_core.graph.constants import Constants, Held, InFile, Piece
from tmmu_core.graph.model import GRAPH_SCHEMA, Graph, Node, Role, Tensor

ADD_THE_EXTRA = install("tflite")
ABSENT = -1
"""An optional operand that is left out."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


UNARY = _words(
    "ABS CEIL COS ELU EXP FLOOR GELU HARD_SWISH LEAKY_RELU LOG LOGICAL_NOT LOGISTIC NEG RELU RELU6 RELU_0_TO_1 "
    "RELU_N1_TO_1 ROUND RSQRT SIGN SIN SOFTMAX SQRT SQUARE TANH ZEROS_LIKE"
)
"""Kernels that read an element of operand 0, or a row of it, before they write it."""
BINARY = _words(
    "ADD ATAN2 BITWISE_XOR DIV FLOOR_DIV FLOOR_MOD LOGICAL_AND LOGICAL_OR MAXIMUM MINIMUM MUL POW RIGHT_SHIFT "
    "SQUARED_DIFFERENCE SUB"
)
"""Kernels that do so with operands 0 and 1."""
MOVES = _words("BITCAST EXPAND_DIMS RESHAPE SQUEEZE")
"""Kernels whose result holds the bytes of operand 0 unchanged."""
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
"""Operator → its table of options and the fields that name subgraphs."""
VARIABLE_VALUE = {"READ_VARIABLE": ("Outputs", 0), "ASSIGN_VARIABLE": ("Inputs", 1)}
"""Operator on a variable behind a handle, its operand 0 → where the variable's value is seen."""
HANDLE_DTYPE = "int32"
LATER_TYPES = {19: "INT2", 20: "UINT4", 21: "FLOAT8_E4M3FN", 22: "FLOAT8_E5M2"}
"""Types that the schema has and the parser may be too old to name."""
EXTERNAL_BUFFER = 10
"""The number of a tensor's field that says where in other files its data are; 0: nowhere."""
OFFLINE_PLAN = b"OfflineMemoryAllocation"
OF_EACH_BYTE = 4
"""Operands, sides and letters of names that a model may say for each of its bytes: converters share what is alike."""


def read(data: bytes, name: str = "") -> Graph:
    """The graph of a model's first subgraph.

    Raises ``UnreadableInput`` where the file is damaged or the parser is not installed, ``InvalidIrShapes`` (reason
    ``unknown_dtype``) for a tensor without a size: strings, variants.
    """
    try:
        import tflite
    except ImportError as error:
        raise MissingExtra(
            "TensorFlow Lite models need the tflite package, which is not installed.",
            source=name,
            hint=f"Add it: {ADD_THE_EXTRA}",
        ) from error
    try:
        model = tflite.Model.GetRootAs(data, 0)
        if not model.SubgraphsLength():
            raise UnreadableInput("the model has no subgraph.", source=name, hint="Convert the model again.")
        return _Reading(tflite, model, name).graph()
    except (struct.error, IndexError, TypeError, ValueError, OverflowError, AttributeError) as error:
        # What a flatbuffer's offsets lead to when they lead out of the file.
        raise UnreadableInput(
            f"the TensorFlow Lite model is cut off or damaged (it has {len(data)} bytes).",
            source=name,
            hint="Copy the file again.",
        ) from error


def constants(data: Any, graph: Graph, where: Path | None, name: str = "") -> Constants:
    """The constants of ``graph``, which was read from ``data``: bytes, or a map of the file at ``where``."""
    import tflite

    reading = _Reading(tflite, tflite.Model.GetRootAs(data, 0), name)
    ids = {tensor.id for tensor in graph.tensors if tensor.role == "constant"}
    pieces: dict[str, Piece] = {}
    for i, tensor_id in enumerate(reading.ids):
        if tensor_id in ids and not _is_external(reading.subgraph.Tensors(i)):
            start, length = reading.place(i)
            pieces[tensor_id] = InFile(where, start, length) if where else Held(memoryview(data), start, length)
    return Constants(pieces)


class _Reading:
    """The first subgraph of a model, tensors known by their number in it."""

    def __init__(self, tflite: Any, model: Any, name: str) -> None:
        self.tflite, self.model, self.name = tflite, model, name
        self.subgraph = model.Subgraphs(0)
        self.operators = [self.subgraph.Operators(k) for k in range(_length(self.subgraph, "Operators"))]
        tensors = [self.subgraph.Tensors(i) for i in range(_length(self.subgraph, "Tensors"))]
        self._check_shared(tensors)
        self.inputs = _numbers(self.subgraph, "Inputs")
        self.outputs = _numbers(self.subgraph, "Outputs")
        self.written = {t for operator in self.operators for t in _numbers(operator, "Outputs")}
        named = {number: word for word, number in vars(tflite.TensorType).items() if isinstance(number, int)}
        self.dtypes = LATER_TYPES | named
        self.given, self.results = frozenset(self.inputs), frozenset(self.outputs)
        self.ids = _ids([(tensor.Name() or b"").decode("utf-8", "replace") for tensor in tensors])
        self.tensors = [self._tensor(i, tensor) for i, tensor in enumerate(tensors)]
        self._check_numbers()
        self.variable_of: dict[int, Tensor] = {}
        """Handle's number → the variable behind it."""
        self._find_variables()

    def _check_shared(self, tensors: Sequence[Any]) -> None:
        """Raise ``UnreadableInput`` where a few lists and names stand for many: thousands may point to one."""
        size = len(self.subgraph._tab.Bytes)
        counts = chain(
            (_length(operator, "Inputs") + _length(operator, "Outputs") for operator in self.operators),
            (_length(tensor, "Shape") + len(tensor.Name() or b"") for tensor in tensors),
        )
        if any(total > OF_EACH_BYTE * size for total in accumulate(counts)):
            raise UnreadableInput(
                f"the model says more operands, sides and letters than its {size} bytes can be.",
                source=self.name,
                place="subgraph 0",
                hint="The model is damaged: copy it again, or convert it again.",
            )

    def _check_numbers(self) -> None:
        """Raise ``UnreadableInput`` where an operator or the subgraph names a tensor that is not there."""
        ends = [("the subgraph", "Inputs", self.inputs, 0), ("the subgraph", "Outputs", self.outputs, 0)]
        for k, operator in enumerate(self.operators):
            who = f"operator {k} ({self._operator_name(operator)})"
            ends += [(who, side, _numbers(operator, side), ABSENT) for side in ("Inputs", "Outputs")]
        for who, side, numbers, least in ends:
            wrong = next((i for i in numbers if not least <= i < len(self.tensors)), None)
            if wrong is not None:
                raise UnreadableInput(
                    f"{who} names tensor {wrong} among its {side.lower()}, and there are {len(self.tensors)} tensors.",
                    source=self.name,
                    place="subgraph 0",
                    hint="The model is damaged: copy it again, or convert it again.",
                )

    def _find_variables(self) -> None:
        """One buffer for each variable that is read or assigned, called as its handle names it."""
        handles: dict[int, str] = {}
        by_name: dict[str, Tensor] = {}
        taken = set(self.ids)
        for k, operator in enumerate(self.operators):
            instr = self._operator_name(operator)
            if instr == "VAR_HANDLE":
                options = self._options(operator, "VarHandleOptions")
                shared = (options.SharedName() or b"").decode("utf-8", "replace") if options else ""
                handles[_numbers(operator, "Outputs")[0]] = shared
            elif instr in VARIABLE_VALUE:
                side, at = VARIABLE_VALUE[instr]
                handle, held = _numbers(operator, "Inputs")[0], _numbers(operator, side)[at]
                if ABSENT in (handle, held):
                    raise UnreadableInput(
                        f"operator {k} ({instr}) leaves out which variable it is on, or its value.",
                        source=self.name,
                        place="subgraph 0",
                        hint="The model is damaged: copy it again, or convert it again.",
                    )
                known = f"variable {handles.get(handle) or self.ids[handle]}"
                if known not in by_name:
                    free = known
                    while free in taken:  # a tensor is called so
                        free += "'"
                    taken.add(free)
                    value = self.tensors[held]
                    by_name[known] = Tensor(free, value.shape, value.dtype, "buffer")
                self.variable_of.setdefault(handle, by_name[known])

    def _options(self, operator: Any, table: str) -> Any:
        found = operator.BuiltinOptions() or operator.BuiltinOptions2()
        if found is None:
            return None
        options = getattr(self.tflite, table)()
        options.Init(found.Bytes, found.Pos)
        return options

    def _not_planned(self) -> str:
        """What of the file is not planned, for the graph's name."""
        count = self.model.SubgraphsLength()
        notes = [f"subgraph 1 of {count}; the others are not planned"] if count > 1 else []
        if any(self.model.Metadata(k).Name() == OFFLINE_PLAN for k in range(_length(self.model, "Metadata"))):
            notes.append("the offline plan in the file is not used")
        return f" ({'; '.join(notes)})" if notes else ""

    def graph(self) -> Graph:
        nodes = tuple(self._node(k, operator) for k, operator in enumerate(self.operators))
        used = {name for node in nodes for name in (*node.inputs, *node.outputs)}
        ends = {self.ids[i] for i in (*self.inputs, *self.outputs)}
        variables = {tensor.id: tensor for tensor in self.variable_of.values()}
        return Graph(
            ir_schema=GRAPH_SCHEMA,
            name=PurePath(self.name).name.removesuffix(".tflite") + self._not_planned(),
            tensors=(*self._of_one_buffer(used | ends), *variables.values()),
            nodes=nodes,
            inputs=tuple(dict.fromkeys(self.ids[i] for i in self.inputs)),
            outputs=tuple(dict.fromkeys(self.ids[i] for i in self.outputs)),
            execution_order=tuple(node.node_id for node in nodes),
        )

    def _of_one_buffer(self, used: set[str]) -> list[Tensor]:
        """The tensors that are used, constants with the same data in one alias group."""
        buffers = {
            i: self.subgraph.Tensors(i).Buffer()
            for i, tensor in enumerate(self.tensors)
            if tensor.id in used and tensor.role == "constant" and self._data_bytes(self.subgraph.Tensors(i))
        }
        count = Counter(buffers.values())
        group = {i: f"buffer {at}" for i, at in buffers.items() if count[at] > 1}
        return [
            structs.replace(tensor, alias_group_id=group[i]) if i in group else tensor
            for i, tensor in enumerate(self.tensors)
            if tensor.id in used
        ]

    def _tensor(self, i: int, tensor: Any) -> Tensor:
        word = self.dtypes.get(tensor.Type(), f"type {tensor.Type()}")
        dtype = HANDLE_DTYPE if word == "RESOURCE" else dtypes.canonical(word)
        if dtype is None:
            raise InvalidIrShapes(
                f'the tensor "{self.ids[i]}" is of the type {word}, whose size the file does not say.',
                reason="unknown_dtype",
                node_id="",
                tensor=self.ids[i],
                path=f"subgraph 0, tensor {i}",
                hint="Only tensors of numbers and booleans can be planned.",
            )
        role: Role = "activation"
        if tensor.IsVariable():
            role = "buffer"
        elif i not in self.given and (self._has_data(tensor) or self._is_empty(i, tensor)):
            role = "constant"
        elif i in self.given:
            role = "input"
        elif i in self.results:
            role = "output"
        shape = tuple(_numbers(tensor, "Shape"))
        if any(dim < 0 for dim in shape):
            raise InvalidIrShapes(
                f'the tensor "{self.ids[i]}" has a dimension that the model leaves open: {list(shape)}.',
                reason="dynamic_shape",
                node_id="",
                tensor=self.ids[i],
                path=f"subgraph 0, tensor {i}",
                hint="Give the inputs fixed shapes and convert the model again.",
            )
        if role == "constant" and tensor.Sparsity() is not None and not _is_external(tensor):
            shape, dtype = (self._data_bytes(tensor),), "uint8"
        return Tensor(self.ids[i], shape, dtype, role)

    def _has_data(self, tensor: Any) -> bool:
        return self._data_bytes(tensor) > 0 or _is_external(tensor)

    def _data_bytes(self, tensor: Any) -> int:
        """Bytes of data in the file, or behind the flatbuffer where a model is too large for one."""
        at = tensor.Buffer()
        if not 0 < at < self.model.BuffersLength():
            return 0
        buffer = self.model.Buffers(at)
        behind = int(buffer.Size())
        return int(buffer.DataLength()) or (behind if behind > 1 else 0)

    def place(self, i: int) -> tuple[int, int]:
        """``(first byte in the file, bytes)`` of a tensor's data."""
        buffer = self.model.Buffers(self.subgraph.Tensors(i).Buffer())
        if buffer.DataLength():
            table = buffer._tab
            return int(table.Vector(table.Offset(4))), int(buffer.DataLength())
        return (int(buffer.Offset()), int(buffer.Size())) if buffer.Size() > 1 else (0, 0)

    def _is_empty(self, i: int, tensor: Any) -> bool:
        """Whether it is a constant without elements, such as the axes of a reduction over none: it needs no data."""
        return i not in self.written and 0 in _numbers(tensor, "Shape")

    def _node(self, k: int, operator: Any) -> Node:
        instr = self._operator_name(operator)
        reads = [i for i in _numbers(operator, "Inputs") if i != ABSENT]
        writes = [i for i in _numbers(operator, "Outputs") if i != ABSENT]
        called = self._called(instr, operator)
        variables = [self.variable_of[reads[0]].id] if instr in VARIABLE_VALUE else []
        return Node(
            node_id=f"{instr}_{k}",
            instr=instr,
            inputs=(*(self.ids[i] for i in reads), *variables),
            outputs=tuple(self.ids[i] for i in writes),
            inplace=self._permission(instr, reads, writes),
            params={"subgraphs_not_planned": called} if called else {},
        )

    def _operator_name(self, operator: Any) -> str:
        code = self.model.OperatorCodes(operator.OpcodeIndex())
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())  # the older field ends at 127
        if number == self.tflite.BuiltinOperator.CUSTOM:
            return (code.CustomCode() or b"CUSTOM").decode("utf-8", "replace")
        word: str = self.tflite.BUILTIN_OPCODE2NAME.get(number, f"BUILTIN_{number}")
        return word

    def _permission(self, instr: str, reads: list[int], writes: list[int]) -> Any:
        if len(writes) != 1:
            return "none"
        operands = 2 if instr in BINARY else int(instr in UNARY or instr in MOVES)
        size = _bytes(self.tensors[writes[0]])
        pairs = tuple((i, 0) for i, read in enumerate(reads[:operands]) if _bytes(self.tensors[read]) == size)
        return pairs or "none"

    def _called(self, instr: str, operator: Any) -> list[str]:
        table, fields = SUBGRAPH_FIELDS.get(instr, ("", ()))
        options = self._options(operator, table) if table else None
        if options is None:
            return []
        numbers = [getattr(options, field)() for field in fields]
        return [
            (self.model.Subgraphs(n).Name() or f"subgraph_{n}".encode())[:1000].decode("utf-8", "replace")
            for n in numbers
        ]


def _is_external(tensor: Any) -> bool:
    """Whether its data lie in another file. The parser does not name the field."""
    table = tensor._tab
    place = table.Offset(4 + 2 * EXTERNAL_BUFFER)
    return bool(place and int.from_bytes(table.Bytes[table.Pos + place : table.Pos + place + 4], "little"))


def _numbers(table: Any, field: str) -> list[int]:
    """A vector of a table, element by element: read whole, an absent one is the integer 0."""
    return [int(getattr(table, field)(i)) for i in range(_length(table, field))]


def _length(table: Any, field: str) -> int:
    """How long a vector of four-byte elements is. Raises ``IndexError`` where the file has no room for it."""
    length = int(getattr(table, f"{field}Length")())
    if length * 4 > len(table._tab.Bytes):
        raise IndexError(field)
    return length


def _ids(names: list[str]) -> list[str]:
    """Names as they are; with their number where one is empty or taken twice."""
    count = Counter(names)
    ids: list[str] = []
    for i, name in enumerate(names):
        own = name if name and count[name] == 1 else f"{name or 'tensor'}:{i}"
        while own != name and own in count:  # another tensor is called so
            own += f":{i}"
        ids.append(own)
    return ids


def _bytes(tensor: Tensor) -> int:
    return dtypes.tensor_bytes(tuple(int(dim) for dim in tensor.shape), tensor.dtype)
