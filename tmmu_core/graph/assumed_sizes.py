"""Sizes that a reader assumed, and the options that set them.

A model file may leave sizes open. Its reader then assumes them (:attr:`~tmmu_core.graph.model.Graph.assumed`); every
output of a plan lists them (:func:`assumed_at`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import get_args

from tmmu_core.base import strict
from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.graph.model import Dim, Graph, ShapeFrom


def assumed_at(graph: Graph, given: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return the assumed sizes of ``graph`` by name, without those that ``given`` sets."""
    return {name: size for name, size in sorted(graph.assumed.items()) if name not in (given or {})}


MOST = 1 << 24
"""The largest size that is offered for a dimension that a model leaves open."""


def reach(graph: Graph, dim: str) -> Dim:
    """Return the sizes that can be chosen: those at which the model can be read again, else the declared envelope."""
    bounds = graph.dims[dim]
    if dim in graph.ranges:
        return Dim(graph.ranges[dim].min, min(MOST, graph.ranges[dim].max))
    return Dim(min(1, bounds.min), max(MOST, bounds.max)) if dim in graph.assumed else bounds


def refuse_unused_dims(graph: Graph, names: Iterable[str]) -> None:
    """Raise ``InvalidIrShapes`` (``unused_dim``) for a dimension whose size changes no tensor of ``graph``.

    A name may also bound the iterations of a loop, so graphs with nested scopes are not checked.
    """
    if any(node.scope for node in graph.nodes):
        return
    used = _used(graph)
    for name in names:
        if name in graph.dims and name not in used:
            message = f"no tensor of the graph has the dimension {name!r}: its size changes nothing."
            hint = strict.closest_hint(name, sorted(used)) if used else "All shapes of the graph are fixed."
            raise InvalidIrShapes(message, reason="unused_dim", node_id="", path=f"$.dims.{name}", hint=hint)


def _used(graph: Graph) -> set[str]:
    """Return the dimensions that the shapes of ``graph`` name, or that its reader can set."""
    return {dim for tensor in graph.tensors for dim in tensor.shape if isinstance(dim, str)} | graph.ranges.keys()


def dims_text(sizes: Mapping[str, int]) -> str:
    """``B=1,T=512``: sizes as ``--dims`` reads them, by name."""
    return ",".join(f"{name}={size}" for name, size in sorted(sizes.items()))


def in_words(graph: Graph, given: Mapping[str, int] | None = None) -> str:
    """Return a sentence with the assumed sizes and the option that changes them; ``""`` without any.

    ``given`` are sizes that the caller sets. The option is left out for sizes that no shape names.
    """
    sizes = assumed_at(graph, given)
    listed = ", ".join(f"{name} = {size:,}" for name, size in sizes.items())
    scoped = any(node.scope for node in graph.nodes)
    free = {name: size for name, size in sizes.items() if scoped or name in _used(graph)}
    how = f"; for other sizes: --dims {dims_text(free)}" if free else ""
    return f"assumed, for the model leaves it open: {listed}{how}" if sizes else ""


SHAPE_SOURCES = {
    "declared": "declared",
    "onnx": "inferred by onnx",
    "symbolic": "by onnxruntime's symbols",
    "measured": "measured in one run",
}
"""Source of a shape → its text."""


def shape_sources_text(graph: Graph) -> str:
    """Return the number of shapes per source, in the order of the sources; ``""`` if the file has all shapes."""
    counts = Counter(graph.shapes_from.values())
    return ", ".join(f"{counts[source]:,} {SHAPE_SOURCES[source]}" for source in get_args(ShapeFrom) if counts[source])
