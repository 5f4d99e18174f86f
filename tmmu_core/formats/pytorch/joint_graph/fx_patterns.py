"""Recognise patterns in a traced graph: the meaning of outputs, and writes to a part of a tensor.

AOTAutograd's descriptors name the outputs. Eager mode writes to a view; a traced graph is functional and has three
operators instead, one of which creates a temporary part::

    y[:, 2:4] = x     slice(y, 1, 2, 4) ─► copy(·, x) ─► slice_scatter(y, ·, 1, 2, 4)
    y[:, 2:4] += x    slice(y, 1, 2, 4) ─► add(·, x)  ─► slice_scatter(y, ·, 1, 2, 4), then this part copied to itself
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
LAST = 2**63 - 1
"""The end of a slice without an explicit end."""
DEFAULTS: dict[str, tuple[Any, ...]] = {"slice": (0, 0, LAST, 1), "diagonal": (0, 0, 1), "as_strided": (0, 0, None)}
"""Defaults of the arguments after the tensor."""
WRITES = frozenset({"copy", "fill"})
"""Operators, in addition to pointwise ones, that write to their first argument if their name ends in ``_``."""


@dataclass(frozen=True)
class Ends:
    """Outputs of the joint graph: results, parameter gradients, new values of buffers."""

    outputs: tuple[tuple[Any, Any], ...]
    """(node, descriptor of the differentiated tensor or ``None``)."""
    plain: dict[int, Any]
    """Number of a plain output → its node."""
    mutations: dict[tuple[str, int | None], Any]
    """(node, number of a result) → the placeholder into which the result is copied."""
    node_of: dict[str, Any]
    placeholder_of: dict[Any, Any]
    """Descriptor → placeholder."""


def ends_of(joint: Any) -> Ends:
    """Return the inputs and outputs of ``joint``, a ``GraphModule``, with their meaning."""
    end = next(node for node in joint.graph.nodes if node.op == "output")
    placeholders = {node.meta.get("desc"): node for node in joint.graph.nodes if node.op == "placeholder"}
    found = Ends((), {}, {}, {node.name: node for node in joint.graph.nodes}, placeholders)
    outputs: list[tuple[Any, Any]] = []
    for value, what in zip(end.args[0], end.meta["desc"], strict=True):
        if not isinstance(value, torch.fx.Node):
            continue
        if isinstance(what, descriptors.InputMutationAOTOutput):
            source, item = (value.args[0], value.args[1]) if value.target is operator.getitem else (value, None)
            found.mutations[source.name, item] = placeholders[what.mutated_input]
            continue
        if isinstance(what, descriptors.PlainAOTOutput):
            found.plain[what.idx] = value
        outputs.append((value, getattr(what, "grad_of", None)))
    return Ends(tuple(outputs), found.plain, found.mutations, found.node_of, placeholders)


@dataclass(frozen=True)
class Part:
    """A write of the value of ``made`` to a part of ``whole``."""

    whole: Any
    """A node of the traced graph."""
    made: Any
    is_itself: bool
    """Whether the value is the part itself, so that nothing changes."""


def written_part(node: Any) -> Part | None:
    """Return the write to a part of a tensor, if ``node`` scatters a value that was computed from the same part."""
    view = SCATTERS.get(_name(node))
    if view is None:
        return None
    whole, made, *where = node.args
    place = view, whole, _place(view, where, node.kwargs)
    if _name(made) == "" or list(made.users) != [node] or not made.args or _taken(made.args[0]) != place:
        return None
    if _name(made) not in WRITES and torch.Tag.pointwise not in getattr(made.target, "tags", ()):
        return None
    return Part(whole, made, _name(made) == "copy" and _taken(made.args[1]) == place)


def _taken(view: Any) -> tuple[Any, ...]:
    """Return the operator of a view, its base and its place in the base; () if it is not a view."""
    name = _name(view)
    return (name, view.args[0], _place(name, view.args[1:], view.kwargs)) if name in SCATTERS.values() else ()


def _place(name: str, where: Any, named: Any) -> tuple[Any, ...]:
    defaults = DEFAULTS.get(name, ())
    given = [*where, *defaults[len(where) :]]
    if name == "slice":
        named = dict(named)
        for k, word in enumerate(("start", "end", "step"), 1):
            given[k] = named.pop(word, given[k])
            given[k] = defaults[k] if given[k] is None else given[k]
    return (*given, *sorted(named.items()))


def _name(node: Any) -> str:
    """Return the operator of a node without overload; ``""`` if it is not a call."""
    return operator_of(str(node.target)).name if getattr(node, "op", "") == "call_function" else ""
