"""Sizes of open dimensions that a reader assumes, and the options that set them.

A model file can leave dimensions open. Its reader then assumes sizes (:attr:`~tmmu_core.graph.model.Graph.assumed`);
every output of a plan lists them (:func:`assumed_at`).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import get_args

from tmmu_core.base import strict
from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.graph.model import Dim, Graph, ShapeFrom
from tmmu_core.graph.quantities import pair_texts


def assumed_at(graph: Graph, given: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return the assumed sizes of ``graph`` by name, except those in ``given``."""
    return {name: size for name, size in sorted(graph.assumed.items()) if name not in (given or {})}


MOST = 1 << 24
"""Largest size that the interface offers for an open dimension."""


def size_range(graph: Graph, dim: str) -> Dim:
    """Return the range of sizes that a user can choose for ``dim``.

    The reader's range limits it if the model can be read again; else the declared envelope, which is widened if the
    reader assumed the size.
    """
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
            message = f"no tensor of the graph has the dimension {name!r}, so its size has no effect."
            hint = strict.closest_hint(name, sorted(used)) if used else "All shapes of the graph are fixed."
            raise InvalidIrShapes(message, reason="unused_dim", node_id="", path=f"$.dims.{name}", hint=hint)


def _used(graph: Graph) -> set[str]:
    """Return the dimensions that occur in shapes of ``graph``, or that its reader can set."""
    return {dim for tensor in graph.tensors for dim in tensor.shape if isinstance(dim, str)} | graph.ranges.keys()


def dims_text(sizes: Mapping[str, int]) -> str:
    """Return sizes in the form of ``--dims``, sorted by name: ``B=1,T=512``."""
    return ",".join(pair_texts(sorted(sizes.items())))


def assumed_text(graph: Graph, given: Mapping[str, int] | None = None) -> str:
    """Return the assumed sizes and the option that changes them; ``""`` without any.

    ``given`` are sizes that the caller sets. The option is omitted for dimensions that occur in no shape.
    """
    sizes = assumed_at(graph, given)
    listed = ", ".join(f"{name} = {size:,}" for name, size in sizes.items())
    scoped = any(node.scope for node in graph.nodes)
    free = {name: size for name, size in sizes.items() if scoped or name in _used(graph)}
    how = f"; for other sizes: --dims {dims_text(free)}" if free else ""
    return f"sizes that the model leaves open, assumed: {listed}{how}" if sizes else ""


SHAPE_SOURCES = {
    "declared": "declared",
    "onnx": "inferred by onnx",
    "symbolic": "inferred by onnxruntime",
    "measured": "measured in one run",
}
"""Source of a shape → its text."""


def shape_sources_text(graph: Graph) -> str:
    """Return the number of shapes per source, in the order of the sources; ``""`` if the file declares all shapes."""
    counts = Counter(graph.shapes_from.values())
    return ", ".join(f"{counts[source]:,} {SHAPE_SOURCES[source]}" for source in get_args(ShapeFrom) if counts[source])
