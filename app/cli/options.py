"""The options that every planning command takes (contract §10), parsed in this one place.

They are the fields of a :class:`~tmmu_core.plan.making.request.PlanRequest`, written as its table says. A command
declares a parameter ``request: PlanRequest`` and is wrapped by :func:`planning`, which puts the options in its place;
:func:`resolve` then turns a file, whatever it holds, into a plan.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.console import STREAM, UsageFault, note, read_input, say
from app.say import words
from tmmu_core.errors import U64_MAX, ContractError, UnreadableInput
from tmmu_core.graph.model import Graph
from tmmu_core.graph.quantities import parse_bytes
from tmmu_core.judge.finding import Finding, Verdict
from tmmu_core.judge.finished import finished, refuse_invalid
from tmmu_core.plan.formats.reading import Opened, read_any, read_at, read_streamed
from tmmu_core.plan.formats.trace import Trace
from tmmu_core.plan.making.engine import Solution
from tmmu_core.plan.making.make import make_plan
from tmmu_core.plan.making.request import PlanRequest
from tmmu_core.plan.making.wording import SAID, Said, contradiction, idle_for_instance, option_pairs, written
from tmmu_core.plan.model import UNHELD, Plan
from tmmu_core.planners.problem import GIVEN, PlainInstance

if TYPE_CHECKING:
    from tmmu_core.plan.formats.xla_folder import Module


@dataclass(frozen=True, eq=False)
class Resolved:
    """A plan and what it was made from, as far as that is known."""

    name: str
    plan: Plan
    solution: Solution | None = None
    trace: Trace | None = None

    cut_from: bytes | None = None
    """The ir_hash of the whole graph where the plan is one rank's."""
    verdict: Verdict | None = None
    """What the judge says of a plan that came finished; ``None`` for one that was made now."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What makes a finished plan invalid; none where it is sound, or was made now."""
        return () if self.verdict is None else self.verdict.errors

    @property
    def graph(self) -> Graph | None:
        """The graph as planned: as given, or the rank's share of it."""
        return self.solution.graph if self.solution else None


Source = Annotated[str, typer.Argument(metavar="FILE", help="The file to read; - for standard input.")]
AsJson = Annotated[bool, typer.Option("--json", help="Write JSON, and errors as one JSON record.")]
Out = Annotated[
    str | None, typer.Option("-o", "--output", metavar="FILE", help="Write to this file; - for standard output.")
]


FIRST_FINDINGS = 5
"""So many findings are said of an invalid plan; ``tmmu verify`` says all."""

OPERATORS = {
    "apply": "UML_OS.TMMU.ApplyPlan_v1",
    "checkpoint": "UML_OS.TMMU.Checkpoint_v1",
    "export": "UML_OS.TMMU.MapToVirtualAddresses_v1",
    "record": "UML_OS.TMMU.PlanMemory_v2",
}
"""Command → the operator that refuses an invalid plan."""

FILES = tuple(name for name, said in SAID.items() if said.file)
"""The shared options that name a file to read."""


def _parameter(name: str, said: Said) -> inspect.Parameter:
    kind: Any = list[str] | None if said.many else str | None
    option = typer.Option(said.option, *said.alias, metavar=said.metavar, help=said.about)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option])


_SHARED = [_parameter(name, said) for name, said in SAID.items()]


def planning(command: Callable[..., int]) -> Callable[..., int]:
    """Put the shared options in the place of the command's ``request`` parameter."""
    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "request"]

    @functools.wraps(command)
    def wrapper(**given: Any) -> int:
        shared = {name: given.pop(name) for name in SAID}
        read = [*(v for name, v in given.items() if name != "output"), *(shared[name] for name in FILES)]
        if read.count(STREAM) > 1:
            raise UsageFault("standard input can be read once only.", "Give - to one of them.")
        request = read_request(shared)
        try:
            return command(**given, request=request)
        except ContractError as error:
            if request.token is not None or request.seed is not None:
                error.fill(replay_token=request.replay_token.hex(), rank=request.rank)
            raise

    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*own, *_SHARED)]
    vars(wrapper)["__signature__"] = inspect.Signature(parameters)
    wrapper.__annotations__ = {p.name: p.annotation for p in (*own, *_SHARED)}
    return wrapper


def read_request(given: Mapping[str, str | list[str] | None]) -> PlanRequest:
    """The options as typed, by field, to a request. Raises :class:`UsageFault` and ``UnreadableInput``."""
    request = PlanRequest(**{name: _read(name, text) for name, text in given.items() if text is not None})
    contradicted = contradiction(request)
    if contradicted is not None:
        raise UsageFault(contradicted.what, contradicted.way_out)
    return request


def _read(name: str, text: str | list[str]) -> Any:
    said = SAID[name]
    try:
        if name == "options":
            assert isinstance(text, list)
            return option_pairs(text)
        if isinstance(text, list):
            return said.read(",".join(text))
        return _read_file(text, said) if said.file else said.read(text)
    except ValueError as error:
        raise UsageFault(f"{said.option}: {error}", f"Write {said.option} {said.metavar}.") from None


def _read_file(name: str, said: Said) -> Any:
    data = read_input(name)
    try:
        return said.read(data.decode())
    except UnicodeDecodeError as error:
        place = f"byte {error.start}"
        raise UnreadableInput(f"the {said.file} is not text in UTF-8.", source=name, place=place) from error
    except UnreadableInput as error:
        error.source = name
        raise


def read_token(text: str) -> bytes:
    """64 hexadecimal digits to 32 bytes. Raises :class:`UsageFault`."""
    token: bytes = _read("token", text)
    return token


def read_bytes_option(name: str, text: str) -> int:
    """A count of bytes as people write it. Raises :class:`UsageFault`."""
    try:
        value = parse_bytes(text)
    except ValueError as error:
        raise UsageFault(f"{name}: {error}") from None
    if value is None or value > U64_MAX:
        raise UsageFault(f"{name}: {text!r} is not between 0 and 2^64 − 1.")
    return value


# --- from a file to a plan ---------------------------------------------------------------------------------------


def open_any(name: str, dims: Mapping[str, int] | None = None) -> Opened:
    """What a file holds; ``-`` for standard input. Raises ``TmmuError``.

    A model that leaves sizes open is read at ``dims`` where these are other than its reader assumes.
    """
    streamed = None if name == STREAM else read_streamed(Path(name), name)
    if streamed is not None:
        return streamed
    data, source = input_of(name)
    found = read_any(data, source)
    return read_at(found, dims, data, source) if isinstance(found, Graph) and dims else found


def input_of(name: str) -> tuple[bytes, str]:
    """``(bytes, what they are called)`` of a file; ``-`` for standard input. Raises ``UnreadableInput``."""
    if name != STREAM and os.path.isdir(name):
        from tmmu_core.plan.formats import xla_folder

        folder = Path(name)
        name = str(folder / xla_folder.only(modules_in(folder), name).assignment)
    data = read_input(name)
    for beside in _beside(name):
        if os.path.exists(beside):
            data += b"\n" + read_input(beside)  # the files of one module of a dump are one finished plan
    return data, "standard input" if name == STREAM else name


def _beside(name: str) -> list[str]:
    """The files that belong to one of an XLA dump; whoever plans another kind of file does not load its reader."""
    if not name.endswith(".txt"):
        return []
    from tmmu_core.graph.importers import xla

    return [other for other in (xla.companion(name), xla.program_of(name)) if other is not None]


def modules_in(folder: Path) -> tuple[Module, ...]:
    """The modules of an XLA dump in a folder, the largest first. Raises ``UnreadableInput``."""
    from tmmu_core.plan.formats import xla_folder

    try:
        return xla_folder.modules(xla_folder.sizes_in(folder))
    except OSError as error:
        why = f"the folder cannot be opened: {(error.strerror or str(error)).lower()}."
        raise UnreadableInput(why, source=str(folder), hint="Check the name and the rights.") from error


def resolve(name: str, request: PlanRequest, *, plans_too: bool = True) -> Resolved:
    """The plan of a file: made now from a graph or an instance, taken as it is from a plan, trace or checkpoint.

    With ``plans_too`` false a file that holds a plan already is refused. Raises ``TmmuError``.
    """
    return resolve_opened(open_any(name, request.dims), name, request, plans_too=plans_too)


def resolve_opened(opened: Opened, name: str, request: PlanRequest, *, plans_too: bool = True) -> Resolved:
    """The same for what was opened already."""
    if isinstance(opened, Plan | Trace):
        if not plans_too:
            raise UsageFault(
                f"{name} holds a plan already.", "Give a graph or an instance; a plan is looked at as it is."
            )
        _refuse_idle_options(name, request)
        trace = opened if isinstance(opened, Trace) else None
        plan = opened.plan if isinstance(opened, Trace) else opened
        return _finished(Resolved(name, plan, trace=trace))
    if isinstance(opened, PlainInstance):
        about_instance(opened, request)
    with progress_on_terminal() as progress:
        made = make_plan(opened, request, progress)
    found = Resolved(name, made.plan, made.solution, cut_from=made.cut_from)
    return _finished(found) if made.request.planner == GIVEN else found


def _finished(found: Resolved, graph: Graph | None = None, **how: Any) -> Resolved:
    """A plan that nobody here made, with the judge's verdict (contract §11)."""
    complete = found.trace is None or found.trace.complete
    judged = finished(found.plan, graph, complete=complete, **how)
    if graph is None and found.plan.remark(UNHELD):
        note(f"{found.name}: nothing vouches for this file, {found.plan.remark(UNHELD)}.")
    return replace(found, plan=judged.plan, verdict=judged.verdict)


def judged_against(found: Resolved, graph: Graph, request: PlanRequest) -> Resolved:
    """A finished plan judged once more, against its graph."""
    if found.verdict is None or (found.trace is not None and not found.trace.complete):
        return found
    return _finished(found, graph, dims=request.dims or None, arenas=request.arenas, cut_from=found.cut_from)


def about_instance(instance: PlainInstance, request: PlanRequest) -> None:
    """Tell what its reader has to say, and refuse options that only a graph has."""
    for line in instance.notes:
        note(f"{instance.name}: {line}")
    idle = idle_for_instance(request)
    if idle is not None:
        raise UsageFault(f"{instance.name} is an instance without a graph: it has no {idle}.")


def resolve_either(name: str, request: PlanRequest) -> Resolved:
    """The same for commands that take finished plans and graphs side by side: the options are for the graphs."""
    opened = open_any(name, request.dims)
    return resolve_opened(opened, name, PlanRequest() if isinstance(opened, Plan | Trace) else request)


def whole(found: Resolved) -> Plan:
    """The plan, which must tell its tensors. Raises :class:`UsageFault` for a digest."""
    if found.trace is not None and not found.trace.complete:
        raise UsageFault(f"{found.name} is a digest: it does not tell its tensors.", "Give the plan, or a whole trace.")
    return found.plan


def sound(found: Resolved, command: str) -> Plan:
    """The plan, to be acted on. Raises :class:`UsageFault` for a digest, and what is wrong with an invalid plan."""
    plan = whole(found)
    if found.verdict is not None:
        refuse_invalid(plan, OPERATORS.get(command, OPERATORS["export"]), found.verdict)
    return plan


def say_invalid(found: Resolved) -> None:
    """Say on standard output why a finished plan is invalid, with its first findings; nothing where it is sound."""
    if found.findings:
        say("", f"INVALID: {found.name} does not verify, with {words.count(len(found.findings), 'finding')}:")
        say(*(f"  {finding.rule}: {finding.message}" for finding in found.findings[:FIRST_FINDINGS]))


def _refuse_idle_options(name: str, request: PlanRequest) -> None:
    idle = [SAID[field].option for field in written(request)]
    if idle:
        raise UsageFault(
            f"{name} holds a finished plan, on which {', '.join(idle)} has no effect.", "Give the graph instead."
        )


@contextmanager
def progress_on_terminal() -> Any:
    """A progress callback that draws on a terminal's standard error; ``None`` in a pipe."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, Any] = {}

        def progress(what: str, done: int, of: int) -> bool:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=of or None)
            bars.update(tasks[what], completed=done, total=of or None)
            return True

        yield progress
