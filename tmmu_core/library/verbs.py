"""The verbs of ``import tmmu_core as tmmu``. What they promise is in ``docs/library.md``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tmmu_core.errors import UnreadableInput
from tmmu_core.graph.model import Graph
from tmmu_core.judge.finding import Verdict
from tmmu_core.judge.finished import finished as judged
from tmmu_core.judge.verifier import verify_plan
from tmmu_core.library.fitted import OF_FITS, Fit
from tmmu_core.library.packed import ARENA, Packed, instance_of
from tmmu_core.library.planned import Plan, as_plan, fit_of
from tmmu_core.library.requests import amount_of_bytes, finished, made_of, opened, request_of
from tmmu_core.plan import model
from tmmu_core.plan.formats.compare import Comparison
from tmmu_core.plan.formats.compare import compare as compare_plans
from tmmu_core.plan.formats.trace import Trace
from tmmu_core.plan.making.make import make_plan
from tmmu_core.plan.making.request import PlanRequest
from tmmu_core.planners.problem import Progress


def read(source: Any, *, dims: Mapping[str, int] | None = None) -> Any:
    """What a path or bytes hold: a :class:`Graph`, a :class:`Plan`, a ``PlainInstance`` or a ``Trace``.

    A ``PlainInstance`` is a packing problem without a graph. ``dims`` says sizes that a model leaves open. Whatever
    comes finished is verified: where it does not hold, its arenas' ``status`` is ``invalid``. Raises
    ``UnreadableInput``, which names every reader tried, and ``InvalidIrShapes`` for a graph that says something
    impossible. Source: contract §8, §9, §11.
    """
    found = opened(source, dims)
    if isinstance(found, Trace):
        return replace(found, plan=Plan.of(finished(found.plan, complete=found.complete)))
    return Plan.of(finished(found)) if isinstance(found, model.Plan) else found


def plan(source: Any, *, example_inputs: Any = (), progress: Progress | None = None, **how: Any) -> Plan:
    """Plan a graph: when each tensor lives, which slot holds it, at which offset of which arena.

    ``source`` is a path or bytes in any format that :func:`read` reads, a :class:`Graph`, a packing instance, or a
    PyTorch module or exported program with its ``example_inputs`` (a training step where the module is in training
    mode). ``how`` are the fields of :class:`PlanRequest`, as values or as the command line writes them:
    ``planner="auto"``, ``mode="inference"``, ``dims={"B": 8}`` or ``"B=8"``, ``capacity="8GiB"``, ``alignment=256`` …
    ``progress(what, done, of)`` is called now and then; where it gives false, the best so far is kept.

    Steps count from 0 and ranges are half-open; offsets and sizes are bytes. The same source and options give the same
    bytes everywhere. Raises ``UnreadableInput`` for what cannot be read, ``MissingExtra`` with the line that installs
    its reader, ``ArenaTooSmall`` over a capacity, and the other errors of contract §5; ``TypeError`` for an option that
    there is not. Source: UML_OS.TMMU.PrepareMemory_v2, contract §1 to §7.
    """
    request = request_of(how)
    made = made_of(opened(source, request.dims, example_inputs), request, progress)
    return Plan.of(made.plan, made)


def fit(source: Any, capacity: Any, *, example_inputs: Any = (), **how: Any) -> Fit[Plan]:
    """Make a graph fit ``capacity``: bytes for all arenas (``"8GiB"``), or a mapping from arena to bytes.

    ``source`` as in :func:`plan`. ``allow`` are the kinds of moves (``planner``, ``order``, ``recompute`` …),
    ``max_cost`` the most extra operations in percent of the graph's, ``progress`` as in :func:`plan`; the other options
    are :func:`plan`'s. Gives a :class:`~tmmu_core.library.fitted.Fit`, true where it fits: its answer is ``fits``,
    ``cannot`` (proven) or ``open``. Raises as :func:`plan` does. Source: contract §11.
    """
    asked = {name: value for name, value in how.items() if name not in OF_FITS}
    request = request_of(asked)
    found = opened(source, request.dims, example_inputs)
    if not isinstance(found, Graph):
        raise UnreadableInput("it does not hold a graph.", hint="What is moved are a graph's nodes: give the graph.")
    return fit_of(found, request, capacity, {name: how[name] for name in OF_FITS if name in how})


def pack(
    lower: ArrayLike,
    upper: ArrayLike,
    size: ArrayLike,
    *,
    alignment: ArrayLike = 1,
    capacity: int | str | None = None,
    planner: str = "auto",
    minimise: bool | None = None,
) -> Packed:
    """Pack buffers that live in ``[lower, upper)`` into one arena: an offset each, no two alive on the same byte.

    ``lower``, ``upper`` (steps), ``size`` (bytes): whole numbers, shape (n,). ``alignment``: powers of two, shape (n,)
    or one for all. ``capacity``: bytes, or a text (``"1MiB"``); with one, the search ends when everything fits, unless
    ``minimise`` (an option of ``auto`` and ``exact``) asks for the least.
    Gives offsets in the order of the buffers. Raises ``ArenaTooSmall`` where nothing was found that fits, and
    ``UnreadableInput`` for arrays that do not belong together. Source: dynamic storage allocation, as MiniMalloc
    has it (Moffitt 2023).
    """
    columns: dict[str, ArrayLike | None] = {"lower": lower, "upper": upper, "size": size, "alignment": alignment}
    instance, place = instance_of(columns, None if capacity is None else amount_of_bytes("capacity", capacity))
    options = {} if minimise is None else {"minimise": minimise}
    made = make_plan(instance, PlanRequest(planner=planner, options=options))
    rows = np.array([made.plan.row_of[name] for name in instance.problem.ids], np.int64)
    offset = made.plan.offset[rows[place]] if len(rows) else np.zeros(0, np.uint64)
    assert not made.plan.arenas or made.plan.arenas[0].name == ARENA
    return Packed(offset, Plan.of(made.plan, made))


def compare(baseline: Any, candidate: Any) -> Comparison:
    """Two plans, baseline → candidate: comparable or not, identical or where they part, tensor by tensor.

    Either is a plan or whatever :func:`read` reads; a graph is planned with the defaults. Gives the core's
    ``Comparison``: ``comparable``, ``identical``, ``invalid`` (the sides that do not verify), ``first``, ``arenas``,
    ``totals`` (bytes by kind of change), ``changes()``. A digest is compared by its hashes. Raises as :func:`read`
    does. Source: contract §7.
    """
    sides = [side if isinstance(side, model.Plan) else read(side) for side in (baseline, candidate)]
    left, right = (side if isinstance(side, Trace) else as_plan(side) for side in sides)
    return compare_plans(left, right)


def verify(finished: Any, graph: Graph | None = None) -> Verdict:
    """What a judge says of a plan that shares no code with the planners: ``ok``, findings, which rules were tried.

    ``finished`` is a plan or whatever :func:`read` reads; against ``graph``, where it is given, or the one that the
    plan was made from, more rules are tried. Raises as :func:`read` does. Source: contract §1 to §7.
    """
    source = finished if isinstance(finished, model.Plan) else opened(finished)
    if isinstance(source, Trace) and not source.complete:
        return judged(source.plan, complete=False).verdict
    found = as_plan(source)
    return found.verify(graph) if isinstance(found, Plan) else verify_plan(found, graph)
