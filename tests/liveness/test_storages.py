"""Storages of views, alias groups and in-place writes, and tensors that must not share one (contract §3)."""

import pytest

from tests.support.build import graph, node, tensor, view
from tests.support.simulator import disagreement, simulate
from tmmu_core.base.errors import ContractError, InvalidIrShapes
from tmmu_core.graph.model import Graph, Tensor
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.model import TensorRow


def rows(g: Graph, **how: object) -> dict[str, TensorRow]:
    return {row.tensor_id: row for row in plan_graph(g, **how).plan.rows()}  # type: ignore[arg-type]


def refusal(g: Graph, **how: object) -> ContractError:
    with pytest.raises(ContractError) as caught:
        plan_graph(g, **how)  # type: ignore[arg-type]
    return caught.value


def test_view_is_inside_its_base() -> None:
    tensors = [tensor("x", 8, role="input"), view("v", "x", 2, offset=16), tensor("y")]
    g = graph(tensors, [node("n0", "v", "y", inplace="none")], "x", "y")
    found = rows(g)
    assert found["v"].offset_bytes == found["x"].offset_bytes + 16
    assert found["v"].logical_slot == found["x"].logical_slot


def test_view_of_a_view_adds_its_offsets() -> None:
    tensors = [tensor("x", 8, role="input"), view("v", "x", 4, offset=16), view("w", "v", 1, offset=4), tensor("y")]
    g = graph(tensors, [node("n0", "w", "y", inplace="none")], "x", "y")
    assert rows(g)["w"].offset_bytes == 20


def test_base_lives_while_a_view_is_read() -> None:
    tensors = [tensor("x", role="input"), view("v", "x", 2), tensor("a"), tensor("y")]
    g = graph(tensors, [node("n0", "x", "a", inplace="none"), node("n1", "v a", "y", inplace="none")], "x", "y")
    # x itself is last read at #1, its view at #2: nothing else may lie there before #3.
    assert len({row.logical_slot for row in rows(g).values() if row.tensor_id != "v"}) == 3


def test_alias_group_is_one_storage_as_large_as_its_largest_member() -> None:
    tensors = [tensor("x", role="input"), tensor("a", 4, alias_group_id="g"), tensor("b", 8, alias_group_id="g")]
    g = graph(tensors, [node("n0", "x", "a", inplace="none"), node("n1", "a", "b", inplace="none")], "x", "b")
    found = rows(g)
    assert found["a"].offset_bytes == found["b"].offset_bytes
    (arena,) = plan_graph(g).plan.arenas
    assert (arena.slots, arena.peak_live_bytes) == (2, 16 + 32)


def in_place(*extra: Tensor, reads: str = "x", later: str = "", gives: str = "z", **marks: object) -> Graph:
    nodes = [
        node("n0", "x", "a", inplace="none"),
        node("n1", "a", "b", in_place_write=((0, 0),), inplace="none"),
        node("n2", f"b {later}".strip(), "z", inplace="none"),
    ]
    return graph([tensor("x", role="input"), tensor("a", **marks), tensor("b"), tensor("z"), *extra], nodes, "x", gives)


def into_part() -> Graph:
    """Return a graph whose last node writes ``b``, a view of its other output, in place of ``a``."""
    nodes = [node("n0", "x", "a"), node("n1", "a", "z b", in_place_write=((0, 1),), inplace="none")]
    return graph([tensor("x", role="input"), tensor("a", 2), tensor("z"), view("b", "z", 2, 8)], nodes, "x", "z")


def test_in_place_write_at_the_first_step_has_its_own_step() -> None:
    g = graph(
        [tensor("b", role="buffer"), view("v", "b", 2, 8), tensor("w", 2), tensor("y")],
        [node("n0", "v", "w", in_place_write=((0, 0),), inplace="none"), node("n1", "w", "y", inplace="none")],
        "",
        "y",
    )
    found = rows(g)
    assert [(found[t].birth, found[t].death) for t in ("v", "w")] == [(0, 1), (0, 2)]
    plan = plan_graph(g).plan
    assert verify_plan(plan, g).ok
    assert disagreement(g, "inference", "inference", range(1)) is None


def test_in_place_write_has_the_offset_of_its_input() -> None:
    found = rows(in_place())
    assert found["b"].offset_bytes == found["a"].offset_bytes
    assert (found["a"].death, found["b"].birth) == (2, 2)


@pytest.mark.parametrize(
    ("condition", "g", "mode"),
    [
        ("read_later", in_place(later="a"), "inference"),
        ("saved_for_backward", in_place(saved_for_backward=True), "forward"),
        ("graph_output", in_place(gives="z a"), "inference"),
        ("refcount", in_place(view("v", "a", 2), later="v"), "inference"),
        ("refcount", into_part(), "inference"),
        ("must_not_alias", in_place(must_not_alias=("b",)), "inference"),
    ],
)
def test_in_place_write_is_denied_by_its_condition(condition: str, g: Graph, mode: str) -> None:
    error = refusal(g, mode=mode)
    assert isinstance(error, InvalidIrShapes)
    assert error.diagnostics["reason"] == "in_place_denied"
    assert error.diagnostics["condition"] == condition


@pytest.mark.parametrize("listed", ["saved given", "given saved"])
@pytest.mark.parametrize("first", [0, 1])
def test_first_denied_write_of_the_node_is_reported(listed: str, first: int) -> None:
    """The order of tensors in the file does not matter."""
    of = {"saved": tensor("saved", saved_for_backward=True), "given": tensor("given")}
    pairs = [(0, 0), (1, 1)]
    nodes = [
        node("n0", "x", "saved given", inplace="none"),
        node("n1", "saved given", "a b", inplace="none", in_place_write=(pairs[first], pairs[1 - first])),
    ]
    tensors = [tensor("x", role="input"), *map(of.__getitem__, listed.split()), tensor("a"), tensor("b")]
    g = graph(tensors, nodes, "x", "given")
    with pytest.raises(InvalidIrShapes) as theirs:
        simulate(g, mode="forward", preset="train_full")
    conditions = [error.diagnostics["condition"] for error in (refusal(g, mode="forward"), theirs.value)]
    assert conditions == [("saved_for_backward", "graph_output")[first]] * 2


def test_view_of_an_overwritten_parameter_cannot_be_read_later() -> None:
    nodes = [node("n0", "p", "y", inplace="none", in_place_write=((0, 0),)), node("n1", "v y", "z", inplace="none")]
    g = graph([tensor("p", role="parameter"), view("v", "p", 0), tensor("y"), tensor("z")], nodes, "", "z")
    with pytest.raises(InvalidIrShapes) as theirs:
        simulate(g)
    assert [error.diagnostics["condition"] for error in (refusal(g), theirs.value)] == ["refcount"] * 2
    unread = graph(g.tensors, [nodes[0], node("n1", "y", "z", inplace="none")], "", "z")
    assert verify_plan(plan_graph(unread).plan, unread).ok, "an unread view does not prevent an in-place write"


def test_must_not_alias_inside_one_storage_is_rejected() -> None:
    tensors = [tensor("x", role="input", must_not_alias=("v",)), view("v", "x", 2), tensor("y")]
    g = graph(tensors, [node("n0", "v", "y")], "x", "y")
    assert refusal(g).diagnostics["reason"] == "must_not_alias_same_storage"


def test_distant_must_not_alias_tensors_never_share_a_slot() -> None:
    tensors = [tensor("x", role="input"), tensor("a"), tensor("b"), tensor("c", must_not_alias=("x",))]
    g = graph(tensors, [node(f"n{i}", s, t, inplace="none") for i, (s, t) in enumerate(("xa", "ab", "bc"))], "x", "c")
    found = rows(g)
    assert found["c"].logical_slot != found["x"].logical_slot


def test_zero_size_tensors_have_distinct_offsets() -> None:
    g = graph([tensor("x", 0, role="input"), tensor("y", 0)], [node("n0", "x", "y", inplace="none")], "x", "y")
    found = rows(g, arenas={"activations": {"alignment_bytes": 1}})
    assert (found["x"].offset_bytes, found["y"].offset_bytes) == (0, 1)


@pytest.mark.parametrize(("first", "second"), [(1024, 256), (256, 1024)])
def test_greatest_alignment_of_an_alias_group_is_used(first: int, second: int) -> None:
    g = graph(
        [
            tensor("x", 1, role="input"),
            tensor("a", 1, alias_group_id="g", alignment=first),
            tensor("b", 1, alias_group_id="g", alignment=second),
            tensor("y", 1),
        ],
        [node("n0", "x", "a", inplace="none"), node("n1", "x a", "b", inplace="none"), node("n2", "b x", "y")],
        "x",
        "y",
    )
    # x lies in slot 0; the group behind it starts at the first multiple of the greatest.
    assert rows(g)["a"].offset_bytes == 1024


@pytest.mark.parametrize("first", ["x", "g"])
def test_must_not_alias_with_an_absent_tensor_is_ignored(first: str) -> None:
    other = {"x": "g", "g": "x"}[first]
    marks = {first: {"must_not_alias": (other,)}, other: {}}
    tensors = [tensor("x", role="input", **marks["x"]), tensor("y"), tensor("g", **marks["g"])]
    g = graph(tensors, [node("n0", "x", "y"), node("n1", "y", "g", phase="backward")], "x", "y")
    solution = plan_graph(g, mode="inference")
    assert solution.liveness.storages.must_not_alias.size == 0
    assert set(solution.plan.tensor_ids) == {"x", "y"}
    assert len(plan_graph(g, mode="backward").liveness.storages.must_not_alias) == 1


@pytest.mark.parametrize("first", range(3))
def test_storage_is_named_by_its_base(first: int) -> None:
    # a and b are views of z with the same birth; by their ids they would come first.
    tensors = [tensor("z", role="input"), view("a", "z"), view("b", "z")]
    tensors = [*tensors[first:], *tensors[:first], tensor("y")]
    solution = plan_graph(graph(tensors, [node("n", "a b", "y", inplace="none")], "z", "y"))
    ids, storages = solution.liveness.timeline.index.tensor_ids, solution.liveness.storages
    assert [ids[head] for head in storages.head] == ["z", "y"]


def test_tensors_of_different_arenas_cannot_be_written_in_place() -> None:
    def named(x: str | None, y: str | None) -> Graph:
        tensors = [tensor("x", role="input"), tensor("a", arena=x), tensor("b", arena=y)]
        nodes = [node("n0", "x", "a", inplace="none"), node("n1", "a", "b", in_place_write=((0, 0),), inplace="none")]
        return graph(tensors, nodes, "x", "b")

    with pytest.raises(InvalidIrShapes) as caught:
        plan_graph(named("gradients", "activations"))
    assert caught.value.diagnostics["condition"] == "other_arena"
    for pair in ((None, "gradients"), ("gradients", None), ("gradients", "gradients"), (None, None)):
        g = named(*pair)
        assert verify_plan(plan_graph(g).plan, g).ok


def test_in_place_writes_into_nested_views_add_their_offsets() -> None:
    tensors = [tensor("x", role="input"), tensor("base", 16), view("in", "base", 4, 16), tensor("r", 4)]
    tensors += [view("v", "r", 2, 4), tensor("y", 2), tensor("z", 2)]
    nodes = [
        node("n0", "x", "base", inplace="none"),
        node("n1", "in", "r", in_place_write=((0, 0),), inplace="none"),
        node("n2", "v", "y", in_place_write=((0, 0),), inplace="none"),
        node("n3", "y", "z", inplace="none"),
    ]
    g = graph(tensors, nodes, "x", "z")
    solution = plan_graph(g)
    plan = solution.plan
    start = int(plan.offset[plan.row_of["base"]])
    at = {name: int(plan.offset[row]) - start for name, row in plan.row_of.items()}
    assert [at[name] for name in ("in", "r", "v", "y")] == [16, 16, 20, 20]
    assert verify_plan(plan, g).ok


def test_view_of_an_unwritten_base_names_the_first_node() -> None:
    tensors = [view("v", "base"), tensor("base"), tensor("x", role="input"), tensor("y")]
    nodes = [node("look", "x", "v"), node("late", "x", "base", phase="backward"), node("n", "v", "y")]
    for some, named in ((nodes, "look"), ([node("n", "x", "y"), *nodes[:2]], "look")):
        with pytest.raises(InvalidIrShapes) as caught:
            plan_graph(graph(tensors, some, "x", "y"), mode="inference", preset="inference")
        assert [caught.value.diagnostics[key] for key in ("reason", "node_id")] == ["view_of_nothing", named]
