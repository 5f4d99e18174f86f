"""Convert arguments of the public functions to values of the core: sources, requests, moves, limits."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import wraps
from inspect import Parameter
from itertools import chain
from numbers import Real
from operator import index
from pathlib import Path
from typing import Any, ParamSpec, TypeAlias, TypedDict, TypeVar

import msgspec

from tmmu_core.base import strict
from tmmu_core.base.errors import U64_MAX, UnreadableInput, open_error
from tmmu_core.fitting.move import KINDS
from tmmu_core.fitting.problem.answer import DEFAULT_KINDS, Allowed, Capacity
from tmmu_core.formats.open_file import Opened, read_any, refuse_unplannable
from tmmu_core.formats.planfile.trace import Trace
from tmmu_core.graph.model import Graph, Mode, Preset
from tmmu_core.graph.native.document import read_whole
from tmmu_core.graph.quantities import parse_bytes
from tmmu_core.judge.verifier.finished_plan import verify_finished
from tmmu_core.planners.problem import GIVEN, PlainInstance, Progress
from tmmu_core.plans.analysis.gate import ALL, Limit, Measure
from tmmu_core.plans.making.make import PlanningResult, make_plan
from tmmu_core.plans.making.request import ANY_ARENA, PlanRequest
from tmmu_core.plans.making.request_options import OPTION_SPECS, contradiction, first_graph_option
from tmmu_core.plans.model import Plan

Source: TypeAlias = str | os.PathLike[str] | bytes | Mapping[str, Any] | Graph | PlainInstance | Plan | Trace | Any
"""A path, the bytes of a file, a native graph as a dict, a value of the core, a PyTorch module or exported program."""
Amount: TypeAlias = int | str  # bytes, or a text such as ``"8GiB"``
Share: TypeAlias = int | float | str | Fraction  # percent, or a text such as ``"5 %"``
Capacities: TypeAlias = int | str | Mapping[str, int | str]  # bytes of one memory for all arenas, or arena → bytes
_AMOUNTS = ("alignment", "page_size", "budget")
_COUNTS = ("seed", "rank", "world_size")
_PERCENT = re.compile(r"\+?(?:\d{1,20}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,2})?|\d{1,20}/\d{1,20}", re.ASCII)
"""Pattern of a percentage. It limits the exponent, because the value of ``1e999999999`` does not fit into memory."""
_NON_TEXT_TYPES = {"options": Mapping, "arenas": Mapping, "shard_spec": Mapping, "token": bytes, "order": Iterable}
LIMITS: dict[str, Measure] = {"max_extent": "extent", "max_peak": "peak live bytes", "max_gap": "gap"}
LIMITS |= {"min_reuse": "reuse", "max_reuse_cost": "reuse cost"}  # option of a gate → its measure

GROWTHS: dict[Measure, tuple[str, str]] = {
    "peak growth": ("max_peak_growth", "max_growth"),
    "extent growth": ("max_extent_growth", "max_growth"),
    "lower bound growth": ("max_growth", "max_peak_growth"),
}
"""Measure → the option of its limit, and the option to use if the first is absent."""

P = ParamSpec("P")
R = TypeVar("R")


class PlanOptions(TypedDict, total=False):
    """Options of a plan: fields of a request, as values or as texts of the command line; ``None`` is the default."""

    planner: str | None
    mode: Mode | None
    budget: Amount | None
    arenas: Mapping[str, Any] | str | None
    alignment: Amount | None
    page_size: Amount | None
    one_memory: bool | None
    dims: Mapping[str, Any] | str | None
    order: Sequence[str] | str | None
    options: Mapping[str, Any] | str | None
    preset: Preset | None
    seed: int | str | None
    token: bytes | str | None
    rank: int | str | None
    world_size: int | str | None
    shard_spec: Mapping[str, Any] | str | None
    addressing: str | None


class FitOptions(PlanOptions, total=False):
    """Options of a fit: those of a plan, and four that apply only to a module in training mode."""

    loss: Callable[[Any], Any] | None
    optimizer: Any
    reserve: Amount | None
    largest: str | None


class GateOptions(TypedDict, total=False):
    """Options of :meth:`Plan.gate`."""

    max_extent: Amount | Mapping[str, Amount] | None
    max_peak: Amount | Mapping[str, Amount] | None
    max_gap: Share | Mapping[str, Share] | None
    min_reuse: Share | Mapping[str, Share] | None
    max_reuse_cost: Amount | Mapping[str, Amount] | None
    baseline: Source | None
    max_growth: Amount | None
    max_peak_growth: Amount | None
    max_extent_growth: Amount | None
    graph: Graph | None
    allow_incomplete: bool | None


def open_source(source: Source, dims: Mapping[str, int] | None = None, example_inputs: Any = ()) -> Opened:
    """Return the graph, instance, plan or trace of a source; a PyTorch module is traced on ``example_inputs``.

    ``dims``: sizes of named dimensions; some readers infer all shapes from these. Raises ``UnreadableInput`` for an
    unsupported type, a file that cannot be opened or a dict that is not JSON, and the errors of the readers.
    """
    dims = sizes_of(dims or {})
    if isinstance(source, Graph | PlainInstance | Plan | Trace):
        return source
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        refuse_unplannable(path)
        try:
            data = read_whole(path)
        except OSError as error:
            raise open_error(error, path) from error
        return read_any(data, path.name, dims)
    if isinstance(source, bytes | bytearray | memoryview):
        return read_any(bytes(source), "bytes", dims)
    if isinstance(source, Mapping):
        try:
            data = msgspec.json.encode(source)
        except (TypeError, ValueError) as error:
            raise UnreadableInput(f"the dict is not JSON: {error}.", hint="Use texts, numbers and lists.") from error
        return read_any(data, "dict", dims)
    if _is_of_torch(source):
        from tmmu_core.formats.pytorch.torch_module import import_torch

        inputs = (example_inputs,) if _is_of_torch(example_inputs) else example_inputs
        return import_torch(source, inputs, train=bool(getattr(source, "training", False)))
    hint = "Give a path, bytes, a dict, a Graph, a PyTorch module or a result of tmmu.read."
    raise UnreadableInput(f"a value of type {type(source).__name__} has no graph.", hint=hint)


def is_training_module(source: Any) -> bool:
    """Return whether ``source`` is an ``nn.Module`` in training mode, and not an unflattened exported program."""
    is_module = any(kind.__module__ == "torch.nn.modules.module" for kind in type(source).__mro__)
    return is_module and bool(source.training) and not hasattr(source, "graph_signature")


def _is_of_torch(value: Any) -> bool:
    """Return whether PyTorch defines a value's type or one of its base classes, without importing PyTorch."""
    return any(kind.__module__.partition(".")[0] == "torch" for kind in type(value).__mro__)


def plan_opened(source: Opened, request: PlanRequest, progress: Progress | None = None) -> PlanningResult:
    """Plan a graph or an instance; if the input's offsets are kept, verify the plan. Raises ``UnreadableInput``."""
    if isinstance(source, Plan | Trace):
        raise UnreadableInput("the source already is a plan.", hint="Read it with tmmu.read.")
    option = first_graph_option(request) if isinstance(source, PlainInstance) else None
    if option is not None:
        raise UnreadableInput(f"the source is an instance without a graph: it has no {option}.", hint=f"Omit {option}.")
    result = make_plan(source, request, progress)
    return replace(result, plan=verify_finished(result.plan).plan) if result.request.planner == GIVEN else result


def request_of(options: Mapping[str, Any]) -> PlanRequest:
    """Return the request for the options; ``None`` means the default. Raises ``UnreadableInput``."""
    values = {"capacities" if name == "capacity" else name: value for name, value in options.items()}
    request = PlanRequest(**{name: _value(name, value) for name, value in values.items() if value is not None})
    fault = contradiction(request)
    if fault is not None:
        raise UnreadableInput(fault.message, hint=fault.hint)
    return request


def _value(name: str, value: Any) -> Any:
    if name == "capacities" and not (isinstance(value, str) and "=" in value):
        capacity = capacity_of(value)
        return capacity.arenas if capacity.total is None else {ANY_ARENA: capacity.total}
    if name in _AMOUNTS:
        return amount_of_bytes(name, value)
    if name in _COUNTS:
        value = _number_text(value)
    if not isinstance(value, str | _NON_TEXT_TYPES.get(name, object)):
        wanted = {"token": "bytes", "order": "a list of node ids"}.get(name, "a dict")
        raise UnreadableInput(f"{name}: {strict.shown(value)} is not {wanted}.", hint=f"Give {wanted} or a text.")
    if not isinstance(value, str):
        return sizes_of(value) if name == "dims" else tuple(value) if name == "order" else value
    spec = OPTION_SPECS[name]
    try:
        return spec.read(value)
    except ValueError as error:
        raise UnreadableInput(f"{name}: {error}", hint=f"Write {spec.metavar or 'True or False'}.") from None


def sizes_of(dims: Mapping[str, Any]) -> dict[str, int]:
    """Return sizes of named dimensions as whole numbers. Raises ``UnreadableInput`` for another value."""
    try:
        return {name: index(size) for name, size in dims.items()}
    except (AttributeError, TypeError):
        why = f"dims: {strict.shown(dims)} is not a dict from dimension to whole number."
        raise UnreadableInput(why, hint='Write {"B": 8}.') from None


def _number_text(value: Any) -> str:
    return strict.shown(value) if isinstance(value, int) else str(value)  # str() rejects integers of 5,000 digits


def amount_of_bytes(name: str, value: Amount) -> int:
    """Return bytes, given as a number (rounded down) or a text (``"8GiB"``). Raises ``UnreadableInput``."""
    problem = f"{strict.shown(value)} is not a number of bytes."
    size: int | None = None
    if isinstance(value, str):
        try:
            size = parse_bytes(value)
        except ValueError as error:
            problem = str(error)
    elif isinstance(value, int | Real) and not isinstance(value, bool):
        with suppress(OverflowError, ValueError):  # infinity, NaN
            size = int(value)
            problem = f"{strict.shown(value)} is over 2^64 − 1 bytes." if size > U64_MAX else problem
    if size is None or not 0 <= size <= U64_MAX:
        raise UnreadableInput(f"{name}: {problem}", hint="Write 65536, 64KiB or 8 GiB.")
    return size


def ratio(name: str, value: Share) -> Fraction:
    """Return a percentage, given as a number or a text (``2.5 %``, ``1/3``), as a ratio. Raises ``UnreadableInput``."""
    text = _number_text(value)
    word = text.strip().removesuffix("%").strip()
    percent: Fraction | None = None
    with suppress(ZeroDivisionError):
        percent = Fraction(word) if _PERCENT.fullmatch(word) else None
    if percent is None or percent > U64_MAX:
        raise UnreadableInput(f"{name}: {text[:80]!r} is not a percentage.", hint="Write 5, or '5 %'.")
    return percent / 100


def allowed_moves(
    allow: str | Iterable[str] | None,
    max_cost: Share | None,
    keep_phases: bool,
    options: tuple[str, str] = ("allow", "max_cost"),
) -> Allowed:
    """Return the moves that a fit may make. ``options``: names of the first two arguments in ``UnreadableInput``."""
    kinds = DEFAULT_KINDS if allow is None else allow
    listed = kinds if isinstance(kinds, Iterable) and not isinstance(kinds, str) else str(kinds).split(",")
    names = [*filter(None, (str(kind).strip() for kind in listed))]
    unknown = next((name for name in names if name not in KINDS), None)
    if unknown is not None:
        raise UnreadableInput(f"{options[0]}: unknown move {unknown!r}.", hint=strict.closest_hint(unknown, KINDS))
    cost = None if max_cost is None else int(ratio(options[1], max_cost) * 100_000)  # in units of 0.001 %
    return Allowed(frozenset(kind for kind in KINDS if kind in names), cost, keep_phases)


def limits_of(options: Mapping[str, Any], option_name: Callable[[str], str] = str) -> list[Limit]:
    """Return the limits of :class:`GateOptions`. With a baseline, a growth without an option has the limit 0.

    A limit of the command line is a list of texts ``[ARENA=]VALUE``. ``option_name``: option → its name in errors.
    """
    limits = []
    for name, what in LIMITS.items():
        option = options.get(name)
        pairs = option.items() if isinstance(option, Mapping) else [] if option is None else [(ALL, option)]
        if isinstance(option, list):
            parts = [text.rpartition("=") if text.find("=") > 0 else (ALL, "=", text) for text in option]
            pairs = [(arena, value) for arena, _, value in parts]
        limits += [Limit(what, _limit(option_name(name), what, value), arena) for arena, value in pairs]
    used = [name for name in dict.fromkeys(chain(*GROWTHS.values())) if options.get(name) is not None]
    if options.get("baseline") is not None:
        for what, names in GROWTHS.items():
            name = next((name for name in names if name in used), "max_growth")
            value = options[name] if name in used else 0
            is_ratio = isinstance(value, str) and value.strip().endswith("%")
            limits.append(Limit(what, _limit(option_name(name), "gap" if is_ratio else what, value), relative=is_ratio))
    elif used:
        hint = "Set the plan to compare against."
        raise UnreadableInput(f"{option_name(used[0])} requires {option_name('baseline')}.", hint=hint)
    return limits


def _limit(name: str, what: Measure, value: Any) -> Fraction:
    if what != "reuse cost":
        return Fraction((ratio if what in ("gap", "reuse") else amount_of_bytes)(name, value))
    try:
        return Fraction(strict.whole_number(_number_text(value)))
    except ValueError as error:
        raise UnreadableInput(f"{name}: {error}", hint="Write a cost of 0 or more.") from None


def capacity_of(value: Capacities) -> Capacity:
    """Return a capacity over all arenas (bytes), or by arena (a mapping). Raises ``UnreadableInput``."""
    if isinstance(value, Mapping):
        return Capacity(None, {arena: amount_of_bytes("capacity", size) for arena, size in value.items()})
    return Capacity(amount_of_bytes("capacity", value))


def suggest_options(options: Any = None) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator: for an unknown keyword, the function raises ``TypeError`` and names the closest option.

    ``options`` is the ``TypedDict`` of the function's ``**options``. Its keys become parameters of the signature.
    """

    def decorator(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        parameters = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        for key, kind in options.__annotations__.items() if options is not None else ():
            parameters.append(Parameter(key, Parameter.KEYWORD_ONLY, default=None, annotation=kind.__forward_arg__))
        names = [p.name for p in parameters if p.name != "self"]

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in kwargs:
                if name not in names:
                    hint = strict.closest_hint(name, names)
                    raise TypeError(f"{function.__name__}() has no option {name!r}. {hint}")
            return function(*args, **kwargs)

        checked.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return checked

    return decorator
