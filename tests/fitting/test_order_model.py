"""Live bytes of the order model equal those of liveness, for every order."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.build import graph, node, tensor
from tests.support.strategies import graphs, orders
from tmmu_core.base.errors import ContractError
from tmmu_core.fitting.order import order_model as order_model_room
from tmmu_core.fitting.order.order_exact import OrderStates, best_first_search
from tmmu_core.fitting.order.order_memory import measure
from tmmu_core.fitting.order.order_model import OrderModel, order_model
from tmmu_core.graph.model import Graph, Tensor, View
from tmmu_core.liveness.analyse import analyse
from tmmu_core.liveness.timeline import Liveness, build_timeline, default_mode, default_preset


def lived(ir: Graph, order: tuple[str, ...] | None = None) -> Liveness:
    mode = default_mode(ir)
    return analyse(build_timeline(ir, mode, default_preset(mode), order=order))


def peaks_of(liveness: Liveness) -> list[int]:
    """Return the peak of the live bytes of each arena, from the live ranges of the storages."""
    storages = liveness.storages
    found = []
    for arena in range(len(liveness.arenas)):
        change = np.zeros(liveness.timeline.steps + 2, np.int64)
        mine = storages.arena == arena
        np.add.at(change, storages.birth[mine], storages.size[mine].astype(np.int64))
        np.add.at(change, storages.death[mine], -storages.size[mine].astype(np.int64))
        found.append(int(np.cumsum(change).max()))
    return found


def units_in(model: OrderModel, liveness: Liveness) -> np.ndarray:
    """Return the units of the model in the order of ``liveness``; each unit is one node here."""
    unit_of = {unit[0]: number for number, unit in enumerate(model.units)}
    return np.array([unit_of[int(k)] for k in liveness.timeline.node_at if k >= 0], np.int64)


@given(st.data())
def test_peaks_are_those_of_liveness_for_every_order(data: st.DataObject) -> None:
    ir = data.draw(graphs(own_backward=True))
    first, second = data.draw(orders(ir)), data.draw(orders(ir))
    try:
        model = order_model(lived(ir, first))
        liveness = lived(ir, second)
    except ContractError:
        return
    assert model is not None
    if liveness.arenas != model.arenas or any(t.alias_group_id or t.must_not_alias for t in ir.tensors):
        return  # whose arena and whose place a group of several first-borns has depends on the order
    assert measure(model, units_in(model, liveness)).tolist() == peaks_of(liveness)


def test_base_of_a_saved_view_is_not_overwritten() -> None:
    tensors = [tensor("i", role="input"), tensor("x", 9), Tensor("v", (9,), view=View("x"), saved_for_backward=True)]
    nodes = [node("write", "i", "x"), node("look", "x", "v"), node("read", "x", "y"), node("b", "y", "z")]
    nodes[-1] = msgspec.structs.replace(nodes[-1], phase="backward")
    liveness = lived(graph([*tensors, tensor("y", 9), tensor("z")], nodes, "i", "z"), ("write", "look", "read", "b"))
    model = order_model(liveness)
    assert model is not None
    assert measure(model, units_in(model, liveness)).tolist() == peaks_of(liveness) == [2 * 36]


def test_reader_of_a_storage_precedes_its_overwriter() -> None:
    ir = graph(
        [tensor("x", role="input"), tensor("a"), tensor("b"), tensor("c")],
        [node("make", "x", "a"), node("read", "a", "b"), node("write", "a", "c", in_place_write=((0, 0),))],
        "x",
        "b c",
        execution_order=("make", "read", "write"),
    )
    model = order_model(lived(ir))
    assert model is not None
    assert 2 in model.successors[1]


def test_random_operators_keep_their_order() -> None:
    ir = graph(
        [tensor("x", role="input"), tensor("a"), tensor("b")],
        [node("first", "x", "a", instr="native_dropout"), node("second", "x", "b", instr="aten.rand_like.default")],
        "x",
        "a b",
        execution_order=("first", "second"),
    )
    model = order_model(lived(ir))
    assert model is not None
    assert model.predecessors == [[], [0]]


def test_phases_can_be_kept_in_order() -> None:
    """Nodes of one phase keep no order: each of the backward pass can be its first."""
    tensors = [tensor("x", role="input"), *(tensor(name) for name in "abcd")]
    nodes = [node("f", "x", "a"), *(node(name, "x", name, phase="backward") for name in "bc")]
    nodes.append(node("d", "c", "d", phase="optimizer"))
    ir = graph(tensors, nodes, "x", "a b d", execution_order=tuple("fbcd"))
    free, kept = order_model(lived(ir)), order_model(lived(ir), keep_phases=True)
    assert free is not None
    assert kept is not None
    assert free.predecessors == [[], [], [], [2]]
    assert kept.predecessors == [[], [0], [0], [1, 2]]


def test_sizes_are_summed_with_their_alignment(monkeypatch: pytest.MonkeyPatch) -> None:
    """``x`` and ``y`` of 5 floats and ``a`` of 4: 20 + 20 + 16 bytes, or 32 + 32 + 16 on a grid of 16."""
    tensors = [tensor("x", 5, role="input"), tensor("a", 4), tensor("y", 5)]
    liveness = lived(
        graph(tensors, [node("n", "x", "a", inplace="none"), node("m", "a", "y", inplace="none")], "x", "y")
    )
    for grids, total in ((None, 56), ({"activations": 16}, 80), ({"activations": 24}, 72), ({"elsewhere": 64}, 56)):
        monkeypatch.setattr(order_model_room, "MAX_TOTAL_BYTES", total)
        assert order_model(liveness, grids) is None
        monkeypatch.setattr(order_model_room, "MAX_TOTAL_BYTES", total + 1)
        found = order_model(liveness, grids)
        assert found is not None
        assert int(found.size.sum()) == total
        assert found.padding.tolist() == [max((found.size - liveness.storages.size.astype(np.int64)).tolist())]


def test_first_writer_precedes_the_next_writer_of_the_same_bytes() -> None:
    tensors = [tensor("a", alias_group_id="g"), tensor("b", alias_group_id="g"), tensor("c")]
    nodes = [node("first", "", "a"), node("read", "a", "c", inplace="none"), node("second", "", "b")]
    model = order_model(lived(graph(tensors, nodes, "", "b c", execution_order=("first", "read", "second"))))
    assert model is not None
    later = model.successors
    assert later == [[1, 2], [2], []]


def test_persistent_output_is_not_written_over_an_input() -> None:
    tensors = [tensor("x", 8, role="input"), tensor("a", 8), tensor("w", role="parameter", arena="activations")]
    liveness = lived(graph(tensors, [node("n", "x", "a", inplace="none"), node("m", "x a", "w")], "x"))
    model = order_model(liveness)
    assert model is not None
    assert measure(model, np.arange(2)).tolist() == peaks_of(liveness) == [80]
    assert best_first_search(OrderStates(model), 81).bound == 80
