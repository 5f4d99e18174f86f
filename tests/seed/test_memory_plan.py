"""The memory plan of heliaAOT under the names of its document."""

import pytest

from tests.plans.test_helia import model
from tmmu_core.formats.c_project.render_plan import build_render_plan
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.seed.memory_plan import (
    ArenaRole,
    ArenaUsage,
    GreedyMemoryPlanner,
    MemoryActiveBlock,
    MemoryConstraint,
    MemoryFreeBlock,
    MemoryPlan,
    MemoryPlannerType,
    TensorAllocation,
    TensorAttributes,
    TensorBinding,
    TensorLifetime,
)

MEMORIES = [MemoryConstraint("SRAM", max_size=4096), MemoryConstraint("MRAM", writable=False)]
STAGED = {"constant": TensorAttributes("MRAM", constant_destination_memory="SRAM")}


def planned() -> MemoryPlan:
    found = GreedyMemoryPlanner(MEMORIES, STAGED).plan(model())
    assert found.plan is not None
    assert verify_plan(found.plan, model()).ok
    return found


def test_tensor_is_bound_to_an_offset_of_an_arena() -> None:
    found = planned()
    assert found.get_allocation("w") == TensorAllocation(
        "w", "SRAM", 0, 1024, TensorBinding(ArenaRole.constant, "SRAM", 0, "MRAM")
    )
    assert found.get_allocation("stat").binding == TensorBinding(ArenaRole.persistent, "SRAM", 0, "SRAM")
    with pytest.raises(KeyError):
        found.get_allocation("nobody")


def test_arenas_are_listed_by_role_and_memory() -> None:
    found = planned()
    assert found.arena_usages == {"SRAM": ArenaUsage("SRAM", 2048, 2048, ArenaRole.scratch, "SRAM")}
    assert found.persistent_arenas["SRAM"].role == "persistent"
    assert (found.constant_arenas["SRAM"].is_staged, found.arena_usages["SRAM"].is_staged) == (True, False)


def test_lifetime_includes_both_operators() -> None:
    found = planned().tensor_lifetimes
    assert found["x"] == TensorLifetime("x", 0, 0)
    assert found["h"] == TensorLifetime("h", 0, 1)
    assert found["w"] == TensorLifetime("w", 0, 1)


def test_lifetime_grows_by_operators_and_merges() -> None:
    life = TensorLifetime("a", 3, 3)
    life.add_op(5)
    life.merge(TensorLifetime("b", 1, 4))
    assert life == TensorLifetime("a", 1, 5)
    life.merge(TensorLifetime("c", 2, 7))
    assert life == TensorLifetime("a", 1, 7)


def test_arena_allocates_at_its_end() -> None:
    arena = ArenaUsage("SRAM")
    assert [arena.allocate(8), arena.allocate(4)] == [0, 8]
    assert (arena.used, arena.total_size, arena.is_staged) == (12, 12, False)


def test_values_have_their_documented_fields() -> None:
    assert MemoryPlannerType.greedy == "greedy"
    assert MemoryFreeBlock(offset=8, size=4).size == 4
    assert MemoryActiveBlock(end_time=2, offset=0, size=8).end_time == 2
    assert TensorAllocation("t", "SRAM", 0, 4).binding is None


def test_memory_plan_renders_as_its_plan() -> None:
    found = planned()
    assert found.plan is not None
    assert [arena.memory for arena in build_render_plan(found.plan).staged_constant_arenas] == ["SRAM"]
