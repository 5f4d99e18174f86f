"""``tmmu fit``: the cheapest moves after which a graph fits a capacity, or the proof that none does."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import msgspec
import typer

from app.cli.console import (
    FINDING,
    FINE,
    NOT_COMPARABLE,
    STREAM,
    Column,
    UsageFault,
    note,
    say,
    say_json,
    table,
    write_output,
)
from app.cli.options import AsJson, Source, open_any, planning, progress_on_terminal
from app.say import words
from tmmu_core.fit.answer import ALLOWED, Allowed, Fitted
from tmmu_core.fit.asking import extents, question_of
from tmmu_core.fit.bounds import Need
from tmmu_core.fit.capacity import Capacity
from tmmu_core.fit.fitting import fit
from tmmu_core.fit.largest import largest_that_fits
from tmmu_core.fit.mesh import smallest_mesh
from tmmu_core.fit.moves import KINDS
from tmmu_core.fit.policy import checkpoint_policy, is_from_torch
from tmmu_core.fit.recipe import recipe as as_recipe
from tmmu_core.graph import native
from tmmu_core.graph.arenas import read_arenas
from tmmu_core.graph.model import Arena, Graph
from tmmu_core.graph.quantities import parse_percent
from tmmu_core.plan.canonical import ir_hash
from tmmu_core.plan.making.request import ANY_ARENA, PlanRequest
from tmmu_core.planners.problem import Progress

OPEN = NOT_COMPARABLE
"""Exit code: neither a plan that fits nor the proof that there is none."""
EXIT_CODE = {"fits": FINE, "cannot": FINDING, "open": OPEN}

Allow = Annotated[
    str | None,
    typer.Option(metavar="KIND,…", help=f"The moves that may be made, of {', '.join(KINDS)} [{','.join(ALLOWED)}]."),
]
MaxCost = Annotated[
    str | None, typer.Option(metavar="PERCENT", help="The most operations more, in percent of the graph's [any].")
]
Largest = Annotated[
    str | None, typer.Option(metavar="DIM", help="Find the largest size of this named dimension that fits.")
]
SmallestMesh = Annotated[
    str | None,
    typer.Option(metavar="AXIS", help="Find the fewest parts along this mesh axis with which every rank fits."),
]
Fitting = Annotated[
    str | None, typer.Option("-o", "--output", metavar="FITTED", help="Write the fitted graph; - for standard output.")
]
Recipe = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="Write the moves as JSON; for a PyTorch step its checkpoint policy beside it, as Python."
    ),
]
KeepPhases = Annotated[
    bool, typer.Option("--keep-phases", help="Keep forward, backward and optimizer nodes apart where they are.")
]


@planning
def command(
    graph: Source,
    request: PlanRequest,
    allow: Allow = None,
    max_cost: MaxCost = None,
    largest: Largest = None,
    mesh: SmallestMesh = None,
    keep_phases: KeepPhases = False,
    output: Fitting = None,
    recipe: Recipe = None,
    json: AsJson = False,
) -> int:
    """Make a graph fit --capacity [ARENA=]BYTES. Exit code: 0 it fits, 1 it cannot, 3 open.

    Plain bytes are one memory for all arenas. What is offloaded lies in the arena "offload", which no capacity counts.
    Ctrl-C keeps the best so far.
    """
    opened = open_any(graph)
    if not isinstance(opened, Graph):
        raise UsageFault(f"{graph} does not hold a graph.", "What is moved are a graph's nodes: give the graph.")
    if output == STREAM and (json or recipe == STREAM):
        raise UsageFault("standard output is given away twice.", "Give one of them a file.")
    capacity = _capacity(request)
    allowed = Allowed(_kinds(allow), _thousandths(max_cost), keep_phases)
    if largest is not None and mesh is not None:
        raise UsageFault("--largest and --mesh are two questions.", "Ask one after the other.")
    with _interruptible() as progress:
        fitted, size = _asked(opened, request, (largest, mesh), (capacity, allowed), progress)
    if output is not None:
        _write_graph(fitted, output)
    if recipe is not None:
        document = as_recipe(fitted.best.moves, ir_hash(fitted.start.question.graph))
        write_output(recipe, msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n", "the recipe")
        given, after = fitted.start.question.graph, fitted.best.question.graph
        if recipe != STREAM and is_from_torch(given):
            beside = Path(recipe).with_suffix(".py")
            source = checkpoint_policy(given, after, beside.stem)
            write_output(str(beside), source.encode(), "the checkpoint policy")
    if json:
        sizes = {"largest": {largest: size}} if largest is not None else {"mesh": {mesh: size}} if mesh else {}
        say_json(as_json(fitted) | sizes)
    elif output != STREAM and recipe != STREAM:
        if largest is not None:
            say(f"the largest {largest} that fits is {size}" if size is not None else f"no size of {largest} fits")
        if mesh is not None:
            say(f"every rank fits with {mesh} = {size}" if size is not None else f"no size of {mesh} fits")
        _in_words(fitted)
    return EXIT_CODE[fitted.answer]


def _asked(
    graph: Graph,
    request: PlanRequest,
    sought: tuple[str | None, str | None],
    limits: tuple[Capacity, Allowed],
    progress: Progress,
) -> tuple[Fitted, int | None]:
    """The fit, and the size of the dimension or of the mesh axis that was sought."""
    largest, mesh = sought
    if mesh is not None:
        fewest = smallest_mesh(graph, request, mesh, limits, progress)
        return fewest.fitted, fewest.size
    start = question_of(graph, request, progress)
    if largest is None:
        return fit(start, *limits, progress), None
    found = largest_that_fits(start, largest, *limits, progress)
    return found.fitted, found.size


def _capacity(request: PlanRequest) -> Capacity:
    """What ``--capacity`` says; where it says nothing, the limits of the arena configuration."""
    given = dict(request.capacities)
    total = given.pop(ANY_ARENA, None)
    if total is None and not given:
        config = read_arenas(request.arenas)
        given = {name: a.capacity_bytes for name, a in config.items() if a.capacity_bytes != Arena().capacity_bytes}
    if total is None and not given:
        raise UsageFault("it is not said what there is to fit.", "Give --capacity 8GiB, or --capacity ARENA=8GiB.")
    return Capacity(total, given)


def _kinds(text: str | None) -> frozenset[Any]:
    if text is None:
        return frozenset(ALLOWED)
    kinds = frozenset(filter(None, map(str.strip, text.split(","))))
    unknown = sorted(kinds - set(KINDS))
    if unknown:
        raise UsageFault(f"--allow: there is no move {unknown[0]!r}.", f"Moves are: {', '.join(KINDS)}.")
    return kinds


def _thousandths(text: str | None) -> int | None:
    """Percent to thousandths of a percent."""
    if text is None:
        return None
    try:
        return int(parse_percent(text) * 100_000)
    except ValueError as error:
        raise UsageFault(f"--max-cost: {error}") from None


@contextmanager
def _interruptible() -> Iterator[Progress]:
    """Progress on a terminal; the first Ctrl-C asks to stop and keeps the best, the second one leaves."""
    stopped = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        if stopped:
            raise KeyboardInterrupt
        stopped = True
        note("stopping; the best so far is kept")

    with progress_on_terminal() as drawn:

        def progress(what: str, done: int, of: int) -> bool:
            if drawn is not None:
                drawn(what, done, of)
            return not stopped

        try:
            before = signal.signal(signal.SIGINT, stop)
        except ValueError:  # not the main thread: nobody can interrupt here
            yield progress
            return
        try:
            yield progress
        finally:
            signal.signal(signal.SIGINT, before)


def _write_graph(fitted: Fitted, name: str) -> None:
    graph = fitted.best.fitted_graph
    write_output(name, native.encode_json(graph) if name == STREAM else native.encode(graph, name), "the fitted graph")


def as_json(fitted: Fitted) -> dict[str, Any]:
    """Contract §11."""
    cost = fitted.best.cost
    capacity: dict[str, Any] = dict(fitted.capacity.arenas)
    if fitted.capacity.total is not None:
        capacity["total"] = fitted.capacity.total
    return {
        "answer": fitted.answer,
        "capacity": capacity,
        "extent_bytes": fitted.best.extent_bytes,
        "lower_bound_bytes": fitted.lower_bound_bytes,
        "over_bytes": fitted.over_bytes,
        "cost": {
            "extra_flops": cost.extra_flops,
            "extra_flops_percent": 100 * cost.extra_flops / fitted.flops if fitted.flops else 0.0,
            "moved_bytes": cost.moved_bytes,
            "extra_steps": cost.extra_steps,
        },
        "moves": [
            {
                "kind": move.kind,
                "what": move.what,
                "why": move.why,
                "bytes": move.bytes,
                "extra_flops": move.cost.extra_flops,
                "moved_bytes": move.cost.moved_bytes,
            }
            for move in fitted.best.moves
        ],
        "bound": [
            {
                "arena": need.arena,
                "bytes": need.bytes,
                "step": need.step,
                "tensors": list(need.tensors),
                "why": need.why,
            }
            for need in fitted.bound.needs
        ],
    }


def _in_words(fitted: Fitted) -> None:
    best, start = fitted.best, fitted.start
    there = " and ".join(
        [words.full_bytes(fitted.capacity.total)] * (fitted.capacity.total is not None)
        + [f"{words.full_bytes(limit)} of {name}" for name, limit in fitted.capacity.arenas.items()]
    )
    taken, today = (words.full_bytes(fitted.capacity.taken(candidate.plan)) for candidate in (best, start))
    bound = words.full_bytes(fitted.bound_within(fitted.capacity))
    if fitted.answer == "fits":
        say(f"fits: {taken} of {there}; today {today}")
    elif fitted.answer == "cannot":
        say(f"cannot fit: at least {bound} are needed, there are {there}")
        counted = fitted.capacity.limited(start.plan)
        say(*(_need_in_words(need) for need in fitted.bound.needs if need.arena in counted))
    else:
        over = words.full_bytes(fitted.over_bytes)
        say(f"open: {taken} were reached, over by {over}; no plan has less than {bound}")
    if fitted.stopped:
        say("  stopped early: the best so far is told")
    table(
        (Column("arena"), Column("today", True), Column("now", True)),
        [
            [name, words.full_bytes(extents(start.plan).get(name, 0)), words.full_bytes(now)]
            for name, now in extents(best.plan).items()
        ],
    )
    grid = next((move.details["alignment"] for move in best.moves if move.kind == "alignment"), None)
    if grid is not None:
        say(f"an arena's alignment does not stand in a graph: plan the fitted one with --alignment {grid}")
    if best.moves:
        table(
            (
                Column("move"),
                Column("what"),
                Column("bytes off", True),
                Column("operations", True),
                Column("moved", True),
            ),
            [
                [
                    m.kind,
                    m.what,
                    words.full_bytes(m.bytes),
                    f"{m.cost.extra_flops:,}",
                    words.full_bytes(m.cost.moved_bytes),
                ]
                for m in best.moves
            ],
        )


def _need_in_words(need: Need) -> str:
    where = f" at {need.step!r}" if need.step else ""
    shown = ", ".join(map(repr, need.tensors[:4])) + f" and {len(need.tensors) - 4} more" * (len(need.tensors) > 4)
    return f"  {need.arena}: {words.full_bytes(need.bytes)}{where}: {need.why}" + f" ({shown})" * bool(shown)
