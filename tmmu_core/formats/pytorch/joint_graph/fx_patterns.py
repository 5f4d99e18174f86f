"""Find the meaning of a traced graph's inputs and outputs, from AOTAutograd's descriptors, and its writes to views.

A traced graph is functional: it replaces a write to a view by three operators. The middle one returns a new tensor for
the part that is written, and the scatter returns the whole tensor with this part::

    y[:, 2:4] = x     slice(y, 1, 2, 4) ─► copy(·, x) ─► slice_scatter(y, ·, 1, 2, 4)
    y[:, 2:4] += x    slice(y, 1, 2, 4) ─► add(·, x)  ─► slice_scatter(y, ·, 1, 2, 4), then a copy of the part to itself
"""

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch._functorch._aot_autograd import descriptors

from tmmu_core.formats.pytorch.exported_program.pt2_operators import operator as operator_of

SCATTERS = {  # scatter operator that writes a part → view operator that reads the part
    "slice_scatter": "slice",
    "select_scatter": "select",
    "diagonal_scatter": "diagonal",
    "as_strided_scatter": "as_strided",
}
WRITES = frozenset({"copy", "fill"})  # operators that are not pointwise and have an in-place variant (``copy_``)


@dataclass(frozen=True)
class JointSignature:
    """Inputs and outputs of the joint graph: results, gradients, new values of inputs."""

    outputs: tuple[tuple[Any, Any], ...]
    """Pairs (node, descriptor). The node computes the gradient of this parameter or input; ``None``: another result."""
    plain: dict[int, Any]  # index of a result of the module → its node
    mutations: dict[tuple[Any, int | None], Any]
    """(node, index of its result or ``None``) → placeholder of the input whose new value this result is."""
    placeholder_of: dict[Any, Any]  # descriptor → placeholder


def signature_of(joint: Any) -> JointSignature:
    """Return the inputs and outputs of ``joint``, a ``GraphModule``, with their meaning."""
    end = next(node for node in joint.graph.nodes if node.op == "output")
    placeholders = {node.meta.get("desc"): node for node in joint.graph.nodes if node.op == "placeholder"}
    outputs, plain, mutations = [], {}, {}
    for node, descriptor in zip(end.args[0], end.meta["desc"], strict=True):
        if not isinstance(node, torch.fx.Node):
            continue
        if isinstance(descriptor, descriptors.InputMutationAOTOutput):
            source, item = node.args if node.target is operator.getitem else (node, None)
            mutations[source, item] = placeholders[descriptor.mutated_input]
            continue
        if isinstance(descriptor, descriptors.PlainAOTOutput):
            plain[descriptor.idx] = node
        outputs.append((node, getattr(descriptor, "grad_of", None)))
    return JointSignature(tuple(outputs), plain, mutations, placeholders)


def part_writer(node: Any) -> tuple[Any, bool]:
    """Return (middle operator if ``node`` is its scatter, else ``None``; whether it only copies the part to itself)."""
    view = SCATTERS.get(_name(node))
    if view is None:
        return None, False
    whole, writer, *args = node.args
    part = view, whole, args, node.kwargs
    if _name(writer) == "" or list(writer.users) != [node] or not writer.args or _part_of(writer.args[0]) != part:
        return None, False
    if _name(writer) not in WRITES and torch.Tag.pointwise not in getattr(writer.target, "tags", ()):
        return None, False
    return writer, _name(writer) == "copy" and _part_of(writer.args[1]) == part


def _part_of(view: Any) -> tuple[Any, ...]:
    """Return the operator of a view, its base and its other arguments; ``()`` if it is not a view of a part."""
    name = _name(view)
    return (name, view.args[0], [*view.args[1:]], view.kwargs) if name in SCATTERS.values() else ()


def _name(node: Any) -> str:
    """Return the name of a node's operator, without the overload; ``""`` if it is not a call."""
    return operator_of(str(node.target)).name if getattr(node, "op", "") == "call_function" else ""
