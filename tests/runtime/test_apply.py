"""Plans on real memory: addresses, zeroing, debug fill, commits, and the function that does it all."""

import ctypes

import pytest

from tests.runtime.test_philox import pattern
from tests.support.build import chain, graph, node, tensor, view
from tmmu_core.base.errors import AlignmentViolation, AllocationFailure, ArenaTooSmall, InvalidIrShapes
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.runtime.apply import PAGE, ArenaHandle, apply_plan, commit_execution, map_arena, prepare_memory


def weighted():
    """Return ``x → n0 (with w) → a → n1 → y`` with a view of ``a``."""
    tensors = [tensor("x", role="input"), tensor("w", 8, role="parameter"), tensor("a", 6), view("v", "a", 2, 8)]
    nodes = [node("n0", "x w", "a", inplace="none"), node("n1", "v a", "y", inplace="none")]
    return graph([*tensors, tensor("y")], nodes, "x", "y")


# --- arenas


@pytest.mark.parametrize("alignment", [1, 128, PAGE, 1 << 21])
def test_mapped_arena_is_aligned(alignment):
    handle = map_arena("a", 100, alignment)
    assert handle.base_ptr % max(alignment, PAGE) == 0
    assert len(handle.memory) % PAGE == 0


def test_arena_of_a_terabyte_is_zero_and_costs_no_memory_until_touched():
    memory = map_arena("a", 1 << 40).memory
    assert not memory[: 3 * PAGE].any()
    memory[-1] = 7
    assert memory[-1] == 7


@pytest.mark.parametrize(
    ("size", "why"), [(1 << 62, "cannot be mapped"), (2**64 - 1, "more than a process can address")]
)
def test_map_that_fails_is_an_allocation_failure(size, why):
    with pytest.raises(AllocationFailure, match=why):
        map_arena("a", size)


# --- bindings


def test_pointer_is_base_plus_offset():
    applied = apply_plan(plan_graph(weighted()).plan)
    for tensor_id, (row, address) in applied.tensor_map().items():
        assert address == applied.pointer(tensor_id)
        assert address == applied.arenas[row.arena].base_ptr + row.offset_bytes
        assert address % row.alignment == 0


def test_tensor_map_is_sorted_by_id():
    assert list(apply_plan(plan_graph(weighted()).plan).tensor_map()) == ["a", "v", "w", "x", "y"]


def test_bytes_written_through_a_pointer_are_visible_in_the_view():
    applied = apply_plan(plan_graph(weighted()).plan)
    assert applied.pointer("v") == applied.pointer("a") + 8
    ctypes.memset(applied.pointer("a"), 9, 24)
    assert applied.array("v").tolist() == [9] * 8


def test_planned_tensor_is_bound_while_it_is_live():
    applied = apply_plan(plan_graph(weighted()).plan)
    assert [applied.is_bound("a", step) for step in (None, 0, 1, 2)] == [True, False, True, True]
    assert not applied.is_bound("z")
    with pytest.raises(InvalidIrShapes) as caught:
        applied.pointer("z")
    assert caught.value.diagnostics["reason"] == "unbound_tensor"


# --- handles


def handles(plan, fill=0xAB):
    made = {arena.name: map_arena(arena.name, arena.extent_bytes, arena.alignment_bytes) for arena in plan.arenas}
    for handle in made.values():
        handle.memory[:] = fill
    return {name: ArenaHandle(handle.memory) for name, handle in made.items()}


def test_given_memory_is_used():
    plan = plan_graph(weighted()).plan
    given = handles(plan)
    assert apply_plan(plan, given).arenas["activations"] is given["activations"]


def test_memory_below_the_extent_is_rejected():
    plan = plan_graph(weighted()).plan
    small = {"activations": ArenaHandle(map_arena("activations", 1).memory[:128])}
    with pytest.raises(ArenaTooSmall) as caught:
        apply_plan(plan, small)
    assert caught.value.diagnostics["required"] == plan.arena_of["activations"].extent_bytes


@pytest.mark.parametrize(("alignment", "start"), [(None, 64), (256, 128)])
def test_misaligned_handle_is_rejected(alignment, start):
    plan = plan_graph(graph([tensor("x", role="input", alignment=alignment)], [], "x", "x")).plan
    crooked = {"activations": ArenaHandle(map_arena("activations", 1 << 16).memory[start:])}
    with pytest.raises(AlignmentViolation, match=str(alignment or 128)):
        apply_plan(plan, crooked)


# --- zeroing


def test_applying_zeroes_every_tensor_except_resident_ones():
    plan = plan_graph(weighted()).plan
    applied = apply_plan(plan, handles(plan))
    found = {name: set(applied.array(name).tolist()) for name in plan.tensor_ids}
    assert found == {name: {0xAB if name == "w" else 0} for name in "avwxy"}


def test_step_zeroes_the_storages_born_at_it():
    applied = apply_plan(plan_graph(chain(3, "none")).plan)
    for name in ("t0", "t1"):
        applied.array(name)[:] = 5
    applied.enter(2)  # n001 writes t2, where t0 was
    assert applied.pointer("t2") == applied.pointer("t0")
    assert not applied.array("t2").any()
    assert (applied.array("t1") == 5).all()


def test_handed_off_storage_is_not_zeroed():
    applied = apply_plan(plan_graph(chain(3, "any")).plan)
    applied.array("t0")[:] = 5
    assert applied.enter(1) == 0
    assert (applied.array("t1") == 5).all()


def test_resident_tensor_is_not_zeroed():
    applied = apply_plan(plan_graph(weighted()).plan)
    applied.array("w")[:] = 5
    applied.enter(0)
    assert (applied.array("w") == 5).all()


def test_in_place_result_is_not_zeroed():
    tensors = [tensor("x", role="input"), tensor("a"), tensor("b")]
    nodes = [node("n0", "x", "a", inplace="none"), node("n1", "a", "b", inplace="none", in_place_write=((0, 0),))]
    applied = apply_plan(plan_graph(graph(tensors, nodes, "x", "b")).plan)
    applied.array("a")[:] = 5
    applied.enter(2)
    assert (applied.array("b") == 5).all()


# --- debug fill


def test_debug_fill_writes_the_pattern_of_the_address():
    applied = apply_plan(plan_graph(weighted()).plan)
    applied.debug_fill("a", 42)
    offset = applied.tensor_map()["a"][0].offset_bytes
    assert (applied.array("a") == pattern(24, "activations", offset, 42)).all()


@pytest.mark.parametrize("security", ["confidential", "regulated"])
def test_debug_fill_is_rejected_under_security(security):
    applied = apply_plan(plan_graph(weighted()).plan, security=security)
    with pytest.raises(InvalidIrShapes) as caught:
        applied.debug_fill("a", 42)
    assert caught.value.diagnostics["reason"] == "debug_fill_forbidden"
    assert not applied.array("a").any()


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"security": "secret"}, "unknown_security"), ({"handles": {"activation": map_arena("a", 1)}}, "unknown_arena")],
)
def test_unknown_name_is_rejected(options, reason):
    with pytest.raises(InvalidIrShapes) as caught:
        apply_plan(plan_graph(weighted()).plan, **options)
    assert caught.value.diagnostics["reason"] == reason


# --- commit


def test_repeated_commit_changes_nothing():
    applied = apply_plan(plan_graph(weighted()).plan)
    applied.zero_tensor("a")
    assert commit_execution(applied) is commit_execution(applied)


def test_operations_determine_the_state_hash():
    def run():
        applied = apply_plan(plan_graph(weighted()).plan)
        first = commit_execution(applied)
        applied.zero_tensor("a")
        return first, commit_execution(applied)

    first, second = run()
    assert (first.batch, second.batch, second.operations) == (0, 1, 1)
    assert second.state_hash != first.state_hash
    assert run() == (first, second)


def test_empty_batch_passes_the_barriers_in_order_of_arena_names():
    state = commit_execution(apply_plan(plan_graph(weighted(), arenas={"parameters": {}, "activations": {}}).plan))
    assert (state.operations, state.barriers) == (0, ("activations", "parameters"))


# --- the wrapper


def test_prepare_memory_returns_zeroed_handles_and_a_sealed_state():
    prepared, plan = prepare_memory(weighted(), seed=3), plan_graph(weighted(), seed=3).plan
    assert not any(handle.memory.any() for handle in prepared.arenas.values())
    assert (prepared.state, prepared.pending) == (commit_execution(prepared), 0)
    assert prepared.plan.metrics["max_live"] >= 1
    assert [row for row, _ in prepared.tensor_map().values()] == list(plan.rows())


def test_exceeded_quota_maps_nothing_and_counts_a_failure(monkeypatch):
    mapped = []
    monkeypatch.setattr("tmmu_core.runtime.apply.map_arena", lambda *rest: mapped.append(rest))
    with pytest.raises(AllocationFailure) as caught:
        prepare_memory(weighted(), budget=10, allocation_failures=2)
    assert caught.value.diagnostics["allocation_failures"] == 3
    assert mapped == []


def test_exceeded_quota_leaves_given_memory_unchanged():
    given = handles(plan_graph(weighted()).plan)
    with pytest.raises(AllocationFailure):
        prepare_memory(weighted(), handles=given, budget=10)
    assert all((handle.memory == 0xAB).all() for handle in given.values())


def test_ledger_has_the_failures_and_the_sum_of_extents():
    prepared = prepare_memory(weighted(), allocation_failures=2)
    ledger, arenas = prepared.ledger, prepared.plan.arenas
    assert {row["allocation_failures"] for row in ledger} == {2}
    assert ledger[-1]["peak_bytes"] == sum(arena.extent_bytes for arena in arenas)


def test_step_returns_the_zeroed_bytes():
    both = graph(
        [tensor("x", role="input"), tensor("a"), tensor("b", 8)], [node("n0", "x", "a b", inplace="none")], "x", "a b"
    )
    applied = apply_plan(plan_graph(both).plan)
    assert [applied.enter(step) for step in range(2)] == [16, 16 + 32]
