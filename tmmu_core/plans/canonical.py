"""Compute the hashes of a plan and of its inputs (contract §6, TMMU v2 II.K)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tmmu_core.base.cbor import Encoded, H, NotCanonical, Table, cbor_canonical
from tmmu_core.base.errors import SPEC_VERSION, U64_MAX, InvalidIrShapes
from tmmu_core.graph.index import names_of
from tmmu_core.graph.model import Graph
from tmmu_core.graph.native.native_file import normal_form
from tmmu_core.plans.model import Plan, group_numbers


def ir_hash(graph: Graph) -> bytes:
    """Return ``H(ir_object)`` of the native form, defaults omitted. Raises ``InvalidIrShapes`` (``not_canonical``)."""
    return _hash_of_input(lambda: normal_form(graph), "the graph")


def arena_config_hash(config: Mapping[str, Any]) -> bytes:
    """Return ``H(arena_config as given)``; the configuration is ``{}`` if none was given."""
    return _hash_of_input(lambda: dict(config), "the arena configuration")


def execution_order_hash(order: Sequence[str]) -> bytes:
    """Return ``H([node_id, …])`` of the order as run, without ``@inputs``."""
    return H(list(order))


def shard_spec_hash(spec: Mapping[str, Any] | None) -> bytes:
    """Return ``H(shard_spec)``; without a spec, ``H({})``."""
    return _hash_of_input(lambda: dict(spec or {}), "the shard spec")


def _hash_of_input(build: Callable[[], Any], what: str) -> bytes:
    try:
        return H(build())
    except (NotCanonical, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        message = f"{what} cannot be hashed: {why}."
        hint = "Use lists and objects of texts, booleans, 64-bit integers and floats; keys must be texts."
        raise InvalidIrShapes(message, reason="not_canonical", hint=hint) from error


def token_from_seed(seed: int) -> bytes:
    """Return the 32-byte replay token of a seed: ``H(["replay_token_v1", [spec_version, seed]])``."""
    assert 0 <= seed <= U64_MAX, "a seed is a uint64"
    return H(["replay_token_v1", [SPEC_VERSION, seed]])


def is_token(token: bytes, *, of_draft: bool = True) -> bool:
    """Return whether a replay token has a valid length: 32 bytes, or with ``of_draft`` at least 64 (draft I.B)."""
    return len(token) == 32 or (of_draft and len(token) >= 64)


def logical_address_table(plan: Plan) -> Table:
    """Return one row ``[arena, slot, offset]`` per slot in use, sorted by (arena name bytes, slot)."""
    slot_of, count = group_numbers(plan.arena, plan.logical_slot)
    order = np.lexsort((plan.offset, slot_of))  # the lowest row is the start of its slot
    lowest = order[np.searchsorted(slot_of[order], np.arange(count))]
    names = names_of([arena.name for arena in plan.arenas], plan.arena[lowest])
    return Table((names, plan.logical_slot[lowest], plan.offset[lowest]))


def hashes_of_ranks(plan: Plan, ranks: Iterable[int]) -> tuple[list[bytes], bytes]:
    """Return the ``tmmu_plan_hash`` of the plan for each rank (TMMU v2 II.K, contract §6), and its ``layout_hash``."""
    arenas = names_of([arena.name for arena in plan.arenas], plan.arena)
    slot_table = Table((plan.tensor_ids, arenas, plan.logical_slot))
    slots, addresses = (Encoded(cbor_canonical(table)) for table in (slot_table, logical_address_table(plan)))
    before_rank = (plan.ir_hash, plan.mode, plan.arena_config_hash, plan.execution_order_hash)
    after_rank = (plan.world_size, plan.shard_spec_hash, [plan.replay_token, slots], addresses)
    hashes = [H(["tmmu_plan_v1", [*before_rank, rank, *after_rank]]) for rank in ranks]
    return hashes, H(["tmmu_layout_v1", [slots, addresses]])


def plan_digests(plan: Plan) -> tuple[bytes, bytes]:
    """Return ``(tmmu_plan_hash, layout_hash)``, recomputed from the rows of a plan."""
    hashes, layout_hash = hashes_of_ranks(plan, (plan.rank,))
    return hashes[0], layout_hash


def with_hashes(plan: Plan) -> Plan:
    """Return the plan with its recomputed hashes."""
    plan_hash, layout_hash = plan_digests(plan)
    return replace(plan, tmmu_plan_hash=plan_hash, layout_hash=layout_hash)
