"""Encode canonical CBOR and compute the hashes of contract §6. This code is independent of the planners' code.

The encoding is a subset of RFC 8949 §4.2.1: definite lengths, shortest integers, text keys sorted by their encoded
bytes, no tags, no bignums, floats as binary64 with one NaN.
"""

import hashlib
import struct
from collections.abc import Iterable
from functools import cache
from typing import Any

import cbor2
import msgspec

from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.graph.dtypes import canonical as canonical_dtype
from tmmu_core.graph.model import GRAPH_SCHEMA, HASHED_IN_PARAMS, Graph, Node, Tensor

SlotRow = tuple[str, str, int]  # (tensor id, arena, slot)
AddressRow = tuple[str, int, int]  # (arena, slot, offset)
NOT_HASHED = {"sidecar": "", "shapes_from": {}, "origins": {}, "ranges": {}, "notes": ()}
"""Field of :class:`Graph` that is not hashed → its default."""


def encode(x: Any) -> bytes:
    """Return the canonical bytes of ``x``. Raises ``ValueError`` for a value without a canonical form."""
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
            raise ValueError("a map key is not a text")
        pairs = sorted([(encode(key), encode(value)) for key, value in x.items()])
        return _head(5, len(x)) + b"".join([part for pair in pairs for part in pair])
    if isinstance(x, bytes):
        return _head(2, len(x)) + x
    if isinstance(x, float):
        return b"\xfb" + (struct.pack(">d", x) if x == x else b"\x7f\xf8" + bytes(6))
    raise ValueError(f"a {type(x).__name__} has no canonical form")


def _head(major: int, n: int) -> bytes:
    """Return the head of an item of type ``major`` in its shortest form; ``n`` is a number or a length."""
    if n < 24:
        return bytes([major << 5 | n])
    for info, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if n < 1 << 8 * size:
            return bytes([major << 5 | info]) + n.to_bytes(size, "big")
    raise ValueError(f"{n} does not fit 64 bits")


def hash_of(x: Any) -> bytes:
    """Return ``H(x) = SHA-256(CBOR_CANONICAL(x))``."""
    return hashlib.sha256(encode(x)).digest()


def ir_hash(graph: Graph) -> bytes:
    """Return ``H(ir_object)``. Raises ``InvalidIrShapes`` (``not_canonical``) for values without a canonical form."""
    try:
        return hash_of(ir_object(graph))
    except (ValueError, RecursionError) as error:
        raise InvalidIrShapes(f"the graph has no hash: {error}.", reason="not_canonical") from error


def ir_object(graph: Graph) -> dict[str, Any]:
    """Return the normalised native form of a graph (contract §8), without default values."""
    dims = {name: _without_defaults(dim) for name, dim in graph.dims.items()}
    tensors, nodes = tuple(map(_tensor, graph.tensors)), tuple(map(_node, graph.nodes))
    schema = graph.ir_schema or GRAPH_SCHEMA
    return _without_defaults(graph, **NOT_HASHED, ir_schema=schema, dims=dims, tensors=tensors, nodes=nodes)


@cache
def _defaults(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the default of each field of a struct type: ``NODEFAULT`` if required, ``{}`` if it has a factory."""
    fields = msgspec.structs.fields(kind)
    return {f.name: {} if f.default_factory is not msgspec.NODEFAULT else f.default for f in fields}


def _without_defaults(struct: msgspec.Struct, **changes: Any) -> dict[str, Any]:
    defaults = _defaults(type(struct))
    values = {name: getattr(struct, name) for name in defaults} | changes
    return {name: values[name] for name, default in defaults.items() if values[name] != default}


def _tensor(t: Tensor) -> dict[str, Any]:
    view, shard = t.view and _without_defaults(t.view), t.shard and _without_defaults(t.shard)
    return _without_defaults(t, dtype=canonical_dtype(t.dtype) or t.dtype, view=view, shard=shard)


def _node(n: Node) -> dict[str, Any]:
    params = n.params | {name: getattr(n, name) for name in HASHED_IN_PARAMS if getattr(n, name)}
    inplace = None if n.inplace == "any" else n.inplace  # "any" is the default (contract §1)
    return _without_defaults(n, inplace=inplace, params=params, **dict.fromkeys(HASHED_IN_PARAMS, ""))


def plan_hash(header: list[Any], token: bytes, slot_rows: Iterable[SlotRow], addresses: Iterable[AddressRow]) -> bytes:
    """Return ``tmmu_plan_hash``, ``H(["tmmu_plan_v1", [*header, [token, slot rows], address rows]])`` (contract §6)."""
    return hash_of_rows(["tmmu_plan_v1", [*header, [token, list(slot_rows)], list(addresses)]])


def layout_hash(slot_rows: Iterable[SlotRow], address_rows: Iterable[AddressRow]) -> bytes:
    """Return ``H(["tmmu_layout_v1", [slot rows, address rows]])``. Unlike the plan hash, it omits the replay token."""
    return hash_of_rows(["tmmu_layout_v1", [list(slot_rows), list(address_rows)]])


def hash_of_rows(x: list[Any]) -> bytes:
    """Return ``hash_of(x)`` for lists, texts, bytes and counts. cbor2 encodes these canonically and fast."""
    return hashlib.sha256(cbor2.dumps(x)).digest()
