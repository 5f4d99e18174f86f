"""What runs when: the timeline of a mode and a preset, from the contract's §1 and §2.

A :class:`Run` is the answer: the graph as run, with the synthesised backward and the rematerialised nodes in it, and
its steps. Everything is a dictionary by id; nothing is fast but what must be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tmmu_core.graph.model import INPUTS_STEP, Graph, Mode, Node, Preset, Tensor
from tmmu_core.judge.runs.backward import with_backward
from tmmu_core.judge.runs.order import timeline_order
from tmmu_core.judge.runs.remat import with_remat
from tmmu_core.judge.runs.views import roots
from tmmu_core.judge.whole import Sizes, check_whole
from tmmu_core.once import cached_property


@dataclass(frozen=True)
class Run:
    """A graph under a mode and a preset, resolved to steps ``0 … T − 1``."""

    source: Graph
    """The graph as given: what is hashed."""
    graph: Graph
    """The graph as run."""
    mode: Mode
    retain: bool
    """Whether saved marks hold tensors: in neither mode nor preset ``inference``."""
    sizes: Sizes
    order: tuple[str, ...]
    """Node ids as run; ``@inputs`` is in no order."""
    nodes: dict[str, Node]
    """By node id, those of the timeline only."""
    tensors: dict[str, Tensor]
    root: dict[str, str]
    """Tensor → the tensor that owns its bytes; itself where it is no view."""
    root_offset: dict[str, int]
    """Bytes from the root's start."""
    written_at: dict[str, int]
    """Tensor → the step that writes it; missing where none does."""
    reads: dict[str, list[int]]
    """Tensor → the steps that read it, in order."""

    @cached_property
    def outputs(self) -> frozenset[str]:
        """What the graph as run hands out."""
        return frozenset(self.graph.outputs)

    @property
    def has_inputs_step(self) -> bool:
        """§1: loading is a step too."""
        return bool(self.graph.inputs)

    @property
    def steps(self) -> int:
        """T."""
        return len(self.order) + self.has_inputs_step

    @property
    def end(self) -> int:
        """The death of what lives through: T, but 1 for a graph without steps, so that no range is empty."""
        return max(self.steps, 1)

    def step_of(self, position: int) -> int:
        """The step at which the node at ``position`` of the order runs."""
        return position + self.has_inputs_step

    def node_at(self, step: int) -> Node | None:
        """The node run at ``step``; ``None`` for ``@inputs``."""
        position = step - self.has_inputs_step
        return self.nodes[self.order[position]] if position >= 0 else None

    def node_name(self, step: int) -> str:
        """Its id, ``@inputs`` for the loading step."""
        node = self.node_at(step)
        return node.node_id if node else INPUTS_STEP


def run_of(
    graph: Graph,
    mode: Mode,
    preset: Preset,
    order: Sequence[str] | None = None,
    dims: Mapping[str, int] | None = None,
) -> Run:
    """Resolve ``graph`` to steps.

    ``order`` overrides the graph's own. Raises ``InvalidIrShapes`` for a graph that is not whole or an order that is
    no permutation, ``LivenessCycle`` for a cycle or a violated dependency.
    """
    check_whole(graph, dims)
    retain = "inference" not in (mode, preset)
    given = order if order is not None else graph.execution_order
    ran = timeline_order(graph, mode, given)
    as_run = graph
    if mode == "backward" and not any(node.phase == "backward" for node in graph.nodes):
        as_run, joint = with_backward(graph, ran, retain)
        check_whole(as_run, dims)
        ran = timeline_order(as_run, mode, joint)
    if mode == "backward" and preset == "remat_enabled":
        as_run, joint = with_remat(as_run, ran)
        check_whole(as_run, dims)
        ran = timeline_order(as_run, mode, joint)
    inside = set(ran)
    root, root_offset = roots(as_run)
    run = Run(
        source=graph,
        graph=as_run,
        mode=mode,
        retain=retain,
        sizes=check_whole(as_run, dims),
        order=tuple(ran),
        nodes={node.node_id: node for node in as_run.nodes if node.node_id in inside},
        tensors={tensor.id: tensor for tensor in as_run.tensors},
        root=root,
        root_offset=root_offset,
        written_at=dict.fromkeys(as_run.inputs, 0),
        reads={},
    )
    _note_reads_and_writes(run)
    return run


def _note_reads_and_writes(run: Run) -> None:
    for position, node_id in enumerate(run.order):
        step, node = run.step_of(position), run.nodes[node_id]
        for name in node.inputs:
            run.reads.setdefault(name, []).append(step)
        for name in node.outputs:
            run.written_at[name] = step
