"""Control flow of TensorFlow Lite: plans contain the bodies and the copies that the Micro runtime makes."""

from dataclasses import replace

import pytest

import tmmu_core as tmmu
from tests.formats.edge.test_tflite_features import Op, Sub, T, model
from tmmu_core.formats.edge.tflite import DEEPEST, constants, read
from tmmu_core.graph.model import Graph
from tmmu_core.judge.verifier.verify import verify_plan

WIDE = 65_536
FLAG = T("flag", (1,), "BOOL")


def if_(inputs: tuple[int, ...], outputs: tuple[int, ...], then: int = 1, other: int = 2) -> Op:
    return Op("IF", inputs, outputs, ("IfOptions", {"ThenSubgraphIndex": then, "ElseSubgraphIndex": other}))


def while_(inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Op:
    return Op("WHILE", inputs, outputs, ("WhileOptions", {"CondSubgraphIndex": 1, "BodySubgraphIndex": 2}))


def body(*, wide: bool = False, name: str = "") -> Sub:
    """Return a body with one 16-byte input and output; a wide one has a large activation between them."""
    tensors = [T(f"{name}a"), T(f"{name}wide", (WIDE,), "INT8"), T(f"{name}b")]
    steps = [Op("TILE", (0,), (1,)), Op("MEAN", (1,), (2,))] if wide else [Op("RELU", (0,), (2,))]
    return Sub(tensors, steps, (0,), (2,))


CONDITION = Sub([T("c"), FLAG], [Op("LESS", (0,), (1,))], (0,), (1,))
BRANCH = model([FLAG, T("x"), T("y")], [if_((0, 1), (2,))], bodies=[body(wide=True), body()], ends=((0, 1), (2,)))
LOOP = model([T("x"), T("y")], [while_((0,), (1,))], bodies=[CONDITION, body(wide=True)])
ONCE = model(
    [T("x"), T("y")],
    [Op("CALL_ONCE", (), (), ("CallOnceOptions", {"InitSubgraphIndex": 1})), Op("RELU", (0,), (1,))],
    bodies=[Sub([T("wide", (WIDE,), "INT8"), T("m")], [Op("FILL", (), (0,)), Op("MEAN", (0,), (1,))], (), ())],
)


def activations(graph: Graph, **options: object) -> int:
    plan = tmmu.plan(graph, planner="exact", **options)
    assert verify_plan(plan, graph).ok
    assert plan.incomplete == ()
    return plan.arena_of["activations"].extent_bytes


@pytest.mark.parametrize(
    ("data", "steps"),
    [
        (BRANCH, "IF_0/then/open IF_0/then/TILE_0 IF_0/then/MEAN_1 IF_0/else/open IF_0/else/RELU_0 IF_0/close"),
        (
            LOOP,
            """WHILE_0/open WHILE_0/cond/open WHILE_0/cond/LESS_0
            WHILE_0/body/open WHILE_0/body/TILE_0 WHILE_0/body/MEAN_1 WHILE_0/close""",
        ),
        (ONCE, "CALL_ONCE_0/body/FILL_0 CALL_ONCE_0/body/MEAN_1 CALL_ONCE_0/close RELU_1"),
    ],
    ids=["IF", "WHILE", "CALL_ONCE"],
)
def test_bodies_are_planned_as_nested_scopes(data: bytes, steps: str) -> None:
    graph = read(data, "m.tflite")
    assert [node.node_id for node in graph.nodes] == steps.split()
    assert graph.name == "m"
    assert WIDE <= activations(graph) <= WIDE + 8 * 128


def test_results_of_both_branches_and_the_condition_live_until_the_branch_closes() -> None:
    close = read(BRANCH).nodes[-1]
    assert (close.inputs, close.outputs) == (("flag", "IF_0/then/b", "IF_0/else/b"), ("y",))


def test_state_of_a_loop_is_the_storage_of_its_result() -> None:
    graph = read(LOOP)
    close = graph.nodes[-1]
    assert close.in_place_write == ((0, 0),)
    assert close.inputs[0] == graph.nodes[0].outputs[0] == "WHILE_0/state_0"


def test_subgraph_that_is_used_twice_has_two_sets_of_activations_and_one_of_constants() -> None:
    weighted = Sub([T("a"), T("w", data=bytes(16)), T("b")], [Op("MUL", (0, 1), (2,))], (0,), (2,))
    data = model(
        [FLAG, T("x"), T("y"), T("z")],
        [if_((0, 1), (2,), 1, 1), if_((0, 2), (3,), 1, 1)],
        bodies=[weighted],
        ends=((0, 1), (3,)),
    )
    graph = read(data)
    assert {tensor.id for tensor in graph.tensors if tensor.id.endswith("/a")} == {
        f"IF_{k}/{branch}/a" for k in (0, 1) for branch in ("then", "else")
    }
    assert [tensor.id for tensor in graph.tensors if tensor.role == "constant"] == ["subgraph_1/w"]
    assert list(constants(data, graph, None)) == ["subgraph_1/w"]
    assert activations(graph) > 0


def test_equal_data_of_two_subgraphs_are_one_storage() -> None:
    weighted = Sub([T("a"), T("v", buffer=2), T("b")], [Op("MUL", (0, 1), (2,))], (0,), (2,))
    used = [FLAG, T("w", data=bytes(16)), T("m"), T("x"), T("y")]
    data = model(used, [Op("MUL", (3, 1), (2,)), if_((0, 2), (4,), 1, 1)], bodies=[weighted], ends=((0, 3), (4,)))
    graph = read(data)
    shared = {tensor.id: tensor.alias_group_id for tensor in graph.tensors if tensor.role == "constant"}
    assert shared == {"w": "buffer 2", "subgraph_1/v": "buffer 2"}


def test_variable_of_one_name_is_one_buffer_in_all_subgraphs() -> None:
    handle = T("h", (1,), "RESOURCE")
    name = ("VarHandleOptions", {"SharedName": "state"})
    init = Sub(
        [handle, T("zero", data=bytes(16))],
        [Op("VAR_HANDLE", (), (0,), name), Op("ASSIGN_VARIABLE", (0, 1), ())],
        (),
        (),
    )
    steps = [
        Op("CALL_ONCE", (), (), ("CallOnceOptions", {"InitSubgraphIndex": 1})),
        Op("VAR_HANDLE", (), (2,), name),
        Op("READ_VARIABLE", (2,), (3,)),
        Op("ADD", (0, 3), (1,)),
    ]
    graph = read(model([T("x"), T("y"), handle, T("value")], steps, bodies=[init]))
    assert [tensor.id for tensor in graph.tensors if tensor.role == "buffer"] == ["variable state"]
    users = [node.instr for node in graph.nodes if "variable state" in node.inputs]
    assert users == ["ASSIGN_VARIABLE", "READ_VARIABLE"]


PASS_FLAG = Sub([T("c"), FLAG, T("y")], [if_((1, 0), (2,), 1, 1)], (0,), (2,))
STRINGS = Sub([T("a"), T("words", dtype="STRING"), T("b")], [Op("RELU", (0,), (2,))], (0,), (2,))
LARGER = Sub([T("a", (8,)), T("b")], [Op("RELU", (0,), (1,))], (0,), (1,))


@pytest.mark.parametrize(
    ("bodies", "unplanned"),
    [
        ([replace(PASS_FLAG), body()], {"IF_0/then/IF_0": ("subgraph_1", "subgraph_1")}),
        ([body(), STRINGS], {"IF_0": ("subgraph_1", "subgraph_2")}),
        ([LARGER, body()], {"IF_0": ("subgraph_1", "subgraph_2")}),
        ([replace(body(), inputs=()), body()], {"IF_0": ("subgraph_1", "subgraph_2")}),
    ],
    ids=["recursion", "tensor of strings", "argument of another size", "missing argument"],
)
def test_body_that_cannot_be_planned_makes_the_plan_incomplete(
    bodies: list[Sub], unplanned: dict[str, tuple[str, ...]]
) -> None:
    if bodies[0].ops[0].code == "IF":
        bodies[0] = Sub([T("c"), T("flag", (1,), "BOOL", data=b"\1"), T("y")], PASS_FLAG.ops, (0,), (2,))
    graph = read(model([FLAG, T("x"), T("y")], [if_((0, 1), (2,))], bodies=bodies, ends=((0, 1), (2,))))
    assert {node.node_id: node.unplanned for node in graph.nodes if node.unplanned} == unplanned
    plan = tmmu.plan(graph)
    assert {arena.status for arena in plan.arenas} == {"incomplete"}
    assert "subgraph_1" in plan.notes["unplanned"]


def test_subgraph_of_an_element_makes_the_plan_incomplete() -> None:
    options = ("StablehloReduceOptions", {"BodySubgraphIndex": 1})
    graph = read(model([T("x"), T("y")], [Op("STABLEHLO_REDUCE", (0,), (1,), options, second=True)], bodies=[body()]))
    assert [node.unplanned for node in graph.nodes] == [("subgraph_1",)]
    assert graph.name.endswith("(1 of 2 subgraphs not planned)")


def test_control_flow_that_names_no_bodies_makes_the_plan_incomplete() -> None:
    assert tmmu.plan(read(model([T("x"), T("y")], [Op("WHILE", (0,), (1,))]))).incomplete != ()


def test_bodies_in_bodies_are_planned_up_to_a_depth() -> None:
    assert not any(node.unplanned for node in read(calls(DEEPEST - 1)).nodes)
    deeper = [node.node_id for node in read(calls(DEEPEST)).nodes if node.unplanned]
    assert [name.count("CALL_0") for name in deeper] == [DEEPEST + 1]


def calls(levels: int, uses: int = 1) -> bytes:
    """Return subgraphs that each call the next one ``uses`` times: uses^levels calls in a small file."""

    def call(k: int) -> Op:
        return Op("CALL", (0,), (1,), ("CallOptions", {"Subgraph": k}))

    def steps(k: int) -> list[Op]:
        return [replace(call(k), inputs=(at,), outputs=(at + 1,)) for at in range(uses)]

    tensors = [T(f"t{k}") for k in range(uses + 1)]
    inner = [Sub(tensors, steps(k + 2), (0,), (uses,)) for k in range(levels)]
    return model(
        tensors,
        steps(1),
        bodies=[*inner, Sub([T("a"), T("b")], [Op("RELU", (0,), (1,))], (0,), (1,))],
        ends=((0,), (uses,)),
    )


def test_repeated_uses_are_planned_up_to_a_size() -> None:
    graph = read(calls(14, uses=4))
    assert len(graph.nodes) < 1_000_000
    assert any(node.unplanned for node in graph.nodes)
