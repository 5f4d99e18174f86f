"""From what a caller writes to the values of the core: sources, options, limits."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from tmmu_core.errors import UnreadableInput
from tmmu_core.fit.capacity import Capacity
from tmmu_core.graph.model import Graph
from tmmu_core.graph.quantities import parse_bytes, parse_percent
from tmmu_core.graph.unpacking import read_whole
from tmmu_core.judge.finished import finished as judged
from tmmu_core.plan.analysis.gate import ALL, Limit, Measure
from tmmu_core.plan.formats.reading import Opened, read_any, read_at, read_streamed
from tmmu_core.plan.formats.trace import Trace
from tmmu_core.plan.making.make import Made, make_plan
from tmmu_core.plan.making.request import PlanRequest
from tmmu_core.plan.making.wording import SAID, contradiction, idle_for_instance
from tmmu_core.plan.model import Plan
from tmmu_core.planners.problem import GIVEN, PlainInstance, Progress

FIELDS = tuple(field.name for field in fields(PlanRequest))
_NUMBERS = ("alignment", "page_size", "seed", "rank", "world_size", "budget")
ALSO = {"capacity": "capacities"}
"""Other words for a field."""


def opened(source: Any, dims: Mapping[str, int] | None = None, example_inputs: Any = ()) -> Opened:
    """What a source holds: a path, bytes, a PyTorch module or exported program, or any value that is one already.

    Raises ``UnreadableInput`` for what is none of these, and what the reader raises.
    """
    if isinstance(source, Graph | PlainInstance | Plan | Trace):
        return source
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        streamed = read_streamed(path, path.name)
        if streamed is not None:
            return streamed
        try:
            data = read_whole(path)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise UnreadableInput(
                f"the file cannot be opened: {why}.", source=str(path), hint="Check the name and the rights."
            ) from error
        return _read(data, path.name, dims)
    if isinstance(source, bytes | bytearray | memoryview):
        return _read(bytes(source), "bytes", dims)
    if any(kind.__module__.partition(".")[0] == "torch" for kind in type(source).__mro__):
        from tmmu_core.graph.importers.torch import import_torch

        return import_torch(source, example_inputs, train=bool(getattr(source, "training", False)))
    raise UnreadableInput(
        f"a {type(source).__name__} holds no graph.",
        hint="Give a path, bytes, a Graph, a PyTorch module or what tmmu.read gives.",
    )


def _read(data: bytes, name: str, dims: Mapping[str, int] | None) -> Opened:
    found = read_any(data, name)
    return read_at(found, dims, data, name) if isinstance(found, Graph) and dims else found


def finished(plan: Plan, *, complete: bool = True) -> Plan:
    """A plan that came finished: where it does not verify, nothing is believed of its arenas."""
    return judged(plan, complete=complete).plan


def whole(trace: Trace) -> Plan:
    """The plan that a trace tells. Raises ``UnreadableInput`` for a digest."""
    if not trace.complete:
        raise UnreadableInput("a digest does not tell its tensors.", hint="Give the plan, or a whole trace.")
    return trace.plan


def made_of(found: Opened, request: PlanRequest, progress: Progress | None = None) -> Made:
    """The plan of what was opened; of offsets that came with an instance, what the judge believes.

    Raises ``UnreadableInput`` where it is a plan already, and where an instance is asked for what only a graph has.
    """
    if isinstance(found, Plan | Trace):
        raise UnreadableInput("it holds a plan already.", hint="Read it with tmmu.read.")
    idle = idle_for_instance(request) if isinstance(found, PlainInstance) else None
    if idle is not None:
        raise UnreadableInput(f"it is an instance without a graph: it has no {idle}.", hint=f"Leave the {idle} out.")
    made = make_plan(found, request, progress)
    return replace(made, plan=finished(made.plan)) if made.request.planner == GIVEN else made


def request_of(given: Mapping[str, Any]) -> PlanRequest:
    """The fields of a request as a caller writes them: values, or texts as the command line takes them.

    Raises ``TypeError`` for a name that is no field, ``UnreadableInput`` for a text that says nothing.
    """
    named = {ALSO.get(name, name): value for name, value in given.items() if value is not None}
    unknown = sorted(set(named) - set(FIELDS))
    if unknown:
        raise TypeError(f"there is no option {unknown[0]!r}; the options are {', '.join(FIELDS)}")
    request = PlanRequest(**{name: _value(name, value) for name, value in named.items()})
    contradicted = contradiction(request)
    if contradicted is not None:
        raise UnreadableInput(contradicted.what, hint=contradicted.way_out)
    return request


def _value(name: str, value: Any) -> Any:
    if name == "capacities" and isinstance(value, int):
        return {"": value}
    if name == "capacities" and isinstance(value, Mapping):
        return {arena: amount_of_bytes(name, size) for arena, size in value.items()}
    if name == "order" and not isinstance(value, str):
        return tuple(value)
    if name in _NUMBERS and isinstance(value, int):
        value = str(value)
    if not isinstance(value, str) or name in ("mode", "preset", "planner"):
        return value
    try:
        return SAID[name].read(value)
    except ValueError as error:
        raise UnreadableInput(f"{name}: {error}", hint=f"Write {SAID[name].metavar}.") from None


def amount_of_bytes(name: str, value: int | str) -> int:
    """A count of bytes, as a number or as people write it: ``"8GiB"``. Raises ``UnreadableInput``."""
    try:
        found = parse_bytes(value) if isinstance(value, str) else int(value)
    except ValueError as error:
        raise UnreadableInput(f"{name}: {error}", hint="Write 65536, 64KiB or 8 GiB.") from None
    if found is None or found < 0:
        raise UnreadableInput(f"{name}: {value!r} is no count of bytes.", hint="Write 65536, 64KiB or 8 GiB.")
    return found


def ratio(name: str, value: int | float | str | Fraction) -> Fraction:
    """Percent, as a number or a text, as a ratio. Raises ``UnreadableInput``."""
    try:
        return parse_percent(value if isinstance(value, str) else str(value))
    except ValueError as error:
        raise UnreadableInput(f"{name}: {str(error).partition('. ')[0]}.", hint="Write 5, or '5 %'.") from None


def limits_of(what: Measure, given: Any) -> list[Limit]:
    """A limit over all arenas, or an arena's each where ``given`` is a mapping; none for ``None``."""
    if given is None:
        return []
    each = given.items() if isinstance(given, Mapping) else [(ALL, given)]
    read = ratio if what in ("gap", "reuse") else amount_of_bytes
    return [Limit(what, Fraction(read(what, value)), arena) for arena, value in each]


def growth_of(given: Any) -> Limit:
    """Bytes, or a percentage where it is a text that ends in %."""
    if isinstance(given, str) and given.strip().endswith("%"):
        return Limit("growth", ratio("max_growth", given), relative=True)
    return Limit("growth", Fraction(amount_of_bytes("max_growth", given)))


def capacity_of(given: Any) -> Capacity:
    """One memory for all arenas (bytes), or each its own (a mapping)."""
    if isinstance(given, Mapping):
        return Capacity(None, {arena: amount_of_bytes("capacity", size) for arena, size in given.items()})
    return Capacity(amount_of_bytes("capacity", given))
