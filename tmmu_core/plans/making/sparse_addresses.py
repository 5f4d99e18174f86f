"""Compute the hashed addresses of the superseded TMMU draft (``addressing="blake3_sparse"``), to compare it with v2.

In the draft every slot has the address ``BLAKE3(replay_token ‖ "tmmu_va" ‖ arena ‖ logical_slot_id)`` in one sparse
virtual space; TMMU v2 (II.F) forbids hashes as addresses. The draft does not define the encoding. Here the arena is
UTF-8, the slot eight bytes, most significant first, and the address the first ``bits`` bits of the digest, rounded down
to the slot's alignment. This is the draft's ``MapToVirtualAddresses_v1``; its §0.B has another tag and adds the mode.
"""

from dataclasses import replace

import numpy as np

from tmmu_core.base.errors import U64_MAX, AddressCollision, AllocationOverflow, need
from tmmu_core.planners.columns import align_up
from tmmu_core.plans.canonical import with_hashes
from tmmu_core.plans.figures.live_bytes import storages_of
from tmmu_core.plans.model import I64, U64, Plan, group_numbers

TAG = b"tmmu_va"


def sparse_address(token: bytes, arena: str, slot: int, *, bits: int = 64, alignment: int = 1) -> int:
    """Return the address of a slot: ``bits`` bits of its hash (1 … 64), rounded down to ``alignment`` (bytes)."""
    assert 1 <= bits <= 64, "an address has 1 to 64 bits"
    blake3 = need("blake3", "an address of the superseded draft").blake3
    digest = blake3(token + TAG + arena.encode() + slot.to_bytes(8, "big")).digest()
    address = int.from_bytes(digest[:8], "big") >> (64 - bits)
    return address - address % alignment


def _slots_of(plan: Plan) -> tuple[I64, list[tuple[int, int, int, int]]]:
    """Return storage → index of its slot, and the sorted slots ``(arena number, logical slot, backing, alignment)``."""
    s = storages_of(plan)
    slot_of_storage, count = group_numbers(s.arena, s.slot)
    storage = np.zeros(count, np.int64)  # any storage of each slot
    storage[slot_of_storage] = np.arange(len(s.head))
    columns = (s.arena, s.slot, s.backing, s.slot_alignment)
    return slot_of_storage, list(zip(*(column[storage].tolist() for column in columns), strict=True))


def _offsets(plan: Plan, slot_of_storage: I64, start: list[int]) -> U64:
    """Return the offset of each row (bytes) if the slots have the offsets ``start``."""
    offset_in_storage = plan.offset - storages_of(plan).offset[plan.storage]
    return np.array(start, np.uint64)[slot_of_storage][plan.storage] + offset_in_storage


def with_sparse_addresses(plan: Plan, *, bits: int = 64) -> Plan:
    """Return the plan with its slots at the draft's addresses, and new hashes. Raises ``AddressCollision``."""
    slot_of_storage, slots = _slots_of(plan)
    addresses = [
        sparse_address(plan.replay_token, plan.arenas[k].name, slot, bits=bits, alignment=alignment)
        for k, slot, _, alignment in slots
    ]
    end, name_below = 0, ""  # overlaps are unlikely at 64 bits, common at 8
    for start, (k, slot, backing, _) in sorted(zip(addresses, slots, strict=True)):
        arena_name = plan.arenas[k].name
        name = f"slot {slot} of arena {arena_name!r}"
        if start < end or start + backing > U64_MAX + 1:
            message = f"{name} at address {start:#x} exceeds the end of the address space."
            if start < end:
                message = f"{name} and {name_below} overlap at address {start:#x}."
            hint = "Use --addressing offsets, which cannot collide, or another --token."
            error = AddressCollision(message, arena=arena_name, logical_slot=slot, address=start, hint=hint)
            error.fill(replay_token=plan.replay_token.hex(), rank=plan.rank)
            raise error
        end, name_below = start + backing, name
    notes = {**plan.notes, "addressing": {"kind": "blake3_sparse", "bits": bits}}
    return with_hashes(replace(plan, offset=_offsets(plan, slot_of_storage, addresses), places="sparse", notes=notes))


def in_memory(plan: Plan) -> Plan:
    """Return the plan with offsets in real memory: slots with hashed addresses are placed one after another, aligned.

    In the draft, a driver maps the sparse space to memory; this function places the slots as TMMU v2 does. Other plans
    are returned unchanged. The hashes do not change. Raises ``AllocationOverflow`` past 2^64 − 1.
    """
    if plan.places != "sparse":
        return plan
    (slot_of_storage, slots), arenas = _slots_of(plan), plan.arenas
    start, ends = list[int](), [0] * len(arenas)
    for k, _, size, alignment in slots:
        start.append(align_up(ends[k], max(alignment, arenas[k].alignment_bytes)))
        ends[k] = start[-1] + size
        if ends[k] > U64_MAX:
            message = f"the slots of arena {arenas[k].name!r}, one after another, end past 2^64 − 1."
            hint = "Use --addressing offsets."
            raise AllocationOverflow(message, hint=hint, arena=arenas[k].name, offset=start[-1], size=size)
    arenas = tuple([replace(a, extent_bytes=end or a.extent_bytes) for a, end in zip(arenas, ends, strict=True)])
    return replace(plan, offset=_offsets(plan, slot_of_storage, start), places="slots", arenas=arenas)
