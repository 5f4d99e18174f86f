"""Rules of the memory plan of ``helia``, each on a small problem."""

import csv
import io
import json
from typing import Any

import pytest

from tests.support.build import graph, node, tensor
from tmmu_core.base.errors import ArenaTooSmall, InvalidIrShapes
from tmmu_core.formats.c_project.c_export import from_template, residency_json
from tmmu_core.formats.c_project.render_plan import build_render_plan
from tmmu_core.formats.planfile import plan_file
from tmmu_core.graph.model import Graph
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.planners.helia import BOARDS, options_of
from tmmu_core.plans.analysis.plan_notes import residences
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.model import Plan

SRAM, TCM, MRAM = {"name": "SRAM"}, {"name": "TCM"}, {"name": "MRAM", "writable": False}
STAGED = {"role": "constant", "memory": "MRAM", "constant_destination_memory": "TCM"}


def model(*constants: int) -> Graph:
    """Return a node that reads ``x`` (4 B) and constants of so many elements, and writes ``y`` (4 B)."""
    names = [f"c{k}" for k in range(len(constants))]
    weights = [tensor(name, n, role="constant") for name, n in zip(names, constants, strict=True)]
    reads = " ".join(["x", *names])
    return graph([tensor("x", 1, role="input"), *weights, tensor("y", 1)], [node("n", reads, "y")], "x", "y")


def planned(g: Graph, **options: Any) -> Plan:
    plan = plan_graph(g, planner="helia", options=options).plan
    assert verify_plan(plan, g).ok
    return plan


def home(plan: Plan, name: str) -> tuple[str, str]:
    """Return (memory that is read, memory that stores)."""
    notes = plan.notes[plan.row(plan.row_of[name]).arena]
    return notes["memory"], notes["source_memory"]


def test_staged_constant_without_room_is_read_from_its_source() -> None:
    memories = [{**TCM, "max_size": 128}, SRAM, MRAM]
    plan = planned(model(8, 40), memories=memories, rules=[STAGED])
    assert home(plan, "c0") == ("TCM", "MRAM")
    assert home(plan, "c1") == ("MRAM", "MRAM")
    (spill,) = plan.notes["constant@MRAM"]["spills"]
    assert (spill["storage"], spill["wanted"]) == ("c1", "TCM")
    assert "TCM has 128 B for constant, 160 B would be needed" in spill["reason"]


def test_staged_source_takes_room_in_its_memory() -> None:
    memories = [TCM, SRAM, {**MRAM, "max_size": 100}]
    with pytest.raises(ArenaTooSmall, match=r"MRAM.* 100 B.*constant@TCM.* 656 B"):
        planned(model(164), memories=memories, rules=[STAGED])
    memories[2]["max_size"] = 656
    assert home(planned(model(164), memories=memories, rules=[STAGED]), "c0") == ("TCM", "MRAM")


def test_stored_and_read_constants_share_a_memory() -> None:
    memories = [TCM, {**MRAM, "max_size": 128}]
    rules = [{**STAGED, "name": "c0"}, {"name": "c1", "memory": "MRAM"}]
    plan = planned(model(20, 12), memories=memories, rules=rules)  # 80 B stored, 48 B read in place
    assert (home(plan, "c0"), home(plan, "c1")) == (("TCM", "MRAM"), ("MRAM", "MRAM"))
    with pytest.raises(ArenaTooSmall, match=r"MRAM.* 48 B.* 64 B"):
        planned(model(20, 16), memories=memories, rules=rules)


def test_arenas_of_one_memory_are_adjacent_and_aligned() -> None:
    # Scratch takes 32 B, the constant 4 B behind it: 36 B fit, but with an alignment of 64 they need 68.
    options: dict[str, Any] = {"memories": [{**SRAM, "max_size": 36}]}
    assert home(planned(model(1), **options), "c0") == ("SRAM", "SRAM")
    options["memories"][0]["arena_alignment"] = 64
    with pytest.raises(ArenaTooSmall):
        planned(model(1), **options)


def test_page_size_of_a_memory_rounds_its_arenas() -> None:
    plan = plan_graph(model(1), planner="helia", arenas={"SRAM": {"page_size": 4096}}).plan
    assert {arena.committed_bytes for arena in plan.arenas} == {4096}


@pytest.mark.parametrize("option", [{"alignment": 256}, {"page_size": 4096}, {"capacities": {"": 4096}}])
def test_arena_option_without_declared_memories_is_rejected(option: dict[str, Any]) -> None:
    with pytest.raises(InvalidIrShapes) as caught:
        make_plan(model(1), PlanRequest(planner="helia", **option))
    assert caught.value.diagnostics["reason"] == "planner_option"


def test_alignment_of_a_dtype_is_recorded() -> None:
    g = graph(
        [tensor("x", 1, role="input", dtype="float64"), tensor("y", 1, dtype="int8")], [node("n", "x", "y")], "x", "y"
    )
    plan = planned(g, memories=[SRAM], min_alignment=1)
    assert {row.tensor_id: row.alignment for row in plan.rows()} == {"x": 8, "y": 1}
    header = from_template("memory.h", build_render_plan(plan))
    assert "MODEL_T_X_OFFSET % UINT64_C(8) == 0u" in header


def test_plan_names_the_rule_for_each_tensor() -> None:
    rules = [{"name": "y", "memory": "SRAM"}, {"role": "constant", "memory": "MRAM"}]
    plan = planned(model(4), memories=[TCM, SRAM, MRAM], rules=rules)
    deciders = {name: who for notes in plan.notes.values() for who, names in notes["said_by"].items() for name in names}
    assert deciders == {"x": "order", "y": "rule 1", "c0": "rule 2"}


def test_csv_and_residency_have_the_memory_of_every_tensor() -> None:
    plan = planned(model(8), memories=[{**TCM, "max_size": 40}, SRAM, MRAM])
    rows = {row["tensor_id"]: row for row in csv.DictReader(io.StringIO(plan_file.to_csv(plan).decode()))}
    resident = {row["tensor_id"]: row for row in json.loads(residency_json(build_render_plan(plan)))["tensors"]}
    for name, found in zip(plan.tensor_ids, residences(plan), strict=True):
        assert found is not None
        for table in (rows, resident):
            assert (table[name]["memory"], table[name]["decided_by"]) == (found.memory, found.decided_by)
    assert "decided_by" not in plan_file.to_csv(plan_graph(model(1)).plan).decode()


@pytest.mark.parametrize("board", BOARDS)
def test_board_plans_a_model(board: str) -> None:
    plan = planned(model(64), **options_of(board))
    assert home(plan, "c0") == ("FLASH", "FLASH")
