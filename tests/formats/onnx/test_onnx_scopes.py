"""``If``, ``Loop`` and ``Scan`` as nested scopes. Live ranges are checked by execution: ``nested_run.py`` runs the
bodies in the plan's arenas and compares each operand.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases

from tests.formats.onnx.nested_run import Feeds, NestedRun, reference
from tests.formats.onnx.test_onnx import model, nodes, op, read, tensors, value
from tmmu_core.base.errors import InvalidIrShapes, UnreadableInput
from tmmu_core.formats.open_file import read_graph, read_within
from tmmu_core.graph.model import Dim, Graph
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans.making.engine import plan_graph

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
PLANNERS = ("slots", "greedy", "ffd")


def body(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[str],
    weights: dict[str, np.ndarray] | None = None,
) -> onnx.GraphProto:
    """Return a body whose outputs have no declared shapes."""
    initialisers = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    return helper.make_graph(nodes, "body", inputs, [onnx.ValueInfoProto(name=name) for name in outputs], initialisers)


def const(name: str, array: Any) -> onnx.NodeProto:
    return op("Constant", "", name, value=numpy_helper.from_array(np.asarray(array)))


def branch_model(then: onnx.GraphProto, otherwise: onnx.GraphProto, more: Sequence[onnx.NodeProto] = ()) -> Any:
    """``a = neg x; if c: then else otherwise → y; z = y + a`` on 2 × 3 floats."""
    flow = op("If", "c", "y", name="choice", then_branch=then, else_branch=otherwise)
    ends = [value("x", [2, 3]), value("c", [], BOOL)]
    return model([op("Neg", "x", "a"), flow, *more, op("Add", "y a", "z")], ends, [value("z", None)])


ITER, COND = value("i", [], INT64), value("go", [], BOOL)


def counted(
    nodes: Sequence[onnx.NodeProto], results: Sequence[str], states: Sequence[str] = ("s",), **weights: Any
) -> onnx.GraphProto:
    """Return a loop body that does not change its condition."""
    ends = [ITER, COND, *(value(state, None) for state in states)]
    return body([*nodes, op("Identity", "go", "goon")], ends, ["goon", *results], weights)


def loop_model(inner: onnx.GraphProto, *, outputs: str = "y", before: Sequence[onnx.NodeProto] = (), trip: Any = None):
    """``a = neg x; loop(n, c, state = a) → y; z = relu y``; the trip count is an input, or ``trip``."""
    flow = op("Loop", "n c a", outputs, name="loop", body=inner)
    ends = [value("x", [2, 3]), value("c", [], BOOL)] + ([value("n", [], INT64)] if trip is None else [])
    gives = [value("z", None), *(value(name, None) for name in outputs.split()[1:])]
    weights = {} if trip is None else {"n": np.array(trip, np.int64)}
    return model([op("Neg", "x", "a"), *before, flow, op("Relu", "y", "z")], ends, gives, weights)


# --- the graph ---------------------------------------------------------------------------------------------------


THEN = body([op("Exp", "x", "e"), op("Mul", "e x", "r")], [], ["r"])
ELSE = body([op("Sigmoid", "a", "r")], [], ["r"])


def test_branches_run_in_sequence_before_the_closing_node() -> None:
    graph = read(branch_model(THEN, ELSE))
    assert [node.node_id for node in graph.nodes] == [
        "Neg_0",
        "choice/then/Exp_0",
        "choice/then/Mul_1",
        "choice/else/Sigmoid_0",
        "choice/close",
        "Add_2",
    ]


def test_branches_in_a_row_are_inferred_together(monkeypatch: pytest.MonkeyPatch) -> None:
    def rounds(branches: int) -> int:
        nodes = [op("Neg", "x", "a0")]
        for k in range(branches):
            then, other = (body([op(each, f"a{k}", "r")], [], ["r"]) for each in ("Exp", "Sin"))
            nodes.append(op("If", "c", f"b{k}", then_branch=then, else_branch=other))
            nodes.append(op("Reshape", f"b{k} to", f"a{k + 1}"))
        ends = [value("x", ["N", 3]), value("c", [], BOOL)]
        weights = {"to": np.array([-1, 3])}
        calls.clear()
        graph = read(model(nodes, ends, [value(f"a{branches}", None)], weights))
        assert tensors(graph)[f"a{branches}"].shape == ("N", 3)
        return len(calls)

    calls: list[Any] = []
    infer = onnx.shape_inference.infer_shapes
    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", lambda *a, **k: (calls.append(a), infer(*a, **k))[1])
    assert rounds(2) == rounds(20)


STEP = counted([op("Mul", "s x", "m"), op("Tanh", "m", "t")], ["t"])


def test_gathered_output_has_room_from_open_to_close() -> None:
    inner = counted([op("Tanh", "s", "t"), op("ReduceSum", "t", "p", keepdims=0)], ["t", "p"])
    graph = read(loop_model(inner, outputs="y ps", trip=5))
    assert tensors(graph)["ps"].shape == (5,)
    plan = plan_graph(graph).plan
    room, whole = (plan.row(plan.row_of[name]) for name in ("loop/ps.room", "ps"))
    assert plan.node_at(room.birth) == "loop/open"
    assert (room.offset_bytes, room.death) == (whole.offset_bytes, whole.birth)


CELL = body(
    [op("Add", "h piece", "k"), op("Tanh", "k", "hnext"), op("Mul", "hnext w", "out")],
    [value("h", None), value("piece", None)],
    ["hnext", "out"],
    {"w": np.full(3, 0.5, np.float32)},
)


def scan_model(inner: onnx.GraphProto = CELL, shape: Sequence[int | str] = (4, 3), **how: Any) -> onnx.ModelProto:
    flow = op("Scan", "h0 xs", "hn ys", name="scan", body=inner, num_scan_inputs=1, **how)
    ends = [value("h0", [3]), value("xs", shape)]
    return model([flow], ends, [value("hn", None), value("ys", None)])


def test_scan_slices_at_the_start_of_every_iteration() -> None:
    graph = read(scan_model())
    assert [node.node_id for node in graph.nodes][:2] == ["scan/open", "scan/next"]
    assert tensors(graph)["scan/piece"].shape == (3,)
    assert tensors(graph)["ys"].shape == (4, 3)


def test_branch_that_is_never_taken_is_omitted() -> None:
    other = body([op("Unsqueeze", "x zero", "r")], [], ["r"], {"zero": np.array([0], np.int64)})
    decide = [
        op("Shape", "x", "dims"),
        op("Gather", "dims k", "d"),
        op("Equal", "d k", "c"),
        op("If", "c", "y", name="choice", then_branch=other, else_branch=THEN),
    ]
    graph = read(model(decide, [value("x", [2, 3])], [value("y", None)], {"k": np.array(1, np.int64)}))
    assert [node.node_id for node in graph.nodes] == ["choice/else/Exp_0", "choice/else/Mul_1", "choice/taken_0"]
    assert tensors(graph)["y"].shape == (2, 3)


def test_branch_taken_at_some_sizes_is_kept() -> None:
    decide = [
        op("Shape", "x", "dims"),
        op("Gather", "dims k", "d"),
        op("Equal", "d one", "c"),
        op("If", "c", "y", name="choice", then_branch=THEN, else_branch=body([op("Relu", "x", "r")], [], ["r"])),
    ]
    weights = {"k": np.array(0, np.int64), "one": np.array(1, np.int64)}
    graph = read(model(decide, [value("x", ["N", 3])], [value("y", None)], weights))
    assert {"choice/then/Mul_1", "choice/else/Relu_0", "choice/close"} <= set(nodes(graph))


def test_local_function_in_a_body_is_inlined() -> None:
    twice = helper.make_function("own", "Twice", ["q"], ["b"], [op("Add", "q q", "b")], [helper.make_opsetid("", 17)])
    proto = loop_model(counted([op("Twice", "s", "t", domain="own")], ["t"]))
    proto.functions.append(twice)
    assert "Add" in [node.instr for node in read(proto).nodes]


# --- refusals ----------------------------------------------------------------------------------------------------


def test_branches_of_different_shapes_are_rejected() -> None:
    other = body([op("Concat", "x x", "r", axis=0)], [], ["r"])
    flow = op("If", "c", "y", name="choice", then_branch=THEN, else_branch=other)
    proto = model([flow], [value("x", [2, 3]), value("c", [], BOOL)], [value("y", None)])
    with pytest.raises(InvalidIrShapes) as caught:
        read(proto)
    assert (caught.value.diagnostics["reason"], caught.value.diagnostics["node_id"]) == ("scope_shape", "choice")


@pytest.mark.parametrize("trip", [None, 3])
def test_growing_state_is_rejected(trip: int | None) -> None:
    with pytest.raises(InvalidIrShapes, match="loop") as caught:
        read(loop_model(counted([op("Concat", "s s", "t", axis=0)], ["t"]), trip=trip))
    assert "padding" in caught.value.hint


def test_gathered_output_needs_a_bound_and_a_known_row() -> None:
    loop = loop_model(counted([op("Neg", "s", "t"), op("ReduceSum", "t", "p", keepdims=0)], ["t", "p"]), outputs="y ps")
    other = loop_model(counted([op("Tanh", "s", "t"), op("Unknown", "t", "p")], ["t", "p"]), outputs="y ps", trip=5)
    for each, text in ((loop, "--dims n="), (other, "Unknown .* writes 'loop/p'")):
        with pytest.raises(InvalidIrShapes, match=text):
            read(each)
    graph = read_within(loop.SerializeToString(), {"n": Dim(1, 7)}, "loop.onnx")
    assert tensors(graph)["ps"].shape == (7,)
    assert any("n" in node.inputs for node in graph.nodes)  # the loop reads its trip count
    assert verify_plan(plan_graph(graph).plan).ok


def test_body_is_read_without_the_type_of_its_attribute() -> None:
    given = branch_model(THEN, ELSE)
    given.graph.node[1].attribute[0].type = onnx.AttributeProto.UNDEFINED  # as in files of IR version 1
    assert read(given) == read(branch_model(THEN, ELSE))


def test_body_with_other_numbers_of_values_is_rejected() -> None:
    with pytest.raises(UnreadableInput, match="differ in their numbers of inputs or outputs"):
        read(loop_model(counted([], ["s"], ("s", "u"))))


def test_sequence_in_a_body_is_rejected() -> None:
    inner = body([op("SequenceConstruct", "x x", "q"), op("SequenceAt", "q k", "r"), const("k", 0)], [], ["r"])
    inner.value_info.append(
        helper.make_value_info("q", helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, None)))
    )
    with pytest.raises(UnreadableInput, match=r"'q'.*sequence_type"):
        read(branch_model(inner, ELSE))


def test_scan_with_a_batch_axis_is_rejected() -> None:
    proto = scan_model()
    proto.opset_import[0].version = 8
    with pytest.raises(UnreadableInput, match="operator set 8"):
        read(proto)


def test_training_step_through_a_loop_is_rejected() -> None:
    with pytest.raises(InvalidIrShapes) as caught:
        plan_graph(read(loop_model(STEP)), mode="backward")
    assert caught.value.diagnostics["reason"] == "in_place_denied"


# --- execution ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A model and the inputs that make its scopes run in different ways."""

    name: str
    model: onnx.ModelProto
    runs: tuple[Feeds, ...]


def floats(*shape: int) -> np.ndarray:
    count = int(np.prod(shape))
    return (np.arange(1, count + 1, dtype=np.float32).reshape(shape) - count / 3) / count


def loops(*counts: int, **more: Any) -> tuple[Feeds, ...]:
    """Return inputs for each trip count, and inputs whose condition is false at the start."""
    base = {"x": floats(2, 3), "c": np.array(True), **more}
    runs = [{**base, "n": np.array(count, np.int64)} for count in counts]
    return (*runs, {**base, "n": np.array(3, np.int64), "c": np.array(False)})


def both(**more: Any) -> tuple[Feeds, ...]:
    return tuple({"x": floats(2, 3), "c": np.array(c), **more} for c in (True, False))


TINY_THEN = body([op("Exp", "s", "e"), op("Mul", "e x", "r")], [], ["r"])
TINY_ELSE = body([op("Sigmoid", "x", "g"), op("Add", "g s", "r")], [], ["r"])

NESTED = counted(
    [
        op("Mul", "s x", "m"),
        op("Mod", "i two", "odd"),
        op("Cast", "odd", "isodd", to=BOOL),
        op("If", "isodd", "b", name="parity", then_branch=TINY_THEN, else_branch=TINY_ELSE),
        op(
            "Loop",
            "i go m",
            "w",
            name="inner",
            body=body(
                [op("Sub", "v a", "d"), op("Tanh", "d", "f"), op("Identity", "on", "still")],
                [value("j", [], INT64), value("on", [], BOOL), value("v", None)],
                ["still", "f"],
            ),
        ),
        op("Add", "b w", "t"),
        op("ReduceSum", "t", "p", keepdims=0),
    ],
    ["t", "p"],
    two=np.array(2, np.int64),
)

STOPS = body(
    [
        op("Add", "s one", "t"),
        op("ReduceMax", "t", "top", keepdims=0),
        op("Less", "top high", "goes"),
        op("Mul", "t x", "out"),
    ],
    [ITER, COND, value("s", None)],
    ["goes", "t", "out"],
    {"one": np.array(1, np.float32), "high": np.array(3, np.float32)},
)


def two_states(inner: onnx.GraphProto) -> onnx.ModelProto:
    """``b = relu x; loop(n, c, states = x, b) → y, v; z = y - v``."""
    steps = [op("Relu", "x", "b"), op("Loop", "n c x b", "y v", name="loop", body=inner), op("Sub", "y v", "z")]
    return model(steps, [value("x", [2, 3]), value("c", [], BOOL), value("n", [], INT64)], [value("z", None)])


FIBONACCI = two_states(counted([op("Add", "s u", "f")], ["u", "f"], ("s", "u")))
TURN = two_states(counted([op("Identity", "u", "k"), op("Identity", "s", "l")], ["k", "l"], ("s", "u")))

CASES = [
    Case("branches", branch_model(THEN, ELSE), both()),
    Case("a branch that returns an outer value", branch_model(body([], [], ["a"]), ELSE), both()),
    Case("a loop", loop_model(STEP), loops(0, 1, 5)),
    Case(
        "an outer value that lives across a loop",
        model(
            [
                op("Exp", "x", "far"),
                op("Neg", "x", "a"),
                op("Loop", "n c a", "y", name="loop", body=STEP),
                op("Add", "y far", "z"),
            ],
            [value("x", [2, 3]), value("c", [], BOOL), value("n", [], INT64)],
            [value("z", None)],
        ),
        loops(0, 1, 4),
    ),
    Case(
        "a captured value that is read first",
        loop_model(
            counted([op("Mul", "s k", "m"), op("Exp", "m", "e"), op("Tanh", "e", "t")], ["t"]),
            before=[op("Sigmoid", "x", "k")],
        ),
        loops(0, 1, 4),
    ),
    Case("a condition of its own", loop_model(STOPS, outputs="y ps", trip=20), loops(20)[:1]),
    Case("states that change places", TURN, loops(0, 1, 2, 5)),
    Case("states that feed each other", FIBONACCI, loops(0, 1, 2, 5)),
    Case("nested", loop_model(NESTED, outputs="y ps", trip=4), loops(4)[:1]),
    Case("a scan", scan_model(), ({"h0": floats(3), "xs": floats(4, 3)},)),
]


def fed(proto: onnx.ModelProto, feeds: Feeds) -> Feeds:
    names = {value_info.name for value_info in proto.graph.input}
    return {name: array for name, array in feeds.items() if name in names}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("planner", PLANNERS)
def test_plan_is_right_for_any_number_of_iterations(case: Case, planner: str) -> None:
    graph = read(case.model)
    plan = plan_graph(graph, planner=planner).plan
    assert verify_plan(plan, graph).ok
    for feeds in case.runs:
        run = NestedRun(case.model, graph, plan, fed(case.model, feeds))
        results = run.run()
        assert run.differences == []
        assert [here.tobytes() for here in results] == [
            existing.tobytes() for existing in reference(case.model, fed(case.model, feeds))
        ]


def test_reversed_scan_along_the_second_axis_gives_the_same_result() -> None:
    turned = {f"scan_{side}put_{what}": [1] for side in ("in", "out") for what in ("axes", "directions")}
    proto, h0, xs = scan_model(shape=(3, 4), **turned), floats(3), floats(4, 3)
    graph = read(proto)
    run = NestedRun(proto, graph, plan_graph(graph).plan, {"h0": h0, "xs": xs[::-1].T})
    hn, ys = run.run()
    assert run.differences == []
    expected = reference(scan_model(), {"h0": h0, "xs": xs})
    assert [hn.tobytes(), ys.T[::-1].tobytes()] == [value.tobytes() for value in expected]


def forgetting(graph: Graph, closing: str, tensor: str) -> Graph:
    """Return the graph with a closing node that does not read one of its tensors."""

    def less(node: Any) -> Any:
        if node.node_id != closing:
            return node
        kept = [name for name in node.inputs if name != tensor]
        pairs = [(kept.index(node.inputs[i]), o) for i, o in node.in_place_write if node.inputs[i] in kept]
        return msgspec.structs.replace(node, inputs=tuple(kept), in_place_write=tuple(pairs))

    return msgspec.structs.replace(graph, nodes=tuple(map(less, graph.nodes)))


@pytest.mark.parametrize(
    ("case", "closing", "tensor"),
    [
        ("a captured value that is read first", "loop/close", "k"),
        ("a condition of its own", "loop/close", "loop/s"),
        ("nested", "loop/close", "a"),
        ("nested", "loop/close", "loop/ps.room"),
        ("nested", "loop/inner/close", "loop/inner/f"),
        ("a scan", "scan/close", "xs"),
    ],
)
def test_wrong_live_range_is_found_by_execution(case: str, closing: str, tensor: str) -> None:
    given = next(each for each in CASES if each.name == case)
    graph = forgetting(read(given.model), closing, tensor)
    run = NestedRun(
        given.model, graph, plan_graph(graph).plan, fed(given.model, given.runs[max(0, len(given.runs) - 2)])
    )
    run.run()
    assert run.differences


ATTENTION = (
    *("linear", "gated", "gated_per_head_decay", "delta", "gated_delta", "gated_delta_beta_scalar", "gated_delta_gqa"),
    *("gated_delta_mqa", "decode_step", "prefill_with_past", "no_past_explicit_zeros", "explicit_scale", "fp16"),
    "linear_t1_no_past",
)


@pytest.fixture(scope="module")
def published() -> dict[str, Any]:
    """Return the onnx package's cases of linear attention, written as scans over the tokens."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package makes all its cases, divisions by zero among them
        return {case.name: case for case in collect_testcases("LinearAttention")}


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTENTION)
def test_published_scan_gives_its_published_results(published: dict[str, Any], name: str) -> None:
    case = published[f"test_linear_attention_{name}_expanded"]
    graph = read_graph(case.model.SerializeToString(), "attention.onnx")
    feeds = {info.name: np.asarray(v) for info, v in zip(case.model.graph.input, case.data_sets[0][0], strict=True)}
    run = NestedRun(case.model, graph, plan_graph(graph).plan, feeds)
    results = run.run()
    assert run.differences == []
    # The last bits of a product depend on numpy's memory layout, so results have the tolerance of the published case.
    for here, existing in zip(results, case.data_sets[0][1], strict=True):
        np.testing.assert_allclose(here, existing, rtol=case.rtol, atol=case.atol)


# --- random models -----------------------------------------------------------------------------------------------


class Growing:
    """A random model with nested scopes; every value is 2 × 3 floats, every name is used once."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw, self.names = draw, 0

    def name(self, kind: str) -> str:
        self.names += 1
        return f"{kind}{self.names}"

    def one_of(self, values: list[str]) -> str:
        return self.draw(st.sampled_from(values))

    def nodes(self, known: list[str], depth: int) -> tuple[list[onnx.NodeProto], list[str]]:
        """Return nodes that read the values ``known``, and the values that are known after them."""
        grown: list[onnx.NodeProto] = []
        known = list(known)
        for _ in range(self.draw(st.integers(1, 3))):
            kinds = ["Tanh", "Identity", "Sub", "Mul"] + (["If", "Loop"] if depth else [])
            kind = self.one_of(kinds)
            if kind == "If":
                both = [self.body(known, depth - 1, 1) for _ in range(2)]
                made = [self.name("v")]
                grown.append(
                    op("If", self.one_of(["c", "d"]), made[0], name=self.name("if"), then_branch=both[0],
                       else_branch=both[1])
                )  # fmt: skip
            elif kind == "Loop":
                count = self.draw(st.integers(1, 2))
                states = [self.name("s") for _ in range(count)]
                inner = self.body([*known, *states], depth - 1, count, states)
                made = [self.name("v") for _ in states]
                reads = ["n" + str(self.draw(st.integers(0, 3))), "c", *(self.one_of(known) for _ in states)]
                grown.append(op("Loop", " ".join(reads), " ".join(made), name=self.name("loop"), body=inner))
            else:
                made = [self.name("v")]
                reads = [self.one_of(known) for _ in range(2 if kind in ("Sub", "Mul") else 1)]
                grown.append(op(kind, " ".join(reads), made[0]))
            known += made
        return grown, known

    def body(self, known: list[str], depth: int, results: int, states: Sequence[str] = ()) -> onnx.GraphProto:
        grown, inner = self.nodes(known, depth)
        given = [self.one_of(inner[-3:]) for _ in range(results)]
        if not states:
            return body(grown, [], given)
        counter, on, still = self.name("i"), self.name("on"), self.name("still")
        ends = [value(counter, [], INT64), value(on, [], BOOL), *(value(state, None) for state in states)]
        return body([*grown, op("Identity", on, still)], ends, [still, *given])

    def model(self) -> onnx.ModelProto:
        grown, known = self.nodes(["x"], 2)
        ends = [value("x", [2, 3]), value("c", [], BOOL), value("d", [], BOOL)]
        counts = {f"n{k}": np.array(k, np.int64) for k in range(4)}
        return model([*grown, op("Add", f"{known[-1]} x", "z")], ends, [value("z", None)], counts)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.data())
def test_random_nesting_is_right_for_all_branches(data: st.DataObject) -> None:
    proto = data.draw(st.composite(lambda draw: Growing(draw).model())())
    planner = data.draw(st.sampled_from(PLANNERS))
    graph = read(proto)
    plan = plan_graph(graph, planner=planner).plan
    assert verify_plan(plan, graph).ok
    for c, d in ((True, True), (True, False), (False, True)):
        feeds = {"x": floats(2, 3), "c": np.array(c), "d": np.array(d)}
        run = NestedRun(proto, graph, plan, feeds)
        results = run.run()
        assert run.differences == []
        assert [here.tobytes() for here in results] == [existing.tobytes() for existing in reference(proto, feeds)]


def test_scan_with_mismatched_values_is_rejected() -> None:
    bare = body([op("Add", "h w", "hnext")], [value("h", None)], ["hnext"], {"w": np.ones(3, np.float32)})
    for operands, results, inner, slices in (
        ("h0 xs", "hn ys", CELL, 0),
        ("h0", "hn ys", CELL, 2),
        ("h0 xs", "hn", CELL, 1),
        ("h0 xs", "hn ys zs", CELL, 1),
        ("h0 xs xs", "hn ys", CELL, 1),
        ("h0 xs xs", "hn", CELL, 1),
        ("h0 xs", "hn", bare, 1),
    ):
        flow = op("Scan", operands, results, name="scan", body=inner, num_scan_inputs=slices)
        ends = [value("h0", [3]), value("xs", (4, 3))]
        with pytest.raises(UnreadableInput, match="differ in their numbers of inputs or outputs"):
            read(model([flow], ends, [value("hn", None)]))
