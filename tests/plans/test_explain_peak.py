"""The two sentences that explain a plan: its need against the limit, and the cause of its gap."""

import json

import pytest

import tmmu_core as tmmu
from tmmu_core.plans.analysis.explain_peak import explain_peak

RESNET = "sample_graphs/resnet50.tmmu.json.gz"


def test_reuse_not_taken_is_the_cause() -> None:
    explained = tmmu.plan(RESNET).explanation
    assert str(explained) == (
        "resnet50 needs 107 MiB. Activations take 9.19 MiB, 2.30 MiB above the lower bound of 6.89 MiB: at #14 "
        "n13, r13 does not reuse r12's memory in place (3.06 MiB)."
    )
    assert explained.gap is not None
    assert explained.gap.cause == "reuse"
    assert explained.gap.reuse == ("r12", "r13")


def test_better_planner_removes_the_gap() -> None:
    explained = tmmu.plan(RESNET, planner="auto").explanation
    assert explained.gap is None
    assert explained.reason.endswith("no plan of this execution order is smaller.")


def test_slots_larger_than_their_tensors_are_the_cause() -> None:
    gap = tmmu.plan("sample_graphs/mixed_sizes.tmmu.json").explanation.gap
    assert gap is not None
    assert gap.cause == "slot_rounding"
    assert gap.cause_bytes == 504 << 10


def test_holes_between_live_tensors_are_the_cause() -> None:
    rows = b"id,lower,upper,size,offset\na,0,2,100,0\nb,0,4,100,100\nc,2,4,150,200\n"
    explained = tmmu.plan(rows, planner="given", alignment=1).explanation
    assert explained.reason == "100 B are above the lower bound of 250 B: at #2, 100 B are free between live tensors."


@pytest.mark.parametrize(
    ("budget", "headline"),
    [
        (None, "resnet50 needs 107 MiB."),
        (100 << 20, "resnet50 does not fit: it needs 107 MiB, 6.88 MiB over the budget of 100 MiB."),
        (200 << 20, "resnet50 needs 107 MiB, within the budget of 200 MiB."),
    ],
)
def test_headline_states_the_whole_need_against_the_limit(budget: int | None, headline: str) -> None:
    assert explain_peak(tmmu.plan(RESNET), budget).headline == headline


def test_arena_over_its_limit_is_named() -> None:
    from tmmu_core.plans.making.make import make_plan
    from tmmu_core.plans.making.request import PlanRequest

    graph = tmmu.read(RESNET)
    plan = make_plan(graph, PlanRequest(capacities={"activations": 8 << 20}), over_limits=True).plan
    assert explain_peak(plan).headline == (
        "resnet50 does not fit: activations need 9.19 MiB, 1.19 MiB over the limit of 8.00 MiB."
    )


def test_arena_names_are_escaped() -> None:
    arenas = {name: {"capacity_bytes": 1024} for name in ("a\nb", "c")}
    tensors = [{"id": name[0], "shape": [8], "dtype": "int8", "arena": name} for name in arenas]
    node = {"node_id": "n", "instr": "F", "inputs": ["a"], "outputs": ["c"]}
    graph = {"ir_schema": "uml_model_ir/1", "name": "g", "tensors": tensors, "nodes": [node], "inputs": ["a"]}
    plan = tmmu.plan(json.dumps(graph).encode(), arenas=arenas)
    assert plan.explanation.headline == r"g needs 16 B, within the limits (a\x0ab 1.00 KiB, c 1.00 KiB)."
