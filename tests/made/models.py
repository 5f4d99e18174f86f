"""What becomes of small ONNX models: of random chains, of bodies in bodies, of functions; and their weights' bytes."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.graph.test_onnx import model, op, value
from tests.graph.test_onnx_scopes import CASES, body, const
from tests.made.saying import Kind, digest, folder, line, said
from tmmu_core import limits
from tmmu_core.graph.importers import onnx as importer
from tmmu_core.graph.importers import onnx_bytes, onnx_complete, onnx_measure
from tmmu_core.graph.importers.onnx_shapes import Facts, Sizes
from tmmu_core.graph.model import Dim, Graph

BOOL, FLOAT, INT64 = TensorProto.BOOL, TensorProto.FLOAT, TensorProto.INT64
WIDE = 6
"""Every value of a chain has two axes, the second of this size."""


def read(proto: onnx.ModelProto, envelopes: dict[str, Dim] | None = None) -> Graph:
    """The graph of a model; onnxruntime is asked nothing."""
    with limits.raised({"run-seconds": 0}):
        return importer.read(proto.SerializeToString(), "given.onnx", envelopes)


def graph_line(graph: Graph) -> str:
    """Of a graph: how much of it there is, its open sizes, and a digest of it all."""
    dims = " ".join(f"{name}={dim.min}:{dim.max}@{graph.assumed.get(name, '')}" for name, dim in graph.dims.items())
    views = sum(1 for each in graph.tensors if each.view is not None)
    kept = sum(1 for each in graph.tensors if each.persistent)
    names = " ".join(each.instr for each in graph.nodes)
    counts = f"{len(graph.nodes)} nodes, {len(graph.tensors)} tensors, {kept} kept, {views} views"
    return line(f"{counts}; {dims}; {digest(graph)} {names}")


class Chain:
    """Nodes put one behind the other; ``here`` are the values of two axes that can be read."""

    def __init__(self, random: Random, here: Sequence[str], prefix: str = "") -> None:
        self.random, self.here, self.prefix = random, list(here), prefix
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray[Any, Any]] = {}
        self.count = 0

    def name(self) -> str:
        """A fresh name."""
        self.count += 1
        return f"{self.prefix}{self.count}"

    def put(self, operator: str, reads: str, outputs: int = 1, **attributes: Any) -> str:
        """A node, with a name of its own or without; its first output."""
        names = [self.name() for _ in range(outputs)]
        made = op(operator, reads, " ".join(names), **attributes)
        if self.random.randrange(4) == 0:
            made.name = self.random.choice((f"own_{self.count}", "same", f"scope/{operator}"))
        self.nodes.append(made)
        return names[0]

    def constant(self, array: Any) -> str:
        """A weight, or a node that makes it."""
        name, found = self.name(), np.asarray(array)
        if self.random.randrange(2):
            self.weights[name] = found
        else:
            self.nodes.append(const(name, found))
        return name

    def step(self) -> None:
        """One thing more that models do."""
        random, put = self.random, self.put
        x, y = random.choice(self.here), random.choice(self.here[-3:])
        numbers = np.int64
        what = random.randrange(24)
        if what < 3:
            made = put(random.choice(("Relu", "Tanh", "Identity", "Neg", "Dropout", "Softmax", "Erf")), x)
        elif what == 3:
            made = put("Add", f"{y} {put('Mul', f'{y} {y}')}")
        elif what == 4:
            made = put("MatMul", f"{x} {self.constant(np.ones((WIDE, WIDE), np.float32))}")
        elif what == 5:
            made = put("Add", f"{x} {self.constant(np.ones((WIDE,), np.float32))}")
        elif what == 6:
            three = put("Reshape", f"{x} {self.constant(np.array([0, 2, 3], numbers))}")
            made = put("Reshape", f"{put('Relu', three)} {self.constant(np.array([-1, WIDE], numbers))}")
        elif what == 7:
            made = put("Transpose", put("Transpose", x, perm=[1, 0]), perm=[1, 0])
        elif what == 8:
            axes = self.constant(np.array([random.randrange(3)], numbers))
            made = put("Squeeze", f"{put('Unsqueeze', f'{x} {axes}')} {axes}")
        elif what == 9:
            made = put("Concat", f"{x} {y}", axis=0)
        elif what == 10:
            first = put("Split", x, 2, axis=1)
            made = put("Concat", f"{first} {self.prefix}{self.count}", axis=1)
        elif what == 11:
            rows = put(
                "Slice",
                f"{put('Shape', x)} {self.constant(np.array([0], numbers))} {self.constant(np.array([1], numbers))}",
            )
            wanted = put("Concat", f"{rows} {self.constant(np.array([WIDE], numbers))}", axis=0)
            made = put("Reshape", f"{x} {wanted}")
        elif what == 12:
            made = put("Add", f"{x} {put('ConstantOfShape', put('Shape', x))}")
        elif what == 13:
            rows = put("Gather", f"{put('Shape', x)} {self.constant(np.array(0, numbers))}", axis=0)
            ends = (self.constant(np.array(each, numbers)) for each in (0, 1))
            start, delta = ends
            counted = put("Cast", put("Range", f"{start} {rows} {delta}"), to=FLOAT)
            made = put("Mul", f"{x} {put('Unsqueeze', f'{counted} {self.constant(np.array([1], numbers))}')}")
        elif what == 14:
            made = put("Sub", f"{x} {put('ReduceMean', x, axes=[0], keepdims=1)}")
        elif what == 15:
            made = put("Expand", f"{x} {put('Shape', x)}")
        elif what == 16:
            scale = [self.constant(np.ones((WIDE,), np.float32)) for _ in range(4)]
            made = put("BatchNormalization", " ".join((x, *scale)))
        elif what == 17:
            made = put("Where", f"{put('Greater', f'{x} {y if x == y else x}')} {x} {x}")
        elif what == 18:
            made = put("Tile", f"{x} {self.constant(np.array([2, 1], numbers))}")
        elif what == 19:
            four = put("Unsqueeze", f"{x} {self.constant(np.array([0, 1], numbers))}")
            pooled = put("MaxPool", four, random.choice((1, 2)), kernel_shape=[1, 1])
            made = put("Squeeze", f"{pooled} {self.constant(np.array([0, 1], numbers))}")
        elif what == 20:
            made = put("RandomNormalLike", x)
        elif what == 21:
            made = put("Flatten", put("Clip", x))
        elif what == 22:
            made = put(
                "Slice", f"{x} {self.constant(np.array([0], numbers))} {self.constant(np.array([1 << 40], numbers))}"
            )
        else:
            made = put("Cast", put("Cast", x, to=random.choice((TensorProto.FLOAT16, INT64))), to=FLOAT)
        self.here.append(made)


def chain_of(random: Random) -> tuple[onnx.ModelProto, dict[str, Dim] | None]:
    """A chain on one or two inputs, their first sizes open or not; of some values the model says the shape."""
    sizes = random.choice((2, "B", "T", "N", None, "?", "batch_size", 0))
    ends = [value("x", [sizes, WIDE])]
    if random.randrange(2):
        ends.append(value("w", [random.choice((sizes, "T", 2)), WIDE]))
    chain = Chain(random, [each.name for each in ends])
    for _ in range(random.randrange(1, 7)):
        chain.step()
    if random.randrange(9) == 0:
        chain.here.append(chain.put("Transpose", chain.put("NonZero", chain.here[-1]), perm=[1, 0]))
    outputs = list(dict.fromkeys((chain.here[-1], *random.sample(chain.here, random.randrange(2)))))
    kind = {True: INT64, False: FLOAT}
    counted = bool(chain.nodes) and chain.nodes[-2:-1] and chain.nodes[-2].op_type == "NonZero"
    shape: Any = random.choice((None, None, None, ["rows", WIDE]))
    gives = [value(name, None if counted else shape, kind[bool(counted) and name == outputs[0]]) for name in outputs]
    proto = model(chain.nodes, ends, gives, chain.weights)
    for made in random.sample(chain.here, min(2, len(chain.here))):
        if random.randrange(3) == 0 and made not in ("x", "w", *outputs):
            proto.graph.value_info.append(value(made, random.choice((None, [None, WIDE], ["B", WIDE], [-1, WIDE]))))
    if random.randrange(5) == 0:
        proto.graph.node[0].metadata_props.add(key="pkg.torch.onnx.name_scopes", value="['', 'h.0', 'linear']")
        proto.graph.node[-1].doc_string = 'File "/a/model.py", line 7, in forward'
    envelopes = random.choice((None, None, {"B": Dim(2, 5)}, {"T": Dim(3, 3), "rows": Dim(1, 7)}))
    return proto, envelopes


def _chain(random: Random, _: int) -> str:
    proto, envelopes = chain_of(random)
    return graph_line(read(proto, envelopes))


# -- bodies -----------------------------------------------------------------------------------------------------------


def inner_chain(random: Random, here: list[str], prefix: str, depth: int) -> Chain:
    """What stands in a body: a few steps, and perhaps a body again."""
    chain = Chain(random, here, prefix)
    for _ in range(random.randrange(1, 3)):
        if depth and random.randrange(3) == 0:
            chain.here.append(flow(random, chain, depth - 1))
        else:
            chain.step()
    return chain


def flow(random: Random, chain: Chain, depth: int) -> str:
    """An ``If``, a ``Loop`` or a ``Scan`` behind a chain; a value of two axes that it gives."""
    what, own = random.randrange(3), f"{chain.name()}q"
    more = {"name": random.choice(("flow", "", f"flow_{own}"))}
    if what == 0:
        bodies = []
        for side in ("a", "b"):
            inner = inner_chain(random, chain.here, own + side, depth)
            inner.nodes.append(op("Identity", inner.here[-1], f"{own}{side}r"))
            bodies.append(body(inner.nodes, [], [f"{own}{side}r"], inner.weights))
        decided = random.randrange(3)
        condition = "c" if decided else chain.constant(np.array(bool(random.randrange(2))))
        return chain.put("If", condition, then_branch=bodies[0], else_branch=bodies[1], **more)
    if what == 1:
        states, gathers = random.randrange(3), random.randrange(2)
        carried = [f"{own}s{k}" for k in range(states)]
        inner = inner_chain(random, [*chain.here, *carried], own, depth)
        inner.nodes.append(op("Identity", f"{own}go", f"{own}on"))
        results = [random.choice([*carried, *inner.here[-2:]]) for _ in range(states)]
        pieces = [random.choice(inner.here) for _ in range(gathers)]
        ends = [value(f"{own}i", [], INT64), value(f"{own}go", [], BOOL), *(value(each, None) for each in carried)]
        inside = body(inner.nodes, ends, [f"{own}on", *results, *pieces], inner.weights)
        counts = (chain.constant(np.array(random.randrange(4), np.int64)), random.choice(("n", "_")))
        count = counts[random.randrange(8 if gathers else 3) == 0]
        initial = [random.choice(chain.here) for _ in range(states)]
        if not states + gathers:
            return chain.put("Relu", chain.here[-1])
        first = chain.put(
            "Loop", " ".join((count, random.choice(("c", "_")), *initial)), states + gathers, body=inside, **more
        )
        if states:
            return first
        return chain.put("Reshape", f"{first} {chain.constant(np.array([-1, WIDE], np.int64))}")
    states = random.randrange(2)
    carried = [f"{own}s{k}" for k in range(states)]
    row = value(f"{own}row", None)
    inner = Chain(random, [], own)
    piece = inner.put(random.choice(("Relu", "Neg")), f"{own}row")
    inner.nodes.append(op("Add", f"{piece} {own}row", f"{own}out"))
    nexts = [inner.put("Tanh", each) for each in carried]
    inside = body(inner.nodes, [*(value(each, None) for each in carried), row], [*nexts, f"{own}out"], inner.weights)
    axis = random.choice((0, 0, -2))
    initial = [random.choice(chain.here) for _ in range(states)]
    reads = " ".join((*initial, random.choice(chain.here)))
    asked: dict[str, Any] = {"scan_input_axes": [axis]} if axis else {}
    asked |= {"scan_output_axes": [0], "scan_output_directions": [1]} if random.randrange(3) == 0 else {}
    first = chain.put("Scan", reads, states + 1, body=inside, num_scan_inputs=1, **asked, **more)
    return f"{chain.prefix}{chain.count}" if random.randrange(2) else first


def _bodies(random: Random, _: int) -> str:
    ends = [value("x", [random.choice((2, 3, "B")), WIDE]), value("c", [], BOOL), value("n", [], INT64)]
    chain = Chain(random, ["x"])
    if random.randrange(2):
        chain.step()
    for _ in range(random.choice((1, 1, 2))):
        chain.here.append(flow(random, chain, 2))
    chain.here.append(chain.put("Relu", chain.here[-1]))
    proto = model(chain.nodes, ends, [value(chain.here[-1], None)], chain.weights)
    envelopes = random.choice((None, {"n": Dim(1, 9)}, {"n": Dim(1, 2**31)}, {"flow": Dim(1, 4), "B": Dim(2, 3)}))
    return graph_line(read(proto, envelopes))


def _case(random: Random, k: int) -> str:
    return f"{CASES[k % len(CASES)].name} {said(lambda: graph_line(read(CASES[k % len(CASES)].model)))}"


def growing(random: Random) -> onnx.ModelProto:
    """A loop whose state grows, by as much each time or otherwise, so often or without an end."""
    how = random.randrange(6)
    ends = [value("i", [], INT64), value("go", [], BOOL), value("s", None), *([value("u", None)] if how == 5 else [])]
    grow = {
        0: [op("Concat", "s row", "t", axis=0)],
        1: [op("Concat", "s s", "t", axis=0)],
        2: [op("Concat", "s row", "a", axis=0), op("Concat", "a row", "t", axis=0)],
        3: [op("Concat", "s row", "a", axis=0), const("one", np.array([1])), const("far", np.array([1 << 40])),
            const("ax", np.array([0])), op("Slice", "a one far ax", "b"), op("Concat", "b row", "t", axis=0)],
        4: [const("one", np.array([1])), const("far", np.array([1 << 40])), op("Slice", "s one far", "t")],
        5: [op("Concat", "s row", "t", axis=0), op("Concat", "u u", "v", axis=0)],
    }[how]  # fmt: skip
    inside = body(
        [*grow, op("Identity", "go", "on")], ends, ["on", "t", *(["v"] if how == 5 else []), *(["t"] * (how == 0))]
    )
    del inside.output[3 if how == 5 else 2 :]
    trip = random.choice((1, 2, 3, 5, 64, 65, 200, 0, None))
    states = "s0 u0" if how == 5 else "s0"
    outputs = "y z" if how == 5 else "y"
    weights = {"row": np.ones((1, 3), np.float32)} | ({} if trip is None else {"n": np.array(trip, np.int64)})
    loop = op("Loop", f"n c {states}", outputs, name="grow", body=inside)
    inputs = [value("s0", [random.choice((1, 4, "B")), 3]), value("c", [], BOOL)]
    inputs += [value("u0", [1, 3])] if how == 5 else []
    inputs += [value("n", [], INT64)] if trip is None else []
    return model([loop, op("Relu", "y", "r")], inputs, [value("r", None)], weights)


def _grown(random: Random, _: int) -> str:
    proto = growing(random)
    return graph_line(read(proto, random.choice((None, None, {"n": Dim(1, 5)}, {"B": Dim(1, 3)}))))


def _functions(random: Random, _: int) -> str:
    """Local functions that call others, themselves, or too many."""
    count = random.randrange(1, 5)
    functions = []
    for k in range(count):
        nodes, last = [], "x"
        for j in range(random.randrange(1, 4)):
            called = random.choice(("Relu", *(f"f{i}" for i in range(count) if i > k or random.randrange(12) == 0)))
            domain = "own" if called[0] == "f" else ""
            nodes.append(helper.make_node(called, [last], [f"y{j}"], domain=domain))
            last = f"y{j}"
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
        functions.append(helper.make_function("own", f"f{k}", ["x"], [last], nodes, opsets))
    calls = [
        helper.make_node("f0", ["x"], ["a"], domain="own"),
        helper.make_node(f"f{count - 1}", ["a"], ["y"], domain="own"),
    ]
    proto = model(calls, [value("x", [2, 3])], [value("y", None)], functions=functions)
    with limits.raised({"inlined-nodes": random.choice((3, 5, 8, 1 << 18, 1 << 18))}):
        return graph_line(read(proto))


# -- the weights' bytes -----------------------------------------------------------------------------------------------

WEIGHTS: tuple[tuple[str, int, bool], ...] = tuple(
    (kind, count, raw)
    for kind in (
        "FLOAT",
        "DOUBLE",
        "INT64",
        "INT32",
        "UINT8",
        "INT8",
        "FLOAT16",
        "BFLOAT16",
        "UINT32",
        "UINT64",
        "BOOL",
        "INT16",
    )
    for count, raw in ((3, True), (3, False), (16385, True), (16385, False))
) + tuple(("FLOAT", count, raw) for count in (4096, 4097, 2048, 2049) for raw in (True, False))


def _weights(_: Random, k: int) -> str:
    """The bytes of a weight, raw or as numbers, few or many; of one made of it, and of one in a body."""
    kind, count, raw = WEIGHTS[k]
    number = getattr(TensorProto, kind)
    numbers = [
        each % 2 if kind == "BOOL" else each % 100 - (50 if kind[0] != "U" and kind[0] != "B" else 0)
        for each in range(count)
    ]
    if raw:
        array = np.array(numbers).astype(helper.tensor_dtype_to_np_dtype(number))
        weight = helper.make_tensor("w", number, [count], array.tobytes(), raw=True)
    else:
        weight = helper.make_tensor("w", number, [count], numbers)
    nodes = [
        op("Identity", "w", "v"),
        op("Cast", "v", "f", to=FLOAT),
        op("Slice", "f zero three", "g"),
        op("Add", "x g", "y"),
    ]
    ends = {"zero": np.array([0]), "three": np.array([3])}
    proto = model(nodes, [value("x", [3])], [value("y", None)], ends)
    proto.graph.initializer.append(weight)
    proto.graph.output.append(value("w", [count], number))
    proto.graph.output.append(value("f", [count]))
    proto.graph.initializer.append(numpy_helper.from_array(np.arange(5000, dtype=np.float32), "other"))
    proto.graph.output.append(value("other", [5000]))
    data = proto.SerializeToString()
    graph = read(proto)
    with folder() as home:
        path = home / "given.onnx"
        path.write_bytes(data)
        held, filed = (onnx_bytes.constants(data, graph, where, "given") for where in (None, path))
        same = all(held[name] == filed[name] for name in held)
        found = {name: held[name] for name in held}
    sizes = " ".join(f"{name} {len(data)}" for name, data in found.items())
    return f"{kind} × {count}{' raw' * raw}: {sizes}{'' if same else ' OTHERWISE in a file'} {digest(found)}"


def _folded(random: Random, _: int) -> str:
    """The constants of a chain, those that are worked out among them."""
    proto, envelopes = chain_of(random)
    graph = read(proto, envelopes)
    held = onnx_bytes.constants(proto.SerializeToString(), graph, None, "given")
    return line(" ".join(f"{name}:{said(lambda name=name: digest(held[name]))}" for name in held) or "none")  # type: ignore[misc]


PLACES: tuple[dict[str, str], ...] = (
    *({"location": "w.bin"}, {"location": "w.bin", "offset": "4"}, {"location": "w.bin", "offset": "4", "length": "8"}),
    *(
        {"location": "w.bin", "length": "13"},
        {"location": "q.bin"},
        {"location": "../w.bin"},
        {"location": "/w.bin"},
        {},
    ),
    *(
        {"location": "w.bin", "offset": "x"},
        {"location": "w.bin", "offset": "-1"},
        {"location": "w.bin", "length": "-1"},
    ),
    *(
        {"location": "w.bin", "length": "0"},
        {"location": "a\\b"},
        {"location": "C:w"},
        {"location": "a..b"},
        {"location": "a/.."},
    ),
)


def _beside(_: Random, k: int) -> str:
    """A weight that lies beside the model."""
    proto = model([op("Add", "x w", "y")], [value("x", [3])], [value("y", None)], {"w": np.ones(3, np.float32)})
    weight = proto.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, text in PLACES[k].items():
        weight.external_data.add(key=key, value=text)
    with folder() as home:
        path = home / "given.onnx"
        path.write_bytes(proto.SerializeToString())
        (home / "w.bin").write_bytes(bytes(range(12)))

        def ask() -> str:
            graph = read(proto)
            return onnx_bytes.constants(path.read_bytes(), graph, path, "given")["w"].hex()

        return f"{PLACES[k]} → {said(ask)}"


WIRES: tuple[bytes, ...] = (
    *(
        b"",
        b"\x08",
        b"\x08\x07",
        b"\x3a",
        b"\x3a\x05ab",
        b"\x3a\x02\x2a\x7f",
        b"\x09" + bytes(8),
        b"\x09" + bytes(7),
        b"\x0d" + bytes(4),
    ),
    *(
        b"\x0d" + bytes(3),
        b"\x0b",
        b"\x0e",
        b"\xff" * 11,
        b"\x08" + b"\x80" * 9 + b"\x01",
        b"\x08" + b"\x80" * 10 + b"\x01",
    ),
    *(
        b"\x3a\x04\x0a\x02\x2a\x00",
        b"\x3a\x00",
        b"\x12\x01a\x3a\x00",
        b"\x3a\x03\x62\x01a",
        b"\x3a\x05\x2a\x03\x62\x01a",
    ),
)


def _wire(_: Random, k: int) -> str:
    """Bytes as the wire format has them, walked without their large fields."""

    def ask() -> str:
        places: dict[int, tuple[int, int, int]] = {}
        data = b"".join(onnx_bytes._without_numbers(memoryview(WIRES[k]), "model", 0, 0, places))
        return f"{data.hex()} {places}"

    return f"{WIRES[k].hex()} → {said(ask)}"


# -- what onnxruntime is asked ----------------------------------------------------------------------------------------

POINTS: tuple[Sizes, ...] = (
    *(Sizes(), Sizes({"B": Dim(1, 8)}, {"B": 1}), Sizes({"T": Dim(1, 512)}, {"T": 512}), Sizes({"T": Dim(1, 9)}, {})),
    Sizes({"T": Dim(1, 512), "B": Dim(1, 8), "S": Dim(1, 512)}, {"T": 512, "B": 1, "S": 512}),
    Sizes({f"d{k}": Dim(1, 512) for k in range(8)}, {f"d{k}": 512 for k in range(8)}),
)


def _points(_: Random, k: int) -> str:
    points = onnx_complete.points_to_try(POINTS[k])
    held = Sizes(dict(POINTS[k].dims), dict(POINTS[k].assumed))
    held.stand_at({name: (1, 7, 600)[j % 3] for j, name in enumerate(held.dims)})
    later = [held.point(), {name: [dim.min, dim.max] for name, dim in held.dims.items()}]
    return f"{len(points)} points: {line([points[:4], later])} {digest(points)}"


RUN: tuple[tuple[str, list[tuple[str, str, list[int | str]]], list[dict[str, int]]], ...] = (
    ("Relu", [("x", "float32", [2, "T"])], [{"T": 3}]),
    ("Relu", [("x", "float32", [2, "T"])], [{"T": 3}, {"T": 4}]),
    ("NonZero", [("x", "float32", ["T"])], [{"T": 5}]),
    ("NonZero", [("x", "bool", ["T"])], [{"T": 5}]),
    ("NonZero", [("x", "int64", ["T"])], [{"T": 5}]),
    ("Four", [("x", "float32", ["T", 4])], [{"T": 3}, {"T": 6}, {"T": 8}]),
    ("Range", [("x", "int64", [])], [{}]),
    ("Switch", [("x", "int64", [])], [{}]),
    ("Broken", [("x", "float32", ["T", 4])], [{"T": 3}]),
)


def run_model(name: str) -> onnx.ModelProto:
    """A model for one run: what it writes hangs on sizes, on values, or on a switch."""
    numbers = {"four": np.array([4, -1]), "zero": np.array(0), "one": np.array(1), "seven": np.array([7, 7])}
    kind = {"Range": INT64, "Switch": INT64}.get(name, FLOAT)
    nodes = {
        "Relu": [op("Relu", "x", "y", name="first")],
        "NonZero": [op("NonZero", "x", "y", name="first"), op("Shape", "y", "s", name="second")],
        "Four": [op("Reshape", "x four", "y", name="first"), op("Concat", "y y", "z", axis=0, name="second")],
        "Range": [op("Range", "zero x one", "y", name="first")],
        "Switch": [
            op("Equal", "x one", "e", name="first"),
            op("Cast", "e", "f", to=INT64),
            op("Div", "one f", "y", name="third"),
        ],
        "Broken": [op("Reshape", "x seven", "y", name="first")],
    }[name]
    return model(nodes, [value("x", None, kind)], [value("y", None, kind)], numbers)


def _run(_: Random, k: int) -> str:
    """What a run tells of every value, in this very process."""
    name, inputs, points = RUN[k]
    proto = run_model(name)
    proto.graph.input[0].CopyFrom(
        helper.make_tensor_value_info(
            "x", helper.np_dtype_to_tensor_dtype(np.dtype(inputs[0][1])), [None] * len(inputs[0][2])
        )
    )
    del proto.graph.output[:]
    proto.graph.output.append(onnx.ValueInfoProto(name="y"))
    try:
        found = onnx_measure.run(proto.SerializeToString(), inputs, points)
    except Exception as error:
        return f"{name} {points}: fails as {type(error).__name__}"
    return f"{name} {points}: at {found['point']} {found['runs']}"


def _values(_: Random, k: int) -> str:
    dtype, dims = (
        ("float32", [2, "T"]),
        ("float16", [3]),
        ("bool", [2]),
        ("int64", []),
        ("int32", [1]),
        ("int64", ["T"]),
        ("uint8", [2]),
    )[k]
    inputs = [("x", dtype, list(dims))]
    made = [onnx_measure._values(inputs, {"T": 3}, 7, first=first)["x"] for first in (True, False)]  # type: ignore[arg-type]
    return line([[str(each.dtype), list(each.shape), np.round(each.astype(float), 3)] for each in made])


LARGEST = (
    ([], {}),
    ([["a", [["float", [2, 3]]]], ["a", [["float", [4, 1]]]], ["a", [["float", [7]]]]], {"a": ["x"]}),
    ([["a", [["float", [2]], ["int64", [3]]]]], {"a": ["x", "y"]}),
    ([["a", [["float", [2]], ["int64", [3]]]]], {"a": ["x"]}),
    ([["b", [["float", [2]]]], ["a", [["string", [2]]]]], {"a": ["x"]}),
    ([["a", [["float", [0]]]], ["a", [["bool", [1]]]]], {"a": ["x"]}),
)


def _largest(_: Random, k: int) -> Any:
    events, names = LARGEST[k]
    return onnx_complete._largest(events, names)  # type: ignore[arg-type]


VERSIONS = (b"\x08\x0a", b"\x08\x0b", b"\x08\x7f", b"\x08\x80\x01", b"\x12\x0b", b"\x08\x07xyz", b"\x08\x0bxyz")


def _named(random: Random, _: int) -> str:
    """The nodes of a model by their results' flat names, and which branches a run has taken that wrote some of them."""
    ends = [value("x", [2, WIDE]), value("c", [], BOOL), value("n", [], INT64)]
    chain = Chain(random, ["x"])
    for _ in range(2):
        chain.here.append(flow(random, chain, 2))
    proto = model(chain.nodes, ends, [value(chain.here[-1], None)], chain.weights)
    proto = onnx.ModelProto.FromString(proto.SerializeToString())
    flat = importer.flattened(onnx.ModelProto.FromString(proto.SerializeToString()))
    names = dict(onnx_complete._name_nodes(proto.graph, flat))
    outputs = [name for each in names.values() for name in each]
    ran = set(random.sample(outputs, len(outputs) * 2 // 3))
    taken = dict(onnx_complete._taken(flat, ran))
    facts = Facts({"x": (2, WIDE)}, {"x": "float32"})
    known = {name: (FLOAT, [k, 2]) for k, name in enumerate(outputs[::2])}
    onnx_complete.complete(flat, facts, known, "measured")
    missing = onnx_complete.missing(flat, facts)
    rest = [names, facts.shape, facts.dtype, facts.origin, missing]
    return f"{len(names)} nodes, taken {taken}, {len(missing)} without {digest(rest)}"


KINDS = {
    "a chain of ONNX": Kind(170, _chain),
    "bodies of ONNX": Kind(120, _bodies),
    "a case of ONNX": Kind(len(CASES), _case),
    "a state that grows": Kind(60, _grown),
    "functions of ONNX": Kind(40, _functions),
    "a weight's bytes": Kind(len(WEIGHTS), _weights),
    "constants of a chain": Kind(40, _folded),
    "a weight beside its model": Kind(len(PLACES), _beside),
    "a wire": Kind(len(WIRES), _wire),
    "points to run at": Kind(len(POINTS), _points),
    "a run": Kind(len(RUN), _run),
    "values of a run": Kind(7, _values),
    "the largest of a run": Kind(len(LARGEST), _largest),
    "a version for the runtime": Kind(len(VERSIONS), lambda _, k: onnx_complete.for_the_runtime(VERSIONS[k]).hex()),
    "nodes by their names": Kind(30, _named),
}
