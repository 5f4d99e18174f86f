"""Write a recomputation choice into a graph as nodes; ``drop_moves.py`` reads it back.

The second run of node ``n0`` is a new node ``n0@remat``; it writes ``h@remat`` instead of ``h``, and later nodes read
``h@remat``. So a tensor still has one live range. The third run is ``n0@remat.2``. A view of a recomputed storage is
computed again before a node that reads it. The field ``recomputes`` of a node names the original.

If a repeated node draws random numbers, its first run saves the generator state in another output, ``n0@state``.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.fitting.recompute.live_curve import Choice, DropWalk
from tmmu_core.fitting.recompute.recompute_model import RecomputeModel
from tmmu_core.graph.model import OFFLOAD_ARENA, PERSISTENT_ROLES, Graph, Node, Phase, Tensor
from tmmu_core.graph.operators import operator_of

MARK = "@remat"
STATE = "@state"
BACK, COPY_OUT, OFFLOADED = "@back", "@copy_out", "@offload"

Drop = tuple[str, str]  # a tensor, and the node after which it is dropped (``n0@remat``: every recomputing run)
HINT = "Name a tensor that one node computes, and a node that reads it."


def with_drops(model: RecomputeModel, choice: Choice, drops: Iterable[Sequence[str]], offload: bool = False) -> Choice:
    """Return ``choice`` with ``drops`` added; with ``offload``, the tensors are offloaded.

    Raises ``InvalidIrShapes`` (reason ``recompute``) for an invalid drop.
    """
    index = model.timeline.index
    position = {model.node_id(k): k for k in range(len(model.node_at))}
    codes: list[int] = []
    offloaded: list[int] = []
    for tensor, after in drops:
        i = index.tensor_of.get(tensor)
        if i is None or model.liveness.storage_of[i] < 0:
            raise _rejected(f"unknown tensor {tensor!r} in a move", tensor, after)
        s = int(model.liveness.storage_of[i])
        k = position.get(after if after in position else after.removesuffix(MARK))
        if k is None:
            raise _rejected(f"unknown node {after!r} in a move", tensor, after)
        if not (model.movable if offload else model.droppable)[s]:
            raise _rejected(f"tensor {tensor!r} cannot be {'offloaded' if offload else 'recomputed'}", tensor, after)
        edges = [e for e in range(model.in_ptr[k], model.in_ptr[k + 1]) if model.in_idx[e] == s]
        if after not in position and not edges:
            raise _rejected(f"node {after!r} does not read tensor {tensor!r}", tensor, after)
        if k < model.producer[s]:
            raise _rejected(f"tensor {tensor!r} is computed after node {after!r}, not before", tensor, after)
        codes += [k * len(model.size) + s] if after in position else [-1 - e for e in edges]
        offloaded += [s] if offload else []
    extended = choice.dropping(codes)
    extended.offloaded[offloaded] = True
    return extended


def _rejected(what: str, tensor: str, node_id: str, hint: str = HINT) -> InvalidIrShapes:
    return InvalidIrShapes(f"{what}.", reason="recompute", node_id=node_id, tensor=tensor, hint=hint)


def write_graph(model: RecomputeModel, choice: Choice) -> Graph:
    """Return the graph with every recomputing run and copy as a node in ``execution_order``.

    Raises ``InvalidIrShapes`` (reason ``recompute``) if an operand can no longer be computed.
    """
    writer = _Writer(model, choice)
    writer.walk()
    for k in [k for k, is_delayed in enumerate(writer.delayed) if is_delayed]:
        writer.run(k)  # still delayed, because no node reads its results
    return writer.graph()


def write_runs(model: RecomputeModel, runs: Sequence[int]) -> Graph:
    """Return the graph that runs the nodes at the positions ``runs``; a position that occurs again is recomputed.

    Nodes that only create views are not in ``runs``: they run before the first node that reads the view. Raises
    ``InvalidIrShapes`` (reason ``recompute``) if an operand can no longer be computed.
    """
    writer = _Writer(model, Choice.nothing(model))
    writer.run_sequence(runs)
    return writer.graph()


class _Writer(DropWalk):
    """Tracks the current copy of every storage, and adds a node for each action."""

    def __init__(self, model: RecomputeModel, choice: Choice) -> None:
        super().__init__(model, choice)
        self.model = model
        self.order: list[str] = []
        self.added_nodes: list[Node] = []
        self.new_tensors: list[Tensor] = []
        self.index = model.timeline.index
        self.nodes = list(self.index.graph.nodes)
        self.tensors = list(self.index.graph.tensors)
        self.storage = model.liveness.storage_of.tolist()
        self.node_at = model.node_at.tolist()
        self.current = [""] * len(model.size)  # storage → suffix of the copy that is read now
        self.copies_in: Counter[int] = Counter()  # storage → number of times it was copied back
        self.runs: Counter[int] = Counter()  # node → number of its last recomputing run
        self.delayed_views: dict[int, list[int]] = {}  # storage → positions of its views that run when it is computed
        self.view_names: dict[tuple[int, str], str] = {}  # (view, copy of its storage) → name of the view in that copy
        self.overwritten_by: dict[int, int] = {}  # tensor → the tensor that overwrote it
        self.read_late: set[int] = set()  # original tensors that nodes after the forward pass read; no copies
        self.used_names = self.index.tensor_of.keys() | self.index.node_of.keys()
        self.position = {n: k for k, n in enumerate(self.node_at)}

    def graph(self) -> Graph:
        for i, tensor in enumerate(self.tensors):
            s = self.storage[i]
            if tensor.saved_for_backward and s >= 0 and self.ever[s] and i not in self.read_late:
                self.tensors[i] = msgspec.structs.replace(tensor, saved_for_backward=False)
        nodes, tensors = (*self.nodes, *self.added_nodes), (*self.tensors, *self.new_tensors)
        order = tuple(self.order)
        return msgspec.structs.replace(self.index.graph, tensors=tensors, nodes=nodes, execution_order=order)

    def run_sequence(self, runs: Sequence[int]) -> None:
        """Run the nodes at the positions of ``runs``, and each view before its first reader."""
        done, computed = set[int](), {s for s, producer in enumerate(self.producer) if producer < 0}
        views = dict.fromkeys(sorted(set(range(len(self.node_at))) - set(runs)))
        is_read = set(self.index.in_idx.tolist())
        unread = [k for k in views if is_read.isdisjoint(self.index.outputs_of(self.node_at[k]).tolist())]
        in_place = sorted({k for k in runs if not self.outputs[k]})  # nodes without storages of their own
        k = -1  # the highest position so far
        for position in runs:
            k = max(k, position)
            self._run_views(position, k, views)
            if position in done:
                for s in self.outputs[position]:
                    self.dropped[s] = self.ever[s] = bool(self.model.droppable[s])
                self.run_again(position, k)
                continue
            done.add(position)
            computed.update(self.outputs[position])
            self._first_run(position, k)
            for view in [view for view in unread if view in views and computed.issuperset(self.inputs[view])]:
                if not done.issuperset(in_place[: bisect_left(in_place, view)]):
                    continue  # the view may be of the result of an earlier in-place node that has not run
                self._run_views(view, k, views)
                del views[view]
                self._first_run(view, k)
        for view in list(views):
            self._first_run(view, k)

    def _run_views(self, position: int, k: int, views: dict[int, None]) -> None:
        """Run the ``views`` that the node of ``position`` reads, and remove them from ``views``."""
        for producer in self.index.producer[self.index.inputs_of(self.node_at[position])].tolist():
            view = self.position.get(producer, -1)
            if view in views:
                del views[view]
                self._run_views(view, k, views)
                self._first_run(view, k)

    def phase(self, k: int) -> Phase:
        return self.index.graph.nodes[self.node_at[k]].phase

    def copy_out(self, s: int, k: int) -> bool:
        root = self.tensors[int(self.model.liveness.storages.head[s])]
        copy = Tensor(f"{root.id}{OFFLOADED}", root.shape, root.dtype, "activation", arena=OFFLOAD_ARENA)
        self.new_tensors.append(copy)
        self._copy(f"{root.id}{COPY_OUT}", "copy_out", (root.id + self.current[s], copy.id), root.id, k)
        return True

    def copy_in(self, s: int, k: int) -> bool:
        root = self.tensors[int(self.model.liveness.storages.head[s])]
        self.copies_in[s] += 1
        self.current[s] = BACK if self.copies_in[s] == 1 else f"{BACK}.{self.copies_in[s]}"
        self.dropped[s] = False
        role = "activation" if root.role == "input" else root.role
        back = root.id + self.current[s]
        marks = {"role": role, "saved_for_backward": False, "remat": False}
        self.new_tensors.append(msgspec.structs.replace(root, id=back, **marks))
        self._copy(back, "copy_in", (f"{root.id}{OFFLOADED}", back), root.id, k)
        return True

    def _copy(self, node_id: str, instr: str, ends: tuple[str, str], tensor_id: str, k: int) -> None:
        self.added_nodes.append(Node(node_id, instr, ends[:1], ends[1:], self.phase(k), "none", offloads=tensor_id))
        self.order.append(node_id)

    def delay(self, k: int) -> None:
        super().delay(k)
        if not self.outputs[k]:
            self.delayed_views.setdefault(self.inputs[k][0], []).append(k)

    def run(self, k: int) -> bool:
        return self._first_run(k, k)

    def _first_run(self, position: int, k: int) -> bool:
        """Run the node of ``position`` for the first time, at position ``k``, which is later if it was delayed."""
        self.delayed[position] = False
        n = self.node_at[position]
        node = self.nodes[n]
        inputs = self.index.inputs_of(n).tolist()
        names = tuple([self._name(i, k) for i in inputs])
        if self.phase(k) != "forward":
            self.read_late.update(i for i, name in zip(inputs, names, strict=True) if name == self.index.tensor_ids[i])
        self.nodes[n] = msgspec.structs.replace(node, inputs=names, phase=self.phase(k))
        for i in self.index.outputs_of(n).tolist():
            if node.phase != self.phase(k):
                self.tensors[i] = msgspec.structs.replace(self.tensors[i], saved_for_backward=False)
            layout = self.tensors[i].view
            if layout is not None and self.storage[i] >= 0:  # the base of a view is the current copy of its storage
                self.view_names[i, self.current[self.storage[i]]] = self.tensors[i].id
                layout = msgspec.structs.replace(layout, base_tensor_uid=self._name(int(self.index.base[i]), k))
                self.tensors[i] = msgspec.structs.replace(self.tensors[i], view=layout)
        if node.in_place_write:
            writes = self.index.outputs_of(n).tolist()
            self.overwritten_by.update((inputs[i], writes[o]) for i, o in node.in_place_write)
        self.order.append(node.node_id)
        self._run_delayed_views(position, k)
        return True

    def _run_delayed_views(self, position: int, k: int) -> None:
        for s in self.outputs[position]:
            self.dropped[s] = self.dropped[s] and self.offloaded[s]
            for view in self.delayed_views.pop(s, ()):
                self._first_run(view, k)

    def _name(self, i: int, k: int) -> str:
        """Return the name of tensor ``i`` in the current copy of its storage. Create a view if needed."""
        copy = self.current[self.storage[i]] if self.storage[i] >= 0 else ""
        name, tensor, writer = self.index.tensor_ids[i] + copy, self.tensors[i], int(self.index.producer[i])
        if self.storage[i] < 0 or tensor.view is None or (writer < 0 and not copy):
            return name
        if (i, copy) not in self.view_names:
            if writer >= 0:
                self.run_again(self.position[writer], k)
            else:
                view = msgspec.structs.replace(tensor.view, base_tensor_uid=self._name(int(self.index.base[i]), k))
                self.new_tensors.append(msgspec.structs.replace(tensor, id=name, saved_for_backward=False, view=view))
                self.view_names[i, copy] = name
        return self.view_names[i, copy]

    def run_again(self, position: int, k: int) -> bool:
        n = self.node_at[position]
        node = self.index.graph.nodes[n]
        if self.model.expires[position] < k:
            what, hint = f"node {node.node_id!r} cannot run again: its input is overwritten", "Recompute other nodes."
            raise _rejected(what, "", node.node_id, hint)
        if self.delayed[position]:
            return self._first_run(position, k)
        inputs = []
        overwritten = {number for number, _ in node.in_place_write}
        for number, i in enumerate(self.index.inputs_of(n).tolist()):
            while number in overwritten and i in self.overwritten_by:  # read the result that overwrote the input
                i = self.overwritten_by[i]
            inputs.append(self._name(i, k))
        if operator_of(node.instr).is_random:
            inputs.append(self._state(n))
        written, suffix = self.index.outputs_of(n).tolist(), ""
        names = [node.node_id, *(self.tensors[i].id for i in written)]
        while not suffix or not self.used_names.isdisjoint(name + suffix for name in names):
            self.runs[n] += 1  # skip used names: the preset can add runs too
            suffix = MARK if self.runs[n] == 1 else f"{MARK}.{self.runs[n]}"
        outputs = []
        for i in written:
            tensor, s = self.tensors[i], self.storage[i]
            name = tensor.id + suffix
            outputs.append(name)
            view = tensor.view
            if view is None and s >= 0 and self.dropped[s] and not self.offloaded[s]:
                self.current[s] = suffix
                self.dropped[s] = False
            if view is not None:
                self.view_names[i, self.current[s]] = name
                base_index = int(self.index.base[i])
                base = self.tensors[base_index].id + suffix if base_index in written else self._name(base_index, k)
                view = msgspec.structs.replace(view, base_tensor_uid=base)
            role = "activation" if tensor.role in PERSISTENT_ROLES else tensor.role
            marks = {"role": role, "alias_group_id": None, "saved_for_backward": False, "remat": False}
            self.new_tensors.append(msgspec.structs.replace(tensor, id=name, view=view, **marks))
        name, inplace = node.node_id + suffix, "none" if node.in_place_write else node.inplace
        changes = {"phase": self.phase(k), "in_place_write": (), "inplace": inplace, "grad_edges": ()}
        ends = {"inputs": tuple(inputs), "outputs": tuple(outputs)}
        copy = msgspec.structs.replace(node, node_id=name, recomputes=node.node_id, **ends, **changes)
        self.added_nodes.append(copy)
        self.order.append(copy.node_id)
        self._run_delayed_views(position, k)
        return True

    def _state(self, n: int) -> str:
        """Return the tensor in which a random operator saves its generator state."""
        node = self.nodes[n]
        state = f"{node.node_id}{STATE}"
        if not self.runs[n]:
            self.nodes[n] = msgspec.structs.replace(node, outputs=(*node.outputs, state))
            is_saved = node.phase == "forward"
            first = self.tensors[int(self.index.outputs_of(n)[0])]
            shape = (self.model.state_bytes,)
            saved = Tensor(state, shape, "uint8", first.role, saved_for_backward=is_saved, arena=first.arena)
            self.new_tensors.append(saved)
        return state
