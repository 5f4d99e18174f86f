"""What a plan in memory says of itself, at its borders and by eye."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.build import graph, node, tensor, view
from tests.runtime.faults import changed
from tmmu_core.errors import AlignmentViolation, ArenaTooSmall, InvalidIrShapes
from tmmu_core.plan.making.engine import plan_graph
from tmmu_core.plan.model import Plan
from tmmu_core.runtime import draft_fill
from tmmu_core.runtime.apply import apply_plan, storage_blocks
from tmmu_core.runtime.arena import ArenaHandle, barrier, check_base, check_power_of_two, handle_of, map_arena


def three() -> Plan:
    """``x`` of 16 B at 0, read at step 1; ``y`` of 32 B at 128 from step 1; ``w`` of 8 B in an arena of its own."""
    tensors = [tensor("x", 4, role="input"), tensor("w", 2, role="parameter"), tensor("y", 8), tensor("z", 4)]
    nodes = [node("n0", "x w", "y", inplace="none"), node("n1", "y", "z", inplace="none")]
    return plan_graph(graph(tensors, nodes, "x", "z")).plan


def test_a_place_is_a_tensors_own_from_its_birth_until_it_is_held_no_more() -> None:
    applied = apply_plan(three())
    row = applied.plan.row_of["y"]
    assert (applied.plan.birth[row], applied.plan.held_until[row]) == (1, 3)
    assert [applied.is_bound("y", step) for step in range(5)] == [False, True, True, False, False]
    assert (applied.is_bound("y"), applied.is_bound("nobody"), applied.is_bound("nobody", 1)) == (True, False, False)


def test_a_pointer_is_the_base_and_the_offset() -> None:
    applied = apply_plan(three())
    base = applied.arenas["activations"].base_ptr
    offsets = dict(zip(applied.plan.tensor_ids, applied.plan.offset.tolist(), strict=True))
    assert sorted(offsets.values())[-1] > 0
    for name, bound in applied.tensor_map().items():
        at = (applied.arenas["parameters"].base_ptr if name == "w" else base) + offsets[name]
        assert (bound.address, applied.pointer(name), applied.array(name).ctypes.data) == (at, at, at)
        assert (bound.tensor_id, bound.logical_address) == (name, (bound.arena, offsets[name]))


def test_a_step_zeroes_what_is_born_at_it() -> None:
    applied = apply_plan(three())
    for handle in applied.arenas.values():
        handle.memory[:] = 7
    assert [applied.enter(step) for step in range(3)] == [16, 32, 16]
    assert applied.pending == 3
    assert not applied.array("y").any()
    assert applied.array("w").tolist() == [7] * 8


@pytest.mark.parametrize(("seed", "fine"), [(-1, False), (0, True), (2**64 - 1, True), (2**64, False)])
def test_a_pattern_has_a_seed_of_64_bits(seed: int, fine: bool) -> None:
    applied = apply_plan(three())
    if fine:
        applied.debug_fill("y", seed)
        assert (applied.pending, bool(applied.array("y").any())) == (1, True)
        return
    with pytest.raises(InvalidIrShapes) as caught:
        applied.debug_fill("y", seed)
    assert caught.value.diagnostics["reason"] == "pattern_seed"
    assert caught.value.record()["replay_token"] == applied.plan.replay_token.hex()


@pytest.mark.parametrize("spare", [-1, 0, 1])
def test_memory_that_is_handed_over_has_room_for_all_of_the_extent(spare: int) -> None:
    plan = three()
    extent = plan.arena_of["activations"].extent_bytes
    given = {"activations": map_arena("activations", extent, 128)}
    given["activations"] = replace(given["activations"], size_bytes=extent + spare)
    if spare >= 0:
        assert apply_plan(plan, given).arenas["activations"] is given["activations"]
        return
    with pytest.raises(ArenaTooSmall) as caught:
        apply_plan(plan, given)
    assert (caught.value.diagnostics["capacity"], caught.value.diagnostics["required"]) == (extent - 1, extent)


def test_what_was_used_before_is_zeroed_but_for_what_lasts() -> None:
    plan = three()
    used = {arena.name: map_arena(arena.name, arena.extent_bytes, 128) for arena in plan.arenas}
    for name, handle in used.items():
        handle.memory[:] = 9
        used[name] = replace(handle, fresh=False)
    applied = apply_plan(plan, used)
    assert {name: bool(applied.array(name).any()) for name in "wxyz"} == dict(zip("wxyz", (1, 0, 0, 0), strict=True))
    assert applied.pending == 3
    assert apply_plan(plan).pending == 0


def test_a_plan_that_is_taken_for_verified_still_keeps_to_its_arena_and_grid() -> None:
    plan = three()
    row, extent = plan.row_of["y"], plan.arena_of["activations"].extent_bytes
    with pytest.raises(ArenaTooSmall) as caught:
        apply_plan(changed(plan, "offset", row, extent - 31), verified=True)
    assert (caught.value.diagnostics["capacity"], caught.value.diagnostics["required"]) == (extent, extent + 1)
    assert caught.value.diagnostics["tensor"] == "y"
    with pytest.raises(AlignmentViolation):
        apply_plan(changed(changed(plan, "offset", row, 8), "alignment", row, 16), verified=True)
    apply_plan(changed(changed(plan, "offset", row, extent - 32), "alignment", row, 1), verified=True)


def test_blocks_are_their_rows_and_a_taker_is_zeroed_where_its_giver_ends() -> None:
    """``b`` (16 B) lies on ``a`` (8 B) by a hand-off, ``c`` (4 B) on ``b``; ``v`` looks 4 bytes into ``a``."""
    tensors = [
        *(tensor("x", 1, role="parameter"), tensor("a", 2), view("v", "a", 1, 4), tensor("b", 4), tensor("c", 1)),
        tensor("w", 1, role="parameter"),
    ]
    nodes = [node("n0", "x w", "a", inplace="none"), node("n1", "a", "b"), node("n2", "b", "c")]
    plan = plan_graph(graph(tensors, nodes, "", "c"), arenas={n: {"alignment_bytes": 4} for n in ARENAS}).plan
    assert [(giver, taker) for _, giver, taker in plan.handoffs] == [("a", "b"), ("b", "c")]
    blocks = storage_blocks(plan)
    of = {name: int(plan.storage[row]) for name, row in plan.row_of.items()}
    assert of["v"] == of["a"]
    start = int(blocks.start[of["a"]])
    assert {n: (int(blocks.start[s]) - start, int(blocks.stop[s]) - start) for n, s in of.items() if n in "abc"} == {
        "a": (0, 8),
        "b": (0, 16),
        "c": (0, 4),
    }
    assert {n: int(blocks.birth[of[n]]) for n in "xabc"} == {"x": 0, "a": 0, "b": 1, "c": 2}
    assert {n: int(blocks.zero_from[of[n]]) - start for n in "abc"} == {"a": 0, "b": 8, "c": 4}
    assert [bool(blocks.taken[of[n]]) for n in "abcw"] == [False, True, True, False]
    assert [bool(blocks.resident[of[n]]) for n in "abcw"] == [False, False, False, True]
    names = {storage: name for name, storage in of.items() if name != "v"}
    assert [names[s] for s in blocks.by_birth] == ["a", "b"]
    assert blocks.first.tolist()[: plan.steps + 1] == [0, 1, 2, 2]


ARENAS = ("activations", "parameters")


@pytest.mark.parametrize(("alignment", "fine"), [(0, False), (-1, False), (1, True), (3, False), (64, True)])
def test_an_arenas_alignment_is_a_power_of_two(alignment: int, fine: bool) -> None:
    if fine:
        return check_power_of_two(alignment, "a")
    with pytest.raises(AlignmentViolation):
        check_power_of_two(alignment, "a")
    return None


@pytest.mark.parametrize(
    ("size", "alignment", "page", "committed"),
    [
        (0, 1, 0, 4096),
        (1, 1, 0, 4096),
        (4096, 128, 0, 4096),
        (4097, 128, 0, 8192),
        (5, 8192, 0, 4096),
        (5, 1, 8192, 8192),
    ],
)
def test_an_arena_is_mapped_in_whole_pages_on_its_alignment(
    size: int, alignment: int, page: int, committed: int
) -> None:
    handle = map_arena("a", size, alignment, page)
    assert (handle.size_bytes, len(handle.memory), handle.base_ptr % alignment) == (committed, committed, 0)
    assert (handle.fresh, handle.alignment_bytes, handle.memory.ctypes.data) == (True, alignment, handle.base_ptr)
    assert not handle.memory.any()


def test_a_handle_is_on_its_grid_and_arenas_are_passed_by_name() -> None:
    memory = map_arena("a", 4096).memory
    assert handle_of("a", memory, 4096).fresh is False
    with pytest.raises(AlignmentViolation):
        handle_of("a", memory[1:], 2)
    check_base("a", 12, 4)
    with pytest.raises(AlignmentViolation):
        check_base("a", 13, 4)
    handles = [ArenaHandle(name, 0, 0, 1, memory) for name in ("b", "a", "c")]
    assert barrier(handles) == ("a", "b", "c")


@pytest.mark.parametrize("chunk", [1, 3, 8, 100])
def test_a_drafts_pattern_is_one_stream_however_it_is_cut(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(draft_fill, "CHUNK", chunk)
    target = np.zeros(17, np.uint8)
    draft_fill.write_pattern(target, b"t" * 32, 5, 7)
    blake3 = pytest.importorskip("blake3").blake3
    message = b"t" * 32 + b"tmmu_fill" + (5).to_bytes(8, "big") + (7).to_bytes(8, "big")
    assert target.tobytes() == blake3(message).digest(length=17)
