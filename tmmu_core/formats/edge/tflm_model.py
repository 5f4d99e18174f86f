"""A TensorFlow Lite model as the allocator of the Micro runtime sees it (``micro_allocation_info.cc``).

Every tensor of every subgraph has one place and one live range, however often its subgraph runs. Time is counted in
scopes: an operator, or the entry into the body of one. A tensor that an operator writes lives from that operator to its
last reader; the results of a control-flow operator live while its bodies run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from msgspec import structs

from tmmu_core.base.errors import Misuse
from tmmu_core.formats.edge import tflite
from tmmu_core.formats.edge.tflite_subgraph import ABSENT, nbytes, permission
from tmmu_core.graph.model import GRAPH_SCHEMA, Graph, Node, Tensor
from tmmu_core.plans import canonical
from tmmu_core.plans.model import Plan

NESTED = ("IF", "WHILE", "CALL_ONCE")
"""Operators whose bodies the runtime enters."""
BEFORE = -1
"""The scope in which the runtime creates what no operator writes."""

Key = tuple[int, int]
"""Subgraph and tensor number."""


@dataclass(frozen=True)
class Scope:
    """One moment of the runtime's time: an operator of a subgraph, or the entry into a body."""

    instr: str
    in_place: tuple[tuple[Key, Key], ...] = ()
    """Operands that the operator may write over if it is their last reader, each with the result."""


class MicroModel:
    """A model of which the Micro runtime can use a plan."""

    def __init__(self, data: bytes, name: str = "") -> None:
        """Raise ``Misuse`` where a part is not planned or Vela compiled it; ``UnreadableInput`` as reading does."""
        self.graph, self.file, self.uses = tflite.read_with_ids(data, name)
        self.name = name or "the model"
        self.counts = [len(self.file.subgraph(number).tensors) for number in range(self.file.model.SubgraphsLength())]
        """Tensors of each subgraph."""
        if any(operator.instr == tflite.NPU for operator in self.file.subgraph(0).operators):
            raise Misuse(
                f"{self.name} is compiled by Vela, and its commands hold the addresses of Vela's plan.", "Run it as is."
            )
        parts = [part for node in self.graph.nodes for part in node.unplanned]
        parts += [self.file.label(number) for number in range(len(self.counts)) if number not in self.uses]
        if parts:
            raise Misuse(
                f"the subgraph {parts[0]!r} of {self.name} is not planned: the main subgraph does not run it, or it "
                "runs itself.",
                "Export a model in which the main subgraph runs all others.",
            )
        self.lives: dict[Key, tuple[int, int]] = {}
        """Tensor → first and last scope, for those that are used."""
        self.scopes = [Scope("enter")]
        self._enter(0)

    def size(self, key: Key) -> int:
        """Return the bytes of a tensor."""
        return nbytes(self._tensor(key))

    def in_arena(self) -> Iterator[Key]:
        """Yield the tensors that the runtime places in its arena: all but constants, variables and empty tensors."""
        for number, count in enumerate(self.counts):
            for i in range(count):
                row = self.file.subgraph(number).table.Tensors(i)
                if not self.file.data_bytes(row) and not row.IsVariable() and self.size((number, i)):
                    yield number, i

    def ids_in(self, plan: Plan) -> dict[Key, str]:
        """Return the tensors of a plan of this model, without those that the plan has several times.

        Raises ``Misuse`` for a plan of another model or order.
        """
        for graph in (self.graph, self.as_run):
            own = canonical.ir_hash(structs.replace(graph, name=plan.ir_name))  # the file may have another name by now
            if plan.ir_hash == own and plan.execution_order == graph.execution_order:
                if graph is not self.graph:
                    return {key: _id(key) for key in self.in_arena() if key in self.lives}
                return {
                    (number, i): use[i]
                    for number, uses in self.uses.items()
                    for use in uses
                    for i in use
                    if sum(i in other for other in uses) == 1
                }
        raise Misuse(
            f"the plan, with the ir_hash {plan.ir_hash.hex()[:16]}…, is of another model than {self.name}, or runs its "
            "operators in another order.",
            "Plan this model without --order, or pass the model that the plan was made from.",
        )

    @cached_property
    def as_run(self) -> Graph:
        """The graph to plan: of one subgraph, as it is read; of several, one node per scope."""
        if len(self.counts) == 1:
            return self.graph
        lives = {key: self.lives[key] for key in self.in_arena() if key in self.lives}
        nodes = []
        for k, scope in enumerate(self.scopes[1:], 1):
            reads = [key for key, (first, last) in lives.items() if first < k == last]
            writes = [key for key, (first, _) in lives.items() if first == k]
            pairs = [pair for pair in scope.in_place if pair[0] in reads and pair[1] in writes]
            inplace = tuple([(reads.index(giver), writes.index(taker)) for giver, taker in pairs])
            ids = tuple(map(_id, reads)), tuple(map(_id, writes))
            nodes.append(Node(f"{scope.instr}_{k}", scope.instr, *ids, inplace=inplace or "none"))
        return Graph(
            ir_schema=GRAPH_SCHEMA,
            name=self.graph.name,
            tensors=tuple([structs.replace(self._tensor(key), id=_id(key)) for key in lives]),
            nodes=tuple(nodes),
            inputs=tuple([_id(key) for key, (first, _) in lives.items() if first <= 0]),
            outputs=tuple([_id((0, i)) for i in dict.fromkeys(self.file.subgraph(0).outputs) if (0, i) in lives]),
            execution_order=tuple([node.node_id for node in nodes]),
            alignment=tflite.ALIGNMENT,
        )

    def _tensor(self, key: Key) -> Tensor:
        return self.file.subgraph(key[0]).tensors[key[1]]

    def _mark(self, number: int, tensors: Iterable[int], *, is_read: bool = False) -> None:
        scope = len(self.scopes) - 1
        for i in tensors:
            if i != ABSENT:
                first, _ = self.lives.get((number, i), (BEFORE if is_read else scope, 0))
                self.lives[number, i] = first, scope

    def _enter(self, number: int) -> None:
        """Count the live ranges of a subgraph's tensors while it runs."""
        subgraph = self.file.subgraph(number)
        self._mark(number, subgraph.inputs)
        for operator in subgraph.operators:
            reads = [i for i in operator.inputs if i != ABSENT]
            bodies = operator.bodies if operator.instr in NESTED else ()
            permitted = "none" if bodies else permission(subgraph.tensors, operator.instr, reads, [*operator.outputs])
            pairs = [
                ((number, reads[int(a)]), (number, operator.outputs[int(b)]))
                for a, b in (permitted if isinstance(permitted, tuple) else ())
                if reads[int(a)] not in subgraph.outputs
            ]
            self.scopes.append(Scope(operator.instr, tuple(pairs)))
            self._mark(number, operator.outputs)
            for body in bodies:
                self.scopes.append(Scope("enter"))
                self._enter(body)
            self._mark(number, operator.inputs, is_read=True)
            self._mark(number, operator.outputs)
        self._mark(number, subgraph.outputs)


def _id(key: Key) -> str:
    return f"{key[0]}:{key[1]}"
