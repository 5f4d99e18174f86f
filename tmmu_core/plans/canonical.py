"""Compute the hashes of a plan and of its inputs (contract §6, TMMU v2 II.K)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tmmu_core.base.cbor import Encoded, H, NotCanonical, Table, cbor_canonical
from tmmu_core.base.errors import U64_MAX, InvalidIrShapes
from tmmu_core.base.manifest import SPEC_VERSION
from tmmu_core.graph.index import named
from tmmu_core.graph.model import Graph
from tmmu_core.graph.native.native_file import normal_form
from tmmu_core.plans.model import Plan

DIGEST_BYTES = 32
DRAFT_TOKEN_BYTES = 64  # minimum length of a replay token in the superseded draft


def ir_hash(graph: Graph) -> bytes:
    """Return ``H(ir_object)`` of the graph's native form, defaults omitted.

    Raises ``InvalidIrShapes`` (reason ``not_canonical``) for a value without canonical form or with too deep nesting.
    So do :func:`arena_config_hash` and :func:`shard_spec_hash`.
    """
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
    return len(token) == DIGEST_BYTES or (of_draft and len(token) >= DRAFT_TOKEN_BYTES)


def logical_address_table(
    arena_names: Sequence[str],
    arena: NDArray[np.integer[Any]],
    slot: NDArray[np.integer[Any]],
    offset: NDArray[np.uint64],
) -> Table:
    """Return one row ``[arena, slot, offset]`` per slot in use, sorted by (arena name bytes, slot).

    ``arena``, ``slot`` and ``offset`` (bytes) are columns of a plan's rows, in any order. The offset of a slot is the
    lowest offset of its rows, because no view starts below the root of its storage.
    """
    name_rank = np.argsort(np.argsort(np.array([name.encode() for name in arena_names], dtype=object), kind="stable"))
    order = np.lexsort((offset, slot, name_rank[arena]))
    arena, slot, offset = arena[order], slot[order], offset[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (arena[1:] != arena[:-1]) | (slot[1:] != slot[:-1])
    return Table((named(arena_names, arena[is_first]), slot[is_first], offset[is_first]))


HASHED = ("ir_hash", "mode", "arena_config_hash", "execution_order_hash", "rank", "world_size", "shard_spec_hash")
"""Fields of a plan that its hash includes, in the order of the hash; the two tables follow them."""


def hashes_of_ranks(plan: Plan, ranks: Iterable[int]) -> tuple[list[bytes], bytes]:
    """Return the ``tmmu_plan_hash`` of the plan for each rank (TMMU v2 II.K, contract §6), and its ``layout_hash``."""
    names = [arena.name for arena in plan.arenas]
    slot_table = Table((plan.tensor_ids, named(names, plan.arena), plan.logical_slot))
    address_table = logical_address_table(names, plan.arena, plan.logical_slot, plan.offset)
    slots, addresses = Encoded(cbor_canonical(slot_table)), Encoded(cbor_canonical(address_table))
    identity, tables = {name: getattr(plan, name) for name in HASHED}, ([plan.replay_token, slots], addresses)
    hashes = [H(["tmmu_plan_v1", [*(identity | {"rank": rank}).values(), *tables]]) for rank in ranks]
    return hashes, H(["tmmu_layout_v1", [slots, addresses]])


def plan_digests(plan: Plan) -> tuple[bytes, bytes]:
    """Return ``(tmmu_plan_hash, layout_hash)``, recomputed from the rows of a plan."""
    hashes, layout_hash = hashes_of_ranks(plan, (plan.rank,))
    return hashes[0], layout_hash


def with_hashes(plan: Plan) -> Plan:
    """Return the plan with its recomputed hashes."""
    plan_hash, layout_hash = plan_digests(plan)
    return replace(plan, tmmu_plan_hash=plan_hash, layout_hash=layout_hash)
