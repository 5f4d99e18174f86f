"""The two sentences that explain a plan: its need against the limit, and the cause of its gap."""

from typing import Any

import pytest

import tmmu_core as tmmu
from tmmu_core.plans.analysis.waste_ledger import explain_peak
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.request import PlanRequest

RESNET = "sample_graphs/resnet50.tmmu.json.gz"
ABOVE = "Activations take 9.19 MiB, 2.30 MiB above the lower bound of 6.89 MiB: at"
HOLED = b"id,lower,upper,size,offset\na,0,2,100,0\nb,0,4,100,100\nc,2,4,150,200\n"
SIZES = {"w": 96, "x": 200, "a": 256, "b": 256, "c": 256}
STEPS = (("x", "a", "none"), ("a", "b", [[0, 0]]), ("bw", "c", "none"))  # reads, writes, in-place pairs
TIED = {  # as many bytes are live at step 3 as at step 2, where "b" may reuse "a" in place
    "tensors": [{"id": t, "shape": [n], "dtype": "int8", "arena": "activations"} for t, n in SIZES.items()],
    "nodes": [{"node_id": w, "instr": "F", "inputs": [*r], "outputs": [w], "inplace": p} for r, w, p in STEPS],
    "inputs": ["w", "x"],
}
SMALL = "sample_graphs/instances/A.1048576.csv"  # less is live at the deciding step than the lower bound
EVENT = {"action": "segment_alloc", "addr": 0, "size": 2048, "stream": 0, "frames": []}
SNAPSHOT = {"segments": [], "device_traces": [[EVENT, EVENT | {"action": "alloc", "size": 512}]]}


@pytest.mark.parametrize(
    ("source", "planner", "reason"),
    [
        (HOLED, "given", "250 B: at #2, 100 B are free below the highest live tensor."),
        ("sample_graphs/mixed_sizes.tmmu.json", "slots", "504 KiB are unused inside the slots of live tensors."),
        (SMALL, "slots", "at #482,304, 990 KiB are live up to offset 2.30 MiB, and 1.33 MiB are unused"),
        (RESNET, "auto", "105 MiB are live at #13 n12; no plan of this execution order is smaller."),
        (RESNET, "slots", f"{ABOVE} #14 n13, r13 does not reuse r12's memory in place (3.06 MiB)."),
        (RESNET, "greedy", f"{ABOVE} #15 n14, more in-place reuse could save 2.30 MiB."),
        ("sample_graphs/must_not_alias.tmmu.json", "slots", "no plan of this execution order needs less than 80.0"),
        ("sample_graphs/training_step.tmmu.json", "slots", "no plan of this execution order in 3 arenas needs less"),
        (SNAPSHOT, "given", "no tensor uses the last 1.50 KiB."),
        (TIED, "slots", "That is 32 B above the lower bound of 608 B: at #3 c, alignment costs 32 B."),
    ],
)
def test_reason_states_the_largest_loss(source: Any, planner: str, reason: str) -> None:
    assert reason in tmmu.plan(source, planner=planner).explanation.reason


@pytest.mark.parametrize(
    ("budget", "sentences"),
    [
        (None, "resnet50 needs 107 MiB. Act"),
        (100 << 20, "resnet50 does not fit: it needs 107 MiB, 6.88 MiB over the budget of 100 MiB. No plan of"),
        (106 << 20, "resnet50 does not fit: it needs 107 MiB, 904 KiB over the budget of 106 MiB. Act"),
        (200 << 20, "resnet50 needs 107 MiB, within the budget of 200 MiB. Act"),
    ],
)
def test_whole_need_is_compared_with_the_budget(budget: int | None, sentences: str) -> None:
    assert str(explain_peak(tmmu.plan(RESNET), budget)).startswith(sentences)


@pytest.mark.parametrize(
    ("limit", "sentences"),
    [
        (8 << 20, "1.19 MiB over the limit of 8.00 MiB. That is 2.30 MiB above the lower bound of 6.89 MiB: "),
        (6 << 20, "3.19 MiB over the limit of 6.00 MiB. No plan of this execution order fits: the lower bound of act"),
    ],
)
def test_arena_over_its_limit_is_named(limit: int, sentences: str) -> None:
    plan = make_plan(tmmu.read(RESNET), PlanRequest(capacities={"activations": limit}), over_limits=True).plan
    assert f"resnet50 does not fit: activations need 9.19 MiB, {sentences}" in str(explain_peak(plan))


def test_long_name_is_shown_without_its_notes() -> None:
    text = explain_peak(tmmu.plan(RESNET), name="flow (3 subgraphs planned as nested scopes), rank 0 of 8").headline
    assert text == "flow, rank 0 of 8 needs 107 MiB."


def test_arena_names_are_escaped() -> None:
    arenas = {name: {"capacity_bytes": 1024} for name in ("a\nb", "c")}
    tensors = [{"id": name[0], "shape": [8], "dtype": "int8", "arena": name} for name in arenas]
    node = {"node_id": "n", "instr": "F", "inputs": ["a"], "outputs": ["c"]}
    graph = {"ir_schema": "uml_model_ir/1", "name": "g", "tensors": tensors, "nodes": [node], "inputs": ["a"]}
    plan = tmmu.plan(graph, arenas=arenas)
    assert plan.explanation.headline == r"g needs 16 B, within the limits (a\x0ab 1.00 KiB, c 1.00 KiB)."
