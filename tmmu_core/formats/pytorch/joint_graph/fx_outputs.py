"""Outputs of a joint graph by AOTAutograd's descriptors."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch._functorch._aot_autograd import descriptors


@dataclass(frozen=True)
class Ends:
    """Outputs of the joint graph: results, parameter gradients, new values of buffers."""

    outputs: tuple[tuple[Any, Any], ...]
    """(node, descriptor of the differentiated tensor or ``None``)."""
    plain: dict[int, Any]
    """Number of a plain output → its node."""
    mutations: dict[tuple[str, int | None], Any]
    """(node, which of its results) → the placeholder that it is to be copied into."""
    node_of: dict[str, Any]
    placeholder_of: dict[Any, Any]
    """Descriptor → placeholder."""


def ends_of(joint: Any) -> Ends:
    """The ends of ``joint``, a ``GraphModule``."""
    end = next(node for node in joint.graph.nodes if node.op == "output")
    values, whats = end.args[0], end.meta["desc"]
    placeholders = {node.meta.get("desc"): node for node in joint.graph.nodes if node.op == "placeholder"}
    outputs: list[tuple[Any, Any]] = []
    plain: dict[int, Any] = {}
    mutations: dict[tuple[str, int | None], Any] = {}
    for value, what in zip(values, whats, strict=True):
        if not isinstance(value, torch.fx.Node):
            continue
        if isinstance(what, descriptors.InputMutationAOTOutput):
            source, item = (value.args[0], value.args[1]) if value.target is operator.getitem else (value, None)
            mutations[source.name, item] = placeholders[what.mutated_input]
            continue
        if isinstance(what, descriptors.PlainAOTOutput):
            plain[what.idx] = value
        outputs.append((value, getattr(what, "grad_of", None)))
    return Ends(tuple(outputs), plain, mutations, {node.name: node for node in joint.graph.nodes}, placeholders)
