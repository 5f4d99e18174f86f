"""What a graph is planned at that nobody said: the sizes its reader assumed, and how others are given.

A model file may leave sizes open. Its reader then assumes them (:attr:`~tmmu_core.graph.model.Graph.assumed`), and
whoever shows a plan shows :func:`assumed_at` with it: the command line in its first lines, the page and the report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import get_args

from tmmu_core.graph.model import Dim, Graph, ShapeFrom


def assumed_at(graph: Graph, given: Mapping[str, int] | None = None) -> dict[str, int]:
    """The assumed sizes at which ``graph`` is planned, by name: those that the point ``given`` does not say."""
    return {name: size for name, size in sorted(graph.assumed.items()) if name not in (given or {})}


MOST = 1 << 24
"""The largest size that is offered for a dimension that a model leaves open."""


def reach(graph: Graph, dim: str) -> Dim:
    """The sizes that can be asked for: the declared envelope, or any where a reader assumed one and can read again."""
    bounds = graph.dims[dim]
    return Dim(min(1, bounds.min), max(MOST, bounds.max)) if dim in graph.assumed else bounds


def dims_text(sizes: Mapping[str, int]) -> str:
    """``B=1,T=512``: sizes as ``--dims`` reads them, by name."""
    return ",".join(f"{name}={size}" for name, size in sorted(sizes.items()))


def in_words(sizes: Mapping[str, int]) -> str:
    """A sentence of what was assumed, with the option that changes it; ``""`` where nothing was."""
    if not sizes:
        return ""
    said = ", ".join(f"{name} = {size:,}" for name, size in sorted(sizes.items()))
    return f"assumed, for the model leaves it open: {said}; for other sizes: --dims {dims_text(sizes)}"


def measured(graph: Graph) -> int:
    """How many nodes have results whose shapes one run of the model told, rather than the model itself."""
    return sum(node.params.get("shapes") == "measured" for node in graph.nodes)


SAID_BY = {
    "declared": "declared",
    "onnx": "inferred by onnx",
    "symbolic": "by onnxruntime's symbols",
    "measured": "measured in one run",
}
"""Who said a shape → in words."""


def shapes_said(graph: Graph) -> str:
    """How many shapes who said, in the order in which they are asked; ``""`` for a graph that says them all itself."""
    counts = Counter(graph.shapes_from.values())
    return ", ".join(f"{counts[who]:,} {SAID_BY[who]}" for who in get_args(ShapeFrom) if counts[who])
