"""Compute the hashes of a plan and of its inputs (contract §6, TMMU v2 II.K)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tmmu_core.base.cbor import Encoded, H, NotCanonical, Table, cbor_canonical
from tmmu_core.base.errors import U64_MAX, InvalidIrShapes
from tmmu_core.base.manifest import SPEC_VERSION
from tmmu_core.graph.index import named
from tmmu_core.graph.model import Graph
from tmmu_core.graph.native.native_file import normal_form
from tmmu_core.plans.model import Plan, PlanColumns

DIGEST_BYTES = 32
DRAFT_TOKEN_BYTES = 64
"""Minimum length of a replay token in the superseded draft."""


def ir_hash(graph: Graph) -> bytes:
    """Return ``H(ir_object)`` of the graph's native form, defaults omitted.

    Raises ``InvalidIrShapes`` (reason ``not_canonical``), as the next functions do, for a value without canonical form
    or with too deep nesting.
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
    """Return ``[[arena, slot, offset], …by (arena name bytes, slot)]`` of the slots in use, each once.

    ``arena``, ``slot`` and ``offset`` (bytes) are columns of a plan's rows, in any order. The offset of a slot is the
    lowest offset of its rows, because the root of a storage is at its start and views are at or above it.
    """
    name_rank = np.argsort(np.argsort(np.array([name.encode() for name in arena_names], dtype=object), kind="stable"))
    order = np.lexsort((offset, slot, name_rank[arena]))
    arena, slot, offset = arena[order], slot[order], offset[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (arena[1:] != arena[:-1]) | (slot[1:] != slot[:-1])
    return Table((named(arena_names, arena[is_first]), slot[is_first], offset[is_first]))


class Identity(NamedTuple):
    """The inputs of a plan that its hash includes, in the order of the hash; the two tables follow them."""

    ir_hash: bytes
    mode: str
    arena_config_hash: bytes
    execution_order_hash: bytes
    rank: int
    world_size: int
    shard_spec_hash: bytes


def plan_hash(identity: Identity, token: bytes, slots: Table | Encoded, addresses: Table | Encoded) -> bytes:
    """Return ``tmmu_plan_hash`` (TMMU v2 II.K, contract §6). ``slots``: ``[[tensor_id, arena, slot], …]``."""
    assert is_token(token), "a replay token has 32 bytes, the superseded draft's at least 64"
    return H(["tmmu_plan_v1", [*identity, [token, slots], addresses]])


def layout_hash(slots: Table | Encoded, addresses: Table | Encoded) -> bytes:
    """Return ``H(["tmmu_layout_v1", [slot rows, address rows]])``, which does not depend on the replay token."""
    return H(["tmmu_layout_v1", [slots, addresses]])


def encoded_tables(rows: PlanColumns, arena_names: Sequence[str]) -> tuple[Encoded, Encoded]:
    """Return the slot rows and the logical address table of a plan's rows, encoded once for several hashes."""
    slots = Table((rows.tensor_ids, named(arena_names, rows.arena), rows.logical_slot))
    addresses = logical_address_table(arena_names, rows.arena, rows.logical_slot, rows.offset)
    return Encoded(cbor_canonical(slots)), Encoded(cbor_canonical(addresses))


def identity_of(plan: Plan) -> Identity:
    """Return the identity of a plan, from its fields."""
    return Identity(*(getattr(plan, name) for name in Identity._fields))


def plan_digests(plan: Plan) -> tuple[bytes, bytes]:
    """Return ``(tmmu_plan_hash, layout_hash)``, recomputed from the rows of a plan."""
    slots, addresses = encoded_tables(plan, [arena.name for arena in plan.arenas])
    return plan_hash(identity_of(plan), plan.replay_token, slots, addresses), layout_hash(slots, addresses)
