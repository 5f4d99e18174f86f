"""The options that every planning command takes (contract §10), parsed in this one place.

A command declares a parameter ``request: PlanRequest`` and is wrapped by :func:`planning`, which puts the options in
its place; :func:`resolve` then turns a file, whatever it holds, into a plan.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import typer

from app.cli.console import STREAM, UsageFault, note, read_input
from app.say import words
from tmmu_core.errors import U64_MAX, UnreadableInput
from tmmu_core.graph.importers import xla
from tmmu_core.graph.model import Graph
from tmmu_core.plan.formats.reading import Opened, PlainInstance, read_any
from tmmu_core.plan.formats.trace import Trace
from tmmu_core.plan.making.engine import Solution, plan_graph
from tmmu_core.plan.making.instance import plan_problem
from tmmu_core.plan.making.ranks import RankPlans, plan_rank, plan_ranks
from tmmu_core.plan.model import Plan
from tmmu_core.planners.problem import Progress


@dataclass(frozen=True)
class PlanRequest:
    """What the shared options say, read and checked; fields as ``plan_graph`` names them."""

    mode: str | None = None
    preset: str | None = None
    planner: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    arenas: Mapping[str, Any] | None = None
    order: tuple[str, ...] | None = None
    token: bytes | None = None
    seed: int | None = None
    rank: int = 0
    world_size: int | None = None
    """``None``: the mesh's where there is a shard spec, else 1."""
    shard_spec: Mapping[str, Any] | None = None
    dims: Mapping[str, int] | None = None
    budget: int | None = None
    addressing: str = "offsets"


@dataclass(frozen=True, eq=False)
class Resolved:
    """A plan and what it was made from, as far as that is known."""

    name: str
    plan: Plan
    solution: Solution | None = None
    trace: Trace | None = None

    cut_from: bytes | None = None
    """The ir_hash of the whole graph where the plan is one rank's."""

    @property
    def graph(self) -> Graph | None:
        """The graph as planned: as given, or the rank's share of it."""
        return self.solution.graph if self.solution else None


Source = Annotated[str, typer.Argument(metavar="FILE", help="The file to read; - for standard input.")]
AsJson = Annotated[bool, typer.Option("--json", help="Write JSON, and errors as one JSON record.")]
Out = Annotated[
    str | None, typer.Option("-o", "--output", metavar="FILE", help="Write to this file; - for standard output.")
]


def _shared(
    mode: Annotated[
        str | None,
        typer.Option(metavar="M", help="forward, backward or inference [backward where the graph has such nodes]."),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(metavar="P", help="train_full, inference or remat_enabled [by the mode].")
    ] = None,
    planner: Annotated[str | None, typer.Option(metavar="NAME", help="The planner [slots].")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", "--planner-option", metavar="KEY=VALUE", help="An option of the planner, as JSON; repeatable."
        ),
    ] = None,
    arenas: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The arena configuration: JSON, name → capacity, alignment, page."),
    ] = None,
    order: Annotated[
        str | None, typer.Option(metavar="FILE", help="The execution order: a JSON list of node ids, or one a line.")
    ] = None,
    token: Annotated[str | None, typer.Option(metavar="HEX", help="The replay token, 64 hexadecimal digits.")] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Make the replay token from this seed [0].")] = None,
    rank: Annotated[int, typer.Option(metavar="R", help="This rank.")] = 0,
    world_size: Annotated[
        int | None, typer.Option("--world-size", metavar="W", help="How many ranks there are [the mesh's, or 1].")
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The shard spec, JSON: the plan is the rank's share of the graph."),
    ] = None,
    dims: Annotated[
        str | None, typer.Option(metavar="B=8,T=512", help="A point for the named dimensions [their upper bounds].")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="BYTES", help="The quota over all arenas, such as 1048576 or 1MiB.")
    ] = None,
    addressing: Annotated[
        str, typer.Option(metavar="HOW", help="offsets, or blake3_sparse for the superseded draft's addresses.")
    ] = "offsets",
) -> None:
    """Only its signature is used."""


FILES = ("arenas", "order", "shard")
"""The shared options that name a file to read."""

_SHARED = list(inspect.signature(_shared, eval_str=True).parameters.values())


def planning(command: Callable[..., int]) -> Callable[..., int]:
    """Put the shared options in the place of the command's ``request`` parameter."""
    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "request"]

    @functools.wraps(command)
    def wrapper(**given: Any) -> int:
        shared = {p.name: given.pop(p.name) for p in _SHARED}
        read = [*(v for name, v in given.items() if name != "output"), *(shared[name] for name in FILES)]
        if read.count(STREAM) > 1:
            raise UsageFault("standard input can be read once only.", "Give - to one of them.")
        return command(**given, request=read_request(**shared))

    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*own, *_SHARED)]
    vars(wrapper)["__signature__"] = inspect.Signature(parameters)
    wrapper.__annotations__ = {p.name: p.annotation for p in (*own, *_SHARED)}
    return wrapper


def read_request(
    *,
    mode: str | None = None,
    preset: str | None = None,
    planner: str | None = None,
    option: list[str] | None = None,
    arenas: str | None = None,
    order: str | None = None,
    token: str | None = None,
    seed: int | None = None,
    rank: int = 0,
    world_size: int | None = None,
    shard: str | None = None,
    dims: str | None = None,
    budget: str | None = None,
    addressing: str = "offsets",
) -> PlanRequest:
    """The options as typed to a request. Raises :class:`UsageFault` and ``UnreadableInput``."""
    if token is not None and seed is not None:
        raise UsageFault("--token and --seed exclude each other.", "The seed makes the token; give one of them.")
    if addressing not in ("offsets", "blake3_sparse"):
        raise UsageFault(f"there is no addressing {addressing!r}.", "Choose offsets or blake3_sparse.")
    if seed is not None and not 0 <= seed <= U64_MAX:
        raise UsageFault(f"the seed {seed} is no uint64.", "Give one between 0 and 2^64 − 1.")
    if world_size is not None and world_size < 1:
        raise UsageFault(f"there is no world of {world_size} ranks.", "Give --world-size 1 or more.")
    if shard is None and not 0 <= rank < (world_size or 1):
        raise UsageFault(f"there is no rank {rank} in a world of {world_size or 1}.", "Ranks count from 0.")
    return PlanRequest(
        mode=mode,
        preset=preset,
        planner=planner,
        options=dict(_pair(text, _scalar) for text in option or ()),
        arenas=None if arenas is None else _json_object(arenas, "arena configuration"),
        order=None if order is None else _order(order),
        token=None if token is None else read_token(token),
        seed=seed,
        rank=rank,
        world_size=world_size,
        shard_spec=None if shard is None else _json_object(shard, "shard spec"),
        dims=None if dims is None else dict(_pair(text, _whole) for text in dims.split(",") if text.strip()),
        budget=None if budget is None else read_bytes_option("--budget", budget),
        addressing=addressing,
    )


def read_token(text: str) -> bytes:
    """64 hexadecimal digits to 32 bytes. Raises :class:`UsageFault`."""
    try:
        token = bytes.fromhex(text)
    except ValueError:
        token = b""
    if len(token) != 32:
        raise UsageFault(f"the token {text[:80]!r} is not 64 hexadecimal digits.", "Give 32 bytes in hex, or --seed.")
    return token


def read_bytes_option(name: str, text: str) -> int:
    """A count of bytes as people write it. Raises :class:`UsageFault`."""
    try:
        value = words.parse_bytes(text)
    except ValueError as error:
        raise UsageFault(f"{name}: {error}") from None
    if value is None or value > U64_MAX:
        raise UsageFault(f"{name}: {text!r} is not between 0 and 2^64 − 1.")
    return value


def _pair(text: str, read: Callable[[str, str], Any]) -> tuple[str, Any]:
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise UsageFault(f"{text!r} is not of the form KEY=VALUE.", "Write a name, =, and a value.")
    return key.strip(), read(key.strip(), value.strip())


def _whole(key: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageFault(f"the dimension {key!r} is set to {text!r}, not a whole number.") from None


def _scalar(key: str, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return text


def _json_object(name: str, what: str) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(read_input(name))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableInput(f"the {what} is not JSON: {error}.", source=name) from error
    if not isinstance(value, dict):
        raise UnreadableInput(f"the {what} is not a JSON object.", source=name, place="$")
    bad = next(
        (key for key, inner in value.items() if what == "arena configuration" and not isinstance(inner, dict)), None
    )
    if bad is not None:
        raise UnreadableInput(
            "an arena is not a JSON object.",
            source=name,
            place=f"$.{bad}",
            hint='Write it as {"capacity_bytes": 1048576, "alignment_bytes": 128, "page_size": 4096}.',
        )
    return value


def _order(name: str) -> tuple[str, ...]:
    data = read_input(name)
    if data.lstrip()[:1] == b"[":
        try:
            return msgspec.json.decode(data, type=tuple[str, ...])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UnreadableInput(f"the order is not a JSON list of node ids: {error}.", source=name) from error
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError as error:
        raise UnreadableInput("the order is not text in UTF-8.", source=name, place=f"byte {error.start}") from error
    return tuple(line.strip() for line in lines if line.strip())


# --- from a file to a plan ---------------------------------------------------------------------------------------


def open_any(name: str) -> Opened:
    """What a file holds; ``-`` for standard input. Raises ``TmmuError``."""
    data = read_input(name)
    companion = xla.companion(name)
    if companion is not None and Path(companion).exists():
        data += b"\n" + read_input(companion)  # two files of one dump are one finished plan
    return read_any(data, "standard input" if name == STREAM else name)


def resolve(name: str, request: PlanRequest, *, plans_too: bool = True) -> Resolved:
    """The plan of a file: made now from a graph or an instance, taken as it is from a plan, trace or checkpoint.

    With ``plans_too`` false a file that holds a plan already is refused. Raises ``TmmuError``.
    """
    return resolve_opened(open_any(name), name, request, plans_too=plans_too)


def resolve_opened(opened: Opened, name: str, request: PlanRequest, *, plans_too: bool = True) -> Resolved:
    """The same for what was opened already."""
    if isinstance(opened, Plan | Trace):
        if not plans_too:
            raise UsageFault(
                f"{name} holds a plan already.", "Give a graph or an instance; a plan is looked at as it is."
            )
        _refuse_idle_options(name, request)
        if isinstance(opened, Trace):
            return Resolved(name, opened.plan, trace=opened)
        return Resolved(name, opened)
    with progress_on_terminal() as progress:
        if isinstance(opened, PlainInstance):
            return Resolved(name, _plan_instance(opened, request, progress))
        solution = _plan_graph(opened, request, progress)
    if request.addressing != "offsets":
        from tmmu_core.plan.formats.sparse import with_sparse_addresses

        solution = replace(solution, plan=with_sparse_addresses(solution.plan))
    cut_from = solution.plan.ir_hash if request.shard_spec is not None else None
    return Resolved(name, solution.plan, solution, cut_from=cut_from)


def _plan_graph(graph: Graph, request: PlanRequest, progress: Progress | None) -> Solution:
    """The whole graph's plan, or that of one rank's share under a shard spec."""
    given = _how(request, progress)
    if request.shard_spec is None:
        return plan_graph(graph, **given, rank=request.rank, world_size=request.world_size or 1)
    return plan_rank(graph, request.shard_spec, request.rank, request.world_size, **given)


def resolve_ranks(graph: Graph, request: PlanRequest) -> RankPlans:
    """Every rank of the request's shard spec, each class of ranks planned once. Raises ``TmmuError``."""
    with progress_on_terminal() as progress:
        return plan_ranks(graph, request.shard_spec or {}, request.world_size, **_how(request, progress))


def _how(request: PlanRequest, progress: Progress | None) -> dict[str, Any]:
    """The arguments of ``plan_graph`` that a whole graph and a rank's share have in common."""
    apart = ("addressing", "planner", "rank", "world_size", "shard_spec")
    given = {f.name: getattr(request, f.name) for f in fields(request) if f.name not in apart}
    return given | {"planner": request.planner or "slots", "progress": progress}


def resolve_either(name: str, request: PlanRequest) -> Resolved:
    """The same for commands that take finished plans and graphs side by side: the options are for the graphs."""
    opened = open_any(name)
    return resolve_opened(opened, name, PlanRequest() if isinstance(opened, Plan | Trace) else request)


def whole(found: Resolved) -> Plan:
    """The plan, which must tell its tensors. Raises :class:`UsageFault` for a digest."""
    if found.trace is not None and not found.trace.complete:
        raise UsageFault(f"{found.name} is a digest: it does not tell its tensors.", "Give the plan, or a whole trace.")
    return found.plan


def _refuse_idle_options(name: str, request: PlanRequest) -> None:
    idle = [f.name for f in fields(request) if getattr(request, f.name) != getattr(PlanRequest(), f.name)]
    if idle:
        said = ", ".join("--" + option.replace("_", "-") for option in idle)
        raise UsageFault(f"{name} holds a finished plan, on which {said} has no effect.", "Give the graph instead.")


def _plan_instance(opened: PlainInstance, request: PlanRequest, progress: Progress | None) -> Plan:
    from tmmu_core.graph.arenas import read_arenas
    from tmmu_core.plan.canonical import token_from_seed

    for line in opened.told:
        note(f"{opened.name}: {line}")
    problem = opened.problem
    config = read_arenas(request.arenas)
    if config:
        arena = config.get(problem.arena)
        if arena is None:
            raise UsageFault(f"an instance has one arena, {problem.arena!r}.", "Configure that one.")
        problem = replace(
            problem,
            capacity=arena.capacity_bytes,
            arena_alignment=arena.alignment_bytes,
            alignment=np.maximum(problem.alignment, np.uint64(arena.alignment_bytes)),
        )
    idle = [
        name
        for name in ("mode", "preset", "order", "shard_spec", "dims", "budget")
        if getattr(request, name) is not None
    ]
    if idle:
        raise UsageFault(f"{opened.name} is an instance without a graph: it has no {idle[0].replace('_', ' ')}.")
    return plan_problem(
        problem,
        planner=request.planner or "slots",
        options=request.options,
        name=opened.name,
        packing=opened.packing if request.planner is None else None,
        token=request.token if request.token is not None else token_from_seed(request.seed or 0),
        progress=progress,
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
