"""Flatten the bodies of ``If``, ``Loop`` and ``Scan`` at their node, between nodes that open and close the scope.

A plan has one live range for every tensor. The operands below make it valid for a body that never runs, runs once or
runs many times (``docs/decisions/04-control-flow.md`` has the proof):

* ``If``: the nodes of ``then``, the nodes of ``else``, and ``If.close``, which reads the condition and both results.
* ``Loop``: ``Loop.open`` writes the counter, the condition, the carried state and the buffer of collected outputs; the
  body; ``Loop.close`` reads all of these, the body's results, and every outer value that the body reads. The final
  state has the storage of the carried state, collected outputs have the storage of their buffer (``in_place_write``).
* ``Scan``: like ``Loop``, and ``Scan.next`` writes the slices at the start of every iteration.

Names in a body have the prefix of the scope, which is the id of its node: ``loop_3/h``, ``if_3/then/h``.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple, NoReturn

import onnx
from onnx import helper

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.onnx.onnx_model import SUBGRAPHS, attribute_of, bodies_of, operator_name, unique_ids, with_nodes

SCOPE = "tmmu.scope"
"""Operator set of the nodes that open and close scopes. Their attributes are numbers of operands by kind."""
UNBOUNDED = 2**31 - 1
"""Minimum trip count that means "until the condition is false"."""
_BODIES = {"If": ("then_branch", "else_branch"), "Loop": ("body",), "Scan": ("body",)}
_SCAN_FROM = 9
"""First operator set in which ``Scan`` has no batch axis and no lengths."""


@dataclass(frozen=True)
class Origin:
    """The position of a flat node in the model."""

    scope: str
    """``""`` for the model's own graph."""
    position: int
    """Position in the graph of the scope."""
    branches: tuple[str, ...] = ()
    """The enclosing branches, outermost first, as named by :func:`branch`."""


def branch(number: int, taken: bool) -> str:
    """Return the name of a branch of the If with this number."""
    return f"{number}:{'then' if taken else 'else'}"


@dataclass(frozen=True)
class Flat:
    """A model without subgraphs, with the origin of each node."""

    model: onnx.ModelProto
    origins: tuple[Origin, ...]

    def ids(self, positions: Sequence[int]) -> list[str]:
        """Return unique ids of the nodes at ``positions``: name, or operator and position, with the scope's prefix."""
        rows = [(self.origins[k], self.model.graph.node[k]) for k in positions]
        operators = [f"{origin.scope}/{node.op_type}".removeprefix("/") for origin, node in rows]
        names = zip(rows, operators, strict=True)
        return unique_ids([(origin.position, node.name, operator) for (origin, node), operator in names])


def flatten(model: onnx.ModelProto, source: str = "") -> Flat:
    """Return the model with its bodies flattened; a model without bodies is returned unchanged.

    Raises ``UnreadableInput`` with the node whose body cannot be flattened.
    """
    if not any(body for node in model.graph.node for body in bodies_of(node)):
        for k, node in enumerate(model.graph.node):
            if operator_name(node) in SUBGRAPHS:
                _refuse(node, f"graph.node[{k}]", source, "has no body", "Export the model again.")
        return Flat(model, tuple(Origin("", k) for k in range(len(model.graph.node))))
    flattening = _Flattening(model, source)
    flattening.emit_graph(model.graph, "", ChainMap(), "graph")
    flat = with_nodes(model, flattening.nodes)
    flat.graph.initializer.extend(flattening.weights)
    flat.graph.value_info.extend(flattening.infos)
    flat.opset_import.append(helper.make_opsetid(SCOPE, 1))
    return Flat(flat, tuple(flattening.origins))


Names = ChainMap[str, str]
"""Name in a body → flat name, innermost body first. Other names are those of the model's own graph."""


class _Flattening:
    """The nodes, weights and declarations that one call of :func:`flatten` has emitted."""

    def __init__(self, model: onnx.ModelProto, source: str) -> None:
        self.source = source
        self.has_scan = any(entry.version >= _SCAN_FROM for entry in model.opset_import if not entry.domain)
        graph = model.graph
        self.taken = {value.name for value in (*graph.input, *graph.output, *graph.initializer)}
        self.taken.update(name for node in graph.node for name in node.output)
        self.nodes: list[onnx.NodeProto] = []
        self.origins: list[Origin] = []
        self.weights: list[onnx.TensorProto] = []
        self.infos: list[onnx.ValueInfoProto] = []
        self.enclosing: tuple[str, ...] = ()
        self.branch_numbers = count()

    def emit_graph(self, graph: onnx.GraphProto, scope: str, names: Names, place: str) -> None:
        """Emit the nodes of one graph; their outputs are added to ``names``."""
        ids = unique_ids([(k, node.name, node.op_type) for k, node in enumerate(graph.node)])
        prefix = scope + "/" if scope else ""
        for k, node in enumerate(graph.node):
            here = f"{place}.node[{k}]"
            origin = Origin(prefix + ids[k], k)
            reads = [_known(names, name) for name in node.input]
            bodies = bodies_of(node)
            if not bodies and operator_name(node) not in SUBGRAPHS:
                flat = deepcopy(node)
                flat.name = prefix + node.name if node.name else ""
                flat.input[:] = reads
                flat.output[:] = [self.define(name, scope, names) for name in node.output]
                self._emit(flat, scope, k)
                continue
            self._check(node, bodies, here)
            # A body reads earlier values only, so the node's results are named after it.
            closing = {"If": self._if, "Loop": self._loop, "Scan": self._scan}[node.op_type](node, reads, names, origin)
            self._close(node, closing, names, scope)

    # --- the three operators: each emits all but its closing node, and returns its operands ----------------------

    def _if(self, node: onnx.NodeProto, reads: list[str], names: Names, at: Origin) -> _Closing:
        results: list[str] = []
        number, around = next(self.branch_numbers), self.enclosing
        for taken, word in ((True, "then"), (False, "else")):
            body, inner = attribute_of(node, f"{word}_branch"), names.new_child()
            self.enclosing = (*around, branch(number, taken))
            self._body(body, f"{at.scope}/{word}", inner)
            results += [_known(inner, value.name) for value in body.output]
        self.enclosing = around
        return _Closing(at, [reads[0], *results], [], {"number": number})

    def _loop(self, node: onnx.NodeProto, reads: list[str], names: Names, at: Origin) -> _Closing:
        body = attribute_of(node, "body")
        count, condition, *initial = [*reads, "", ""][: max(2, len(reads))]
        states = len(initial)
        if len(_inputs(body)) != 2 + states or len(body.output) != 1 + len(node.output) or len(node.output) < states:
            self._miscounted(node, at.scope)
        inner = names.new_child()
        carried = [self.define(value.name, at.scope, inner) for value in _inputs(body)]
        stacked = [self.fresh(f"{at.scope}/{name}.room") if name else "" for name in node.output[states:]]
        self._emit_scope("Loop.open", at, [count, condition, *initial], [*carried, *stacked], states=states)
        start = len(self.nodes)
        self._declare(_inputs(body)[:2], inner)
        self._body(body, at.scope, inner)
        results = self._copied(body, inner, [*carried[1:], *stacked], carried, at)
        captures = self._captures(start, carried)
        operands = [count, *carried, *stacked, *results]
        return _Closing(at, operands, captures, {"states": states, "stacked": len(stacked)}, carried[2:] + stacked)

    def _scan(self, node: onnx.NodeProto, reads: list[str], names: Names, at: Origin) -> _Closing:
        body = attribute_of(node, "body")
        if not self.has_scan:
            hint = "Convert the model to operator set 9 or later."
            _refuse(node, at.scope, self.source, "is of operator set 8", hint)
        sliced = int(attribute_of(node, "num_scan_inputs") or 0)
        states = len(reads) - sliced
        gathered = len(node.output) - states
        axes = list(attribute_of(node, "scan_input_axes") or [0] * sliced)
        axes_out = list(attribute_of(node, "scan_output_axes") or [0] * gathered)
        ends = len(_inputs(body)), len(body.output), len(axes), len(axes_out)
        if not sliced or min(states, gathered) < 0 or ends != (len(reads), len(node.output), sliced, gathered):
            self._miscounted(node, at.scope)
        inner = names.new_child()
        carried = [self.define(value.name, at.scope, inner) for value in _inputs(body)[:states]]
        slices = [self.define(value.name, at.scope, inner) for value in _inputs(body)[states:]]
        stacked = [self.fresh(f"{at.scope}/{name}.room") if name else "" for name in node.output[states:]]
        if any((*carried, *stacked)):
            self._emit_scope("Scan.open", at, reads[:states], [*carried, *stacked], states=states)
        start = len(self.nodes)
        directions = _directions(node, "in", sliced)
        self._emit_scope("Scan.next", at, reads[states:], slices, axes=axes, directions=directions)
        self._body(body, at.scope, inner)
        results = self._copied(body, inner, [*carried, *stacked], carried, at)
        captures = self._captures(start, carried)
        counts = {"states": states, "stacked": gathered, "measured": reads[states], "axis": axes[0], "axes": axes_out}
        counts["directions"] = _directions(node, "out", gathered)
        return _Closing(at, [*carried, *stacked, *results], captures, counts, carried + stacked)

    # --- common parts -------------------------------------------------------------------------------------------

    def _body(self, body: onnx.GraphProto, scope: str, inner: Names) -> None:
        """Emit a body's weights, declarations and nodes."""
        for weight in body.initializer:
            flat = deepcopy(weight)
            flat.name = self.define(weight.name, scope, inner)
            self.weights.append(flat)
        self.emit_graph(body, scope, inner, scope)
        own = {name for node in body.node for name in node.output if name}
        self._declare([value for value in (*body.value_info, *body.output) if value.name in own], inner)

    def _declare(self, values: Sequence[onnx.ValueInfoProto], inner: Names) -> None:
        """Keep a body's declarations with numeric sizes: its size names are unknown outside."""
        for value in values:
            tensor = value.type.tensor_type
            whole = tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim)
            if tensor.elem_type and whole and all(dim.dim_value >= 0 for dim in tensor.shape.dim):
                flat = deepcopy(value)
                flat.name = _known(inner, value.name)
                self.infos.append(flat)

    def _copied(
        self, body: onnx.GraphProto, inner: Names, places: list[str], carried: list[str], at: Origin
    ) -> list[str]:
        """Return a body's results. A carried value that is the result of another position is copied first."""
        results: list[str] = []
        for value, place in zip(body.output, places, strict=True):
            result = _known(inner, value.name)
            if result in carried and result != place:
                copy = self.fresh(f"{result}.copy")
                self._emit(helper.make_node("Identity", [result], [copy], name=copy), at.scope, at.position)
                result = copy
            results.append(result)
        return results

    def _captures(self, start: int, carried: list[str]) -> list[str]:
        """Return the outer values that the nodes from ``start`` read, in order."""
        own = {*carried, *(name for node in self.nodes[start:] for name in node.output)}
        read = dict.fromkeys(name for node in self.nodes[start:] for name in node.input if name)
        return [name for name in read if name not in own]

    def _close(self, node: onnx.NodeProto, closing: _Closing, names: Names, scope: str) -> None:
        outputs = [self.define(name, scope, names) for name in node.output]
        both = enumerate(zip(closing.places, outputs, strict=False))  # an If has no in-place outputs
        writes = {f"in_place_{i}": place for i, (place, output) in both if place and output}
        reads = [*closing.operands, *closing.captures]
        counts = {"captures": len(closing.captures), **closing.counts, **writes}
        self._emit_scope(f"{node.op_type}.close", closing.at, reads, outputs, **counts)

    def define(self, name: str, scope: str, names: Names) -> str:
        """Return the flat name of ``name`` in the graph of ``scope``, and add it to ``names``."""
        if not name:
            return ""
        if not scope:
            return name
        names[name] = self.fresh(f"{scope}/{name}")
        return names[name]

    def fresh(self, name: str) -> str:
        """Return an unused name that begins with ``name``, and mark it as used."""
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def _emit(self, node: onnx.NodeProto, scope: str, position: int) -> None:
        self.nodes.append(node)
        self.origins.append(Origin(scope, position, self.enclosing))

    def _emit_scope(self, operator: str, at: Origin, reads: list[str], writes: list[str], **counts: Any) -> None:
        name = f"{at.scope}/{operator.partition('.')[2]}"
        attributes = {key: value for key, value in counts.items() if value != []}
        node = helper.make_node(operator, reads, writes, name=name, domain=SCOPE, **attributes)
        self._emit(node, at.scope, at.position)

    def _check(self, node: onnx.NodeProto, bodies: list[tuple[str, onnx.GraphProto]], place: str) -> None:
        operator = operator_name(node)
        if operator not in _BODIES:
            what = "contains a subgraph, which is not supported"
            hint = "Simplify the model first, so that it has no subgraphs except those of If, Loop and Scan."
            _refuse(node, place, self.source, what, hint)
        if sorted(name for name, _ in bodies) != sorted(_BODIES[operator]):
            _refuse(node, place, self.source, "has no body", "Export the model again.")
        for _, body in bodies:
            if operator == "If" and (_inputs(body) or len(body.output) != len(node.output) or not node.input):
                self._miscounted(node, place)

    def _miscounted(self, node: onnx.NodeProto, place: str) -> NoReturn:
        what = "and its body differ in their numbers of inputs or outputs"
        _refuse(node, place, self.source, what, "Check the model with onnx.checker.check_model(model).")


@dataclass(frozen=True)
class _Closing:
    """Operands of the closing node of a scope, and the operands that its outputs overwrite."""

    at: Origin
    operands: list[str]
    captures: list[str]
    counts: dict[str, Any]
    places: Sequence[str] = ()


def in_place(node: onnx.NodeProto) -> list[tuple[str, str]]:
    """Return (operand, output) for each output of a closing node that overwrites an operand."""
    return [
        (attribute.s.decode(), node.output[int(attribute.name.removeprefix("in_place_"))])
        for attribute in node.attribute
        if attribute.name.startswith("in_place_")
    ]


def is_scope(node: onnx.NodeProto, *operators: str) -> bool:
    """Return whether the node opens, continues or closes a scope: as one of ``operators``, or, without any, at all."""
    return node.domain == SCOPE and (not operators or node.op_type in operators)


class Carried(NamedTuple):
    """Operands of the node that closes a loop or scan, by kind."""

    states: Sequence[str]
    """The state before an iteration."""
    stacked: Sequence[str]
    """The buffers of stacked outputs, which collect a row in every iteration."""
    results: Sequence[str]
    """The state after the iteration, as the body writes it."""
    slices: Sequence[str]
    """The row that one iteration of the body adds to each stacked output."""


def carried_of(node: onnx.NodeProto) -> Carried:
    """Return the operands of the node that closes a loop or scan, without count and conditions of a loop."""
    states, stacked = (int(attribute_of(node, name) or 0) for name in ("states", "stacked"))
    loop = is_scope(node, "Loop.close")
    reads = node.input[3 if loop else 0 :]
    after = reads[states + stacked + loop :]
    return Carried(reads[:states], reads[states : states + stacked], after[:states], after[states : states + stacked])


def captured(node: onnx.NodeProto) -> list[str]:
    """Return the operands of a closing node that only extend live ranges."""
    count = int(attribute_of(node, "captures") or 0)
    return list(node.input[len(node.input) - count :])


def _inputs(body: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Return a body's inputs; before IR version 4 they include its weights."""
    weights = {weight.name for weight in body.initializer}
    return [value for value in body.input if value.name not in weights]


def _directions(node: onnx.NodeProto, side: str, count: int) -> list[int]:
    directions = list(attribute_of(node, f"scan_{side}put_directions") or [0] * count)
    return directions if any(directions) else []


def _known(names: Names, name: str) -> str:
    return names.get(name, name)


def _refuse(node: onnx.NodeProto, place: str, source: str, what: str, hint: str) -> NoReturn:
    raise UnreadableInput(
        f'the operator {node.op_type} ("{node.name or node.op_type}") {what}.', source=source, place=place, hint=hint
    )
