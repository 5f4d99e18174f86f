"""Flatten the bodies of ``If``, ``Loop`` and ``Scan`` at their node, between nodes that open and close the scope.

A plan has one live range for every tensor. The operands below make the live ranges valid, whether a body never runs,
runs once or runs many times (``docs/decisions/04-control-flow.md`` has the proof):

* ``If``: after the nodes of ``then`` and ``else``, ``If.close`` reads the condition and the results of both branches.
* ``Loop``: ``Loop.open`` writes the counter, the condition, the carried state and the buffers of the stacked outputs
  (one row per iteration). After the body, ``Loop.close`` reads the trip count, the outputs of ``Loop.open``, the body's
  results, and every outer value that the body reads. It writes the final state into the storage of the carried state,
  and each stacked output into the storage of its buffer (``in_place_write``).
* ``Scan``: like ``Loop``, without count and condition. ``Scan.next`` writes the slices at the start of an iteration.

Names in a body have a prefix, the scope: the id of the node, and the branch of an If (``loop_3/h``, ``if_3/then/h``).
"""

from collections import ChainMap
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import onnx
from onnx import helper

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.onnx.onnx_model import attribute_of, bodies_of, operator_name, unique_ids, with_nodes

SCOPE = "tmmu.scope"  # Operator set of the nodes that open and close scopes. Their attributes describe their operands.
UNBOUNDED = 2**31 - 1  # this trip count, or a larger one, means "until the condition is false"
_BODIES = {"If": ("then_branch", "else_branch"), "Loop": ("body",), "Scan": ("body",)}
_SCAN_FROM = 9  # first operator set in which ``Scan`` has no batch axis and no lengths
Names = ChainMap[str, str]  # name in a body → flat name, innermost body first; other names are those of the model
_Closing = tuple[list[str], dict[str, Any]]  # operands and attributes of the closing node


@dataclass(frozen=True)
class Origin:
    """The node of the model that a flat node comes from."""

    scope: str  # scope of the node, ``""`` for the main graph; a node that opens or closes a scope is inside it
    position: int  # position in its graph
    branches: tuple[str, ...] = ()  # scopes of the enclosing branches, outermost first


@dataclass(frozen=True)
class Flat:
    """A model without subgraphs, with the origin of each node."""

    model: onnx.ModelProto
    origins: tuple[Origin, ...]


def flatten(model: onnx.ModelProto) -> Flat:
    """Return the model with its bodies flattened. Raises ``UnreadableInput`` with the node that cannot be flattened."""
    if not any(bodies_of(node) or operator_name(node) in _BODIES for node in model.graph.node):
        return Flat(model, tuple(Origin("", k) for k in range(len(model.graph.node))))
    flattening = _Flattening(model)
    flattening.emit_graph(model.graph, "", ChainMap(), "graph")
    flat = with_nodes(model, flattening.nodes)
    flat.graph.initializer.extend(flattening.weights)
    flat.graph.value_info.extend(flattening.infos)
    flat.opset_import.append(helper.make_opsetid(SCOPE, 1))
    return Flat(flat, tuple(flattening.origins))


class _Flattening:
    def __init__(self, model: onnx.ModelProto) -> None:
        self.supports_scan = any(entry.version >= _SCAN_FROM for entry in model.opset_import if not entry.domain)
        graph = model.graph
        self.used_names = {value.name for value in (*graph.input, *graph.output, *graph.initializer)}
        self.used_names.update(name for node in graph.node for name in node.output)
        self.nodes: list[onnx.NodeProto] = []
        self.origins: list[Origin] = []
        self.weights: list[onnx.TensorProto] = []
        self.infos: list[onnx.ValueInfoProto] = []
        self.enclosing: tuple[str, ...] = ()

    def emit_graph(self, graph: onnx.GraphProto, scope: str, names: Names, place: str) -> None:
        """Emit the nodes of one graph, and add their outputs to ``names``; ``place`` is the graph's place in errors."""
        ids = unique_ids([(k, node.name, node.op_type) for k, node in enumerate(graph.node)])
        prefix = scope + "/" if scope else ""
        for k, node in enumerate(graph.node):
            origin = Origin(prefix + ids[k], k)
            reads = [names.get(name, name) for name in node.input]
            bodies = bodies_of(node)
            if not bodies and operator_name(node) not in _BODIES:
                flat = deepcopy(node)
                flat.name = prefix + node.name if node.name else ""
                flat.input[:] = reads
                flat.output[:] = [self.define(name, scope, names) for name in node.output]
                self._emit(flat, scope, k)
                continue
            self._check(node, bodies, f"{place}.node[{k}]")
            emit = {"If": self._if, "Loop": self._loop, "Scan": self._scan}[node.op_type]
            operands, attributes = emit(node, reads, names, origin)
            # Defined after the body, which may read an outer value of the same name.
            outputs = [self.define(name, scope, names) for name in node.output]
            self._emit_scope(f"{node.op_type}.close", origin, operands, outputs, **attributes)

    # Each of these three methods emits all nodes of the scope except the closing node.

    def _if(self, node: onnx.NodeProto, reads: list[str], names: Names, origin: Origin) -> _Closing:
        results: list[str] = []
        outer_branches = self.enclosing
        for word in ("then", "else"):
            body, inner, scope = dict(bodies_of(node))[f"{word}_branch"], names.new_child(), f"{origin.scope}/{word}"
            self.enclosing = (*outer_branches, scope)
            self._body(body, scope, inner)
            results += [inner.get(value.name, value.name) for value in body.output]
        self.enclosing = outer_branches
        return [reads[0], *results], {}

    def _loop(self, node: onnx.NodeProto, reads: list[str], names: Names, origin: Origin) -> _Closing:
        body = dict(bodies_of(node))["body"]
        trip_count, condition, *initial = reads + [""] * (2 - len(reads))  # the last inputs may be missing
        states = len(initial)
        if len(_inputs(body)) != 2 + states or len(body.output) != 1 + len(node.output) or len(node.output) < states:
            self._refuse_counts(node, origin.scope)
        operands, attributes = self._iteration(node, names, origin, [trip_count, condition, *initial], [])
        return [trip_count, *operands], attributes

    def _scan(self, node: onnx.NodeProto, reads: list[str], names: Names, origin: Origin) -> _Closing:
        body = dict(bodies_of(node))["body"]
        if not self.supports_scan:
            _refuse(node, origin.scope, "is of operator set 8", "Convert the model to operator set 9 or later.")
        scan_inputs = attribute_of(node, "num_scan_inputs", 0)
        states = len(reads) - scan_inputs
        scan_outputs = len(node.output) - states
        axes = list(attribute_of(node, "scan_input_axes") or [0] * scan_inputs)
        axes_out = list(attribute_of(node, "scan_output_axes") or [0] * scan_outputs)
        counts = len(_inputs(body)), len(body.output), len(axes), len(axes_out)
        expected = len(reads), len(node.output), scan_inputs, scan_outputs
        if not scan_inputs or min(states, scan_outputs) < 0 or counts != expected:
            self._refuse_counts(node, origin.scope)
        slicing = {"axes": axes, "directions": attribute_of(node, "scan_input_directions")}
        operands, attributes = self._iteration(node, names, origin, reads[:states], reads[states:], **slicing)
        attributes |= {"scanned": reads[states], "axis": axes[0], "axes": axes_out}
        return operands, attributes | {"directions": attribute_of(node, "scan_output_directions")}

    def _iteration(
        self, node: onnx.NodeProto, names: Names, origin: Origin, initial: list[str], scanned: list[str], **slicing: Any
    ) -> _Closing:
        """Emit a ``Loop`` or ``Scan`` whose opening node reads ``initial``, and whose iterations slice ``scanned``."""
        body, inner, is_loop = dict(bodies_of(node))["body"], names.new_child(), node.op_type == "Loop"
        controls = 2 if is_loop else 0  # a loop also carries its counter and its condition
        states = len(initial) - controls
        arguments = [self.define(value.name, origin.scope, inner) for value in _inputs(body)]
        carried, slices = arguments[: len(initial)], arguments[len(initial) :]
        stacked = [self.fresh(f"{origin.scope}/{name}.room") if name else "" for name in node.output[states:]]
        if is_loop or any((*carried, *stacked)):
            self._emit_scope(f"{node.op_type}.open", origin, initial, [*carried, *stacked], states=states)
        start = len(self.nodes)
        if scanned:
            self._emit_scope("Scan.next", origin, scanned, slices, **slicing)
        self._declare(_inputs(body)[:controls], inner)
        self._body(body, origin.scope, inner)
        results: list[str] = []
        returned = carried[1:] if is_loop else carried  # the body of a loop does not return the counter
        for value, place in zip(body.output, [*returned, *stacked], strict=True):
            result = inner.get(value.name, value.name)
            if result in carried and result != place:  # the next iteration needs it in another storage
                copy = self.fresh(f"{result}.copy")
                self._emit(helper.make_node("Identity", [result], [copy], name=copy), origin.scope, origin.position)
                result = copy
            results.append(result)
        inside = {*carried, *(name for each in self.nodes[start:] for name in each.output)}
        read = dict.fromkeys(name for each in self.nodes[start:] for name in each.input if name)
        captures = [name for name in read if name not in inside]  # outer values, which the closing node reads too
        attributes = {"states": states, "stacked": len(stacked), "captures": len(captures)}
        return [*carried, *stacked, *results, *captures], attributes

    def _body(self, body: onnx.GraphProto, scope: str, inner: Names) -> None:
        for weight in body.initializer:
            flat = deepcopy(weight)
            flat.name = self.define(weight.name, scope, inner)
            self.weights.append(flat)
        self.emit_graph(body, scope, inner, scope)
        written = {name for node in body.node for name in node.output if name}
        self._declare([value for value in (*body.value_info, *body.output) if value.name in written], inner)

    def _declare(self, values: Sequence[onnx.ValueInfoProto], inner: Names) -> None:
        """Emit the declarations that have only numeric sizes, because names of sizes are local to the body."""
        for value in values:
            tensor = value.type.tensor_type
            is_fixed = all(dim.HasField("dim_value") and dim.dim_value >= 0 for dim in tensor.shape.dim)
            if tensor.elem_type and tensor.HasField("shape") and is_fixed:
                flat = deepcopy(value)
                flat.name = inner.get(value.name, value.name)
                self.infos.append(flat)

    def define(self, name: str, scope: str, names: Names) -> str:
        """Add the flat name of a value of ``scope`` to ``names``, and return it; ``""`` for an omitted value."""
        if not name or not scope:
            return name
        names[name] = self.fresh(f"{scope}/{name}")
        return names[name]

    def fresh(self, name: str) -> str:
        while name in self.used_names:
            name += "_"
        self.used_names.add(name)
        return name

    def _emit(self, node: onnx.NodeProto, scope: str, position: int) -> None:
        self.nodes.append(node)
        self.origins.append(Origin(scope, position, self.enclosing))

    def _emit_scope(self, operator: str, origin: Origin, reads: list[str], writes: list[str], **values: Any) -> None:
        name = f"{origin.scope}/{operator.partition('.')[2]}"
        attributes = {key: value for key, value in values.items() if value not in (None, [])}
        node = helper.make_node(operator, reads, writes, name=name, domain=SCOPE, **attributes)
        self._emit(node, origin.scope, origin.position)

    def _check(self, node: onnx.NodeProto, bodies: list[tuple[str, onnx.GraphProto]], place: str) -> None:
        operator = operator_name(node)
        if operator not in _BODIES:
            what = "contains a subgraph, which is not supported"
            hint = "Simplify the model first, so that it has no subgraphs except those of If, Loop and Scan."
            _refuse(node, place, what, hint)
        if sorted(name for name, _ in bodies) != sorted(_BODIES[operator]):
            what = f"must have the bodies {' and '.join(_BODIES[operator])}"
            _refuse(node, place, what, "Export the model again.")
        differs = any(_inputs(body) or len(body.output) != len(node.output) for _, body in bodies)
        if operator == "If" and (differs or not node.input):
            self._refuse_counts(node, place)

    def _refuse_counts(self, node: onnx.NodeProto, place: str) -> NoReturn:
        what = "and its body differ in their numbers of inputs or outputs"
        _refuse(node, place, what, "Check the model with onnx.checker.check_model(model).")


def is_scope(node: onnx.NodeProto, *operators: str) -> bool:
    """Return whether the node opens, continues or closes a scope. ``operators``: the accepted ones; default: all."""
    return node.domain == SCOPE and (not operators or node.op_type in operators)


def branch_results(node: onnx.NodeProto) -> list[tuple[str, str]]:
    """Return ``(result of then, result of else)`` for each output of an ``If.close`` node."""
    count = len(node.output)
    return list(zip(node.input[1 : 1 + count], node.input[1 + count :], strict=True))


class Carried(NamedTuple):
    """Operands of a ``Loop.close`` or ``Scan.close`` node, by kind."""

    states: Sequence[str]  # the state before an iteration
    stacked: Sequence[str]  # the buffers of the stacked outputs
    results: Sequence[str]  # the state after the iteration, as the body writes it
    slices: Sequence[str]  # the row that an iteration adds to each stacked output


def carried_of(node: onnx.NodeProto) -> Carried:
    """Return the states, buffers and results among the operands of a ``Loop.close`` or ``Scan.close`` node."""
    states, stacked = attribute_of(node, "states"), attribute_of(node, "stacked")
    is_loop = is_scope(node, "Loop.close")
    reads = node.input[3 if is_loop else 0 :]  # without the trip count, the counter and the condition
    after = reads[states + stacked + (1 if is_loop else 0) :]  # without the condition that the body returns
    return Carried(reads[:states], reads[states : states + stacked], after[:states], after[states : states + stacked])


def in_place(node: onnx.NodeProto) -> list[tuple[str, str]]:
    """Return ``(operand, output)`` for each output of a node that overwrites an operand: a state or a buffer."""
    if not is_scope(node, "Loop.close", "Scan.close"):
        return []
    carried = carried_of(node)
    return [pair for pair in zip((*carried.states, *carried.stacked), node.output, strict=True) if all(pair)]


def captured(node: onnx.NodeProto) -> list[str]:
    """Return the outer values that a closing node reads only to extend their live ranges."""
    return list(node.input[len(node.input) - attribute_of(node, "captures", 0) :])


def _inputs(body: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Return a body's inputs without its weights, which are inputs too before IR version 4."""
    weights = {weight.name for weight in body.initializer}
    return [value for value in body.input if value.name not in weights]


def _refuse(node: onnx.NodeProto, place: str, what: str, hint: str) -> NoReturn:
    raise UnreadableInput(f"the operator {node.op_type} ({node.name or node.op_type!r}) {what}.", hint, place=place)
