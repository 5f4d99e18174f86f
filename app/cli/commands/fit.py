"""``tmmu fit``: search for the cheapest changes that make a graph fit a memory limit, or prove that it cannot fit."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from app.cli import console
from app.cli.console import FINDING, NOT_COMPARABLE, STREAM, SUCCESS, UsageError
from app.cli.options import AS_JSON, argument, flag, option, usage_errors
from app.cli.resolve import graph_encoder, open_any, progress_on_terminal, show_warnings
from app.texts import numbers
from app.texts.fit_text import bound_lines, module_table, peak_text, result_text, unknown_operators
from tmmu_core.base.errors import source_of_errors
from tmmu_core.fitting.move import KINDS
from tmmu_core.fitting.move import recipe as recipe_document
from tmmu_core.fitting.problem.answer import DEFAULT_KINDS, Allowed, Capacity, Fitted, fitted_layers, fitted_peak
from tmmu_core.fitting.problem.planner_calls import extents, initial_candidate
from tmmu_core.fitting.search.fit_search import fit
from tmmu_core.fitting.search.size_search import largest_that_fits, smallest_mesh
from tmmu_core.formats.open_file import read_at_sizes
from tmmu_core.graph.checks import read_arenas
from tmmu_core.graph.model import Arena, Graph
from tmmu_core.library.arguments import allowed_moves
from tmmu_core.library.fit_result import assumptions
from tmmu_core.planners.problem import Progress
from tmmu_core.plans.canonical import ir_hash
from tmmu_core.plans.making.request import ANY_ARENA, PlanRequest

EXIT_CODE = {"fits": SUCCESS, "cannot": FINDING, "open": NOT_COMPARABLE}  # "open": no fitting plan and no proof


@dataclass(frozen=True)
class FitOptions:
    """Options of ``tmmu fit``: the allowed changes, and the dimension or mesh axis whose size is searched for."""

    allow: str | None = option(f"Allowed changes: {', '.join(KINDS)} [{','.join(DEFAULT_KINDS)}].", "KIND,…")
    max_cost: str | None = option("Maximum extra compute, in percent of the graph's FLOPs [unlimited].", "PERCENT")
    keep_phases: bool = flag("--keep-phases", "Do not move nodes between forward, backward and optimizer.")
    largest: str | None = option("Find the largest size of a named dimension that fits.", "DIM")
    mesh: str | None = option("Find the smallest size of a mesh axis with which every rank fits.", "AXIS")


def fit_command(
    request: PlanRequest,
    options: FitOptions,
    output: str | None = option("Write the changed graph; - writes to standard output.", "FITTED", "-o", "--output"),
    recipe: str | None = option("Write the changes as JSON.", "FILE"),
    graph: str = argument("Model or graph; - reads standard input.", "FILE"),
    json: bool = AS_JSON,
) -> int:
    """Make a graph fit into a memory limit (--capacity).

    --capacity BYTES limits all arenas together; --capacity ARENA=BYTES limits one arena. Offloaded tensors are in the
    arena "offload", which is unlimited. Ctrl-C stops the search and keeps the best result.

    Exit code: 0 fits, 1 cannot (proven), 3 open (no plan found, no proof).
    """
    largest, mesh = options.largest, options.mesh
    if largest is not None and mesh is not None:
        raise UsageError("--largest and --mesh exclude each other.", "Run the command once for each.")
    if largest in request.dims:
        raise UsageError(f"--dims and --largest both set {largest}.", f"Remove {largest} from --dims.")
    opened = open_any(graph, request.dims)
    if not isinstance(opened, Graph):
        raise UsageError(f"{graph} does not contain a graph.", "Pass a graph: fit changes its nodes.")
    if json + (output == STREAM) + (recipe == STREAM) > 1:
        raise UsageError("standard output can be used only once.", "Write one of the outputs to a file.")
    encode = graph_encoder(output or STREAM)  # reject a file name before the search, which may take long
    with usage_errors():
        allowed = allowed_moves(options.allow, options.max_cost, options.keep_phases, ("--allow", "--max-cost"))
    by_arena = dict(request.capacities)
    total = by_arena.pop(ANY_ARENA, None)
    if total is not None and by_arena:
        what = "--capacity sets both a limit of all arenas and a limit of one arena."
        raise UsageError(what, "Use BYTES, or ARENA=BYTES for each arena.")
    if total is None and not by_arena:  # use the limits of --arenas
        config, unlimited = read_arenas(request.arenas), Arena().capacity_bytes
        by_arena = {name: arena.capacity_bytes for name, arena in config.items() if arena.capacity_bytes != unlimited}
    if total is None and not by_arena:
        raise UsageError("no memory limit is given.", "Use --capacity 8GiB, or --capacity ARENA=8GiB.")
    with source_of_errors("standard input" if graph == STREAM else graph):
        fitted, size = _search(graph, opened, request, (Capacity(total, by_arena), allowed), options)
    if output is not None:
        console.write_output(output, encode(fitted.best.plan_input.graph), "the fitted graph")
    if recipe is not None:
        document = recipe_document(fitted.best.moves, ir_hash(fitted.start.plan_input.graph))
        console.write_output(recipe, msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n", "the recipe")
    if json:
        found_size = {name: {what: size} for name, what in (("largest", largest), ("mesh", mesh)) if what is not None}
        console.write_json(as_json(fitted) | found_size)
    elif output != STREAM and recipe != STREAM:
        if (dim_or_axis := largest or mesh) is not None:
            text = f"every rank fits with {mesh} = {size}" if mesh else f"largest {largest} that fits: {size}"
            if size is None:
                text = f"no size of {dim_or_axis} {'that fits was found' if fitted.answer == 'open' else 'fits'}"
            console.print_lines(text)
        _print_fit(fitted)
    return EXIT_CODE[fitted.answer]


def _search(
    file: str, graph: Graph, request: PlanRequest, limits: tuple[Capacity, Allowed], options: FitOptions
) -> tuple[Fitted, int | None]:
    """Return ``(fit, size found for --largest or --mesh)``; the size is ``None`` without these, or if none fits."""
    dim = options.largest
    if dim is not None and file == STREAM and (dim in graph.ranges or dim in graph.assumed):
        raise UsageError("--largest reads the model several times.", "Pass a file name instead of -.")
    with _interruptible() as progress:
        if options.mesh is not None:
            found = smallest_mesh(graph, request, options.mesh, limits, progress)
        elif dim is not None:
            found = largest_that_fits(
                graph, request, dim, *limits, progress, lambda dims: read_at_sizes(console.read_input(file), dims, file)
            )
        else:
            return fit(initial_candidate(graph, request, progress), *limits, progress, smallest=True), None
    return found.fitted, found.size


@contextmanager
def _interruptible() -> Iterator[Progress]:
    """Yield a progress callback that returns ``False`` after the first Ctrl-C. The second Ctrl-C ends the command."""
    stopped = False

    def stop(*_: Any) -> None:
        nonlocal stopped
        stopped = True
        signal.signal(signal.SIGINT, previous)
        console.print_note("stopping; the best result so far is kept")

    previous = signal.signal(signal.SIGINT, stop)
    try:
        with progress_on_terminal() as progress:
            yield lambda *state: progress(*state) and not stopped
    finally:
        signal.signal(signal.SIGINT, previous)


def as_json(fitted: Fitted) -> dict[str, Any]:
    """Return the JSON record of the result (contract §11)."""
    cost, total = fitted.best.cost, fitted.capacity.total
    percent = 100 * cost.extra_flops / fitted.flops if fitted.flops else 0.0
    return {
        "answer": fitted.answer,
        "capacity": {**fitted.capacity.arenas, **({} if total is None else {"total": total})},
        "extent_bytes": fitted.best.extent_bytes,
        "lower_bound_bytes": fitted.lower_bound_bytes,
        "over_bytes": fitted.over_bytes,
        "warnings": fitted.warnings,
        "assumptions": assumptions(fitted),
        "cost": {"extra_flops": cost.extra_flops, "extra_flops_percent": percent}
        | {"moved_bytes": cost.moved_bytes, "extra_steps": cost.extra_steps},
        "moves": [
            {"kind": move.kind, "what": move.what, "why": move.why, "bytes": move.bytes}
            | {"extra_flops": move.cost.extra_flops, "moved_bytes": move.cost.moved_bytes}
            for move in fitted.best.moves
        ],
        "next_steps": fitted.next_steps,
        "unknown_operators": fitted.unknown,
        "bound": fitted.bound.arenas,
        "modules": fitted_layers(fitted),
        "peak": {key: value for key, value in fitted_peak(fitted).items() if key != "tensors"},
    }


def _print_fit(fitted: Fitted) -> None:
    best, start = fitted.best, fitted.start
    console.print_lines(f"{result_text(fitted, numbers.full_bytes)}.")
    if fitted.answer == "cannot":
        smallest = numbers.full_bytes(fitted.capacity.limited_bytes(best.plan))
        console.print_lines(*(f"  {line}" for line in bound_lines(fitted)), f"  Smallest plan found: {smallest}.")
    if fitted.next_steps:
        console.print_lines(f"  To try next: {'; '.join(fitted.next_steps)}.")
    assumed = assumptions(fitted)
    alignments = ", ".join(f"{numbers.full_bytes(n)} in {name}" for name, n in assumed.alignment_bytes.items())
    excluded = ", ".join(f"{name} ({count})" for name, count in assumed.not_recomputable.items()) or "none"
    console.print_lines(f"  alignment: {alignments}; operators that cannot be recomputed (nodes): {excluded}")
    if fitted.unknown:
        console.print_lines(unknown_operators(fitted))
    if fitted.stopped:
        console.print_lines("  The search was stopped; this is the best result so far.")
    sizes = [(name, extents(start.plan).get(name, 0), size) for name, size in extents(best.plan).items()]
    console.table(("arena", ">before", ">after"), [[name, *map(numbers.full_bytes, pair)] for name, *pair in sizes])
    if best.has("alignment") and len({arena.alignment_bytes for arena in best.plan.arenas}) > 1:
        console.print_lines("A graph file has only one alignment. To set one per arena, plan it with --arenas FILE.")
    if best.moves:
        rows = []
        for move in best.moves:
            saved, moved = numbers.full_bytes(move.bytes), numbers.full_bytes(move.cost.moved_bytes)
            rows.append([move.kind, move.what, saved, f"{move.cost.extra_flops:,}", moved])
        console.table(("change", "tensor or setting", ">saved", ">extra FLOPs", ">transferred"), rows)
    titles, rows = module_table(fitted)
    if rows:
        console.print_lines(peak_text(fitted))
        console.table((titles[0], *(f">{each}" for each in titles[1:])), rows)
    show_warnings(fitted.warnings)
