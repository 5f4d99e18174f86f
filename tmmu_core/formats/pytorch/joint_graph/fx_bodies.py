"""The bodies of a higher-order operator of PyTorch, laid flat into the graph that is read (``scopes``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from tmmu_core.formats import scopes
from tmmu_core.formats.pytorch.exported_program.pt2_operators import FLOWS


def lay(reading: Any, n: Any, own: str, written: Sequence[Any]) -> bool:
    """Lay the bodies of the node ``n``, whose results are ``written``, at its place under the id ``own``.

    Return False, and change nothing, for an operator whose bodies have no scopes here, or whose arguments and results
    are not tensors alone.
    """
    flow = FLOWS.get(getattr(n.target, "__name__", ""))
    arguments = [reading._values_of(arg) for arg in (*n.args, *n.kwargs.values())]
    bodies = [each for each in arguments if isinstance(each, torch.fx.GraphModule)]
    leaves = [tree_leaves(each) for each in arguments if not isinstance(each, torch.nn.Module | str)]
    groups = [[reading.id_of[id(leaf)] for leaf in each if isinstance(leaf, torch.Tensor)] for each in leaves]
    given = [leaf for each in leaves[flow is not None and flow.kind == "branch" :] for leaf in each]
    numbers = sum(not isinstance(leaf, torch.Tensor) for leaf in given)
    inputs = [sum(node.op == "placeholder" for node in body.graph.nodes) - numbers for body in bodies]
    results = [_results(body) for body in bodies]
    if flow is None or not bodies or any(each is None for each in results):
        return False
    if not flow.takes(groups, inputs, [len(each or ()) for each in results], len(written)):
        return False
    if flow.kind == "call":
        for value, each in zip(
            written,
            _lay(reading, bodies[0], given, inline=True)([each for group in groups for each in group], own),
            strict=True,
        ):
            reading._keep(value, reading.value_of[each])
        return True
    lays = [_lay(reading, body, given) for body in bodies]
    reads = [each for group in groups for each in group]
    made = [reading.write(own if len(written) == 1 else f"{own}:{k}", value, reads) for k, value in enumerate(written)]
    views = tuple([each for ids in made for each in ids[1:]])
    site = scopes.Site(own, tuple([ids[0] for ids in made]), views)
    flow.lay(reading, site, groups, lays)
    return True


def _results(body: Any) -> tuple[Any, ...] | None:
    """The nodes whose values ``body`` returns; ``None`` where it returns something else than tensors."""
    end = next(node for node in body.graph.nodes if node.op == "output").args[0]
    found = tuple(end) if isinstance(end, (list, tuple)) else (end,)
    return found if all(isinstance(each, torch.fx.Node) for each in found) else None


def _lay(reading: Any, body: Any, operands: Sequence[Any], *, inline: bool = False) -> scopes.Lay:
    """The function that lays ``body`` flat; ``inline`` for one that runs exactly once, in its caller's scope.

    ``operands`` are the operator's; those that are numbers reach the body as they are.
    """

    def lay_body(given: Sequence[str], scope: str) -> list[str]:
        tensors = iter(given)
        values = [reading.value_of[next(tensors)] if isinstance(leaf, torch.Tensor) else leaf for leaf in operands]
        found = reading.nested(body, values, f"{scope}/", reading.scope if inline else scope)
        return [reading.id_of[id(each)] for each in (found if isinstance(found, (list, tuple)) else [found])]

    return lay_body
