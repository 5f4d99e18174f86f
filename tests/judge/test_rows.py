"""Rows of a plan are verified without the graph, also in files without hashes."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

import tmmu_core as tmmu
from tests.judge.faults import rehashed
from tests.support.build import chain, graph, node, tensor, view
from tests.support.paths import SAMPLES
from tmmu_core.formats.open_file import read_any
from tmmu_core.formats.planfile import plan_file
from tmmu_core.judge.verifier.finished_plan import FinishedPlan, verify_finished
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.model import Plan


def edited(plan: Plan, tensor_id: str, **fields: Any) -> Plan:
    """Return the plan as in another writer's file: without content hash, with one row changed."""
    document = msgspec.json.decode(plan_file.to_json(plan))
    del document["content_hash"]
    row = next(row for row in document["tensors"] if row["tensor_id"] == tensor_id)
    row |= fields
    found = read_any(msgspec.json.encode(document))
    assert isinstance(found, Plan)
    return rehashed(found)


def rules(plan: Plan) -> set[str]:
    return {finding.rule for finding in verify_plan(plan).errors}


def viewed() -> Plan:
    tensors = [tensor("x", role="input"), tensor("h"), view("part", "h", floats=2), tensor("y", role="output")]
    nodes = [node("n0", "x", "h", inplace="none"), node("n1", "part", "y", inplace="none")]
    return plan_graph(graph(tensors, nodes, "x", "y")).plan


def test_valid_rows_have_no_finding() -> None:
    assert rules(viewed()) == set()


@pytest.mark.parametrize(
    ("row", "fields"),
    [
        ("h", {"role": "activationx"}),
        ("h", {"dtype": "float32x"}),
        ("h", {"shape": [3]}),
        ("h", {"shape": [2**63]}),
        ("part", {"shape": [1]}),
        ("h", {"base_tensor_uid": "h"}),
        ("h", {"base_tensor_uid": "missing"}),
        ("part", {"base_tensor_uid": "y"}),
    ],
)
def test_contradicting_row_is_found(row: str, fields: dict[str, Any]) -> None:
    assert "row" in rules(edited(viewed(), row, **fields))


def test_persistent_tensor_lives_to_the_end() -> None:
    tensors = [tensor("w", role="parameter"), tensor("y"), tensor("z", role="output")]
    plan = plan_graph(graph(tensors, [node("n0", "w", "y"), node("n1", "y", "z")], "", "z")).plan
    assert "row" in rules(edited(plan, "w", death=1))


def test_unknown_preset_is_found() -> None:
    plan = plan_graph(chain(3)).plan
    assert "row" in rules(replace(plan, preset="inferencex"))


def test_alignment_of_zero_is_found() -> None:
    plan = plan_graph(chain(3)).plan
    zeroed = replace(plan, alignment=np.zeros(len(plan), np.uint64))
    assert "alignment" in rules(zeroed)


def test_witness_step_of_a_bound_is_checked() -> None:
    plan = viewed()
    (arena,) = [a for a in plan.arenas if a.name == "activations"]
    assert arena.witness_step >= 0
    late = tuple(replace(a, witness_step=99) if a is arena else a for a in plan.arenas)
    assert "certificate" in rules(replace(plan, arenas=late))


REQUESTS: list[dict[str, Any]] = [
    {"alignment": 4096},
    {"alignment": 65536},
    {"alignment": 1 << 20},
    {"alignment": 8192, "page_size": 4096},
    {"alignment": 8192, "capacity": "1GiB"},
    {"alignment": 65536, "one_memory": True},
    {"arenas": {"activations": {"alignment_bytes": 65536, "capacity_bytes": 1 << 30}}},
]


def reread(plan: Plan, **how: Any) -> FinishedPlan:
    """Return the verdict on the plan read from its file, checked against its graph."""
    return verify_finished(plan_file.from_document(plan_file.to_json(plan)), plan.graph, **how)  # type: ignore[attr-defined]


@pytest.mark.parametrize("planner", ["slots", "greedy", "naive"])
@pytest.mark.parametrize("request_of", REQUESTS, ids=str)
@pytest.mark.parametrize("name", ["mixed_sizes", "fan_out_fan_in"])
def test_plan_with_its_own_alignment_keeps_its_certificate(name: str, request_of: dict[str, Any], planner: str) -> None:
    plan = tmmu.plan(SAMPLES / f"{name}.tmmu.json", planner=planner, **request_of)
    found = reread(plan)
    assert found.verdict.ok
    for arena, given in zip(found.plan.arenas, plan.arenas, strict=True):
        assert (arena.status, arena.bound_bytes) == (given.status, given.bound_bytes)


def test_alignment_that_no_configuration_hash_confirms_is_not_used() -> None:
    plan = tmmu.plan(SAMPLES / "mixed_sizes.tmmu.json", alignment=1 << 20)
    (arena,) = reread(replace(rehashed(replace(plan, arena_config_hash=bytes(32))), planning=plan.planning)).plan.arenas
    assert arena.status == "claimed"
    assert arena.bound_bytes < plan.lower_bound_bytes
    assert "configuration" in dict(reread(plan).verdict.not_checked)


def test_configuration_that_is_given_is_checked() -> None:
    plan = tmmu.plan(SAMPLES / "mixed_sizes.tmmu.json", alignment=4096)
    given = {"activations": {"alignment_bytes": 4096}}
    assert "configuration" in reread(plan, arenas=given).verdict.checked
    assert not reread(plan, arenas={"activations": {"alignment_bytes": 64}}).verdict.ok
