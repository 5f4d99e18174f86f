"""Operators that a fit treats conservatively because their properties are unknown."""

from dataclasses import dataclass

from tmmu_core.fitting.move import Kind
from tmmu_core.graph.flops import graph_flops
from tmmu_core.graph.operators import operator_of
from tmmu_core.liveness.analyse import row_bytes
from tmmu_core.liveness.live_model import Timeline


@dataclass(frozen=True)
class UnknownOperator:
    """The nodes of one operator."""

    name: str  # name of the operator in the file
    nodes: int  # number of nodes
    bytes: int  # sum of the bytes of its outputs, without views


def unknown_operators(timeline: Timeline, kinds: frozenset[Kind]) -> tuple[UnknownOperator, ...]:
    """Return the operators that limit moves of ``kinds``, sorted by name.

    An unknown operator keeps its position among random, communicating, side-effect and unknown operators, and is not
    recomputed. An operator without a known cost is not recomputed.
    """
    index, sizes = timeline.index, row_bytes(timeline).tolist()
    of_node = graph_flops(index)
    found: dict[str, UnknownOperator] = {}
    for k, node in enumerate(timeline.graph.nodes):
        operator = operator_of(node.instr)
        has_no_cost = of_node[k] is None and operator.can_recompute and not operator.is_gradient and not node.scope
        if (operator.is_unknown and kinds & {"order", "recompute"}) or (has_no_cost and "recompute" in kinds):
            output_bytes = sum(sizes[i] for i in index.outputs_of(k).tolist() if index.base[i] < 0)
            known = found.get(node.instr, UnknownOperator(node.instr, 0, 0))
            found[node.instr] = UnknownOperator(node.instr, known.nodes + 1, known.bytes + output_bytes)
    return tuple(found[name] for name in sorted(found))
