"""Small files that exhaust memory or time if their reader trusts them.

Every maker takes a size: that of the measurement (``python -m benchmarks.limits``), or a smaller one in the suite.
"""

import gzip
import json
import pickle
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import cbor2
import flatbuffers
from onnx import TensorProto, helper

from tests.formats.xla.test_xla import ASSIGNMENT, LIVE_RANGE
from tests.support.build import chain
from tests.tools.fuzz import flat_program
from tests.tools.fuzz.flat_program import Placed, Scalar
from tmmu_core.graph.native import native_file


@dataclass(frozen=True)
class Attack:
    """A kind of file, and the error that it must give."""

    what: str
    make: Callable[[int], bytes]
    size: int
    """Size of the measurement."""
    ending: str
    command: tuple[str, ...] = ("plan",)
    """The command that is run on the file; the file name comes last."""
    limit: str = ""
    """The limit that the error must name; empty where the file is refused for another reason, or is read."""
    small: int = 0
    """Size in the suite; 0: that of the measurement."""


def csv_of(last: int) -> bytes:
    """Return two rows with times up to ``last``."""
    return b"id,lower,upper,size,offset\na,0,%d,4,0\nb,%d,%d,8,4\n" % (last, last - 1, last)


# --- numbers ---------------------------------------------------------------------------------------------------------


def long_number(digits: int) -> bytes:
    """Return a graph whose tensor has a dimension with ``digits`` digits."""
    return native_file.encode_json(chain(1)).replace(b'"shape":[4', b'"shape":[' + b"9" * digits)


def long_number_in_pickle(size: int) -> bytes:
    """Return a snapshot with a block whose number has ``size`` bytes."""
    block = b"}(X\x04\x00\x00\x00size\x8b" + size.to_bytes(4, "little") + b"\x7f" * size + b"u"
    segment = (
        b"}(X\x07\x00\x00\x00addressK\x00X\x0a\x00\x00\x00total_sizeK\x01X\x06\x00\x00\x00blocks](" + block + b"eu"
    )
    return b"\x80\x04}X\x08\x00\x00\x00segments](" + segment + b"es."


# --- documents -------------------------------------------------------------------------------------------------------


def doubling(depth: int) -> bytes:
    """Return nested lists ``[a, a]`` of shared references."""
    body = b"\xd8\x1c\x80"
    for k in range(depth):
        body = b"\xd8\x1c\x82" + body + b"\xd8\x1d" + cbor2.dumps(k)
    return b"\xa1\x67tensors" + body


def bignum(size: int) -> bytes:
    """Return an integer of ``size`` bytes."""
    return b"\xa1\x67tensors\xc2\x5a" + size.to_bytes(4, "big") + b"\xff" * size


def bomb(size: int) -> bytes:
    """Return a gzipped file of many blanks and a graph."""
    packer = zlib.compressobj(9, wbits=31)
    piece = b" " * (1 << 20)
    out = [packer.compress(piece) for _ in range(size >> 20)]
    return b"".join([*out, packer.compress(b"{}"), packer.flush()])


def small_values(size: int) -> bytes:
    """Return a gzipped graph with a field of many empty lists."""
    head, tail = native_file.encode_json(chain(1)).split(b'"instr":"RELU"', 1)
    return gzip.compress(head + b'"instr":"RELU","params":{"a":[' + b"[]," * (size // 3) + b"[]]}" + tail, 6, mtime=0)


def small_values_in_cbor(size: int) -> bytes:
    """Return CBOR of many empty lists."""
    return gzip.compress(b"\xa1\x67tensors\x9a" + size.to_bytes(4, "big") + b"\x80" * size, 6, mtime=0)


# --- texts -----------------------------------------------------------------------------------------------------------


def xla_over_one_another(values: int) -> bytes:
    """Return one allocation with many values at different bytes, live one after the other."""
    placed = "".join(f" value: <{k} v{k} @0> (size=8,offset={8 * k}): f32[2]{{0}}\n" for k in range(values))
    lives = "".join(f"    v{k}{{}}:0-{values}\n" for k in range(values))
    return (
        f"BufferAssignment:\nallocation 0: size {8 * values}, preallocated-temp:\n{placed}\n"
        f"HloLiveRange (max {values}):\n  InstructionSequence:\n  BufferLiveRange:\n{lives}"
    ).encode()


def xla_program(size: int) -> bytes:
    """Return a dump whose program has nested brackets as metadata."""
    line = f'  %a = f32[] add(), metadata={{op_name="{"jvp(" * 200}x{")" * 200}/{"a/" * 1500}b"}}\n'
    return (ASSIGNMENT + LIVE_RANGE + "HloModule x\n\n" + line * (size // len(line))).encode()


def digits_in_report(size: int) -> bytes:
    """Return a memory usage report with one row of digits."""
    return b"Memory Space: x\n  cumulative_size; size; offset; x; y\n  " + b"1" * size + b";\n"


def one_name_in_vela(rows: int) -> bytes:
    """Return a log of Vela in which all rows have one name."""
    head = (
        "Allocation, memory Sram, usage mask: x\nStart Time - End Time: Start Addr - End Addr: Tensor Size: x: Name\n"
    )
    body = "".join(f"  {k} -  {k}: 0x0 - 0x10: 16: x: a\n" for k in range(rows))
    return (head + body).encode()


# --- flatbuffers -----------------------------------------------------------------------------------------------------


def _finished(builder: Any, root: int, identifier: bytes) -> bytes:
    builder.Finish(root, file_identifier=identifier)
    return bytes(builder.Output())


def program_of_loops(loops: int) -> bytes:
    """Return a program of many values and as many jumps to its start."""
    values = [flat_program.tensor(16 * k, (4,)) for k in range(loops)]
    calls: list[Any] = [("aten::neg.out", [k, k + 1, k + 1]) for k in range(loops - 1)]
    return flat_program.program(values, [0], [loops - 1], [*calls, *([1] * loops)])


def program_of_memories(memories: int) -> bytes:
    """Return a program of many values, each in a different memory."""
    values = [flat_program.tensor(0, (4,), memory=k) for k in range(memories)]
    return flat_program.program(values, [0], [memories - 1], [("aten::neg.out", [0, 1, 1])])


def program_of_lists(length: int) -> bytes:
    """Return a program whose kernel takes a list of ``length`` values ``length`` times."""
    values = [flat_program.tensor(0, (4,)), {0: Scalar("Uint8", 10), 1: {0: [0] * length}}]
    return flat_program.program(values, [0], [0], [("aten::cat.out", [1] * length)])


def _model(builder: Any, subgraph: dict[int, Any]) -> bytes:
    fields = {0: Scalar("Uint32", 3), 1: [{0: Scalar("Int8", 0)}], 2: [subgraph], 4: [{}]}
    return _finished(builder, flat_program.table(builder, fields), b"TFL3")


def tflite_operands(length: int) -> bytes:
    """Return many operators that read one long list of operands."""
    builder = flatbuffers.Builder(1024)
    operands = Placed(flat_program.written(builder, [0] * length))
    operator = flat_program.table(builder, {1: operands, 2: operands})
    operators = Placed(flat_program.tables_vector(builder, [operator] * length))
    return _model(builder, {0: [{0: [4], 3: "a"}], 1: [0], 2: [0], 3: operators})


def tflite_name(length: int) -> bytes:
    """Return many tensors that share one long name."""
    builder = flatbuffers.Builder(1024)
    one = flat_program.table(builder, {0: [4], 3: "a" * length})
    return _model(builder, {0: Placed(flat_program.tables_vector(builder, [one] * length)), 1: [0], 2: [0]})


def tflite_inputs(length: int) -> bytes:
    """Return many tensors and as many inputs, among which each tensor is searched."""
    builder = flatbuffers.Builder(1024)
    one = flat_program.table(builder, {0: [4], 3: "a"})
    tensors = Placed(flat_program.tables_vector(builder, [one] * length))
    return _model(builder, {0: tensors, 1: [length - 1] * length, 2: [0]})


# --- JSON of others --------------------------------------------------------------------------------------------------


def snapshot_of_devices(devices: int) -> bytes:
    """Return a snapshot with one segment for each of many devices."""
    segments = ",".join(f'{{"address":0,"total_size":1,"device":{k}}}' for k in range(devices))
    return ('{"segments":[' + segments + '],"device_traces":[]}').encode()


def snapshot_of_a_long_event(letters: int) -> bytes:
    """Return a snapshot with one event in which any of many letters could be its end."""
    text = b"} " * (letters // 2)
    return gzip.compress(b'{"device_traces":[[{"action":"alloc","addr":1,"size":3,"x":"' + text + b'"}]]}', 1)


def trace_of_memories(memories: int) -> bytes:
    """Return a memory trace with one event in each of many memories."""
    events = ",".join(f'{{"name":"a","cat":"memory_allocation","ts":9,"dur":1,"pid":{k}}}' for k in range(memories))
    return ('{"traceEvents":[' + events + "]}").encode()


# --- graphs ----------------------------------------------------------------------------------------------------------


def _tensors(names: Iterator[str], **more: Any) -> list[dict[str, Any]]:
    return [{"id": name, "shape": [4], "dtype": "int8", **more} for name in names]


def _document(tensors: list[dict[str, Any]], nodes: list[dict[str, Any]], **more: Any) -> bytes:
    inputs = more.pop("inputs", [tensors[0]["id"]])
    whole = {"ir_schema": "uml_model_ir/1", "tensors": tensors, "nodes": nodes, "inputs": inputs, "outputs": []}
    return json.dumps(whole | more).encode()


def views_of_views(depth: int) -> bytes:
    """Return a chain of views."""
    tensors = _tensors(f"t{k}" for k in range(depth))
    for before, after in pairwise(tensors):
        after["view"] = {"base_tensor_uid": before["id"], "byte_offset": 0, "byte_length": 4}
    return _document(tensors, [{"node_id": "n", "instr": "X", "inputs": [f"t{depth - 1}"], "outputs": []}])


def one_group(size: int) -> bytes:
    """Return many tensors of one alias group, each read by the next node."""
    tensors = _tensors((f"t{k}" for k in range(size)), alias_group_id="g")
    nodes = [{"node_id": f"n{k}", "instr": "X", "inputs": [f"t{k}"], "outputs": [f"t{k + 1}"]} for k in range(size - 1)]
    return _document(tensors, nodes)


def all_apart(size: int) -> bytes:
    """Return many tensors of which no two may share a byte."""
    names = [f"t{k}" for k in range(size)]
    tensors = _tensors(iter(names))
    for k, tensor in enumerate(tensors):
        tensor["must_not_alias"] = names[:k]
    nodes = [{"node_id": f"n{k}", "instr": "X", "inputs": [f"t{k}"], "outputs": [f"t{k + 1}"]} for k in range(size - 1)]
    return _document(tensors, nodes)


def apart_from_one(size: int) -> bytes:
    """Return one tensor that is never live with others and may share no byte with many tensors that are."""
    names = [f"t{k}" for k in range(size)]
    tensors = _tensors(iter(names))
    tensors[0]["must_not_alias"] = names[1:]
    nodes = [{"node_id": f"a{k}", "instr": "X", "inputs": ["t0"], "outputs": []} for k in range(100)]
    nodes.append({"node_id": "b", "instr": "X", "inputs": [], "outputs": names[1:]})
    nodes.append({"node_id": "c", "instr": "X", "inputs": names[1:], "outputs": []})
    order = [node["node_id"] for node in nodes]
    return _document(tensors, nodes, execution_order=order)


def read_by_all(size: int) -> bytes:
    """Return one node that reads many tensors and may overwrite any of them."""
    tensors = _tensors(f"t{k}" for k in range(size))
    names = [tensor["id"] for tensor in tensors]
    nodes = [{"node_id": "n", "instr": "X", "inputs": names[:-1] * 4, "outputs": [names[-1]]}]
    return _document(tensors, nodes, inputs=names[:-1])


def on_one_byte(rows: int) -> bytes:
    """Return a finished plan with many buffers on the same bytes at the same time."""
    return b"id,lower,upper,size,offset\n" + b"".join(b"b%d,0,9,64,0\n" % k for k in range(rows))


def many_arenas(arenas: int) -> bytes:
    """Return a graph in which every tensor has its own arena."""
    tensors = _tensors(f"t{k}" for k in range(arenas))
    for k, tensor in enumerate(tensors):
        tensor["arena"] = f"a{k}"
    nodes = [
        {"node_id": f"n{k}", "instr": "X", "inputs": [f"t{k}"], "outputs": [f"t{k + 1}"]} for k in range(arenas - 1)
    ]
    return _document(tensors, nodes)


def many_gaps(gaps: int) -> bytes:
    """Return an instance of buffers with many gaps."""
    spans = b" ".join(b"%d-%d" % (4 * k + 1, 4 * k + 2) for k in range(gaps))
    rows = b"".join(b"b%d,0,%d,64,%s\n" % (k, 4 * gaps + 9, spans) for k in range(8))
    return b"id,lower,upper,size,gaps\n" + rows


# --- ONNX ------------------------------------------------------------------------------------------------------------


def functions(depth: int) -> bytes:
    """Return functions that call each other twice: 2^depth nodes when inlined."""
    bodies = []
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    for k in range(depth):
        op, domain = ("Relu", "") if k == 0 else (f"f{k - 1}", "own")
        nodes = [helper.make_node(op, [a], [b], domain=domain) for a, b in pairwise(("v0", "v1", "v2"))]
        bodies.append(helper.make_function("own", f"f{k}", ["v0"], ["v2"], nodes, imports))
    return _onnx([helper.make_node(f"f{depth - 1}", ["x"], ["y"], domain="own")], functions=bodies)


def _onnx(nodes: list[Any], **more: Any) -> bytes:
    one = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    other = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [one], [other], initializer=more.pop("initializer", []))
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    data: bytes = helper.make_model(graph, opset_imports=imports, ir_version=9, **more).SerializeToString()
    return data


def onnx_doubling(times: int) -> bytes:
    """Return a shape that is concatenated with itself many times."""
    shape = helper.make_tensor("s0", TensorProto.INT64, [1], [1])
    nodes = [helper.make_node("Concat", [f"s{k}", f"s{k}"], [f"s{k + 1}"], axis=0) for k in range(times)]
    return _onnx([*nodes, helper.make_node("Reshape", ["x", f"s{times}"], ["y"])], initializer=[shape])


def onnx_chain(nodes: int) -> bytes:
    """Return a chain of many nodes."""
    names = ["x", *(f"v{k}" for k in range(nodes - 1)), "y"]
    return _onnx([helper.make_node("Relu", [a], [b]) for a, b in pairwise(names)])


def onnx_scopes(depth: int) -> bytes:
    """Return nested conditionals."""
    boolean = helper.make_tensor("c", TensorProto.BOOL, [], [True])
    body = [helper.make_node("Relu", ["x"], ["y0"])]
    for k in range(depth):
        out = helper.make_tensor_value_info(f"y{k}", TensorProto.FLOAT, [4])
        branches = {side: helper.make_graph(body, side, [], [out]) for side in ("then_branch", "else_branch")}
        body = [helper.make_node("If", ["c"], [f"y{k + 1}"], **branches)]
    body.append(helper.make_node("Relu", [f"y{depth}"], ["y"]))
    return _onnx(body, initializer=[boolean])


def _pickled_traces(devices: int) -> bytes:
    return pickle.dumps({"segments": [], "device_traces": [[] for _ in range(devices)]}, 4)


def _said_again(segments: int) -> bytes:
    return pickle.dumps({"segments": [{"address": 0, "total_size": 1}] * segments}, 4)


ATTACKS: dict[str, Attack] = {
    "late": Attack("a CSV of two rows with times up to 2·10^8", csv_of, 2 * 10**8, "csv", ("verify",)),
    "later": Attack("the same up to 2^31", csv_of, 2**31, "csv", ("verify",)),
    "late-report": Attack("the same up to 2^31, reported", csv_of, 2**31, "csv", ("report", "-o", "out.html")),
    "digits": Attack("a side of a million digits", long_number, 10**6, "json"),
    "pickled-digits": Attack("a pickled number of a megabyte", long_number_in_pickle, 10**6, "pickle"),
    "cbor-doubling": Attack("CBOR references that double forty times", doubling, 40, "cbor"),
    "cbor-bignum": Attack("a CBOR whole number of a megabyte", bignum, 1 << 20, "cbor"),
    "bomb": Attack("6.3 GB of blanks, gzipped", bomb, 63 * 10**8, "gz", limit="unpacked-bytes", small=314572800),
    "values": Attack(
        "a gzipped graph of 255 MB of empty lists", small_values, 255 << 20, "gz", limit="values", small=33554432
    ),
    "cbor-values": Attack(
        "255 million empty lists of CBOR, gzipped",
        small_values_in_cbor,
        255 << 20,
        "gz",
        limit="values",
        small=33554432,
    ),
    "xla-values": Attack(
        "an XLA allocation of 40,000 values", xla_over_one_another, 40_000, "txt", limit="allocation-values"
    ),
    "xla-program": Attack("5 MB of brackets in an XLA program", xla_program, 5 << 20, "txt", small=262144),
    "report-digits": Attack("a row of 200,000 digits in an XLA report", digits_in_report, 200_000, "txt"),
    "vela-name": Attack("40,000 rows of a Vela log with one name", one_name_in_vela, 40_000, "txt", small=5000),
    "pte-loops": Attack(
        "an ExecuTorch program of 10,000 loops over 10,000 values", program_of_loops, 10_000, "pte", limit="values"
    ),
    "pte-memories": Attack("an ExecuTorch program of 20,000 memories", program_of_memories, 20_000, "pte", small=2000),
    "pte-lists": Attack("a list of 50,000 values, 50,000 times", program_of_lists, 50_000, "pte", limit="values"),
    "tflite-operands": Attack("50,000 operators with one list of 50,000 operands", tflite_operands, 50_000, "tflite"),
    "tflite-name": Attack("200,000 tensors with one name of 200,000 letters", tflite_name, 200_000, "tflite"),
    "tflite-inputs": Attack("50,000 tensors among 50,000 inputs", tflite_inputs, 50_000, "tflite", small=5000),
    "snapshot-devices": Attack(
        "a snapshot of 50,000 devices", snapshot_of_devices, 50_000, "json", limit="devices", small=5000
    ),
    "snapshot-traces-pickled": Attack(
        "a pickled snapshot of 300,000 empty traces", _pickled_traces, 300_000, "pickle", limit="devices", small=5000
    ),
    "snapshot-segment": Attack("one segment, 2,000,000 times", _said_again, 2_000_000, "pickle", small=20_000),
    "snapshot-event": Attack(
        "an event of 200 MB, gzipped", snapshot_of_a_long_event, 200_000_000, "gz", small=20_000_000
    ),
    "trace-memories": Attack("a memory trace of 50,000 memories", trace_of_memories, 50_000, "json", small=5000),
    "views": Attack("50,000 views of views", views_of_views, 50_000, "json", small=5000),
    "group": Attack("20,000 tensors of one alias group", one_group, 20_000, "json", small=2000),
    "apart": Attack("1,500 tensors that must not share a byte", all_apart, 1_500, "json", limit="pairs"),
    "apart-star": Attack("a tensor that must not share a byte with 50,000", apart_from_one, 50_000, "json", small=5000),
    "read-by-all": Attack("a node of 80,000 operands", read_by_all, 20_000, "json", small=2000),
    "on-one-byte": Attack("40,000 buffers on the same bytes", on_one_byte, 40_000, "csv", ("verify",), small=4000),
    "arenas": Attack("10,000 arenas", many_arenas, 10_000, "json", small=1_100),
    "gaps": Attack("eight buffers with 50,000 gaps", many_gaps, 50_000, "csv", small=5000),
    "onnx-functions": Attack(
        "ONNX functions that call one another 40 deep", functions, 40, "onnx", limit="inlined-nodes"
    ),
    "onnx-doubling": Attack("a shape concatenated with itself 40 times", onnx_doubling, 40, "onnx"),
    "onnx-chain": Attack("50,000 ONNX nodes in a row", onnx_chain, 50_000, "onnx", small=500),
    "onnx-scopes": Attack("ONNX conditionals 12 deep", onnx_scopes, 12, "onnx", small=6),
}
