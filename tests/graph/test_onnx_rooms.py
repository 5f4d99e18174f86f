"""The rooms behind the readers of ONNX, each beside the plainest that says the same: values, growth, runs, bytes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto, helper, numpy_helper

from tests.graph.test_onnx import model, op, value
from tmmu_core.errors import UnreadableInput
from tmmu_core.graph.constants import Constants, Held, InFile, Made
from tmmu_core.graph.importers import onnx_bytes, onnx_external, onnx_growth, onnx_measure, onnx_values
from tmmu_core.graph.importers.onnx_declared import Known
from tmmu_core.graph.importers.onnx_growth import State
from tmmu_core.graph.model import GRAPH_SCHEMA, Graph, Tensor, View

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


# --- values ------------------------------------------------------------------------------------------------------


def counted_plainly(start: Any, limit: Any, delta: Any) -> int:
    """As many as are walked over from ``start`` on; exactly, and never one by one where there are many."""
    count, by = 0, Fraction(delta)
    if by:
        far = Fraction(limit) - Fraction(start)
        count = max(0, int(far / by) - 1)
        while (Fraction(start) + count * by - Fraction(limit)) * (1 if by > 0 else -1) < 0:
            count += 1
    return count


@pytest.mark.parametrize("kind", [np.int64, np.int8, np.float32])
def test_the_values_of_a_range_are_as_many_as_are_walked_over(kind: Any) -> None:
    node = op("Range", "a b c", "r")
    few = [kind(n) for n in (-3, -2, -1, 0, 1, 2, 3)]
    for start, limit, delta in ((a, b, c) for a in few for b in few for c in few):
        operands = {"a": np.array(start), "b": np.array(limit), "c": np.array(delta)}
        assert onnx_values._count(node, operands) == counted_plainly(start.item(), limit.item(), delta.item())


def test_the_values_of_a_long_range_are_counted_to_the_last() -> None:
    operands = {"a": np.array(1), "b": np.array(2**62 + 2), "c": np.array(2)}
    assert onnx_values._count(op("Range", "a b c", "r"), operands) == 2**61 + 1
    halves = {"a": np.array(0.25), "b": np.array(2.0), "c": np.array(0.5)}
    assert onnx_values._count(op("Range", "a b c", "r"), halves) == 4


def test_what_may_grow_is_not_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_values, "KEPT_ELEMENTS", 4)
    operands = {"a": np.array(0), "b": np.array(4), "c": np.array(1), "d": np.array(5)}
    cases: list[tuple[onnx.NodeProto, dict[str, tuple[int, ...]], bool]] = [
        (op("Add", "a b", "y"), {}, True),
        (op("Add", "a b", "y"), {"y": (4,)}, False),
        (op("Add", "a b", "y"), {"y": (5,)}, True),
        (op("Add", "a b", "y"), {"y": (2, 2)}, False),
        (op("Add", "a b", "y"), {"a": (4,)}, True),
        (op("Split", "a", "y z"), {"y": (4,)}, True),
        (op("Split", "a", "y z"), {"y": (4,), "z": (5,)}, True),
        (op("Split", "a", "y z"), {"y": (4,), "z": (4,)}, False),
        (op("Split", "a", "_ z"), {"z": (4,)}, False),
        (op("Range", "a b c", "y"), {}, False),
        (op("Range", "a d c", "y"), {}, True),
        (op("Range", "a d c", "y"), {"y": (4,)}, False),
        *((op(kind, "a", "y"), {}, False) for kind in ("Constant", "NonZero", "Unique", "Compress")),
        (op("Compress", "a", "y"), {"y": (5,)}, True),
    ]
    assert [onnx_values._grows(node, operands, shapes) for node, shapes, _ in cases] == [grows for *_, grows in cases]


def test_a_shape_is_measured_between_its_ends() -> None:
    shapes = {"x": (2, 3, 5), "s": ()}
    rows = [(), (1,), (1, 2), (0, 2), (-2,), (-2, -1), (2, 1), (7,)]
    for ends in rows:
        node = op("Shape", "x", "y", **dict(zip(("start", "end"), ends, strict=False)))
        found = onnx_values.measured(node, shapes)
        assert found is not None
        sizes: Any = (2, 3, 5)
        assert found["y"].tolist() == list(sizes[slice(*(*ends, None, None)[:2])])
        assert found["y"].dtype == np.int64
    last = onnx_values.measured(op("Shape", "x", "y", end=2), shapes)
    assert last is not None
    assert list(last["y"]) == [2, 3]
    sizes = [onnx_values.measured(op("Size", name, "y"), shapes) for name in ("x", "s", "z")]
    assert [size and size["y"].item() for size in sizes] == [30, 1, None]
    assert onnx_values.measured(op("Shape", "z", "y"), shapes) is None


def test_a_node_is_carried_out_where_its_operands_are_few_and_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_values, "KEPT_ELEMENTS", 3)
    known: Any = {
        "a": np.array([1, 2]),
        "b": np.array([3, 4]),
        "hits": np.array([1, 1, 0, 1, 1]),
        "few": np.array([1, 1, 0, 1]),
    }
    opsets = [helper.make_opsetid("", 17)]

    def carried(node: onnx.NodeProto, **shapes: tuple[int, ...]) -> Any:
        found = onnx_values._carried_out(node, known, shapes, opsets)
        return found and {name: array.tolist() for name, array in found.items()}

    added = op("Add", "a b", "y")
    assert carried(added, y=(2,)) == {"y": [4, 6]}
    assert carried(added) is None
    assert carried(added, y=(4,)) is None
    for domain, result in ((onnx_values.HIDDEN, {"y": [4, 6]}), ("own", None)):
        added.domain = domain
        assert carried(added, y=(2,)) == result
    assert carried(op("Add", "a c", "y"), y=(2,)) is None, "c is not known"
    assert carried(op("Split", "a", "_ z", axis=0), z=(1,)) == {"z": [2]}
    assert carried(op("NonZero", "hits", "y")) is None, "four are more than are kept"
    assert carried(op("NonZero", "b", "y")) == {"y": [[0, 1]]}
    assert carried(op("Shape", "x", "y"), x=(2, 3)) == {"y": [2, 3]}
    assert carried(op("MatMul", "a b", "y", bad=1), y=(1, 1, 1)) == {"y": 11}
    assert carried(op("Reshape", "a hits", "y"), y=(2,)) is None, "the evaluator refuses"
    assert carried(op("RandomUniform", "", "y", shape=[2]), y=(2,)) is None
    assert carried(op("Unique", "hits", "y")) == {"y": [0, 1]}
    assert carried(op("Unique", "hits", "y i where")) is None, "one of three is more than is kept"
    assert carried(op("NonZero", "few", "y")) == {"y": [[0, 1, 3]]}


def test_of_results_that_are_left_out_nothing_is_said() -> None:
    opsets = [helper.make_opsetid("", 17)]
    found = onnx_values.reference(op("Split", "a", "x _ z", axis=0), {"a": np.array([1, 2, 3])}, opsets)
    assert [None if each is None else each.tolist() for each in found] == [[1], None, [3]]


def test_a_range_is_hidden_where_it_is_the_standard_one() -> None:
    plain = model([op("Add", "x x", "y"), op("Range", "a b c", "r", domain="own")], [], [])
    assert onnx_values.hide_ranges(plain) is plain
    nodes = [op("Range", "a b c", "r"), op("Range", "a b c", "s"), *plain.graph.node]
    asked = model(nodes, [], [])
    hidden = onnx_values.hide_ranges(asked)
    domains = [onnx_values.HIDDEN, onnx_values.HIDDEN, "", "own"]
    assert [node.domain for node in hidden.graph.node] == domains
    assert (hidden.opset_import[-1].domain, hidden.opset_import[-1].version) == (onnx_values.HIDDEN, 1)
    assert len(asked.opset_import) + 1 == len(hidden.opset_import)
    assert asked.graph.node[0].domain == ""


def test_what_is_carried_out_stands_among_the_weights_and_what_is_counted_among_the_values() -> None:
    hidden = onnx_values.HIDDEN
    many = onnx_values.KEPT_ELEMENTS + 1
    nodes = [
        op("Shape", "x", "s"),
        op("Relu", "x", "y"),
        op("Max", "zero many one", "most"),
        op("Range", "zero many one", "r", domain=hidden),
        op("Range", "zero many one", "told", domain=hidden),
        op("Range", "zero nobody one", "open", domain=hidden),
        op("Range", "zero two one", "few", domain=hidden),
    ]
    weights = {"zero": np.array(0.0, np.float32), "one": np.array(1.0, np.float32)}
    weights |= {"many": np.array(many, np.float32), "two": np.array(2, np.float32)}
    proto = model(nodes, [], [value("y", None)], weights)
    proto.graph.value_info.extend([value("s", [2]), value("h", [7])])
    smaller = onnx_values.with_values(proto, {"x": (4, 5), "told": (many,)})
    assert smaller is not None
    assert [node.output[0] for node in smaller.graph.node] == ["y", "most", "r", "told", "open"]
    made = {weight.name: numpy_helper.to_array(weight).tolist() for weight in smaller.graph.initializer}
    assert made == {"zero": 0, "one": 1, "many": many, "two": 2, "s": [4, 5], "few": [0, 1]}
    infos = {info.name: info.type.tensor_type for info in smaller.graph.value_info}
    assert list(infos) == ["h", "r"]
    assert (infos["r"].elem_type, infos["r"].shape.dim[0].dim_value) == (FLOAT, many)
    assert onnx_values.with_values(model([op("Relu", "x", "y")], [], []), {"x": (3,)}) is None
    assert len(proto.graph.node) == 7
    for k in (0, 3):
        one = model([nodes[k]], [], [], weights)
        changed = onnx_values.with_values(one, {"x": (4, 5)})
        assert changed is not None
        assert (len(changed.graph.node), len(changed.graph.value_info)) == ((0, 0) if not k else (1, 1))


# --- states that grow --------------------------------------------------------------------------------------------


def walked_plainly(first: State, then: Any, trips: int, most: int) -> Any:
    """What the iterations leave: the last told from the first two where it is as far, else each in its turn."""
    if (begun := then(first)) is None:
        return None
    known, second = begun
    if any(len(second[name]) != len(first[name]) for name in first):
        return None
    size = {
        name: [tuple(a + k * (b - a) for a, b in zip(first[name], second[name], strict=True)) for k in range(trips + 1)]
        for name in first
    }
    last = {name: each[trips - 1] for name, each in size.items()}
    done = None if any(part < 0 for shape in last.values() for part in shape) else then(last)
    largest = lambda *states: {name: max((s[name] for s in states), key=prod) for name in first}  # noqa: E731
    if done is not None and all(done[1][name] == each[trips] for name, each in size.items()):
        return bigger(known, done[0]), largest(first, done[1])
    if trips > most:
        return None
    states = [first, second]
    for _ in range(trips - 1):
        if (done := then(states[-1])) is None:
            return None
        known = bigger(known, done[0])
        states.append(done[1])
    return known, largest(*states)


def bigger(one: Known, other: Known) -> Known:
    return {"h": max(one["h"], other["h"], key=lambda found: np.prod(found[1]))}  # type: ignore[arg-type]


GROWN: dict[str, Any] = {
    "a row more": lambda s: (s[0] + 1, s[1]),
    "two ways": lambda s: (s[0] + 2, s[1] - 1),
    "shrinks": lambda s: (s[0] - 1, s[1]),
    "doubled": lambda s: (2 * s[0], s[1]),
    "up and down": lambda s: (s[0] + (3 if s[0] < 4 else -3), s[1]),
    "stays": lambda s: s,
    "to the wall": lambda s: (min(5, s[0] + 1), s[1]),
    "of another rank": lambda s: (*s, 1),
    "at once": lambda s: (6, 2),
    "scalars": lambda s: s[:0],
}


@pytest.mark.parametrize("way", GROWN)
def test_where_a_state_ends_is_what_walking_to_it_says(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_growth, "ONE_BY_ONE", 4)
    asked: list[State] = []

    def step(state: State) -> tuple[Known, State] | None:
        asked.append(state)
        if state["a"] and (state["a"][0] == refused or min(state["a"]) < 0):
            return None
        elements = [size * inside for size in state["a"]]
        return {"h": (1, list(elements))}, {"a": GROWN[way](state["a"]), "b": state["b"]}

    for trips in (1, 2, 3, 4, 5, 9):
        for refused in (-1, 1, 2, 3, 5):
            for first in ((1, 2), (3, 2), (4, 3)) if way != "scalars" else ((),):
                inside = 1
                start: State = {"a": first, "b": (7,)}
                plain = walked_plainly(start, step, trips, 4)
                steps, asked = asked, []
                assert onnx_growth._at_the_end(start, step, trips) == plain, (trips, refused, first)
                assert asked == steps
                asked = []


def test_a_step_gives_a_state_where_every_part_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: list[Any] = []
    found: Known = {"ra": (1, [3]), "rb": (1, ["N"])}
    monkeypatch.setattr(onnx_growth, "telling", saying(shapes, 1))
    monkeypatch.setattr(onnx_growth, "inferred_with_values", lambda model, name: (found, model))
    step = onnx_growth._step(model([], [], []), {"a": 1, "b": 7}, {"a": "ra", "b": "rb", "c": "rc"}, "from")
    now: State = {"a": (2,), "b": (4,)}
    assert step(now) is None
    found = {"ra": (1, [3]), "rb": (7, [])}
    assert step(now) == (found, {"a": (3,), "b": ()})
    assert shapes == [{"a": (1, [2]), "b": (7, [4])}] * 2


# --- what a run is made of ---------------------------------------------------------------------------------------


def test_of_a_profile_the_results_of_kernels_are_taken(tmp_path: Any) -> None:
    events = [
        {"cat": "Session", "name": "a_kernel_time"},
        {"name": "a_kernel_time"},
        {"cat": "Node"},
        {"cat": "Node", "name": "a_fence_before"},
        {"cat": "Node", "name": "a_kernel_time"},
        {
            "cat": "Node",
            "name": "_kernel_time_kernel_time",
            "args": {"output_type_shape": [{"float": [2]}, {}, {"bool": []}]},
        },
    ]
    (tmp_path / "profile").write_text(json.dumps(events))
    expected = [["a", []], ["_kernel_time", [["float", [2]], ["bool", []]]]]
    assert onnx_measure._events(str(tmp_path / "profile")) == expected


def test_a_scalar_is_an_integer_alone() -> None:
    cases = [
        ("int64", []),
        ("uint8", [1]),
        ("int32", [2]),
        ("int32", [1, 1]),
        ("float32", []),
        ("int8", ["N"]),
        ("bool", [1]),
    ]
    assert [onnx_measure._is_scalar(*case) for case in cases] == [True, True, *[False] * 5]  # type: ignore[arg-type]


def saying(kept: list[Any], which: int) -> Any:
    """Who writes down what is asked."""

    def called(*given: Any) -> Any:
        kept.append(given[1] if which else given)
        return given[0] if which else [given[0]]

    return called


class Pretended:
    """What onnxruntime is asked, in a place of its own: at which sizes and scalars it fails is said."""

    def __init__(self, fails: Any) -> None:
        self.fails = fails
        self.sessions: list[Any] = []
        self.fed: list[Any] = []

    class SessionOptions:
        pass

    class GraphOptimizationLevel:
        ORT_DISABLE_ALL = "none"

    def InferenceSession(self, model: bytes, options: Any, providers: list[str]) -> Any:
        self.sessions.append((model, vars(options), providers))
        return Session(self, options.enable_profiling)


class Session:
    def __init__(self, runtime: Pretended, profiled: bool) -> None:
        self.runtime, self.profiled = runtime, profiled

    def run(self, outputs: None, feeds: dict[str, Any]) -> None:
        what = (self.profiled, feeds["x"].shape, feeds["n"].item() if "n" in feeds else None, bool(feeds["x"].any()))
        self.runtime.fed.append(what)
        if (says := self.runtime.fails(*what)) is not None:
            raise ValueError(says)

    def end_profiling(self) -> str:
        return str(len(self.runtime.fed))


def asked_of(monkeypatch: pytest.MonkeyPatch, fails: Any, points: list[dict[str, int]], *, scalar: bool) -> Any:
    runtime = Pretended(fails)
    monkeypatch.setitem(sys.modules, "onnxruntime", runtime)
    monkeypatch.setattr(onnx_measure, "_events", lambda profile: profile)
    monkeypatch.setattr(onnx_measure, "SCALARS", (1, 0, 5))
    inputs: onnx_measure.Inputs = [("x", "float32", ["N"]), *([("n", "int64", [])] if scalar else [])]
    try:
        found = onnx_measure.run(b"model", inputs, points)
    except Exception as error:
        return [type(error).__name__, str(error)], runtime
    return [found["point"], found["runs"]], runtime


def test_a_model_is_run_at_the_first_sizes_and_scalars_at_which_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [{"N": 3}, {"N": 4}]

    def never(*what: Any) -> str | None:
        return None

    def only_at(*what: Any) -> str | None:
        return None if what[1:3] == ((4,), 0) else f"{what[1][0]} {what[2]}"

    def ran(fails: Any, points: list[dict[str, int]], *, scalar: bool = True) -> Any:
        found, runtime = asked_of(monkeypatch, fails, points, scalar=scalar)
        return found, runtime.fed

    once = (False, (3,), 1, True)
    assert ran(never, points) == ([0, ["2", "3"]], [once, (True, (3,), 1, True), (True, (3,), 2, False)])
    found, fed = ran(only_at, points)
    assert found == [1, ["6", "8"]]
    tried = [(False, (n,), scalar, True) for n in (3, 4) for scalar in (1, 0, 5)]
    assert fed == [*tried[:5], (True, (4,), 0, True), (True, (4,), 1, False), (True, (4,), 0, False)]
    assert ran(lambda *what: f"{what[1][0]} {what[2]}", points) == (["ValueError", "3 1"], tried)
    assert ran(never, []) == (["RuntimeError", "no sizes to run at"], [])
    plain, fed = ran(lambda *what: "no" if what[1] == (3,) or not what[3] else None, points, scalar=False)
    last = (True, (4,), None, True)
    assert plain == [1, ["3"]]
    assert fed == [
        (False, (3,), None, True),
        (False, (4,), None, True),
        last,
        (True, (4,), None, False),
        (True, (4,), None, False),
    ]
    profiled_never, fed = ran(lambda *what: "no" if what[0] else None, points)
    assert profiled_never == [0, []]


def test_a_session_is_alone_mute_and_as_the_model_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    _, runtime = asked_of(monkeypatch, lambda *what: None, [{"N": 3}], scalar=False)
    kept = []
    for model_bytes, options, providers in runtime.sessions:
        assert (model_bytes, providers) == (b"model", ["CPUExecutionProvider"])
        assert options.pop("profile_file_prefix").endswith("/run")
        kept.append(options)
    options = {"graph_optimization_level": "none", "intra_op_num_threads": 1, "inter_op_num_threads": 1}
    assert kept == [{**options, "log_severity_level": 4, "enable_profiling": k > 0} for k in range(3)]


# --- bytes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value_", [0, 1, 0x7F, 0x80, 0x3FFF, 0x4000, 2**32, 2**63, 2**64 - 1])
def test_a_number_is_written_in_groups_of_seven_bits_and_read_again(value_: int) -> None:
    groups = [value_ >> shift & 0x7F for shift in range(0, 70, 7)]
    while len(groups) > 1 and not groups[-1]:
        groups.pop()
    plain = bytes([group | 0x80 for group in groups[:-1]] + groups[-1:])
    assert onnx_bytes._varint(value_) == plain
    view = memoryview(b"?" + plain + b"?")
    assert onnx_bytes._read_varint(view, 1) == (value_, 1 + len(plain))
    with pytest.raises(UnreadableInput):
        onnx_bytes._read_varint(view[: len(plain)], 1)


def test_a_number_has_at_most_ten_bytes_and_a_field_ends_where_its_kind_says() -> None:
    assert onnx_bytes._read_varint(memoryview(b"\xff" * 9 + b"\x01"), 0) == (2**64 - 1, 10)
    with pytest.raises(UnreadableInput):
        onnx_bytes._read_varint(memoryview(b"\xff" * 10 + b"\x01"), 0)
    view = memoryview(bytes(12))
    ends: list[int | None] = []
    for at, wire in ((3, 0), (4, 1), (5, 1), (8, 5), (9, 5), (0, 2), (0, 3), (0, 4), (0, 7)):
        try:
            ends.append(onnx_bytes._after(view, at, wire))
        except UnreadableInput:
            ends.append(0)
    assert ends == [4, 12, 0, 12, 0, 0, 0, 0, 0]
    assert onnx_bytes._tag(25, 2) == b"\xca\x01"


def told_of(kind: str, numbers: list[int], element: int) -> bytes:
    proto = TensorProto(data_type=element)
    getattr(proto, kind).extend(numbers)
    return onnx_bytes._plain(proto)


def test_numbers_of_a_field_are_bytes_of_their_element() -> None:
    kinds = onnx.TensorProto
    assert told_of("float_data", [1, -2], kinds.FLOAT) == np.array([1, -2], "<f4").tobytes()
    assert told_of("double_data", [1, -2], kinds.DOUBLE) == np.array([1, -2], "<f8").tobytes()
    assert told_of("int64_data", [1, -2], kinds.INT64) == np.array([1, -2], "<i8").tobytes()
    assert told_of("uint64_data", [1, 2**63], kinds.UINT64) == np.array([1, 2**63], "<u8").tobytes()
    assert told_of("uint64_data", [1, 2**32 - 1], kinds.UINT32) == b"\x01\0\0\0\xff\xff\xff\xff"
    widths = {kinds.INT32: 4, kinds.INT16: 2, kinds.UINT16: 2, kinds.FLOAT16: 2, kinds.BFLOAT16: 2}
    widths |= dict.fromkeys((kinds.INT8, kinds.UINT8, kinds.BOOL), 1)
    for element, width in widths.items():
        assert told_of("int32_data", [1, -2], element) == b"".join(
            n.to_bytes(width, "little", signed=True) for n in (1, -2)
        )
    assert onnx_bytes._plain(TensorProto(raw_data=b"raw")) == b"raw"


def places_of(data: bytes, base: int = 0) -> tuple[bytes, dict[int, tuple[int, int, int]]]:
    places: dict[int, tuple[int, int, int]] = {}
    return b"".join(onnx_bytes._without_numbers(memoryview(data), "tensor", 0, base, places)), places


def test_of_a_tensor_fields_of_numbers_are_left_in_the_file_from_a_size_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_bytes, "LARGE", 4)
    small, large = TensorProto(raw_data=b"1234", doc_string="said"), TensorProto(raw_data=b"12345", name="n" * 9)
    assert places_of(small.SerializeToString()) == (TensorProto(raw_data=b"1234").SerializeToString(), {})
    data = large.SerializeToString()
    kept, places = places_of(data, 100)
    assert places == {0: (9, 100 + data.index(b"12345"), 5)}
    assert TensorProto.FromString(kept) == TensorProto(name="n" * 9, doc_string="tmmu.bytes:0")
    for end in range(1, len(data)):
        try:
            whole = TensorProto.FromString(data[:end])
        except DecodeError:
            with pytest.raises(UnreadableInput, match="cut off or damaged"):
                places_of(data[:end])
        else:
            assert places_of(data[:end])[0] == whole.SerializeToString()


def nested(depth: int) -> onnx.GraphProto:
    graph = onnx.GraphProto(name=f"at {depth}")
    graph.initializer.append(TensorProto(name=f"w{depth}", raw_data=b"12345"))
    if depth:
        graph.node.add(op_type="If").attribute.add(name="then_branch", g=nested(depth - 1))
    return graph


def test_bodies_are_walked_down_to_the_deepest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graph, node, attribute, and again: four steps a body, with the tensor's; what lies deeper stays as it is."""
    monkeypatch.setattr(onnx_bytes, "LARGE", 4)
    counts = []
    for deepest in (0, 1, 2, 9):
        monkeypatch.setattr(onnx_bytes, "DEEPEST", deepest)
        places: dict[int, tuple[int, int, int]] = {}
        data = onnx.ModelProto(graph=nested(4)).SerializeToString()
        b"".join(onnx_bytes._without_numbers(memoryview(data), "model", 0, 0, places))
        assert all(data[start : start + length] == b"12345" for _, start, length in places.values())
        counts.append(len(places))
    assert counts == [0, 1, 3, 5]


def named(tensors: Iterator[TensorProto]) -> list[str]:
    return sorted(tensor.name for tensor in tensors)


def test_every_dense_tensor_is_found_wherever_it_stands() -> None:
    inner = onnx.GraphProto(initializer=[TensorProto(name="inner")])
    other = onnx.GraphProto(initializer=[TensorProto(name="other")])
    node = onnx.NodeProto(op_type="Own")
    node.attribute.add(name="a", t=TensorProto(name="t"))
    node.attribute.add(name="b", tensors=[TensorProto(name="t1"), TensorProto(name="t2")])
    node.attribute.add(name="c", g=inner)
    node.attribute.add(name="d", graphs=[other])
    node.attribute.add(name="e", i=3)
    graph = onnx.GraphProto(node=[node], initializer=[TensorProto(name="w")])
    graph.sparse_initializer.add(values=TensorProto(name="sparse"))
    function = onnx.FunctionProto(node=[op("Relu", "x", "y")])
    function.node[0].attribute.add(name="a", t=TensorProto(name="of a function"))
    proto = onnx.ModelProto(graph=graph, functions=[function])
    assert named(onnx_bytes._tensors(proto)) == ["inner", "of a function", "other", "t", "t1", "t2", "w"]


def computed(names: list[str], nodes: list[onnx.NodeProto], shapes: Any, weights: Any) -> list[Any]:
    """What each name's piece holds, or what is said of it."""
    stored = {name: numpy_helper.from_array(array, name) for name, array in weights.items()}
    maker = {name: node for node in nodes for name in node.output}
    opsets = [helper.make_opsetid("", 17)]
    folded = onnx_bytes._Folded(maker, shapes, opsets, lambda proto: Held(proto.raw_data), stored)
    found: list[Any] = []
    for name in names:
        try:
            found.append(np.frombuffer(b"".join(folded.piece(name).chunks()), np.int64).tolist())
        except UnreadableInput as error:
            found.append(str(error).split('"')[1])
    return found


def test_what_was_folded_is_computed_from_what_is_written_down() -> None:
    three = numpy_helper.from_array(np.array([3]), "three")
    nodes = [
        helper.make_node("Constant", [], ["c"], value=three),
        helper.make_node("Constant", [], ["ints"], value_ints=[4, 5]),
        helper.make_node("ConstantOfShape", ["c"], ["filled"], value=numpy_helper.from_array(np.array([7]))),
        op("Shape", "x", "shape"),
        op("Shape", "open", "openshape"),
        op("Size", "w", "size"),
        op("Add", "shape w", "sum"),
        op("Add", "sum ints", "sums"),
        op("Add", "w nobody", "lost"),
        op("Add", "lost w", "lostas"),
        op("Reshape", "w filled", "refused"),
    ]
    names = ["w", "c", "ints", "filled", "shape", "openshape", "size", "sum", "sums"]
    shapes = {"x": (8, 9), "open": ("N", 2), "w": (2,)}
    found = computed([*names, "lost", "lostas", "refused", "nobody"], nodes, shapes, {"w": np.array([1, 2])})
    assert found == [
        *([1, 2], [3], [4, 5], [7, 7, 7], [8, 9], "open", [2], [9, 11], [13, 16]),
        *("nobody", "nobody", "refused", "nobody"),
    ]


def test_a_chain_of_what_was_folded_is_followed_down_to_the_deepest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_bytes, "DEEPEST", 2)
    nodes = [op("Identity", "w" if not k else f"v{k - 1}", f"v{k}") for k in range(5)]
    weights = {"w": np.array([6])}
    assert computed([f"v{k}" for k in range(5)], nodes, {}, weights) == [[6], [6], [6], "v0", "v1"]


def test_the_bytes_of_a_tensor_are_where_it_says(tmp_path: Any) -> None:
    where = tmp_path / "model.onnx"
    (tmp_path / "beside.bin").write_bytes(b"beside")
    data = b"head" + np.array([1, 2], "<i4").tobytes() + b"tail"
    tagged = TensorProto(doc_string="tmmu.bytes:5")

    def piece(field: int, path: Any, **more: Any) -> Any:
        proto = TensorProto(data_type=TensorProto.INT32, **more)
        stored = onnx_bytes._Stored(proto, field, 4, 8)
        return onnx_bytes._Reading(data, path, "from", {"5": stored})._piece(tagged)

    assert piece(9, where) == InFile(where, 4, 8)
    assert b"".join(piece(9, None).chunks()) == data[4:12]
    assert isinstance(piece(9, None), Held)
    assert isinstance(piece(0, None, raw_data=b"raw"), Held)
    assert b"".join(piece(0, None, raw_data=b"raw").chunks()) == b"raw"
    assert isinstance(piece(0, None, int32_data=[3]), Made)
    assert b"".join(piece(0, None, int32_data=[3]).chunks()) == b"\3\0\0\0"
    packed = b"\x05\x82\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    assert (
        b"".join(
            onnx_bytes._Reading(b"." + packed, None, "", {})._written_out(
                onnx_bytes._Stored(TensorProto(data_type=TensorProto.INT64), 7, 1, len(packed))
            )
            for _ in "1"
        )
        == np.array([5, 130, -1]).tobytes()
    )
    own = onnx_bytes._Reading(data, where, "from")._piece(TensorProto(raw_data=b"own", doc_string="said"))
    assert b"".join(own.chunks()) == b"own"

    def beside(*said: tuple[str, str]) -> Any:
        proto = TensorProto(name="w", data_location=TensorProto.EXTERNAL, raw_data=b"not this")
        for key, text in (("location", "beside.bin"), *said):
            proto.external_data.add(key=key, value=text)
        return onnx_bytes._Reading(data, where, "from")._piece(proto)

    path = tmp_path / "beside.bin"
    assert beside() == InFile(path, 0, None)
    assert beside(("offset", "2"), ("length", "0")) == InFile(path, 2, 0)
    for amiss in (("offset", "-1"), ("length", "-1"), ("offset", "two"), ("length", "")):
        with pytest.raises(UnreadableInput, match="damaged"):
            beside(amiss)


def test_bytes_are_asked_of_what_is_constant_and_no_view_of_another() -> None:
    weights = {"w": np.array([1.0, 2.0], np.float32)}
    data = model([op("Add", "x w", "y")], [value("x", [2])], [value("y", [2])], weights).SerializeToString()
    kinds = {"w": "parameter", "x": "input", "y": "output"}
    tensors = [Tensor(id=name, shape=(2,), dtype="float32", role=role) for name, role in kinds.items()]  # type: ignore[arg-type]
    tensors += [Tensor(id="v", shape=(2,), dtype="float32", role="constant", view=View(base_tensor_uid="w"))]
    found = onnx_bytes.constants(data, Graph(tensors=tuple(tensors), nodes=(), ir_schema=GRAPH_SCHEMA), None)
    assert isinstance(found, Constants)
    assert list(found) == ["w"]
    for damaged in (data[:-1], data + b"\x42\x01\xff"):  # an operator set that is none
        with pytest.raises(UnreadableInput, match="cut off or damaged"):
            onnx_bytes.constants(damaged, Graph(tensors=(), nodes=(), ir_schema=GRAPH_SCHEMA), None)


def test_the_walk_begins_at_the_model_and_its_first_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(onnx_bytes, "_without_numbers", saying(asked, 0))
    data = model([op("Relu", "x", "y")], [value("x", [2])], [value("y", [2])]).SerializeToString()
    onnx_bytes._Reading(data, None, "").pieces([], {})
    assert asked == [(memoryview(data), "model", 0, 0, {})]


def test_only_a_location_is_a_place() -> None:
    weight = TensorProto(name="w")
    proto = model([op("Relu", "x", "y")], [], [])
    for key, text in (("checksum", "/a/b"), ("offset", "../3"), ("location", "b/a..b")):
        weight.external_data.add(key=key, value=text)
    proto.graph.initializer.append(weight)
    onnx_external.check_places(proto, "from")
    for amiss in ("/a", "..", "a/../b", "C:b", "\\a", "a\\.."):
        proto.graph.initializer[0].external_data[-1].value = amiss
        with pytest.raises(UnreadableInput, match='"w" lies outside'):
            onnx_external.check_places(proto, "from")
