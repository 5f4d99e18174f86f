"""Convert arguments of the public functions to values of the core: sources, options, limits."""

import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from fractions import Fraction
from functools import wraps
from numbers import Real
from pathlib import Path
from typing import Any, ParamSpec, TypeAlias, TypeVar

import msgspec

from tmmu_core.base import strict
from tmmu_core.base.errors import U64_MAX, UnreadableInput, unopened
from tmmu_core.fitting.move import KINDS
from tmmu_core.fitting.problem.answer import ALLOWED, Allowed
from tmmu_core.fitting.problem.capacity import Capacity
from tmmu_core.formats.open_file import Opened, read_any, read_at, refuse_unplannable
from tmmu_core.formats.planfile.trace import Trace
from tmmu_core.graph.model import Graph
from tmmu_core.graph.native.unpacking import read_whole
from tmmu_core.graph.quantities import parse_bytes, parse_percent
from tmmu_core.judge.verifier.finished_plan import verify_finished
from tmmu_core.planners.problem import GIVEN, PlainInstance, Progress
from tmmu_core.plans.analysis.gate import ALL, GROWTH, Limit, Measure
from tmmu_core.plans.making.make import PlanningResult, make_plan
from tmmu_core.plans.making.request import ANY_ARENA, PlanRequest
from tmmu_core.plans.making.request_options import OPTION_SPECS, contradiction, first_graph_option
from tmmu_core.plans.model import Plan

Source: TypeAlias = str | os.PathLike[str] | bytes | Mapping[str, Any] | Graph | PlainInstance | Plan | Trace | Any
"""A path, the bytes of a file, a native graph as a dict, a value of the core, or a PyTorch module."""
Amount: TypeAlias = int | str
"""Bytes, or a text such as ``"8GiB"``."""
Share: TypeAlias = int | float | str | Fraction
"""Percent, or a text such as ``"5 %"``."""
Capacities: TypeAlias = int | str | Mapping[str, int | str]
"""Bytes over all arenas, or by arena."""

FIELDS = tuple("capacity" if field.name == "capacities" else field.name for field in fields(PlanRequest))
"""The parameters of :func:`tmmu.plan` that are fields of its request."""
_NUMBERS = ("alignment", "page_size", "seed", "rank", "world_size", "budget")


def open_source(source: Source, dims: Mapping[str, int] | None = None, example_inputs: Any = ()) -> Opened:
    """Return the graph, instance, plan or trace of a source.

    Raises ``UnreadableInput`` for a value of another type, and the errors of the readers.
    """
    if isinstance(source, Graph | PlainInstance | Plan | Trace):
        return source
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        refuse_unplannable(path)
        try:
            data = read_whole(path)
        except OSError as error:
            raise unopened(error, path) from error
        return _read(data, path.name, dims)
    if isinstance(source, bytes | bytearray | memoryview):
        return _read(bytes(source), "bytes", dims)
    if isinstance(source, Mapping):
        try:
            data = msgspec.json.encode(source)
        except (TypeError, ValueError) as error:
            raise UnreadableInput(f"the dict is not JSON: {error}.", hint="Use texts, numbers and lists.") from error
        return _read(data, "dict", dims)
    if _is_of_torch(source):
        from tmmu_core.formats.pytorch.torch_module import import_torch

        inputs = (example_inputs,) if _is_of_torch(example_inputs) else example_inputs
        return import_torch(source, inputs, train=bool(getattr(source, "training", False)))
    raise UnreadableInput(
        f"a value of type {type(source).__name__} has no graph.",
        hint="Give a path, bytes, a dict, a Graph, a PyTorch module or a result of tmmu.read.",
    )


def is_training_module(source: Any) -> bool:
    """Return whether ``source`` is an ``nn.Module`` of PyTorch in training mode."""
    is_module = any(kind.__module__ == "torch.nn.modules.module" for kind in type(source).__mro__)
    return is_module and bool(source.training) and not hasattr(source, "graph_signature")


def _is_of_torch(value: Any) -> bool:
    """Return whether a value's type is defined by PyTorch, which need not be imported."""
    return any(kind.__module__.partition(".")[0] == "torch" for kind in type(value).__mro__)


def _read(data: bytes, name: str, dims: Mapping[str, int] | None) -> Opened:
    found = read_any(data, name)
    return read_at(found, dims, data, name) if isinstance(found, Graph) and dims else found


def made_of(found: Opened, request: PlanRequest, progress: Progress | None = None) -> PlanningResult:
    """Plan a graph or an instance. If an instance has all offsets, the plan is verified.

    Raises ``UnreadableInput`` for a plan, and for an instance with options of graphs.
    """
    if isinstance(found, Plan | Trace):
        raise UnreadableInput("the source already is a plan.", hint="Read it with tmmu.read.")
    idle = first_graph_option(request) if isinstance(found, PlainInstance) else None
    if idle is not None:
        raise UnreadableInput(f"it is an instance without a graph: it has no {idle}.", hint=f"Omit the {idle}.")
    made = make_plan(found, request, progress)
    return replace(made, plan=verify_finished(made.plan).plan) if made.request.planner == GIVEN else made


def request_of(given: Mapping[str, Any]) -> PlanRequest:
    """Return the request of options by name (``FIELDS``), as values or as texts of the command line.

    ``None`` means the default. Raises ``UnreadableInput``.
    """
    named = {"capacities" if name == "capacity" else name: given[name] for name in given if given[name] is not None}
    request = PlanRequest(**{name: _value(name, value) for name, value in named.items()})
    contradicted = contradiction(request)
    if contradicted is not None:
        raise UnreadableInput(contradicted.message, hint=contradicted.hint)
    return request


def _value(name: str, value: Any) -> Any:
    if name == "capacities" and isinstance(value, Mapping):
        return {arena: amount_of_bytes("capacity", size) for arena, size in value.items()}
    if name == "capacities" and (isinstance(value, int) or (isinstance(value, str) and "=" not in value)):
        return {ANY_ARENA: value if isinstance(value, int) else amount_of_bytes("capacity", value)}
    if name == "order" and not isinstance(value, str):
        return tuple(value)
    if name in _NUMBERS and isinstance(value, int):
        value = strict.shown(value)
    if not isinstance(value, str) or name in ("mode", "preset", "planner"):
        return value
    try:
        return OPTION_SPECS[name].read(value)
    except ValueError as error:
        raise UnreadableInput(f"{name}: {error}", hint=f"Write {OPTION_SPECS[name].metavar}.") from None


def amount_of_bytes(name: str, value: Amount) -> int:
    """Return a number of bytes, given as a number or a text (``"8GiB"``). Raises ``UnreadableInput``."""
    problem = f"{strict.shown(value)} is not a number of bytes."
    size: int | None = None
    try:
        if isinstance(value, str | Real):
            size = parse_bytes(value) if isinstance(value, str) else int(value)
    except OverflowError:  # infinity
        pass
    except ValueError as error:
        problem = str(error)
    if size is None or not 0 <= size <= U64_MAX:
        raise UnreadableInput(f"{name}: {problem}", hint="Write 65536, 64KiB or 8 GiB.")
    return size


def ratio(name: str, value: Share) -> Fraction:
    """Return a percentage, given as a number or a text, as a ratio. Raises ``UnreadableInput``."""
    try:
        return parse_percent(
            value if isinstance(value, str) else strict.shown(value) if isinstance(value, int) else str(value)
        )
    except ValueError as error:
        raise UnreadableInput(f"{name}: {str(error).partition('. ')[0]}.", hint="Write 5, or '5 %'.") from None


def allowed_moves(
    allow: str | Iterable[str] | None,
    max_cost: Share | None,
    keep_phases: bool,
    options: tuple[str, str] = ("allow", "max_cost"),
) -> Allowed:
    """Return the moves that a fit may make. Raises ``UnreadableInput``; ``options`` are the option names in it."""
    given = ALLOWED if allow is None else allow
    names = [*filter(None, map(str.strip, given.split(",")))] if isinstance(given, str) else list(given)
    kinds = [kind for kind in KINDS if kind in names]
    for name in names:
        if name not in kinds:
            raise UnreadableInput(f"{options[0]}: unknown change {name!r}.", hint=strict.closest_hint(name, KINDS))
    cost = None if max_cost is None else int(ratio(options[1], max_cost) * 100_000)
    return Allowed(frozenset(kinds), cost, keep_phases)


def limits_of(what: Measure, given: Any) -> list[Limit]:
    """Return the limits of one measure: over all arenas, by arena for a mapping, none for ``None``."""
    if given is None:
        return []
    each = given.items() if isinstance(given, Mapping) else [(ALL, given)]
    return [limit_of(what, what, value, arena) for arena, value in each]


def limit_of(name: str, what: Measure, value: Any, arena: str = ALL) -> Limit:
    """Return one limit; errors name the option ``name``."""
    if what == "reuse cost" and not str(value).isdecimal():
        raise UnreadableInput(f"{name}: {strict.shown(value)} is not a cost.", hint="Write a whole number, 0 or more.")
    read = ratio if what in ("gap", "reuse") else amount_of_bytes
    return Limit(what, Fraction(read(name, value)), arena)


def growths_of(given: Mapping[str, Any]) -> list[Limit]:
    """Return the growth limits of live peak, extent and lower bound; a limit without an option is 0.

    ``given`` has three options in order: for all measures, for the peak, for the extent. Peak and extent use their own
    option, else the option for all; the lower bound uses the option for all, else that for the peak.
    """
    overall, peak, extent = given
    options = {
        "peak growth": (peak, overall),
        "extent growth": (extent, overall),
        "lower bound growth": (overall, peak),
    }
    limits = []
    for what in GROWTH:
        name = next((name for name in options[what] if given[name] is not None), overall)
        value = 0 if given[name] is None else given[name]
        relative = isinstance(value, str) and value.strip().endswith("%")
        limits.append(Limit(what, Fraction((ratio if relative else amount_of_bytes)(name, value)), relative=relative))
    return limits


def capacity_of(given: Capacities) -> Capacity:
    """Return a capacity over all arenas (bytes), or by arena (a mapping)."""
    if isinstance(given, Mapping):
        return Capacity(None, {arena: amount_of_bytes("capacity", size) for arena, size in given.items()})
    return Capacity(amount_of_bytes("capacity", given))


P = ParamSpec("P")
R = TypeVar("R")


def suggest_options(function: Callable[P, R]) -> Callable[P, R]:
    """Return ``function`` with a ``TypeError`` that names the closest option if a keyword is unknown."""
    parameters = inspect.signature(function).parameters
    options = [name for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY]

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in parameters:
                hint = strict.closest_hint(name, options)
                raise TypeError(f"{function.__name__}() has no option {name!r}. {hint}")
        return function(*args, **kwargs)

    return checked
