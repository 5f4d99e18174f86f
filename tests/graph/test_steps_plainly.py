"""An imported training step: what AdamW adds to it by eye, and what it holds beside a walk step by step."""

from __future__ import annotations

from math import prod
from random import Random

import msgspec
import pytest

from tests.build import graph, node, tensor, view
from tmmu_core.graph.importers.adamw import add_adamw
from tmmu_core.graph.importers.step_checks import check_step, peak_bytes, saved_bytes
from tmmu_core.graph.model import Graph, Node, Tensor, View

# --- AdamW -------------------------------------------------------------------------------------------------------


def stepped(held: Tensor, *more: Tensor, order: bool = True) -> Graph:
    """``w`` with its gradient, and an AdamW step behind both."""
    tensors = [tensor("x", role="input"), held, tensor("g", role="gradient"), tensor("loss"), *more]
    step = graph(tensors, [node("b", f"x {held.id}", "g loss", phase="backward")], "x", "g loss")
    return add_adamw(msgspec.structs.replace(step, execution_order=("b",) if order else None), {held.id: "g"})


def updated(name: str, shape: tuple[int, ...], dtype: str, role: str = "optimizer_state") -> Tensor:
    return Tensor(f"{name}.updated", shape, dtype, role, view=View(name))  # type: ignore[arg-type]


@pytest.mark.parametrize(("dtype", "state"), [("float32", "float32"), ("float64", "float64"), ("int64", "int64")])
def test_a_parameter_as_wide_as_a_master_is_updated_itself_beside_its_states(dtype: str, state: str) -> None:
    made = stepped(Tensor("w", (4, 2), dtype, "parameter", saved_for_backward=True))
    assert made.tensors[4:] == (
        Tensor("w.exp_avg", (4, 2), state, "optimizer_state"),
        Tensor("w.exp_avg_sq", (4, 2), state, "optimizer_state"),
        updated("w", (4, 2), dtype, "parameter"),
        updated("w.exp_avg", (4, 2), state),
        updated("w.exp_avg_sq", (4, 2), state),
    )
    reads = ("g", "w", "w.exp_avg", "w.exp_avg_sq")
    writes = ("w.updated", "w.exp_avg.updated", "w.exp_avg_sq.updated")
    assert made.nodes[1:] == (Node("adamw:w", "adamw", reads, writes, "optimizer", "none", ((1, 0), (2, 1), (3, 2))),)
    assert (made.outputs, made.execution_order) == (("loss",), ("b", "adamw:w"))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e5m2"])
def test_a_narrow_parameter_has_a_wide_master_and_is_written_last(dtype: str) -> None:
    made = stepped(Tensor("w", (4,), dtype, "parameter", alignment=64), order=False)
    kept = ("w.master", "w.exp_avg", "w.exp_avg_sq")
    assert made.tensors[4:] == (
        *(Tensor(name, (4,), "float32", "optimizer_state") for name in kept),
        *(updated(name, (4,), "float32") for name in kept),
        msgspec.structs.replace(updated("w", (4,), dtype, "parameter"), alignment=64),
    )
    (last,) = made.nodes[1:]
    assert last.inputs == ("g", *kept, "w")
    assert last.outputs == (*(f"{name}.updated" for name in kept), "w.updated")
    assert last.in_place_write == ((1, 0), (2, 1), (3, 2), (4, 3))
    assert made.execution_order is None


def test_a_parameter_whose_bytes_another_one_holds_is_told_in_place_by_none() -> None:
    """``u`` and ``t`` look at ``w``, ``t`` by way of ``v``: of these three no step says so, of ``z`` it does."""
    tensors = [
        *(tensor("w", role="parameter"), view("u", "w", role="parameter"), view("v", "w"), view("t", "v")),
        *(tensor("z", role="parameter"), view("y", "z"), *(tensor(f"g{k}", role="gradient") for k in range(4))),
    ]
    writes = "g0 g1 g2 g3"
    step = graph(tensors, [node("b", "w u t z", writes, phase="backward")], "", writes)
    made = add_adamw(step, {"u": "g1", "z": "g3", "w": "g0", "t": "g2"})
    in_place = {each.node_id: each.in_place_write for each in made.nodes[1:]}
    states = ((2, 1), (3, 2))
    assert list(in_place) == ["adamw:u", "adamw:z", "adamw:w", "adamw:t"]
    assert in_place == {"adamw:u": states, "adamw:z": ((1, 0), *states), "adamw:w": states, "adamw:t": states}
    two = add_adamw(step, {"t": "g2", "w": "g0"})
    assert [each.in_place_write for each in two.nodes[1:]] == [states, states]
    alone = add_adamw(step, {"t": "g2"})
    assert alone.nodes[-1].in_place_write == ((1, 0), *states)
    assert alone.outputs == ("g0", "g1", "g3")


# --- what a step holds -------------------------------------------------------------------------------------------


def step_of(random: Random) -> Graph:
    """A graph of ten tensors at most: inputs, parameters, views of anything before them, and what nodes write."""
    tensors: list[Tensor] = []
    inputs, nodes = [], []
    for k in range(random.randint(0, 3)):
        tensors.append(Tensor(f"x{k}", (random.randint(0, 5),), random.choice(("int4", "float32")), "input"))
        inputs.append(f"x{k}")
    tensors += [tensor(f"w{k}", k + 1, role="parameter") for k in range(random.randint(0, 2))]
    for k in range(random.randint(0, 5)):
        reads = [random.choice(tensors).id for _ in range(random.randint(0, 2)) if tensors]
        made = [tensor(f"t{k}{i}", random.randint(0, 9), saved_for_backward=random.random() < 0.3) for i in range(2)]
        if tensors and random.random() < 0.3:
            made[1] = view(f"t{k}1", random.choice(tensors).id, saved_for_backward=True)
        if tensors and random.random() < 0.3:
            tensors.append(view(f"v{k}", random.choice(tensors).id, saved_for_backward=random.random() < 0.5))
        tensors += made
        nodes.append(Node(f"n{k}", "", tuple(reads), tuple(each.id for each in made)))
    written = [name for each in nodes for name in each.outputs]
    outputs = random.sample(written, min(len(written), random.randint(0, 2)))
    return Graph(tuple(tensors), tuple(nodes), tuple(inputs), tuple(outputs))


def owner(step: Graph, name: str) -> Tensor:
    (found,) = (each for each in step.tensors if each.id == name)
    return found if found.view is None else owner(step, found.view.base_tensor_uid)


def bytes_of(held: Tensor) -> int:
    bits = prod(int(dim) for dim in held.shape) * {"int4": 4, "float32": 32}[held.dtype]
    return bits // 8 + (bits % 8 > 0)


def peak_plainly(step: Graph) -> int:
    """Every step in turn: what there is by then, and is read or written from then on, or given out."""
    born: dict[Tensor, int] = {}
    last: dict[Tensor, int] = {}
    for at, names in enumerate((step.inputs, *((*each.inputs, *each.outputs) for each in step.nodes))):
        made = step.inputs if not at else step.nodes[at - 1].outputs
        for name in names:
            held = owner(step, name)
            if name in made:
                born.setdefault(held, at)
            last[held] = at
    for name in step.outputs:
        last[owner(step, name)] = len(step.nodes)
    alive = [
        sum(bytes_of(each) for each in born if not each.persistent and born[each] <= at <= last[each])
        for at in range(len(step.nodes) + 1)
    ]
    return max(alive)


def saved_plainly(step: Graph) -> int:
    kept = {owner(step, each.id) for each in step.tensors if each.saved_for_backward}
    return sum(bytes_of(each) for each in kept if each.role != "parameter")


def test_the_peak_is_the_most_that_any_step_finds_alive() -> None:
    random = Random(3)
    for _ in range(400):
        step = step_of(random)
        assert peak_bytes(step) == peak_plainly(step)
        assert saved_bytes(step) == saved_plainly(step)


def test_a_step_is_checked_for_what_is_read_before_it_is_there() -> None:
    tensors = [
        *(tensor("x", role="input"), tensor("w", role="parameter"), tensor("h"), tensor("y"), tensor("nobodys")),
        *(view("v", "x"), view("later", "h")),
    ]

    def checked(*reads: str) -> None:
        nodes = [
            node(f"n{k}", names, writes) for k, (names, writes) in enumerate(zip(reads, ("h", "y later"), strict=True))
        ]
        check_step(graph(tensors, nodes, "x", "y"))

    checked("x w v", "h x")
    for early in ("y", "h", "nobodys", "later"):
        with pytest.raises(AssertionError, match=f"n0 reads {early} before"):
            checked(f"x {early}", "h")
    with pytest.raises(AssertionError, match="more is saved"):
        check_step(graph([tensor("x", saved_for_backward=True)], [node("n", "", "")]))
    check_step(graph([tensor("x", role="input", saved_for_backward=True)], [node("n", "", "")], "x"))
