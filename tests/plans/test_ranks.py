"""One plan per rank: identical ranks are planned once, each has its own hash."""

import numpy as np
import pytest

from tests.support.build import chain, graph, node, tensor
from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.graph.model import MODES, PRESETS
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans import canonical
from tmmu_core.plans.making.plan_sets import plan_ranks
from tmmu_core.plans.making.request import PlanRequest


def layers(count=3, width=50):
    """Return ``x → MATMUL(w) → RELU → …`` with saved activations and weights of ``width`` floats."""
    tensors = [tensor("x", 16, role="input")]
    nodes = []
    for i in range(count):
        tensors += [tensor(f"w{i}", width, role="parameter"), tensor(f"h{i}", 16, remat=True), tensor(f"r{i}", 16)]
        nodes += [
            node(f"n{i}a", f"{f'r{i - 1}' if i else 'x'} w{i}", f"h{i}", instr="MATMUL", inplace="none"),
            node(f"n{i}b", f"h{i}", f"r{i}", instr="RELU", inplace=((0, 0),)),
        ]
    return graph(tensors, nodes, "x", f"r{count - 1}")


TP = {"mesh": {"tp": 4}, "rules": [{"match": "w*", "axis": 0, "mesh": "tp"}]}
ZERO = {
    "mesh": [{"name": "dp", "size": 4}],
    "contracts": {"gradients": {"axis": 0, "mesh": "dp"}, "optimizer_state": {"axis": 0, "mesh": "dp"}},
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("spec", [TP, ZERO], ids=["tensor parallel", "ZeRO"])
def test_class_of_ranks_verifies(spec, mode, preset):
    for one in plan_ranks(layers(), PlanRequest(shard_spec=spec, mode=mode, preset=preset)).classes:
        assert verify_plan(one.solution.plan).findings == ()


def test_ir_hash_is_that_of_the_global_graph():
    ir = layers()
    assert {plan_ranks(ir, PlanRequest(shard_spec=TP)).plan(rank).ir_hash for rank in range(4)} == {
        canonical.ir_hash(ir)
    }


def test_ranks_of_a_class_share_the_layout_and_not_the_hash():
    ranks = plan_ranks(layers(), PlanRequest(shard_spec=TP))
    assert len(set(ranks.plan_hashes)) == 4
    assert ranks.plan(0).layout_hash == ranks.plan(1).layout_hash


def test_spec_and_world_size_are_in_the_hash():
    more = {"mesh": {"tp": 4, "dp": 2}, "rules": TP["rules"]}
    once = plan_ranks(layers(), PlanRequest(shard_spec=TP)).plan(0)
    twice = plan_ranks(layers(), PlanRequest(shard_spec=more)).plan(0)
    assert once.layout_hash == twice.layout_hash
    assert once.tmmu_plan_hash != twice.tmmu_plan_hash
    assert (once.world_size, twice.world_size) == (4, 8)
    assert once.shard_spec_hash == canonical.shard_spec_hash(TP)


def test_heat_map_has_a_row_per_rank_and_a_column_per_arena():
    ranks = plan_ranks(
        layers(1, width=50), PlanRequest(shard_spec={"mesh": {"tp": 4}, "tensors": {"w0": {"axis": 0, "mesh": "tp"}}})
    )
    assert ranks.arena_names == ("activations", "parameters")
    assert ranks.extents[:, 1].tolist() == [52, 52, 48, 48]


def test_world_size_beside_a_mesh_is_rejected():
    with pytest.raises(InvalidIrShapes) as caught:
        plan_ranks(chain(2), PlanRequest(shard_spec=TP, world_size=8))
    assert caught.value.diagnostics["reason"] == "shard_world_size"


def test_thousand_ranks_in_two_classes_are_two_plans():
    mesh = [{"name": "dp", "size": 64}, {"name": "tp", "size": 16}]
    contracts = {"parameters": {"axis": 0, "mesh": "tp"}, "gradients": {"axis": 0, "mesh": "dp"}}
    ranks = plan_ranks(
        layers(width=70), PlanRequest(shard_spec={"mesh": mesh, "contracts": contracts}, mode="backward")
    )
    assert ranks.world_size == 1024
    assert len(ranks.classes) == 2
    assert len(set(ranks.plan_hashes)) == 1024
    assert np.unique(ranks.extents, axis=0).shape[0] <= 2
