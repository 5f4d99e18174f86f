"""Flatten bodies of control flow into nested scopes: branches, loops and scans of PyTorch and TensorFlow Lite.

The nodes and their operands are those of the ONNX importer (``onnx_scopes``, ``docs/decisions/04-control-flow.md``):

* a branch: the nodes of each body, then ``If.close``, which reads the condition and the results of all bodies;
  a call is a branch of one body, and closes with ``Call.close``;
* a loop: ``Loop.open`` copies the initial state, the bodies follow, ``Loop.close`` copies the results back to the state
  and reads everything that the bodies read from outside;
* a scan: ``Scan.open``, ``Scan.next`` (which copies one slice of each scanned tensor), the body, ``Scan.close``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from tmmu_core.graph.model import Node

Flatten = Callable[[Sequence[str], str], list[str]]
"""Appends the nodes of a body: takes the ids of its arguments and its scope, returns the ids of its results."""


class Host(Protocol):
    """Interface of a format reader that collects the nodes of bodies in execution order."""

    def like(self, tensor: str, name: str, *, row: bool = False) -> str:
        """Declare a tensor of the same shape and dtype, or of one row of it, and return its id."""

    def place(self, node: Node, scope: str) -> None:
        """Append a node."""

    @property
    def nodes(self) -> Sequence[Any]:
        """Nodes added so far, with their ``inputs`` and ``outputs``."""

    def root(self, tensor: str) -> str:
        """Return the tensor that owns a tensor's storage: itself or the base of its views."""

    def same_bytes(self, first: str, second: str) -> bool:
        """Return whether two tensors are storages of the same size."""


@dataclass(frozen=True)
class Site:
    """A control-flow node: its id, which names the scope, and the ids of its results."""

    scope: str
    outputs: tuple[str, ...]
    views: tuple[str, ...] = ()
    """Views of the results, written by the same closing node."""


def branch(
    host: Host, site: Site, condition: Sequence[str], bodies: Sequence[tuple[str, Flatten]], arguments: Sequence[str]
) -> None:
    """Append the named bodies of a conditional, or the body of a call, and the closing node.

    Every body is called with ``arguments``.
    """
    start = len(host.nodes)
    results = [flatten(arguments, f"{site.scope}/{name}") for name, flatten in bodies]
    reads = (*condition, *(result for each in results for result in each))
    own = {name for node in host.nodes[start:] for name in node.outputs}
    pairs = tuple(
        (reads.index(result), k)
        for each in results
        for k, (result, output) in enumerate(zip(each, site.outputs, strict=True))
        if result in own and reads.count(result) == 1 and host.same_bytes(result, output)
    )
    closing = "If.close" if len(bodies) > 1 else "Call.close"
    _place(host, site.scope, Node("", closing, reads, (*site.outputs, *site.views), inplace=pairs or "none"))


@dataclass(frozen=True)
class Repeated:
    """Body and inputs of a loop or scan."""

    body: Flatten
    """Arguments: the state, a row of each scanned tensor, ``extra``. Results: the next state, a row of each stack."""
    initial: tuple[str, ...]
    extra: tuple[str, ...] = ()
    condition: Flatten | None = None
    """Arguments: the state and ``extra``. Result: whether there is one more iteration."""
    scanned: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The operator's name in the nodes that open and close it."""
        return "Loop" if self.condition else "Scan"


def repeat(host: Host, site: Site, repeated: Repeated) -> None:
    """Append the nodes of a loop or scan; the results of ``site`` are the final state, then the stacked outputs."""
    states = tuple([host.like(each, f"{site.scope}/state_{k}") for k, each in enumerate(repeated.initial)])
    gathered = site.outputs[len(states) :]
    places = (*states, *(host.like(each, f"{site.scope}/room_{k}") for k, each in enumerate(gathered)))
    if places:
        _place(host, site.scope, Node("", f"{repeated.kind}.open", repeated.initial, places, inplace="none"))
    start = len(host.nodes)
    conditions = repeated.condition([*states, *repeated.extra], f"{site.scope}/cond") if repeated.condition else []
    rows = tuple([host.like(each, f"{site.scope}/row_{k}", row=True) for k, each in enumerate(repeated.scanned)])
    if rows:
        _place(host, site.scope, Node("", "Scan.next", repeated.scanned, rows, inplace="none"))
    results = [
        _copied_state(host, site, result, place, states)
        for result, place in zip(
            repeated.body([*states, *rows, *repeated.extra], f"{site.scope}/body"), places, strict=True
        )
    ]
    written = {*places, *(name for node in host.nodes[start:] for name in node.outputs)}
    reads_inside = dict.fromkeys(name for node in host.nodes[start:] for name in node.inputs)
    captures = [name for name in reads_inside if name not in written and host.root(name) not in written]
    reads = tuple(dict.fromkeys([*places, *conditions, *results, *captures]))
    overwrites = [(k, k) for k, output in enumerate(site.outputs) if host.same_bytes(places[k], output)]
    closing = Node("", f"{repeated.kind}.close", reads, (*site.outputs, *site.views), inplace="none")
    _place(host, site.scope, msgspec.structs.replace(closing, in_place_write=tuple(overwrites)))


def _copied_state(host: Host, site: Site, result: str, place: str, states: Sequence[str]) -> str:
    """Return ``result``, or a clone if it is a state other than ``place``.

    The closing node writes the states one after the other. Without the clone it could overwrite ``result`` before it
    copies it.
    """
    if result == place or host.root(result) not in states:
        return result
    copy = host.like(result, f"{site.scope}/{place.rpartition('/')[2]}.copy")
    _place(host, copy, Node("", "clone", (result,), (copy,), inplace="none"))
    return copy


def _place(host: Host, scope: str, step: Node) -> None:
    """Append a node of a scope. Its id is the scope and the part of its operator after the dot: ``loop_3/open``."""
    word = step.instr.partition(".")[2]
    host.place(msgspec.structs.replace(step, node_id=f"{scope}/{word}" if word else scope), scope)
