"""Plan loops whose state changes its shape between iterations by the largest shape.

::

    s0 = [1, 3] ─► Concat with a row ─► [2, 3] ─► … ─► s5 = [6, 3]      trip count 5
                                                       └─ the buffer of the state, and of the loop's output

The body is inferred with the state of the first iteration and of the last; the larger shape of each value is planned.
The last iteration must add what the first adds; otherwise, if there are few iterations, all are inferred. A loop that
ends earlier needs no more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

import onnx

from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.formats.onnx.onnx_constant_folding import written_values
from tmmu_core.formats.onnx.onnx_model import Found, Known, declaring, fixed_shape
from tmmu_core.formats.onnx.onnx_scope_shapes import trips_of
from tmmu_core.formats.onnx.onnx_scopes import UNBOUNDED, Flat, carried_of, is_scope
from tmmu_core.formats.onnx.onnx_shapes import DTYPES, Facts, Sizes, bind, inferred_with_values

ONE_BY_ONE = 64
"""Iterations up to which all are inferred for a state that grows by different sizes."""

State = dict[str, tuple[int, ...]]
"""Carried value → shape."""
Step = Callable[[State], tuple[Known, State] | None]
"""Inference with a state → (shapes found, state after the iteration); ``None`` if that is unknown."""


def use_largest_shapes(flat: Flat, facts: Facts, sizes: Sizes, name: str) -> bool:
    """Write the largest shapes of bounded changing states into ``facts``; return whether there were any.

    ``sizes`` is fixed at its current point. Raises ``InvalidIrShapes`` (reason ``scope_shape``) with a hint if the trip
    count is unbounded.
    """
    model = bind(flat.model, sizes.point())
    declared: dict[str, Found] = {}
    bodies: Known = {}
    scopes: list[str] = []
    for node, origin in zip(flat.model.graph.node, flat.origins, strict=True):
        if not is_scope(node, "Loop.close"):
            continue
        known, carried_out = inferred_with_values(declaring(model, declared), name)
        operands = carried_of(node)
        places = list(zip(operands.states, operands.results, node.output, strict=False))
        state = {carried: shape for carried, _, _ in places if (shape := fixed_shape(known, carried)) is not None}
        results = {carried: result for carried, result, _ in places if carried in state}
        left = {carried: fixed_shape(known, result) for carried, result in results.items()}
        moving = {c: s for c, s in state.items() if left[c] is not None and left[c] != s}
        if not moving:
            continue
        if any(scope.startswith(f"{origin.scope}/") for scope in scopes):
            return False  # the inner loop was inferred at the outer loop's first iteration
        trips = trips_of(node, written_values(carried_out))
        if trips >= UNBOUNDED:
            raise _unbounded(node, origin.scope, name)

        step = _step(declaring(model, declared), {carried: known[carried][0] for carried in moving}, results, name)
        ends = _last_iteration(moving, step, max(1, trips))
        if ends is None:
            return False
        largest, last = ends
        body = {
            value
            for inner, at in zip(flat.model.graph.node, flat.origins, strict=True)
            if f"{at.scope}/".startswith(f"{origin.scope}/")
            and not (is_scope(inner) and inner.op_type.endswith(".close"))
            for value in inner.output
        }
        bodies |= {value: found for value, found in largest.items() if value in body}
        for carried, result, output in places:
            if carried in last:
                found = known[carried][0], list[int | str | None](last[carried])
                bodies |= {carried: found, result: found}
                declared |= {value: found for value in (carried, output) if value}
        scopes.append(origin.scope)
    if scopes:
        sizes.hold(sizes.dims)
        _write_facts(facts, inferred_with_values(declaring(model, declared), name)[0] | bodies, flat, sizes.point())
    return bool(scopes)


def _step(model: onnx.ModelProto, elements: Mapping[str, int], results: Mapping[str, str], name: str) -> Step:
    """Return the function that infers ``model`` with a state of these element types and results."""

    def step(now: State) -> tuple[Known, State] | None:
        given: dict[str, Found] = {carried: (elements[carried], list(shape)) for carried, shape in now.items()}
        found = inferred_with_values(declaring(model, given), name)[0]
        then = {carried: shape for carried in elements if (shape := fixed_shape(found, results[carried])) is not None}
        return (found, then) if len(then) == len(elements) else None

    return step


def _last_iteration(first: State, step: Step, trips: int) -> tuple[Known, State] | None:
    """Return the larger shapes of the first and last iteration, and the final state."""
    begun = step(first)
    if begun is None:
        return None
    largest, second = begun
    if any(len(second[name]) != len(shape) for name, shape in first.items()):
        return None
    more = {name: [b - a for a, b in zip(shape, second[name], strict=True)] for name, shape in first.items()}
    before = {name: _after(shape, more[name], trips - 1) for name, shape in first.items()}
    done = step(before) if all(size >= 0 for shape in before.values() for size in shape) else None
    if done is not None and done[1] == {name: _after(shape, more[name], trips) for name, shape in first.items()}:
        return _larger(largest, done[0]), {name: max(first[name], shape, key=prod) for name, shape in done[1].items()}
    if trips > ONE_BY_ONE:
        return None
    now, most = second, {name: max(first[name], second[name], key=prod) for name in first}
    for _ in range(trips - 1):
        done = step(now)
        if done is None:
            return None
        largest, now = _larger(largest, done[0]), done[1]
        most = {name: max(most[name], now[name], key=prod) for name in most}
    return largest, most


def _after(shape: tuple[int, ...], more: list[int], times: int) -> tuple[int, ...]:
    return tuple([size + times * by for size, by in zip(shape, more, strict=True)])


def _larger(one: Known, other: Known) -> Known:
    """Return the shape with more elements of each value; a known shape replaces an open one."""
    found = dict(one)
    for value, (element, shape) in other.items():
        mine, theirs = fixed_shape(one, value), fixed_shape(other, value)
        if mine is None or (theirs is not None and prod(theirs) > prod(mine)):
            found[value] = element, shape
    return found


def _write_facts(facts: Facts, known: Known, flat: Flat, point: Mapping[str, int]) -> None:
    for value in (value for node in flat.model.graph.node for value in node.output if value):
        shape = fixed_shape(known, value)
        if shape is None or known[value][0] not in DTYPES:
            continue
        before = facts.shape.get(value)
        if before is None or tuple([point.get(dim, dim) if isinstance(dim, str) else dim for dim in before]) != shape:
            facts.shape[value] = shape
            facts.derived.add(value)
        facts.dtype.setdefault(value, DTYPES[known[value][0]])


def _unbounded(node: onnx.NodeProto, scope: str, source: str) -> InvalidIrShapes:
    count = node.input[0]
    what = f'make its trip count ("{count}") a constant of the model' if count else "give it a constant as trip count"
    return InvalidIrShapes(
        f'the operator Loop ("{scope}"): its state changes its shape from one iteration to the next, and nothing '
        "in the model bounds how often that is.",
        hint=f"Give a maximum: tmmu convert MODEL --dims {count or scope}=64 -o GRAPH.json. Or {what}: the maximum.",
        reason="scope_shape",
        node_id=scope,
        source=source,
    )
