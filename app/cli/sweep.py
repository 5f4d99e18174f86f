"""``tmmu sweep``: models under every planner, mode and alignment asked for, in one table.

A few points are planned here; many, or ``--workers`` and ``--scheduler``, on Dask. With a store each row is kept as it
comes, and the same command goes on where it was ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from os import cpu_count
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.console import BAD_INPUT, FINE, Column, UsageFault, note, read_input, say, say_json, table
from app.cli.options import AsJson, about_instance, input_of, planning, progress_on_terminal, read_bytes_option
from app.cli.stores import StoreUrl, open_store
from app.say import words
from tmmu_core.errors import TmmuError, spelled_out
from tmmu_core.extras import installed, require
from tmmu_core.graph.model import MODES, PRESETS, Graph
from tmmu_core.plan.formats.reading import Opened, read_any
from tmmu_core.plan.making.replan import sample_points
from tmmu_core.plan.making.request import ANY_ARENA, PlanRequest
from tmmu_core.plan.making.wording import SAID
from tmmu_core.planners import PLANNERS
from tmmu_core.planners.problem import PlainInstance
from tmmu_core.sweep.points import Axes, Done, Point, Source, name_of_sweep, points_of
from tmmu_core.sweep.running import cluster, run_here, run_on

if TYPE_CHECKING:
    from tmmu_core.store.store import Store

MANY = 200
"""Points from which on a sweep takes a process per core, where nothing is said and Dask is installed."""

Files = Annotated[
    list[str], typer.Argument(metavar="FILE...", help="Graphs and instances to read; - for standard input.")
]
Planners = Annotated[
    str | None, typer.Option("--planners", metavar="A,B,…", help="Which planners [slots,naive]; all for all.")
]
Modes = Annotated[
    str | None, typer.Option("--modes", metavar="A,B,…", help="Which modes [the default one]; all for all.")
]
Presets = Annotated[
    str | None, typer.Option("--presets", metavar="A,B,…", help="Which presets [by the mode]; all for all.")
]
Alignments = Annotated[
    str | None,
    typer.Option("--alignments", metavar="N,N,…", help="Which arena alignments, in bytes [the arenas' own]."),
]
Over = Annotated[
    str | None,
    typer.Option(
        "--over",
        metavar="B or B=1,8,…",
        help="Every size of a named dimension's envelope (33 of a long one), or these.",
    ),
]
Ranks = Annotated[
    bool, typer.Option("--ranks", help="All ranks of the shard spec: a row for those that run the same graph.")
]


Shards = Annotated[
    str | None, typer.Option("--shards", metavar="FILE,FILE,…", help="These shard specs; none for no sharding.")
]
Capacities = Annotated[
    str | None,
    typer.Option(
        "--capacities", "--fit", metavar="BYTES,…", help="Fit each of these, as tmmu fit does, instead of planning."
    ),
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", min=0, metavar="N", help="Processes [one per core for many points]; 0: plan here."),
]
Scheduler = Annotated[
    str | None, typer.Option("--scheduler", metavar="tcp://HOST:PORT", help="A running Dask scheduler to work on.")
]


@dataclass(frozen=True)
class Where:
    """Where a sweep is worked."""

    scheduler: str | None
    workers: int | None


@planning
def command(
    files: Files,
    request: PlanRequest,
    planners: Planners = None,
    modes: Modes = None,
    presets: Presets = None,
    alignments: Alignments = None,
    over: Over = None,
    shards: Shards = None,
    fits: Capacities = None,
    ranks: Ranks = False,
    workers: Workers = None,
    scheduler: Scheduler = None,
    store: StoreUrl = None,
    json: AsJson = False,
) -> int:
    """Plan models many times and tabulate. A row that cannot be planned tells its error's code.

    With --store rows are kept as they come: ended in the middle, the same command goes on where it was.

    Exit code: 0 when at least one row was planned, else 2.
    """
    for option, name in ((request.planner, "planner"), (request.mode, "mode"), (request.preset, "preset")):
        if option is not None:
            raise UsageFault(f"--{name} has no effect on a sweep.", f"Give --{name}s.")
    if scheduler is not None and workers is not None:
        raise UsageFault("--workers and --scheduler exclude each other.", "A scheduler has its own workers.")
    axes = Axes(
        modes=_words(modes, MODES) or (None,),
        presets=_words(presets, PRESETS) or (None,),
        alignments=tuple(_number(text) for text in alignments.split(",")) if alignments else (None,),
        planners=_words(planners, tuple(PLANNERS)) or ("slots", "naive"),
        shards=_shards(shards) if shards else None,
        fits=tuple({ANY_ARENA: read_bytes_option("--capacities", n)} for n in _commas(fits)) or None,
        ranks=ranks,
    )
    sources = [Source(spelled_out(called), data) for data, called in map(input_of, files)]
    opened = [_opened(source, alone=len(sources) == 1) for source in sources]
    for one, source in zip(opened, sources, strict=True):
        _check(one, source.name, request, axes)
    sizes = [_sizes(over, one, source.name) if over else (None,) for one, source in zip(opened, sources, strict=True)]
    points = points_of(request, axes, sizes, [source.name for source in sources] if len(sources) > 1 else [""])
    rows, name = _worked(sources, points, Where(scheduler, workers), store)
    if json:
        graph = next((row["name"] for row in rows if row["name"] is not None), None)
        first = {"graph": rows[0]["name"] if len(sources) == 1 and rows else graph or files[0]}
        say_json({**first, **({"sweep": name} if name else {}), "rows": rows})
    else:
        _in_a_table(rows, ranks=ranks)
        say(*_why_not(rows))
    return FINE if any(row["error"] is None for row in rows) else BAD_INPUT


# --- what is asked -----------------------------------------------------------------------------------------------


def _opened(source: Source, *, alone: bool) -> Opened | None:
    """What a source holds; ``None`` for one of several that cannot be read, whose rows will say so."""
    try:
        return read_any(source.data, source.name)
    except TmmuError:
        if alone:
            raise
        return None


def _check(opened: Opened | None, name: str, request: PlanRequest, axes: Axes) -> None:
    """Refuse what no row could answer. Raises :class:`UsageFault`."""
    if opened is None:
        return
    if not isinstance(opened, Graph | PlainInstance):
        raise UsageFault(f"{name} holds a plan already.", "Give a graph or an instance.")
    sharded = request.shard_spec is not None or axes.shards is not None
    if axes.shards is not None and request.shard_spec is not None:
        raise UsageFault("--shard and --shards exclude each other.", "Give --shards alone.")
    if axes.ranks and (not isinstance(opened, Graph) or not sharded):
        raise UsageFault("--ranks needs a graph and its shard spec.", "Give a graph, and the spec with --shard FILE.")
    if axes.ranks and request.rank:
        raise UsageFault("--rank has no effect with --ranks.", "All ranks are planned.")
    if axes.ranks and axes.fits is not None:
        raise UsageFault("--ranks and --capacities exclude each other.", "Fit one rank: give --shard and --rank.")
    if isinstance(opened, PlainInstance):
        about_instance(opened, request.but(mode=axes.modes[0], preset=axes.presets[0]))


def _shards(text: str) -> tuple[tuple[str, Mapping[str, Any] | None], ...]:
    read = SAID["shard_spec"].read
    return tuple(
        (spelled_out(n), None if n == "none" else read(read_input(n).decode("utf-8", "replace"))) for n in _commas(text)
    )


# --- working -----------------------------------------------------------------------------------------------------


def _worked(
    sources: Sequence[Source], points: Sequence[Point], where: Where, url: str | None
) -> tuple[list[dict[str, Any]], str]:
    """``(rows in order, the sweep's name in the store)``; no name where there is no store."""
    keeping = open_store(url, create=True) if url else None
    name = name_of_sweep(sources, points) if keeping else ""
    rows: dict[int, tuple[dict[str, Any], ...]] = {}
    if keeping is not None:
        rows = _taken_up(keeping, name, sources, points)
    left = [point for point in points if point.number not in rows]
    with _runner(where, len(left)) as run, progress_on_terminal() as progress:
        for done in run(sources, left) if left else ():
            if keeping is not None:
                _keep(keeping, name, done)
            rows |= {one.number: one.rows for one in done}
            if progress is not None:
                progress("planning", len(rows), len(points))
    if keeping is not None:
        keeping.close()
    return [row for number in sorted(rows) for row in rows[number]], name


def _taken_up(
    store: Store, name: str, sources: Sequence[Source], points: Sequence[Point]
) -> dict[int, tuple[dict[str, Any], ...]]:
    """What the store has of this very sweep; nobody knows an answer for what had died, so that is tried again."""
    from tmmu_core.store import sweeps

    asked = {"sources": [source.name for source in sources]}
    sweeps.begin(store, name, datetime.now(UTC), asked, len(points))
    there = {kept.number: kept.rows for kept in sweeps.points(store, name) if kept.failed != sweeps.DIED}
    note(f"sweep {name}: {words.count(len(points), 'point')}" + (f", {len(there):,} kept already" if there else ""))
    return there


def _keep(store: Store, name: str, done: Sequence[Done]) -> None:
    from tmmu_core.store import sweeps

    failed = {one.number: sweeps.DIED if one.died else sweeps.REFUSED if one.failed else sweeps.FINE for one in done}
    sweeps.add(store, name, [sweeps.Kept(one.number, one.rows, failed[one.number]) for one in done])


Run = Callable[[Sequence[Source], Sequence[Point]], Iterator[tuple[Done, ...]]]


@contextmanager
def _runner(where: Where, points: int) -> Iterator[Run]:
    """What works the points: here, or on Dask."""
    dask = installed("distributed")
    if where.scheduler is not None or where.workers:
        require("distributed", "a sweep of many processes")
    workers = where.workers if where.workers is not None else (cpu_count() or 1) if points >= MANY and dask else 0
    if where.scheduler is None and not workers:
        yield run_here
        return
    try:
        with cluster(where.scheduler, workers) as client:
            yield lambda sources, points: run_on(client, sources, points)
    except (OSError, TimeoutError) as error:
        raise UsageFault(
            f"the scheduler {where.scheduler or 'of this machine'} cannot be worked on: {error}.",
            "Check that it runs, that it has workers, and the address.",
        ) from error


# --- in words ----------------------------------------------------------------------------------------------------


def _in_a_table(rows: Sequence[Mapping[str, Any]], *, ranks: bool) -> None:
    """The rows as a table, with the columns of the axes that were asked for."""
    first: Mapping[str, Any] = rows[0] if rows else {}
    axes = [Column(title) for title in ("model", "shard", "dims") if title in first]
    columns = [*((Column("ranks"), Column("how many", True)) if ranks else ()), *axes, *_COLUMNS]
    columns += [Column("capacity", True), Column("fits")] * ("capacity" in first) + [Column("extents")] * ranks
    table(columns, [_in_words(row) for row in rows])


def _why_not(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is wrong with the rows that could not be planned, a line for each reason, with those it stands in."""
    who: dict[str, list[str]] = {}
    for row in rows:
        if (wrong := row["error"]) is not None:
            why = " ".join(filter(None, (wrong["message"], wrong.get("hint", ""))))
            name = " ".join(filter(None, (row.get("model"), row["planner"])))
            who.setdefault(f"{wrong['code_id']}: {why}", []).append(name)
    lines = [f"{', '.join(dict.fromkeys(names))}: {why}" for why, names in who.items()]
    return ["", *lines] if lines else []


_COLUMNS = (
    Column("planner"),
    Column("mode"),
    Column("preset"),
    Column("alignment", True),
    Column("lower bound", True),
    Column("extent", True),
    Column("gap", True),
    Column("slots", True),
    Column("layout"),
)


def _in_words(row: Mapping[str, Any]) -> list[str]:
    head = [words.runs(row["ranks"] or []), words.count(len(row["ranks"] or []))] if "ranks" in row else []
    head += [row[title] for title in ("model", "shard") if title in row]
    head += [",".join(f"{name}={size}" for name, size in row["dims"].items())] if "dims" in row else []
    head += [row["planner"], row["mode"] or "", row["preset"] or ""]
    head.append("" if row["alignment"] is None else f"{row['alignment']:,}")
    fits = [words.full_bytes(n) for n in row.get("capacity", {}).values()]
    if row["error"] is not None:
        return [*head, "", "", "", "", row["error"]["code_id"], *fits, *[""] * (bool(fits) + ("ranks" in row))]
    bound, extent = row["lower_bound_bytes"], row["extent_bytes"]
    figures = [words.full_bytes(bound), words.full_bytes(extent), words.gap(extent, bound)]
    figures.append(words.count(row["slots"]) if row["places"] != "bytes" else words.NO_SLOTS)
    arenas = [", ".join(f"{name} {words.short_bytes(n)}" for name, n in row["arenas"].items())] * ("ranks" in row)
    return [*head, *figures, row["layout_hash"][:12], *fits, *([row["answer"]] if fits else []), *arenas]


def _commas(text: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


def _words(text: str | None, known: tuple[str, ...]) -> tuple[str | None, ...]:
    if text is None:
        return ()
    return known if text.strip() == "all" else _commas(spelled_out(text))


def _sizes(text: str, opened: Opened | None, name: str) -> tuple[tuple[str, int] | None, ...]:
    """The points of ``--over``."""
    if opened is None:
        return (None,)
    dim, listed, values = (part.strip() for part in text.partition("="))
    if not isinstance(opened, Graph) or dim not in opened.dims:
        known = ", ".join(sorted(opened.dims)) if isinstance(opened, Graph) else ""
        raise UsageFault(f"{name} has no dimension {dim!r}.", f"It names: {known}." if known else "It names none.")
    if not listed:
        return tuple((dim, value) for value in sample_points(opened.dims[dim]))
    try:
        return tuple((dim, int(value)) for value in values.split(","))
    except ValueError:
        raise UsageFault(f"--over: {values!r} are no whole numbers.", f"Write {dim}=1,8,32.") from None


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageFault(
            f"the alignment {text!r} is no whole number.", "Write powers of two, such as 64,128."
        ) from None
