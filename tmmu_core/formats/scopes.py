"""Flatten bodies of control flow into nested scopes: branches, loops and scans of PyTorch and TensorFlow Lite.

The nodes and their operands are those of the ONNX importer (``onnx_scopes``, ``docs/decisions/04-control-flow.md``). A
call is a branch with one body and without a condition; it ends with ``Call.close``. A loop has no counter: its
condition is a body. ``Scan.next`` copies one row of each scanned tensor; ``room_k`` is the memory of a stacked output.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from tmmu_core.graph.index import fixed_bytes, view_root
from tmmu_core.graph.model import Node, Tensor

Ids = Sequence[str]  # ids of tensors
Flatten = Callable[[Ids, str], list[str]]  # appends a body: ``(argument ids, scope)`` → result ids


class Host(Protocol):
    """Interface of a format reader that collects the nodes of bodies in execution order."""

    def like(self, tensor: str, name: str, *, row: bool = False) -> str:
        """Declare a tensor with the shape and dtype of ``tensor``, or of one row of ``tensor``, and return its id."""

    def add_node(self, node: Node, scope: str) -> None:
        """Append a node."""

    @property
    def nodes(self) -> Sequence[Any]:
        """Nodes added so far, with their ``inputs`` and ``outputs``."""

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """Tensors declared so far, by id; a view refers to the tensor that owns its storage."""


@dataclass(frozen=True)
class Site:
    """A control-flow node: its id, which is the scope, and the ids of its results."""

    scope: str
    outputs: tuple[str, ...]
    views: tuple[str, ...] = ()  # views of the results, written by the same closing node


def branch(host: Host, site: Site, condition: Ids, bodies: Sequence[tuple[str, Flatten]], arguments: Ids) -> None:
    """Append the bodies of a conditional or of a call, all with ``arguments``, and the closing node."""
    start = len(host.nodes)
    results_of = [flatten(arguments, f"{site.scope}/{name}") for name, flatten in bodies]
    reads = (*condition, *(result for results in results_of for result in results))
    written = {name for node in host.nodes[start:] for name in node.outputs}
    pairs = tuple(
        (reads.index(result), k)
        for results in results_of
        for k, (result, output) in enumerate(zip(results, site.outputs, strict=True))
        if result in written and reads.count(result) == 1 and _same_bytes(host, result, output)
    )
    closing = "If.close" if len(bodies) > 1 else "Call.close"
    _add_node(host, site.scope, Node("", closing, reads, (*site.outputs, *site.views), inplace=pairs or "none"))


def repeat(
    host: Host, site: Site, body: Flatten, initial: Ids, extra: Ids, condition: Flatten | None = None, scanned: Ids = ()
) -> None:
    """Append the nodes of a loop, which has a ``condition``, or of a scan.

    The results of ``site`` are the final state, then the stacked outputs. The body's arguments are the state (at first
    ``initial``), a row of each scanned tensor, and ``extra``; its results are the next state and a row of each stacked
    output. The condition's arguments are the state and ``extra``; its result is whether another iteration runs.
    """
    kind = "Loop" if condition else "Scan"
    states = tuple([host.like(each, f"{site.scope}/state_{k}") for k, each in enumerate(initial)])
    stacked = site.outputs[len(states) :]
    carried = (*states, *(host.like(each, f"{site.scope}/room_{k}") for k, each in enumerate(stacked)))
    if carried:
        _add_node(host, site.scope, Node("", f"{kind}.open", tuple(initial), carried, inplace="none"))
    start = len(host.nodes)
    conditions = condition([*states, *extra], f"{site.scope}/cond") if condition else []
    rows = tuple([host.like(each, f"{site.scope}/row_{k}", row=True) for k, each in enumerate(scanned)])
    if rows:
        _add_node(host, site.scope, Node("", "Scan.next", tuple(scanned), rows, inplace="none"))
    body_results = body([*states, *rows, *extra], f"{site.scope}/body")
    results: list[str] = []
    for result, place in zip(body_results, carried, strict=True):
        if result != place and _root(host, result) in states:  # the closing node may overwrite it before reading it
            copy = host.like(result, f"{site.scope}/{place.rpartition('/')[2]}.copy")
            _add_node(host, copy, Node("", "clone", (result,), (copy,), inplace="none"))
            result = copy
        results.append(result)
    written = {*carried, *(name for node in host.nodes[start:] for name in node.outputs)}
    reads_inside = dict.fromkeys(name for node in host.nodes[start:] for name in node.inputs)
    captures = [name for name in reads_inside if name not in written and _root(host, name) not in written]
    reads = tuple(dict.fromkeys([*carried, *conditions, *results, *captures]))
    overwrites = tuple([(k, k) for k, output in enumerate(site.outputs) if _same_bytes(host, carried[k], output)])
    writes = (*site.outputs, *site.views)
    _add_node(host, site.scope, Node("", f"{kind}.close", reads, writes, inplace="none", in_place_write=overwrites))


def _root(host: Host, tensor: str) -> str:
    """Return the tensor that owns the storage of ``tensor``. A variable is not in ``host.tensors``, and is no view."""
    return view_root(host.tensors, tensor) if tensor in host.tensors else tensor


def _same_bytes(host: Host, first: str, second: str) -> bool:
    """Return whether two tensors have the same number of bytes, and neither is a view."""
    one, two = host.tensors[first], host.tensors[second]
    return one.view is None and two.view is None and fixed_bytes(one) == fixed_bytes(two)


def _add_node(host: Host, scope: str, node: Node) -> None:
    """Append a node. Its id is ``scope/open`` for ``Loop.open``, and ``scope`` for an operator without a dot."""
    suffix = node.instr.partition(".")[2]
    host.add_node(msgspec.structs.replace(node, node_id=f"{scope}/{suffix}" if suffix else scope), scope)
