"""Canonical CBOR and the hashes of contract §6, implemented a second time for the judge.

A subset of RFC 8949 §4.2.1: definite lengths, shortest integers, text keys sorted by their encoded bytes, no tags, no
bignums, floats as binary64 with one NaN.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping
from typing import Any

import cbor2

from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.graph.dtypes import canonical as one_name
from tmmu_core.graph.model import GRAPH_SCHEMA, Arena, Dim, Graph, Node, Tensor

SPEC_VERSION = "UML_OS.TMMU.PrepareMemory_v2"

SlotRow = tuple[str, str, int]
AddressRow = tuple[str, int, int]


def encode(x: Any) -> bytes:
    """Return the canonical bytes of ``x``. Raises ``ValueError`` for a type without a canonical form."""
    if isinstance(x, str):
        text = x.encode()
        return _head(3, len(text)) + text
    if x is None or isinstance(x, bool):
        return b"\xf6" if x is None else b"\xf5" if x else b"\xf4"
    if isinstance(x, int):
        return _head(0, x) if x >= 0 else _head(1, -1 - x)
    if isinstance(x, list | tuple):
        return _head(4, len(x)) + b"".join([encode(item) for item in x])
    if isinstance(x, dict):
        if not all(isinstance(key, str) for key in x):
            raise ValueError("map keys are text")
        pairs = sorted([(encode(key), encode(value)) for key, value in x.items()])
        return _head(5, len(x)) + b"".join([part for pair in pairs for part in pair])
    if isinstance(x, bytes):
        return _head(2, len(x)) + x
    if isinstance(x, float):
        return b"\xfb" + (struct.pack(">d", x) if x == x else b"\x7f\xf8" + bytes(6))
    raise ValueError(f"a {type(x).__name__} has no canonical form")


def _head(major: int, n: int) -> bytes:
    if n < 24:
        return _TINY[major << 5 | n]
    for info, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if n < 1 << 8 * size:
            return bytes([major << 5 | info]) + n.to_bytes(size, "big")
    raise ValueError(f"{n} does not fit 64 bits")


_TINY = [bytes([head]) for head in range(256)]


def sha(*parts: bytes) -> bytes:
    """Return the SHA-256 of the concatenated parts."""
    return hashlib.sha256(b"".join(parts)).digest()


def hash_of(x: Any) -> bytes:
    """Return ``H(x) = SHA-256(CBOR_CANONICAL(x))``."""
    return sha(encode(x))


def token_from_seed(seed: int) -> bytes:
    """Return ``H(["replay_token_v1", [spec_version, seed]])``, 32 bytes."""
    return hash_of(["replay_token_v1", [SPEC_VERSION, seed]])


# --- graphs ------------------------------------------------------------------------------------------------------


def ir_hash(graph: Graph) -> bytes:
    """Return ``H(ir_object)``: the normalised native object of contract §8 without default values.

    Raises ``InvalidIrShapes`` (``not_canonical``) for a graph with values that have no canonical form.
    """
    try:
        return hash_of(ir_object(graph))
    except (ValueError, RecursionError) as error:
        raise InvalidIrShapes(f"the graph has no hash: {error}.", reason="not_canonical") from error


def ir_object(graph: Graph) -> dict[str, Any]:
    """Return the normalised native form of a graph, without default values."""
    return _changed(
        ir_schema=(graph.ir_schema or GRAPH_SCHEMA, ""),
        name=(graph.name, ""),
        dims=({name: _dim(dim) for name, dim in graph.dims.items()}, {}),
        assumed=(dict(graph.assumed), {}),
        replan_policy=(graph.replan_policy, "ABORT"),
        safepoints=(list(graph.safepoints), []),
        tensors=([_tensor(tensor) for tensor in graph.tensors], []),
        nodes=([_node(node) for node in graph.nodes], []),
        inputs=(list(graph.inputs), []),
        outputs=(list(graph.outputs), []),
        planner=(graph.planner, ""),
        alignment=(graph.alignment, 0),
        execution_order=(None if graph.execution_order is None else list(graph.execution_order), None),
    )


def _changed(**fields: tuple[Any, Any]) -> dict[str, Any]:
    """Return the values of (value, default) pairs that differ from the default."""
    return {name: value for name, (value, default) in fields.items() if value != default}


def _dim(dim: Dim) -> dict[str, Any]:
    return _changed(min=(dim.min, 0), max=(dim.max, 0))


def _tensor(t: Tensor) -> dict[str, Any]:
    view = t.view and _changed(
        base_tensor_uid=(t.view.base_tensor_uid, None),
        byte_offset=(t.view.byte_offset, 0),
        byte_length=(t.view.byte_length, None),
        stride_desc=(None if t.view.stride_desc is None else list(t.view.stride_desc), None),
    )
    return _changed(
        id=(t.id, None),
        shape=(list(t.shape), []),
        dtype=(one_name(t.dtype) or t.dtype, "float32"),
        role=(t.role, "activation"),
        alias_group_id=(t.alias_group_id, None),
        view=(view, None),
        saved_for_backward=(t.saved_for_backward, False),
        remat=(t.remat, False),
        must_not_alias=(list(t.must_not_alias), []),
        alignment=(t.alignment, None),
        arena=(t.arena, None),
        shard=(t.shard and {"axis": t.shard.axis, "mesh": t.shard.mesh}, None),
    )


def _node(n: Node) -> dict[str, Any]:
    permitted = n.inplace if n.inplace is None or isinstance(n.inplace, str) else [list(pair) for pair in n.inplace]
    return _changed(
        node_id=(n.node_id, None),
        instr=(n.instr, ""),
        inputs=(list(n.inputs), []),
        outputs=(list(n.outputs), []),
        phase=(n.phase, "forward"),
        # "any" is the default (contract §1).
        inplace=(None if permitted == "any" else permitted, None),
        in_place_write=([list(pair) for pair in n.in_place_write], []),
        params=(n.params | _changed(scope=(n.scope, ""), recomputes=(n.recomputes, ""), offloads=(n.offloads, "")), {}),
        grad_edges=([list(pair) for pair in n.grad_edges], []),
        unplanned=(list(n.unplanned), []),
    )


def arena_config_object(config: Mapping[str, Arena | Mapping[str, Any]] | None) -> dict[str, Any]:
    """Return the arena configuration as given; of an :class:`Arena` the fields that differ from the default."""
    return {
        name: _changed(
            capacity_bytes=(arena.capacity_bytes, 2**64 - 1),
            alignment_bytes=(arena.alignment_bytes, 128),
            page_size=(arena.page_size, 0),
        )
        if isinstance(arena, Arena)
        else dict(arena)
        for name, arena in (config or {}).items()
    }


# --- plans -------------------------------------------------------------------------------------------------------


def plan_hash(
    header: list[Any], token: bytes, slot_rows: Iterable[SlotRow], address_rows: Iterable[AddressRow]
) -> bytes:
    """Return ``tmmu_plan_hash``.

    ``header`` is ``[ir_hash, mode, arena_config_hash, execution_order_hash, rank, world_size, shard_spec_hash]``; both
    tables follow it, the first one as ``[replay_token, rows]``.
    """
    return sha(
        _head(4, 2),
        encode("tmmu_plan_v1"),
        _head(4, len(header) + 2),
        *map(encode, header),
        _head(4, 2),
        encode(token),
        table(slot_rows),
        table(address_rows),
    )


def layout_hash(slot_rows: Iterable[SlotRow], address_rows: Iterable[AddressRow]) -> bytes:
    """Return ``H(["tmmu_layout_v1", [slot rows, address rows]])``, which does not depend on the token."""
    return sha(_head(4, 2), encode("tmmu_layout_v1"), _head(4, 2), table(slot_rows), table(address_rows))


def order_hash(order: Iterable[str]) -> bytes:
    """Return ``execution_order_hash``."""
    return sha(table(order))


def table(rows: Iterable[str | SlotRow | AddressRow]) -> bytes:
    """Encode a long list of texts and counts, for which the encoding of cbor2 is canonical."""
    encoded: bytes = cbor2.dumps(list(rows))
    return encoded
