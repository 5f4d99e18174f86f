"""The superseded draft's hashed addresses, ``addressing="blake3_sparse"``, to read and compare its plans.

The draft gave every slot the address ``BLAKE3(replay_token ‖ "tmmu_va" ‖ arena ‖ logical_slot_id)`` in one sparse
virtual space; TMMU v2 forbids hashes as a source of addresses (seed II.F). The draft left open how the slot is spelled
and how a digest becomes an address. Here: the arena as UTF-8, the slot as eight bytes, most significant first; the
address is the first ``bits`` bits of the digest as a number, rounded down to the slot's alignment. (The draft's §0.B
names another tag, ``tmmu_slot``, and adds the mode; its operator uses ``tmmu_va`` twice, so this module does too.)

Two slots with overlapping bytes are an ``ADDRESS_COLLISION``: unlikely at 64 bits, common at 8.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tmmu_core.base.errors import U64_MAX, AddressCollision, AllocationOverflow
from tmmu_core.base.extras import need
from tmmu_core.plans.canonical import plan_digests
from tmmu_core.plans.figures.plan_storages import PlanStorages, align_up, slot_numbers, storages_of
from tmmu_core.plans.model import I64, U64, Plan

ADDRESSING = "blake3_sparse"
TAG = b"tmmu_va"


def sparse_address(token: bytes, arena: str, slot: int, *, bits: int = 64, alignment: int = 1) -> int:
    """The address of one slot: ``bits`` bits of its hash (1 … 64), down to a multiple of ``alignment`` (bytes)."""
    assert 1 <= bits <= 64, "an address has 1 to 64 bits"
    blake3 = need("blake3", "an address of the superseded draft").blake3
    digest = blake3(token + TAG + arena.encode() + slot.to_bytes(8, "big")).digest()
    address = int.from_bytes(digest[:8], "big") >> (64 - bits)
    return address - address % alignment


def with_sparse_addresses(plan: Plan, *, bits: int = 64) -> Plan:
    """Return the plan with the same slots at the draft's addresses; both hashes change, the arenas' figures do not.

    Raises ``AddressCollision`` if the bytes of two slots overlap, or exceed the 64-bit address space.
    """
    s = storages_of(plan)
    number, count = slot_numbers(s.arena, s.slot)
    one = np.zeros(count, np.int64)
    one[number] = np.arange(len(s))
    addresses = np.zeros(count, np.uint64)
    for k, storage in enumerate(one.tolist()):
        arena = plan.arenas[s.arena[storage]].name
        addresses[k] = sparse_address(
            plan.replay_token, arena, int(s.slot[storage]), bits=bits, alignment=int(s.slot_alignment[storage])
        )
    try:
        _refuse_collisions(plan, s, one, addresses)
    except AddressCollision as error:
        error.fill(replay_token=plan.replay_token.hex(), rank=plan.rank)
        raise
    inside = plan.offset - s.offset[plan.storage]
    moved = replace(
        plan,
        places="sparse",
        offset=addresses[number][plan.storage] + inside,
        notes={**plan.notes, "addressing": {"kind": ADDRESSING, "bits": bits}},
    )
    whole, layout = plan_digests(moved)
    return replace(moved, tmmu_plan_hash=whole, layout_hash=layout)


def in_memory(plan: Plan) -> Plan:
    """Return the plan as it is applied to memory: slots at hashed addresses are placed end to end.

    The draft's addresses lie in one sparse space, which the driver maps to memory. This function maps them to aligned
    prefix sums over the slots (seed ``MapToVirtualAddresses_v1``). Other plans are returned unchanged. The hashes stay
    those of the given plan. Raises ``AllocationOverflow`` past 2^64 − 1.
    """
    if plan.places != "sparse":
        return plan
    s = storages_of(plan)
    number, count = slot_numbers(s.arena, s.slot)
    one = np.zeros(count, np.int64)
    one[number] = np.arange(len(s))
    floor = np.array([arena.alignment_bytes for arena in plan.arenas], np.uint64)
    grid = np.maximum(s.slot_alignment[one], floor[s.arena[one]])
    start = np.zeros(count, np.uint64)
    ends: dict[int, int] = {}
    for k, (arena, step, size) in enumerate(
        zip(s.arena[one].tolist(), grid.tolist(), s.backing[one].tolist(), strict=True)
    ):
        begin = align_up(ends.get(arena, 0), step)
        ends[arena] = begin + size
        if ends[arena] > U64_MAX:
            raise AllocationOverflow(
                f"the slots of arena {plan.arenas[arena].name!r} end to end are past 2^64 − 1.",
                arena=plan.arenas[arena].name,
                offset=begin,
                size=size,
            )
        start[k] = begin
    arenas = tuple(
        [replace(arena, extent_bytes=ends.get(k, arena.extent_bytes)) for k, arena in enumerate(plan.arenas)]
    )
    offset = start[number][plan.storage] + (plan.offset - s.offset[plan.storage])
    return replace(plan, places="slots", offset=offset, arenas=arenas)


def _refuse_collisions(plan: Plan, s: PlanStorages, one: I64, addresses: U64) -> None:
    order = np.lexsort((s.slot[one], s.arena[one], addresses)).tolist()
    end, below = 0, -1
    for k in order:
        start, storage = int(addresses[k]), int(one[k])
        arena, slot = plan.arenas[s.arena[storage]].name, int(s.slot[storage])
        if below >= 0 and start < end:
            other = int(one[below])
            raise AddressCollision(
                f"slot {slot} of arena {arena!r} and slot {int(s.slot[other])} of arena "
                f"{plan.arenas[s.arena[other]].name!r} meet at address {start:#x}.",
                arena=arena,
                logical_slot=slot,
                address=start,
                hint="Hashed addresses can collide; plan with offsets, which cannot.",
            )
        end, below = start + int(s.backing[storage]), k
        if end > U64_MAX + 1:
            raise AddressCollision(
                f"slot {slot} of arena {arena!r} at address {start:#x} reaches over the end of the address space.",
                arena=arena,
                logical_slot=slot,
                address=start,
                hint="Plan with offsets, or under another token.",
            )
