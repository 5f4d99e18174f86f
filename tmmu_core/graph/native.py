"""The native graph file (contract §8): ``*.tmmu.json`` and ``*.tmmu.cbor``, plain or gzipped, told apart by content.

Reading is typed decoding into :class:`~tmmu_core.graph.model.Graph`; what the types cannot say is checked by
:func:`~tmmu_core.graph.index.index_graph`. Writing is deterministic: equal graphs give equal bytes. The published
schema is ``native.schema.json`` beside this file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cbor2
import msgspec

from tmmu_core.errors import InvalidIrShapes, UnreadableInput
from tmmu_core.graph import document, dtypes, unpacking
from tmmu_core.graph.model import GRAPH_SCHEMA, Graph, Tensor
from tmmu_core.once import learned

WRITTEN_ORDER = (
    *("ir_schema", "name", "dims", "assumed", "replan_policy", "safepoints"),
    *("inputs", "outputs", "execution_order", "planner", "sidecar", "tensors", "nodes", "shapes_from", "origins"),
)
_EMPTY = Graph()
_UNSAID = Tensor("").dtype
SCHEMA_FILE = Path(__file__).with_name("native.schema.json")


class _Said(msgspec.Struct):
    """What every tensor of a file must say of itself (contract §11)."""

    id: str
    shape: tuple[int | str, ...]
    dtype: str


class _SaidOfAll(msgspec.Struct):
    tensors: tuple[_Said, ...] = ()


learned(_Said, _SaidOfAll)


def decode(data: bytes, name: str = "") -> Graph:
    """A native file's bytes to a graph, dtypes under their one name. ``name`` is the file's, for errors.

    Raises ``UnreadableInput`` for what is no JSON, no CBOR or of another schema, ``InvalidIrShapes`` for a wrong field
    (``path`` is the JSON path), a tensor without shape or dtype, or an unknown dtype.
    """
    data = unpacking.unpack(data, name)
    graph = document.decode(data, Graph, name)
    if graph.ir_schema not in ("", GRAPH_SCHEMA):
        raise UnreadableInput(
            f'the schema "{graph.ir_schema}" is not known.',
            source=name,
            place="$.ir_schema",
            hint=f'This version reads "{GRAPH_SCHEMA}".',
        )
    if any(tensor.dtype is _UNSAID or not tensor.shape for tensor in graph.tensors):
        # A field that is missing holds the default itself; only then is the file read again for what it does say.
        document.decode(data, _SaidOfAll, name)
    return normalise_dtypes(graph)


def encode_json(graph: Graph, *, gzip: bool = False) -> bytes:
    """The graph as JSON in UTF-8, one tensor and one node a line; but for shapes and dtypes defaults are omitted.

    Raises ``InvalidIrShapes`` (reason ``not_json``) where ``params`` hold a number that JSON has no word for.
    """
    for k, node in enumerate(graph.nodes):
        if not all(map(_finite, _leaves(node.params))):
            raise InvalidIrShapes(
                f'the params of the node "{node.node_id}" hold a NaN or an infinity, which JSON cannot say.',
                hint="Write the graph as CBOR.",
                reason="not_json",
                node_id=node.node_id,
                path=f"$.nodes[{k}].params",
            )
    plain = _complete(graph)
    encode = msgspec.json.Encoder().encode
    parts: list[bytes] = []
    for field in WRITTEN_ORDER:
        if field not in plain:
            continue
        value = plain[field]
        rows = (
            b"[\n  " + b",\n  ".join(map(encode, value)) + b"\n ]" if field in ("tensors", "nodes") else encode(value)
        )
        parts.append(encode(field) + b": " + rows)
    data = b"{" + b",\n ".join(parts) + b"}\n"
    return unpacking.pack(data) if gzip else data


def encode_cbor(graph: Graph, *, gzip: bool = False) -> bytes:
    """The graph as CBOR, keys sorted; but for shapes and dtypes defaults are omitted."""
    data: bytes = cbor2.dumps(_complete(graph), canonical=True)
    return unpacking.pack(data) if gzip else data


def encode(graph: Graph, name: str) -> bytes:
    """The graph in the spelling that a file called ``name`` asks for: ``.json`` or ``.cbor``, ``.gz`` of either.

    Raises ``UnreadableInput`` for another ending.
    """
    plain = name.removesuffix(".gz")
    writers = {".json": encode_json, ".cbor": encode_cbor}
    writer = next((writers[ending] for ending in writers if plain.endswith(ending)), None)
    if writer is None:
        raise UnreadableInput(
            "the ending of this name asks for no known spelling of a graph.",
            source=name,
            hint="End the name in .json, .cbor, .json.gz or .cbor.gz.",
        )
    return writer(graph, gzip=plain != name)


def normal_form(graph: Graph) -> dict[str, Any]:
    """What is hashed of a graph: plain values under text keys, defaults omitted, one spelling for one meaning.

    Dtypes stand under their one name, ``inplace`` ``"any"`` is a default like saying nothing, and the schema whose
    defaults were omitted is always named.
    """
    plain = _plain(normalise_dtypes(graph))
    plain.pop("sidecar", None)  # where bytes lie is nothing of the graph's
    plain.pop("shapes_from", None)  # nor is who said a shape
    plain.pop("origins", None)  # nor is who wrote the code
    for node in plain.get("nodes", ()):
        if node.get("inplace") == "any":
            del node["inplace"]
    return plain


def normalise_dtypes(graph: Graph) -> Graph:
    """The same graph with every dtype under its one name. Raises ``InvalidIrShapes`` (reason ``unknown_dtype``)."""
    one_name = {dtype: dtypes.canonical(dtype) for dtype in dict.fromkeys([tensor.dtype for tensor in graph.tensors])}
    if all(dtype == name for dtype, name in one_name.items()):
        return graph

    def renamed(i: int, tensor: Tensor) -> Tensor:
        name = one_name[tensor.dtype]
        if name is None:
            try:
                dtypes.normalise(tensor.dtype)
            except InvalidIrShapes as error:
                error.fill(tensor=tensor.id, path=f"$.tensors[{i}].dtype")
                error.message = f'the tensor "{tensor.id}": {error.message}'
                raise
        return tensor if name == tensor.dtype else msgspec.structs.replace(tensor, dtype=name)

    return msgspec.structs.replace(graph, tensors=tuple([renamed(i, t) for i, t in enumerate(graph.tensors)]))


def _plain(graph: Graph) -> dict[str, Any]:
    """The graph as plain values, what holds its default omitted.

    Structs omit a word only where it is the very object that is the default, not where it is merely equal: a dtype
    that was read from a file, or put together, would stay.
    """
    with document.many_small_values():
        plain: dict[str, Any] = msgspec.to_builtins(_declared(graph))
    for field, words in DEFAULT_WORDS.items():
        for row in plain.get(field, ()):
            for key, default in words:
                if row.get(key) == default:
                    del row[key]
    if plain.get("replan_policy") == _EMPTY.replan_policy:
        del plain["replan_policy"]
    return plain


def _complete(graph: Graph) -> dict[str, Any]:
    """The plain values of a file: a tensor's shape and dtype are always said, for they are never made up."""
    plain = _plain(graph)
    if "tensors" in plain:
        plain["tensors"] = [
            {"id": tensor.id, "shape": list(tensor.shape), "dtype": tensor.dtype, **row}
            for tensor, row in zip(graph.tensors, plain["tensors"], strict=True)
        ]
    return plain


DEFAULT_WORDS = {"tensors": (("dtype", "float32"), ("role", "activation")), "nodes": (("phase", "forward"),)}
"""Rows → their fields of text whose default is not empty."""


def _declared(graph: Graph) -> Graph:
    return graph if graph.ir_schema else msgspec.structs.replace(graph, ir_schema=GRAPH_SCHEMA)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _leaves(inner)
    else:
        yield value


def _finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)
