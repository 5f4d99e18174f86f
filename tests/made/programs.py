"""What becomes of small files of the other readers: of PyTorch, TensorFlow Lite, XLA, and of nodes and ports."""

from __future__ import annotations

import io
import json
import zipfile
from random import Random
from typing import Any

import msgspec

from tests.importers.test_tflite_features import Op, T
from tests.importers.test_tflite_features import model as tflite_model
from tests.made.saying import Kind, digest, line, said
from tmmu_core import limits
from tmmu_core.graph.importers import node_centric, pt2_bytes, pt2_names, pt2_program, sniff, tflite, xla
from tmmu_core.graph.importers.adamw import add_adamw
from tmmu_core.graph.importers.pt2_graph import as_saved, storages_of
from tmmu_core.graph.importers.xla_program import origins_of, scopes_of
from tmmu_core.graph.index import index_graph
from tmmu_core.graph.model import Dim, Graph, Node, Tensor, View

# -- PyTorch ----------------------------------------------------------------------------------------------------------

Lying = tuple[list[Any], list[Any], Any, int]
"""Sizes, strides, offset, dtype number: as a program says them."""


def size(number: int, symbol: str = "") -> dict[str, Any]:
    """A size as it is written: a number, or a formula beside the number."""
    return {"as_expr": {"expr_str": symbol, "hint": {"as_int": number}}} if symbol else {"as_int": number}


def meta(sizes: list[int], strides: list[int], offset: int = 0, dtype: int = 7, symbol: str = "") -> dict[str, Any]:
    """What a program says of a tensor; its first size open where a symbol is given."""
    return {
        "dtype": dtype,
        "sizes": [size(each, symbol if k == 0 else "") for k, each in enumerate(sizes)],
        "strides": [size(each) for each in strides],
        "storage_offset": size(offset),
        "layout": 7,
    }


def contiguous(sizes: list[int]) -> list[int]:
    """Strides of elements in order."""
    strides = [1] * len(sizes)
    for k in range(len(sizes) - 2, -1, -1):
        strides[k] = strides[k + 1] * max(1, sizes[k + 1])
    return strides


class Programming:
    """A program on its way: values by name with how they lie."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.values: dict[str, dict[str, Any]] = {}
        self.lies: dict[str, tuple[list[int], list[int], int, int]] = {}
        self.nodes: list[dict[str, Any]] = []
        self.inputs: list[dict[str, Any]] = []
        self.specs: list[dict[str, Any]] = []
        self.symbol = random.choice(("", "s77", "Symbol('s7', positive=True)"))

    def add(self, name: str, sizes: list[int], strides: list[int], offset: int = 0, dtype: int = 7) -> str:
        """A value."""
        self.values[name] = meta(sizes, strides, offset, dtype, self.symbol if sizes[:1] == [4] else "")
        self.lies[name] = (sizes, strides, offset, dtype)
        return name

    def given(self, k: int) -> None:
        """One input: a parameter, a buffer, a constant, or what is handed in."""
        random, name = self.random, f"p_{k}"
        sizes = random.choice(([4, 6], [4], [2, 3, 4], [], [4, 6], [0, 4]))
        strides, offset = contiguous(sizes), 0
        if random.randrange(5) == 0 and len(sizes) == 2:
            strides, offset = random.choice((([1, sizes[0]], 0), (strides, 8), ([2 * sizes[1], 1], 0), ([0, 1], 0)))
        self.add(name, sizes, strides, offset, random.choice((7, 7, 7, 6, 13)))
        kind = random.choice(("parameter", "buffer", "tensor_constant", "user_input", "user_input"))
        self.inputs.append({"as_tensor": {"name": name}})
        arg: Any = {"name": name} if kind != "user_input" else {"as_tensor": {"name": name}}
        own = {} if kind == "user_input" else {f"{kind}_name": random.choice((f"m.{name}", "m.shared", "same"))}
        self.specs.append({kind: {"arg": arg} | own})

    def call(self, target: str, arguments: list[Any], outputs: list[Any], **rest: Any) -> None:
        """One operator; an argument is as it is written."""
        arguments_ = [{"name": name, "arg": arg, "kind": 1} for name, arg in arguments]
        name = rest.pop("name", f"call_{len(self.nodes)}" if self.random.randrange(4) else None)
        self.nodes.append({"target": target, "inputs": arguments_, "outputs": outputs, "name": name} | rest)

    def step(self, k: int) -> None:
        """One operator more."""
        random, name = self.random, f"v{k}"
        x = random.choice(list(self.lies))
        sizes, strides, offset, dtype = self.lies[x]
        one: list[Any] = [("self", {"as_tensor": {"name": x}})]
        out = [{"as_tensor": {"name": name}}]
        aten, what = "torch.ops.aten.", random.randrange(20)
        if what < 3:
            self.add(name, sizes, contiguous(sizes), 0, dtype)
            self.call(
                aten + random.choice(("relu.default", "neg.default", "softmax.int", "max.dim", "clone.default")),
                one,
                out,
            )
        elif what < 6:
            y = random.choice([each for each in self.lies if self.lies[each][0] == sizes])
            self.add(name, sizes, random.choice((contiguous(sizes), strides)), 0, dtype)
            self.call(aten + "add.Tensor", [*one, ("other", {"as_tensor": {"name": y}})], out)
        elif what == 6:
            self.add(name, sizes, strides, offset, dtype)
            self.call(aten + random.choice(("add_.Tensor", "relu_.default", "__and__.Scalar")), one, out)
        elif what == 7:
            turned = list(range(len(sizes)))[::-1]
            self.add(name, [sizes[i] for i in turned], [strides[i] for i in turned], offset, dtype)
            self.call(aten + "permute.default", one, out)
        elif what == 8 and sizes and sizes[0] > 1:
            self.add(name, [sizes[0] - 1, *sizes[1:]], strides, offset + strides[0], dtype)
            self.call(aten + "slice.Tensor", one, out)
        elif what == 9:
            self.add(name, [3, *sizes], [0, *strides], offset, dtype)
            self.call(aten + "expand.default", one, out)
        elif what == 10:
            count = 1
            for each in sizes:
                count *= each
            self.add(name, [count], [1], random.choice((offset, 0)), dtype)
            self.call(aten + random.choice(("reshape.default", "flatten.using_ints")), one, out)
        elif what == 11:
            self.add(name, sizes, strides, offset, dtype)
            train = random.choice(({"as_bool": False}, {"as_bool": True}, {}))
            self.call(
                aten + "dropout.default", [*one, ("p", {"as_float": 0.5}), *([("train", train)] if train else [])], out
            )
        elif what == 12:
            kind = random.choice((dtype, dtype, 6))
            self.add(name, sizes, random.choice((strides, contiguous(sizes))), random.choice((offset, 0)), kind)
            copy = random.choice(([], [("copy", {"as_bool": True})], [("copy", {"as_bool": False})]))
            self.call(aten + random.choice(("to.dtype", "contiguous.default")), [*one, *copy], out)
        elif what == 13 and sizes and sizes[0] % 2 == 0 and sizes[0]:
            half = sizes[0] // 2
            self.add(name, [half, *sizes[1:]], strides, offset, dtype)
            self.add(f"{name}b", [half, *sizes[1:]], strides, offset + half * strides[0], dtype)
            self.call(aten + "split.Tensor", one, [{"as_tensors": [{"name": name}, {"name": f"{name}b"}]}])
        elif what == 14:
            others = random.sample(list(self.lies), min(2, len(self.lies)))
            self.add(name, sizes, contiguous(sizes), 0, dtype)
            names = [{"name": each} for each in others]
            ways = ({"as_tensors": names}, {"as_optional_tensors": [{"as_tensor": names[0]}, {"as_none": True}]})
            nested = ({"as_nested_tensors": [names, names[:1]]}, {"as_optional_tensor": {"as_tensor": names[0]}})
            self.call(
                aten + "cat.default",
                [("tensors", random.choice((*ways, *nested, {"as_optional_tensor": {"as_none": True}})))],
                out,
            )
        elif what == 15:
            self.call(aten + "sym_size.int", one, [{"as_sym_int": {"as_name": "s"}}])
        elif what == 16:
            self.add(name, sizes, contiguous(sizes), 0, dtype)
            bodies = [
                ("true", {"as_graph": {"name": "true_graph", "graph": {}}}),
                ("false", {"as_graph": {"name": "false_graph"}}),
            ]
            self.call("torch.ops.higher_order.cond", [*one, *bodies], out)
        elif what == 17:
            self.add(name, sizes, contiguous(sizes), 0, dtype)
            metadata = {
                "nn_module_stack": f"a,L['self'].h.{k},C;b,h.{k}.mlp,D",
                "stack_trace": f'File "/m/model.py", line {k}',
            }
            self.call(aten + "copy.default", [*one, *one], out, metadata=metadata)
        elif what == 18:
            self.add(name, sizes, contiguous(sizes), random.choice((0, 2)), dtype)
            self.call(
                random.choice(("quantized.mul", "prims.view_of.default", "own::op", aten + "as_strided.default")),
                one,
                out,
            )
        else:
            self.add(name, [5, 2], random.choice(([4, 1], [1, 1], [2, 1], [1, 5])), 0, dtype)
            self.call(aten + "empty_strided.default", [], out)

    def archive(self) -> bytes:
        """The archive."""
        random = self.random
        left: list[Any] = []
        for name in random.sample(list(self.lies), min(len(self.lies), random.randrange(1, 4))):
            kind = random.choice(
                ("user_output", "user_output", "loss_output", "buffer_mutation", "user_input_mutation")
            )
            arg: Any = {"name": name}
            if kind.endswith("_output"):
                left.append({kind: {"arg": {"as_tensor": arg} if random.randrange(3) else arg}})
            else:
                first = f"p_{random.randrange(len(self.inputs))}"
                called = next(
                    (v for spec in self.specs[:1] for w in spec.values() for u, v in w.items() if u != "arg"), first
                )
                left.append({kind: {"arg": arg, f"{kind.removesuffix('_mutation')}_name": called}})
        user = sum(1 for spec in self.specs if "user_input" in spec)
        leaf = {"type": None, "context": None, "children_spec": []}
        nested = {"type": "builtins.dict", "context": '["k"]', "children_spec": [leaf]}
        children = [
            nested if k == 0 and random.randrange(2) else leaf for k in range(user - (random.randrange(8) == 0))
        ]
        spec = [
            1,
            {
                "children_spec": [
                    {"children_spec": children, "type": "tuple"},
                    {"children_spec": [], "type": "dict", "context": "[]"},
                ]
            },
        ]
        signature = {"in_spec": json.dumps(spec), "forward_arg_names": random.choice((["x", "y"], ["x"], None))}
        document = {
            "graph_module": {
                "graph": {"inputs": self.inputs, "outputs": [], "nodes": self.nodes, "tensor_values": self.values},
                "signature": {"input_specs": self.specs, "output_specs": left},
                "module_call_graph": [{"fqn": "", "signature": signature}] if random.randrange(5) else [],
            },
            "range_constraints": random.choice(({}, {"s77": {"min_val": 2, "max_val": 64}}, {"s7": {"min_val": None}})),
        }
        kept = sorted(
            {next(v for k, v in w.items() if k.endswith("_name")) for s in self.specs for w in s.values() if len(w) > 1}
        )
        config = {
            name: {"path_name": f"weight_{k % 2}", "use_pickle": random.randrange(6) == 0}
            for k, name in enumerate(kept)
        }
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr("archive/archive_format", "pt2")
            archive.writestr("archive/models/model.json", json.dumps(document))
            archive.writestr("archive/data/weights/model_weights_config.json", json.dumps({"config": config}))
            archive.writestr("archive/data/weights/weight_0", bytes(range(200)))
            archive.writestr("archive/data/weights/weight_1", bytes(range(96)))
        return out.getvalue()


def program_of(random: Random) -> bytes:
    """An archive of a few inputs and operators."""
    made = Programming(random)
    for k in range(random.randrange(1, 5)):
        made.given(k)
    for k in range(random.randrange(1, 7)):
        made.step(k)
    if random.randrange(8) == 0:
        name = random.choice(list(made.values))
        wrong = random.choice(
            ({"dtype": 99}, {"layout": 1}, {"strides": []}, {"sizes": [size(1 << 62)] * 2, "strides": [size(1)] * 2})
        )
        made.values[name] = made.values[name] | wrong
    elif random.randrange(12) == 0:
        made.values.pop(random.choice(list(made.values)))
    return made.archive()


def _program(random: Random, _: int) -> str:
    data = program_of(random)
    program = pt2_program.read_program(data, "given")
    graph = as_saved(program, "given")
    held = pt2_bytes.constants(data, graph, None, "given")
    found = {name: said(lambda name=name: digest(held[name])) for name in held}  # type: ignore[misc]
    views = sum(1 for each in graph.tensors if each.view is not None)
    counts = f"{len(graph.nodes)} nodes, {len(graph.tensors)} tensors, {views} views, {len(found)} with bytes"
    index_graph(graph)
    instructions = " ".join(node.instr for node in graph.nodes)
    return line(f"{counts} {digest(graph)} {digest(storages_of(program))} {digest(found)} {instructions}")


def _asked(random: Random, _: int) -> str:
    """A program's open sizes by name, and the program at others."""
    program = pt2_program.read_program(program_of(random), "given")
    names = pt2_names.open_dims(program)
    envelopes = {name: Dim(1, random.choice((1, 5, 64, 65))) for name in list(names)[:1]}
    point = pt2_names.asked_for(program, envelopes)
    moved = program.at(point)
    graph = pt2_names.with_dims(as_saved(moved, "given"), moved, envelopes)
    dims = {name: [dim.min, dim.max] for name, dim in graph.dims.items()}
    return line([names, pt2_names.given_names(program), point, moved.elsewhere, dims, graph.assumed, digest(graph)])


MEMBERS: tuple[dict[str, Any], ...] = (
    *(
        {},
        {"a/models/model.json": {}},
        {"a/models/model.json": {"graph_module": {"graph": {}}}},
        {"x_exported_program.json": {"graph_module": {"graph": {}}}},
    ),
    *(
        {"serialized_exported_program.json": {"graph_module": {"graph": {}}}, "a/models/other.json": {}},
        {"a/models/b.json": {"graph_module": {"graph": {}}}},
    ),
    *(
        {"a/models/b.json": {}, "a/models/c.json": {}},
        {"a/archive_format": "pt2"},
        {"a/models/model.txt": {}},
        {"models/model.json": 4},
    ),
    {"a/models/model.json": {"graph_module": {"graph": {}}}, "a/weights/model_weights_config.json": {"config": 4}},
)


def _members(_: Random, k: int) -> str:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, inner in MEMBERS[k].items():
            archive.writestr(name, json.dumps(inner))
    data = out.getvalue()
    why = pt2_program.refuses(data)
    with limits.raised({"unpacked-bytes": 40}):
        return f"{list(MEMBERS[k])}: {why!r} {said(lambda: digest(pt2_program.read_program(data, 'given')))}"


# -- TensorFlow Lite --------------------------------------------------------------------------------------------------

KERNELS = (
    "ADD",
    "RELU",
    "RESHAPE",
    "CONV_2D",
    "SUB",
    "SOFTMAX",
    "MUL",
    "SPLIT",
    "SQUEEZE",
    "CONCATENATION",
    "CUSTOM",
    "WHERE",
)


def lite_of(random: Random) -> bytes:
    """A model of a few tensors and kernels, with what such files hold beside."""
    tensors = []
    for k in range(random.randrange(2, 8)):
        rest = random.choice(
            (
                {},
                {},
                {},
                {"data": bytes(8)},
                {"variable": True},
                {"data": bytes(5), "sparse": True},
                {"behind": 64},
                {"behind": 1},
            )
        )
        dtype = random.choice(
            ("FLOAT32", "FLOAT32", "INT8", "INT4", "BOOL", "RESOURCE" if random.randrange(4) == 0 else "INT8")
        )
        dtype = "STRING" if random.randrange(30) == 0 else dtype
        shape = random.choice(((4,), (4,), (2, 2), (0, 3), (), (1, 16), (-1, 2) if random.randrange(9) == 0 else (4,)))
        name = random.choice((f"t{k}", f"t{k}", "t0", "", "tensor:1", "t0:2"))
        tensors.append(T(name, shape, dtype, **rest))  # type: ignore[arg-type]
    count = len(tensors)

    def some(most: int) -> tuple[int, ...]:
        low, high = (-1, count + (random.randrange(25) == 0)) if random.randrange(5) == 0 else (0, count)
        return tuple(random.randrange(low, high) for _ in range(random.randrange(most)))

    ops = []
    for _ in range(random.randrange(1, 5)):
        what = random.randrange(9)
        if what == 0:
            ops.append(
                Op(
                    "VAR_HANDLE",
                    (),
                    (random.randrange(count),),
                    ("VarHandleOptions", {"SharedName": random.choice(("s", "t"))}),
                )
            )
        elif what == 1:
            ops.append(Op("READ_VARIABLE", (random.randrange(count),), (random.randrange(count),)))
        elif what == 2:
            ops.append(Op("ASSIGN_VARIABLE", (random.randrange(count), random.randrange(count)), ()))
        elif what == 3:
            ops.append(Op("IF", some(3), some(2), ("IfOptions", {"ThenSubgraphIndex": 0, "ElseSubgraphIndex": 1})))
        else:
            ops.append(Op(random.choice(KERNELS), some(4), some(3)))
    ends = (tuple(i for i in some(3) if 0 <= i < count), tuple(i for i in some(3) if 0 <= i < count))
    notes = random.choice(("", "", "OfflineMemoryAllocation", "min_runtime_version"))
    return tflite_model(tensors, ops, subgraphs=random.choice((1, 1, 2, 3)), metadata=notes, ends=ends)


def _lite(random: Random, _: int) -> str:
    data = lite_of(random)
    graph = tflite.read(data, "a/b.tflite")
    held = tflite.constants(data, graph, None, "given")
    found = {name: said(lambda name=name: len(held[name])) for name in held}  # type: ignore[misc]
    rows = " ".join(f"{node.instr}{list(node.inplace or ())}" for node in graph.nodes)
    return line(f"{graph.name}: {len(graph.tensors)} tensors, {digest(graph)} {digest(found)} {rows}")


# -- XLA --------------------------------------------------------------------------------------------------------------

TRAITS = (
    *(
        ", preallocated-temp:",
        ", preallocated-temp:",
        ", constant:",
        ", thread-local:",
        ", parameter 0, shape |f32[4]| at ShapeIndex {}:",
    ),
    *(", parameter 1, shape |f32[4]| at ShapeIndex {}, maybe-live-out:", ", maybe-live-out:", ":"),
)


def dump_of(random: Random) -> str:
    """Allocations and live ranges; some values share bytes at one step, or for longer."""
    lines, ranges, number = ["BufferAssignment:"], [], 0
    for k in range(random.randrange(1, 5)):
        whole = random.choice((16, 32, 64))
        traits = random.choice(TRAITS)
        lines.append(f"allocation {k}: {random.choice(('', '0xab, '))}size {whole}{traits}")
        for _ in range(random.randrange(1, 6)):
            size_ = random.choice((4, 8, 16))
            offset = random.choice((0, 0, 0, 4, 8, whole - size_))
            phi = " (phi)" if random.randrange(5) == 0 else ""
            name = random.choice((f"v{number}", f"v{number}", f"tuple.{number}{{1}}"))
            lines.append(f" value: <{number} {name}{phi} @0> (size={size_},offset={offset}): f32[1]")
            birth = random.randrange(8)
            if random.randrange(8) and "thread-local" not in traits:
                ranges.append(
                    f"    {name}{random.choice(('{}', '{}', ''))}:{birth}-{birth + random.choice((0, 0, 1, 2, 5))}"
                )
            number += 1
    head = ["HloLiveRange (max 9):", "  InstructionSequence:", "    0:v0", "  BufferLiveRange:"]
    tail = ["  Live ranges at 2 (peak):", "    v0: 4 bytes"]
    return "\n".join([*lines, *head, *ranges, *tail, ""])


def _dump(random: Random, _: int) -> str:
    found = xla.read(dump_of(random).encode(), "given")
    rows = " ".join(
        f"{each.id}[{each.birth},{each.death})@{each.offset}+{each.size}{each.role[0]}" for each in found.buffers
    )
    return line(f"{found.extent} {found.within} {digest(found)} {rows}")


OP_NAMES = (
    *(
        "jit(step)/jvp(GPT)/h_0/mlp/dot",
        "jit(step)/transpose(jvp(GPT))/h_0/dot",
        "params['h_0']['kernel']",
        'a["b"][3]',
        "a",
        "",
    ),
    *(
        "jit(f)/while/body/add",
        "jvp(a/b)/c",
        "transpose(x)/y/z",
        "a//b",
        "a/",
        "/a",
        "checkpoint(m)/rematted_computation/add",
    ),
    *(
        "transpose(transpose(a))/b",
        "jvp(jit(f))/x",
        "f(a/b)/c(d",
        "a)/b",
        "own(jvp(g))/h",
        "x['a']/y",
        "params['params']['k']",
    ),
    *(
        "/".join("abcdefghij" * 8),
        "jvp(" * 70 + "a" + ")" * 70 + "/b",
        "jvp(" * 64 + "a" + ")" * 64 + "/b",
        "['a']" * 70,
        "x" * 5000 + "/y",
    ),
)


def program_text(random: Random) -> list[str]:
    """The text of a program: tables, computations, instructions."""
    lines = ["HloModule m", "FileNames", '1 "/x/model.py"', '2 "a\\"b.py"', "FileLocations"]
    lines += ["1 {file_name_id=1 line=3}", f"2 {{file_name_id={random.randrange(4)} line=12}}", "StackFrames"]
    lines += ["1 {file_location_id=1}", "2 {file_location_id=2 parent_frame_id=1}", ""]
    names: list[str] = []
    for computation in ("%inner", "middle", "ENTRY %main"):
        lines.append(f"{computation} (p: f32[8]) -> f32[8] {{")
        for _ in range(random.randrange(1, 5)):
            name = f"i{len(names)}"
            names.append(name)
            said_of_it = random.choice(
                (
                    *(
                        "",
                        f', metadata={{op_name="{random.choice(OP_NAMES[:12])}" stack_frame_id={random.randrange(4)}}}',
                    ),
                    *(
                        ', metadata={op_name="a/b" source_file="/q/r/s.py" source_line=7}',
                        ", calls=%inner",
                        ", calls=%middle",
                    ),
                    ", metadata={stack_frame_id=2}",
                )
            )
            root = "ROOT " if random.randrange(3) == 0 else ""
            lines.append(f"  {root}{random.choice(('%', ''))}{name} = f32[8] add(p, p){said_of_it}")
        lines += ["}", ""]
    return lines


SNIFFED: tuple[bytes, ...] = (
    *(
        b"",
        b"{}",
        b'{"tensors": []}',
        b'{"nodes": []}',
        b'{"nodes": [{"shape_out": [1]}]}',
        b'{"schema": "x"}',
        b'{"schema": 4}',
        b"{",
    ),
    *(
        b'{"nodes": [{"inputs": [{"node_id": "x"}]}]}',
        b'{"nodes": 4}',
        b'{"nodes": [4, {"inputs": null}]}',
        b'{"nodes": [{"inputs": ["x"]}]}',
    ),
    *(
        b'{"ir_schema_hash": "", "nodes": []}',
        b'{"ir_schema": "", "x": 1}',
        b"\xa1gtensors\x80",
        b"\xa1enodes\x81\xa1ishape_out\x80",
        b"\xa1",
    ),
    *(
        b"\xd9\xd9\xf7\xa1gtensors\x80",
        b" \t\r\n{}",
        b"\xef\xbb\xbf{}",
        "{}".encode("utf-16"),
        "{}".encode("utf-16-le"),
        "{}".encode("utf-16-be"),
    ),
    *(
        b"\x08\x07\x3a\x00",
        b"\x3a\x00",
        b"\x08\x07",
        b"\x08\x07\x12\x01a\x3a",
        b"\x08",
        b"\x09\x00",
        b"\x08\x07\x20\x00",
        b"\x12\x05ab",
        b"\x10\x00",
    ),
    *(
        b"\xc2\x01\x00\x3a",
        b"\xa2\x01\x00\x3a\x00",
        b"\x08" + b"\xff" * 10 + b"\x3a\x00",
        b"\x00\x00\x00\x00TFL3",
        b"\x00\x00\x00\x00TFL",
        b"PK\x03\x04",
    ),
    *(
        b"BufferAssignment:",
        b"HloLiveRange",
        b"HloModule x",
        b"HloModule x\nBufferAssignment:",
        b"HloModule x BufferAssignment:",
        b"\xc0",
        b"\xbf",
    ),
)


def _sniffed(data: bytes) -> str:
    parts = (sniff.not_native, sniff.not_ports, sniff.not_onnx, sniff.not_tflite, pt2_program.refuses, xla.refuses)
    return line([part(data) for part in parts])


# -- ports, and steps of an optimizer ---------------------------------------------------------------------------------


def _ports(random: Random, _: int) -> str:
    """A graph of nodes and ports, with lists for several outputs; in one of three something is amiss."""
    nodes: list[dict[str, Any]] = []
    for k in range(random.randrange(1, 5)):
        several = random.randrange(3) == 0
        shape: Any = random.choice(([[1, 8], [2]], [[4]])) if several else random.choice(([1, 8], [], ["n"], None))
        node: dict[str, Any] = {"node_id": f"n{k}", "instr": "OP"}
        width = len(shape) if several else int(shape is not None)
        if shape is not None:
            node |= {"shape_out": shape, "dtype": random.choice(("float32", ["int8"] * width, "f16"))}
        if k:
            node["inputs"] = [{"node_id": f"n{random.randrange(k)}", "output_idx": random.choice((0, 0, 0, 1))}]
        for field, one in (
            ("role", "output"),
            ("alias_group_id", "g"),
            ("remat", True),
            ("alignment", 8),
            ("arena", "fast"),
        ):
            if random.randrange(6) == 0:
                node[field] = one if random.randrange(2) else [one] * (width + (random.randrange(6) == 0))
        if random.randrange(8) == 0 and k:
            node[random.choice(("view", "view_descriptor"))] = {"base_tensor_uid": "n0:0"}
        node |= random.choice(
            (
                {},
                {},
                {"saved_for_backward": True},
                {"must_not_alias": ["n0:0"]},
                {"inplace": "any"},
                {"phase": "backward"},
            )
        )
        nodes.append(node)
    if random.randrange(3) == 0:
        wrong = random.choice(
            ({"shape_out": [1, [2]]}, {"dtype": None}, {"node_id": "n0"}, {"inputs": [{"node_id": "q"}]}, {"more": 1})
        )
        nodes[-1] = {key: inner for key, inner in (nodes[-1] | wrong).items() if inner is not None}
    outputs = [{"node_id": f"n{len(nodes) - 1}", "output_idx": random.choice((0, 0, 0, 1, -1))}]
    document = {"nodes": nodes, "outputs": outputs, "dims": {"n": {"min": 1, "max": 3}}, "name": "m"}
    graph = node_centric.decode(json.dumps(document).encode(), "given")
    return line(f"{len(graph.tensors)} tensors {digest(graph)} {' '.join(t.id for t in graph.tensors)}")


def _stepped(random: Random, _: int) -> str:
    """Steps of an optimizer behind a graph."""
    tensors, gradients = [], {}
    for k in range(random.randrange(1, 4)):
        dtype = random.choice(("float32", "bfloat16", "float64", "float16"))
        view = View("w0") if k and random.randrange(3) == 0 else None
        tensors += [
            Tensor(f"w{k}", (4,), dtype, "parameter", view=view, saved_for_backward=bool(k % 2)),
            Tensor(f"g{k}", (4,), dtype, "gradient"),
        ]
        if random.randrange(4):
            gradients[f"w{k}"] = f"g{k}"
    nodes = tuple(Node(f"n{k}", "GRAD", (), (f"g{k}",), "backward") for k in range(len(tensors) // 2))
    outputs = tuple(f"g{k}" for k in range(len(nodes)))
    order = tuple(node.node_id for node in nodes) if random.randrange(2) else None
    graph = add_adamw(Graph(tuple(tensors), nodes, outputs=outputs, execution_order=order), gradients)
    states = " ".join(f"{each.id}:{each.dtype}" for each in graph.tensors if each.role == "optimizer_state")
    return line(f"{len(graph.nodes)} nodes, gives {list(graph.outputs)}, {states} {digest(graph)}")


KINDS = {
    "a program of PyTorch": Kind(200, _program),
    "open sizes of a program": Kind(40, _asked),
    "an archive's members": Kind(len(MEMBERS), _members),
    "a model of TensorFlow Lite": Kind(160, _lite),
    "a dump of XLA": Kind(120, _dump),
    "an operation's name": Kind(len(OP_NAMES), lambda _, k: line([OP_NAMES[k][:40], scopes_of(OP_NAMES[k])])),
    "a program of XLA": Kind(40, lambda random, _: line(msgspec.to_builtins(origins_of(program_text(random))))),
    "what a file is": Kind(len(SNIFFED), lambda _, k: f"{SNIFFED[k][:24]!r}: {_sniffed(SNIFFED[k])}"),
    "nodes and ports": Kind(80, _ports),
    "steps of an optimizer": Kind(16, _stepped),
}
