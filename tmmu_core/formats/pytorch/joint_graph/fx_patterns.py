"""Recognise patterns in a traced graph: the meaning of inputs and outputs, and writes to a part of a tensor.

AOTAutograd's descriptors name inputs and outputs. For a write to a view in eager mode, a traced graph, which is
functional, has three operators, and a temporary tensor for the part::

    y[:, 2:4] = x     slice(y, 1, 2, 4) ─► copy(·, x) ─► slice_scatter(y, ·, 1, 2, 4)
    y[:, 2:4] += x    slice(y, 1, 2, 4) ─► add(·, x)  ─► slice_scatter(y, ·, 1, 2, 4), then a copy of the part to itself
"""

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch._functorch._aot_autograd import descriptors

from tmmu_core.formats.pytorch.exported_program.pt2_operators import operator as operator_of

SCATTERS = {
    "slice_scatter": "slice",
    "select_scatter": "select",
    "diagonal_scatter": "diagonal",
    "as_strided_scatter": "as_strided",
}
"""Scatter operator that writes a part → view operator that reads the part."""
WRITES = frozenset({"copy", "fill"})
"""Operators, in addition to pointwise ones, that write to their first argument if their name ends in ``_``."""


@dataclass(frozen=True)
class Ends:
    """Inputs and outputs of the joint graph: results, gradients, new values of buffers."""

    outputs: tuple[tuple[Any, Any], ...]
    """(node, descriptor of the parameter or input whose gradient it is, else ``None``)."""
    plain: dict[int, Any]  # number of a plain output → its node
    mutations: dict[tuple[str, int | None], Any]
    """(name of a node, number of its result or ``None``) → the placeholder into which the result is copied."""
    node_of: dict[str, Any]  # name → node
    placeholder_of: dict[Any, Any]  # descriptor → placeholder


def ends_of(joint: Any) -> Ends:
    """Return the inputs and outputs of ``joint``, a ``GraphModule``, with their meaning."""
    node_of = {node.name: node for node in joint.graph.nodes}
    end = next(node for node in joint.graph.nodes if node.op == "output")
    placeholders = {node.meta.get("desc"): node for node in joint.graph.nodes if node.op == "placeholder"}
    outputs, plain, mutations = [], {}, {}
    for node, descriptor in zip(end.args[0], end.meta["desc"], strict=True):
        if not isinstance(node, torch.fx.Node):
            continue
        if isinstance(descriptor, descriptors.InputMutationAOTOutput):
            source, item = node.args if node.target is operator.getitem else (node, None)
            mutations[source.name, item] = placeholders[descriptor.mutated_input]
            continue
        if isinstance(descriptor, descriptors.PlainAOTOutput):
            plain[descriptor.idx] = node
        outputs.append((node, getattr(descriptor, "grad_of", None)))
    return Ends(tuple(outputs), plain, mutations, node_of, placeholders)


@dataclass(frozen=True)
class Part:
    """A write of ``value`` to a part of ``whole``; both are nodes of the traced graph."""

    whole: Any
    value: Any
    is_itself: bool  # whether the value is the part itself, so that nothing changes


def written_part(node: Any) -> Part | None:
    """Return the write to a part of a tensor, if ``node`` scatters a value that was computed from the same part."""
    view = SCATTERS.get(_name(node))
    if view is None:
        return None
    whole, value, *args = node.args
    place = view, whole, args, node.kwargs
    if _name(value) == "" or list(value.users) != [node] or not value.args or _place_of(value.args[0]) != place:
        return None
    if _name(value) not in WRITES and torch.Tag.pointwise not in getattr(value.target, "tags", ()):
        return None
    return Part(whole, value, _name(value) == "copy" and _place_of(value.args[1]) == place)


def _place_of(view: Any) -> tuple[Any, ...]:
    """Return the operator of a view, its base and its other arguments; () if it is not a view."""
    name = _name(view)
    return (name, view.args[0], [*view.args[1:]], view.kwargs) if name in SCATTERS.values() else ()


def _name(node: Any) -> str:
    """Return the operator of a node without overload; ``""`` if it is not a call."""
    return operator_of(str(node.target)).name if getattr(node, "op", "") == "call_function" else ""
