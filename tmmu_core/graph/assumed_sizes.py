"""Sizes that a reader assumes for the dynamic dimensions of a model file, and the texts that list them."""

from collections import Counter
from collections.abc import Iterable, Mapping

from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.graph.checks import dimension_hint
from tmmu_core.graph.model import Dim, Graph, ShapeFrom
from tmmu_core.graph.quantities import pair_texts


def assumed_at(graph: Graph, dims: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return the assumed sizes of ``graph`` by name, without the dimensions whose size ``dims`` sets."""
    return {name: size for name, size in sorted(graph.assumed.items()) if name not in (dims or {})}


LARGEST_SIZE = 1 << 24  # default maximum of :func:`size_range`


def size_range(graph: Graph, dim: str) -> Dim:
    """Return the range of sizes that a user can choose for ``dim``."""
    declared = graph.dims[dim]
    if dim in graph.ranges:  # the model can be read again with another size
        return Dim(graph.ranges[dim].min, min(LARGEST_SIZE, graph.ranges[dim].max))
    return Dim(min(1, declared.min), max(LARGEST_SIZE, declared.max)) if dim in graph.assumed else declared


def refuse_unused_dims(graph: Graph, names: Iterable[str]) -> None:
    """Raise ``InvalidIrShapes`` (``unused_dim``) for the first declared dimension in ``names`` without an effect."""
    used = _used_dims(graph)
    for name in names:
        if name in graph.dims and name not in used:
            message = f"no tensor of the graph has the dimension {name!r}, so its size has no effect."
            path, hint = f"$.dims.{name}", dimension_hint(name, used)
            raise InvalidIrShapes(message, reason="unused_dim", node_id="", path=path, hint=hint)


def _used_dims(graph: Graph) -> set[str]:
    if any(node.scope for node in graph.nodes):
        return {*graph.dims}  # any dimension may be the number of iterations of a loop
    return {dim for tensor in graph.tensors for dim in tensor.shape if isinstance(dim, str)} | graph.ranges.keys()


def dims_text(sizes: Mapping[str, int]) -> str:
    """Return sizes in the form of ``--dims``, sorted by name: ``B=1,T=512``."""
    return ",".join(pair_texts(sorted(sizes.items())))


def assumed_text(graph: Graph, dims: Mapping[str, int] | None = None) -> str:
    """List the assumed sizes that ``dims`` does not set, and the option to change them; ``""`` if there are none."""
    sizes = assumed_at(graph, dims)
    listed = ", ".join(f"{name} = {size:,}" for name, size in sizes.items())
    used = _used_dims(graph)
    option = dims_text({name: size for name, size in sizes.items() if name in used})
    how = f"; for other sizes: --dims {option}" if option else ""
    return f"assumed sizes of dynamic dimensions: {listed}{how}" if sizes else ""


SHAPE_SOURCES: dict[ShapeFrom, str] = {
    "declared": "declared",
    "onnx": "inferred by onnx",
    "symbolic": "inferred by onnxruntime",
    "measured": "measured in one run",
}


def shape_sources_text(graph: Graph) -> str:
    """Return the number of shapes per source; ``""`` if the reader records no sources."""
    counts = Counter(graph.shapes_from.values())
    return ", ".join(f"{counts[source]:,} {text}" for source, text in SHAPE_SOURCES.items() if counts[source])
