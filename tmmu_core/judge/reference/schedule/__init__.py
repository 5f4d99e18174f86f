"""The timeline of a graph under a mode and a preset, by contract §1 and §2.

A :class:`Run` holds the graph as executed, with the synthesised backward pass and recomputing nodes, and its steps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tmmu_core.graph.model import INPUTS_STEP, Graph, Mode, Node, Preset, Tensor
from tmmu_core.judge.reference.schedule.ref_backward import with_backward, with_remat
from tmmu_core.judge.reference.schedule.ref_order import Sizes, roots, sizes_of, timeline_order


@dataclass(frozen=True)
class Run:
    """A graph under a mode and a preset, resolved to steps ``0 … T − 1``."""

    graph: Graph
    """The graph as executed."""
    mode: Mode
    retain: bool
    """Whether ``saved_for_backward`` has an effect: neither mode nor preset is ``inference``."""
    sizes: Sizes
    order: tuple[str, ...]
    """Node ids in execution order, without ``@inputs``."""
    nodes: dict[str, Node]
    """Node id → node, those of the timeline only."""
    tensors: dict[str, Tensor]
    root: dict[str, str]
    """Tensor → the tensor that owns its bytes."""
    root_offset: dict[str, int]
    """Bytes from the root's start."""
    written_at: dict[str, int]
    """Tensor → the step that writes it."""
    reads: dict[str, list[int]]
    """Tensor → the steps that read it, in order."""

    @cached_property
    def outputs(self) -> frozenset[str]:
        """The outputs of the graph as executed."""
        return frozenset(self.graph.outputs)

    @property
    def has_inputs_step(self) -> bool:
        """Whether step 0 loads the graph inputs (§1)."""
        return bool(self.graph.inputs)

    @property
    def steps(self) -> int:
        """The number of steps T."""
        return len(self.order) + self.has_inputs_step

    @property
    def end(self) -> int:
        """The death of a tensor that is always live: T, or 1 for a graph without steps."""
        return max(self.steps, 1)

    def step_of(self, position: int) -> int:
        """Return the step of the node at ``position`` of the order."""
        return position + self.has_inputs_step

    def node_at(self, step: int) -> Node | None:
        """Return the node of ``step``; ``None`` for ``@inputs``."""
        position = step - self.has_inputs_step
        return self.nodes[self.order[position]] if position >= 0 else None

    def node_name(self, step: int) -> str:
        """Return the node id of ``step``; ``@inputs`` for the loading step."""
        node = self.node_at(step)
        return node.node_id if node else INPUTS_STEP


def run_of(
    graph: Graph, mode: Mode, preset: Preset, order: Sequence[str] | None = None, dims: Mapping[str, int] | None = None
) -> Run:
    """Resolve ``graph`` to steps.

    ``order`` overrides the graph's own. Raises ``InvalidIrShapes`` for an invalid graph or an order that is not a
    permutation, ``LivenessCycle`` for a cycle or a violated dependency.
    """
    sizes = sizes_of(graph, dims)
    retain = "inference" not in (mode, preset)
    given = order if order is not None else graph.execution_order
    ran = timeline_order(graph, mode, given)
    as_run = graph
    if mode == "backward" and not any(node.phase == "backward" for node in graph.nodes):
        as_run, joint = with_backward(graph, ran, retain)
        sizes = sizes_of(as_run, dims)
        ran = timeline_order(as_run, mode, joint)
    if mode == "backward" and preset == "remat_enabled":
        as_run, joint = with_remat(as_run, ran)
        sizes = sizes_of(as_run, dims)
        ran = timeline_order(as_run, mode, joint)
    inside = set(ran)
    root, root_offset = roots(as_run)
    run = Run(
        graph=as_run,
        mode=mode,
        retain=retain,
        sizes=sizes,
        order=tuple(ran),
        nodes={node.node_id: node for node in as_run.nodes if node.node_id in inside},
        tensors={tensor.id: tensor for tensor in as_run.tensors},
        root=root,
        root_offset=root_offset,
        written_at=dict.fromkeys(as_run.inputs, 0),
        reads={},
    )
    for position, node_id in enumerate(run.order):
        step, node = run.step_of(position), run.nodes[node_id]
        for name in node.inputs:
            run.reads.setdefault(name, []).append(step)
        for name in node.outputs:
            run.written_at[name] = step
    return run
