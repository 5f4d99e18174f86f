"""``tmmu sweep``: plan models with every combination of settings, in this process or with Dask."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from os import cpu_count
from typing import Any

from app.cli.console import BAD_INPUT, SUCCESS, UsageError, print_lines, print_note, table, write_json
from app.cli.options import AS_JSON, argument, option, read_option
from app.cli.resolve import input_of, open_store, progress_on_terminal, refuse_graph_options
from app.texts import numbers
from tmmu_core.base import strict
from tmmu_core.base.errors import TmmuError, escaped_surrogates, installed, require
from tmmu_core.formats.open_file import Opened, read_any
from tmmu_core.graph.checks import dimension_hint
from tmmu_core.graph.model import MODES, PRESETS, Graph
from tmmu_core.library.arguments import amount_of_bytes
from tmmu_core.planners import PLANNERS
from tmmu_core.planners.problem import PlainInstance
from tmmu_core.plans.making.plan_sets import sample_points
from tmmu_core.plans.making.request import ANY_ARENA, PlanRequest
from tmmu_core.sweep.sweep_run import Axes, Point, Results, Source, cluster, name_of_sweep, points_of, run_here, run_on

PARALLEL_FROM = 200  # number of points from which a sweep uses one process per core by default, if Dask is installed
_COLUMNS = (
    *("model", "shard", "dims", "planner", "mode", "preset", ">alignment"),
    *(">lower bound", ">arena size", ">gap", ">slots", "layout", ">capacity", "fits"),
)


@dataclass(frozen=True)
class AxisOptions:
    """Options with the settings that a sweep combines."""

    planners: str | None = option("Planners, or all [slots,naive].", "A,B,…")
    modes: str | None = option("Modes, or all [default mode].", "A,B,…")
    presets: str | None = option("Presets, or all [depends on the mode].", "A,B,…")
    alignments: str | None = option("Arena alignments in bytes [alignment of each arena].", "N,N,…")
    over: str | None = option("Sizes of a named dimension [at most 33 sizes from its range].", "B or B=1,8,…")
    shards: str | None = option('Shard specs; "none" is a plan without sharding.', "FILE,FILE,…")
    limits: str | None = option("Fit to each memory limit.", "BYTES,…", "--capacities", "--fit")

    def axes(self) -> Axes:
        """Return the axes without ``over``, which depends on the model. Raises ``TmmuError``."""
        files = {file: None if file == "none" else read_option("shard_spec", file) for file in _split(self.shards)}
        hint = "Write powers of two, such as 64,128."
        return Axes(
            modes=_names("modes", self.modes, MODES) or (None,),
            presets=_names("presets", self.presets, PRESETS) or (None,),
            alignments=_whole_numbers("--alignments", self.alignments, hint) if self.alignments else (None,),
            planners=_names("planners", self.planners, tuple(PLANNERS)) or ("slots", "naive"),
            shards=tuple((escaped_surrogates(file), spec) for file, spec in files.items()) if self.shards else None,
            capacities=tuple({ANY_ARENA: amount_of_bytes("--capacities", n)} for n in _split(self.limits)) or None,
        )


def sweep_command(
    request: PlanRequest,
    options: AxisOptions,
    workers: int | None = option(
        f"Worker processes, 0 for none [one per core with Dask and {PARALLEL_FROM} or more points, else 0].", "N", min=0
    ),
    scheduler: str | None = option("Address of a running Dask scheduler.", "tcp://HOST:PORT"),
    files: list[str] = argument("Graphs and instances; - reads standard input.", "FILE"),
    store: str | None = option("URL of a store for the rows: sqlite:///plans.db or postgresql://…", "URL"),
    json: bool = AS_JSON,
) -> int:
    """Plan models with many settings and print a table.

    The row of a failed plan shows an error code. With --store, the same command resumes an interrupted sweep.

    Exit code: 0 if at least one row was planned, else 2.
    """
    for name in ("planner", "mode", "preset"):
        if getattr(request, name) is not None:
            raise UsageError(f"--{name} has no effect on a sweep.", f"Use --{name}s.")
    if scheduler is not None and workers is not None:
        raise UsageError("--workers and --scheduler exclude each other.", "A scheduler has its own workers.")
    axes, over = options.axes(), options.over
    if axes.shards is not None and request.shard_spec is not None:
        raise UsageError("--shard and --shards exclude each other.", "Use only --shards.")
    if axes.alignments != (None,) and request.alignment is not None:
        raise UsageError("--alignment and --alignments exclude each other.", "Use only --alignments.")
    sources = [Source(escaped_surrogates(name), data) for data, name in map(input_of, files)]
    sizes: list[tuple[tuple[str, int] | None, ...]] = []
    for source in sources:
        try:
            opened = read_any(source.data, source.name)
        except TmmuError:
            if len(sources) == 1:
                raise
            sizes.append((None,))  # the rows of this file show the error, and the other files are planned
            continue
        if not isinstance(opened, Graph | PlainInstance):
            raise UsageError(f"{source.name} contains a finished plan.", "Pass a graph or an instance.")
        if isinstance(opened, PlainInstance):
            print_note(*(f"{opened.name}: {text}" for text in opened.notes))
            refuse_graph_options(opened, request.but(mode=axes.modes[0], preset=axes.presets[0]))
        sizes.append(_sizes(over, opened, source.name, request) if over else (None,))
    points = points_of(request, axes, sizes, [source.name for source in sources] if len(sources) > 1 else [""])
    rows, name = _run_points(sources, points, scheduler, workers, store)
    if json:
        names = [row["name"] for row in rows if row["name"] is not None]
        graph = next(iter(names), None if len(sources) == 1 else files[0])  # a row without a plan has no name
        write_json({"graph": graph, **({"sweep": name} if name else {}), "rows": rows})
    else:
        cells_of = [_cells(row) for row in rows]
        columns = [title for title in _COLUMNS if any(title in cells for cells in cells_of)]
        table(columns, [[cells.get(title, "") for title in columns] for cells in cells_of])
        print_lines(*_remark_lines(rows))
    return SUCCESS if any(row["error"] is None for row in rows) else BAD_INPUT


def _run_points(
    sources: Sequence[Source], points: Sequence[Point], scheduler: str | None, workers: int | None, url: str | None
) -> tuple[list[dict[str, Any]], str]:
    """Plan the points. Return the rows in the order of the points, and the name of the stored sweep or ""."""
    rows: dict[int, tuple[dict[str, Any], ...]] = {}
    name = ""
    with closing(open_store(url, create=True)) if url else nullcontext() as store, progress_on_terminal() as progress:
        if store is not None:
            from tmmu_core.store import stored_sweeps

            name = name_of_sweep(sources, points)
            description = {"sources": [source.name for source in sources]}
            stored_sweeps.begin(store, name, datetime.now(UTC), description, len(points))
            # Failed points run again: a limit or a missing package can be the cause of the failure.
            rows = {r.number: r.rows for r in stored_sweeps.results_of(store, name) if not r.failed}
            stored = f", {len(rows):,} already stored" if rows else ""
            print_note(f"sweep {name}: {numbers.count(len(points), 'point')}{stored}")
        remaining = [point for point in points if point.number not in rows]
        for results in _results(scheduler, workers, sources, remaining):
            if store is not None:
                stored_sweeps.add(store, name, results)
            rows |= {result.number: result.rows for result in results}
            progress("planning", len(rows), len(points))
    return [row for number in sorted(rows) for row in rows[number]], name


def _results(
    scheduler: str | None, workers: int | None, sources: Sequence[Source], points: Sequence[Point]
) -> Iterator[Results]:
    if scheduler is not None or workers:
        require("distributed", "a sweep with several processes")
    if workers is None:
        workers = (cpu_count() or 1) if len(points) >= PARALLEL_FROM and installed("distributed") else 0
    if not points or (scheduler is None and not workers):
        yield from run_here(sources, points)
        return
    try:
        with cluster(scheduler, workers) as client:
            yield from run_on(client, sources, points)
    except (OSError, TimeoutError) as error:
        what = f"cannot use the Dask scheduler {scheduler or 'of this machine'}: {error}."
        hint = "Check its address, that it runs, and that it has workers." if scheduler else "Use --workers 0."
        raise UsageError(what, hint) from error


def _remark_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return an empty line, then each distinct error or warning with its rows; [] without errors and warnings."""
    rows_of: dict[str, list[str]] = {}
    for row in rows:
        texts = [f"warning: {text}" for text in row.get("warnings", ())]
        if (error := row["error"]) is not None:
            hint = error.get("hint") or error.get("diagnostics", {}).get("hint")
            texts = [" ".join(filter(None, (f"{error['code_id']}:", error["message"], hint)))]
        for text in texts:
            rows_of.setdefault(text, []).append(" ".join(filter(None, (row.get("model"), row["planner"]))))
    lines = [f"{', '.join(dict.fromkeys(names))}: {text}" for text, names in rows_of.items()]
    return ["", *lines] if lines else []


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    """Return column → cell of a row. Without a plan, the column ``layout`` shows the error code."""
    cells = {title: row[title] for title in ("model", "shard", "planner") if title in row}
    cells |= {title: row[title] or "" for title in ("mode", "preset")}
    cells[">alignment"] = "" if row["alignment"] is None else f"{row['alignment']:,}"
    if "dims" in row:
        cells["dims"] = ",".join(f"{name}={size}" for name, size in row["dims"].items())
    if "capacity" in row:
        cells[">capacity"] = ", ".join(map(numbers.full_bytes, row["capacity"].values()))
    if row["error"] is not None:
        return {**cells, "layout": row["error"]["code_id"]}
    bound, extent = row["lower_bound_bytes"], row["extent_bytes"]
    cells |= {">lower bound": numbers.full_bytes(bound), ">arena size": numbers.full_bytes(extent)}
    slots = numbers.NO_SLOTS if row["places"] == "bytes" else numbers.count(row["slots"])
    cells |= {">gap": numbers.over_bound(extent - bound, bound), ">slots": slots, "layout": row["layout_hash"][:12]}
    if "capacity" in row:
        cells["fits"] = row["answer"]
    return cells


def _split(text: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


def _names(option_name: str, text: str | None, known: tuple[str, ...]) -> tuple[str | None, ...]:
    names = known if text is not None and text.strip() == "all" else _split(text)
    if unknown := next((name for name in names if name not in known), None):
        raise UsageError(f"--{option_name}: unknown name {strict.shown(unknown)}.", strict.closest_hint(unknown, known))
    return names


def _sizes(text: str, opened: Opened, name: str, request: PlanRequest) -> tuple[tuple[str, int] | None, ...]:
    """Return ``(dimension, size)`` pairs: the sizes in the value of ``--over``, else samples of the range."""
    dim, listed, values = (part.strip() for part in text.partition("="))
    if dim in request.dims:
        raise UsageError(f"--dims and --over both set {dim}.", f"Remove {dim} from --dims.")
    if not isinstance(opened, Graph) or dim not in opened.dims:
        known = opened.dims if isinstance(opened, Graph) else ()
        raise UsageError(f"--over: {name} has no dimension {dim!r}.", dimension_hint(dim, known))
    if not listed:
        return tuple((dim, value) for value in sample_points(opened.dims[dim]))
    return tuple((dim, size) for size in _whole_numbers("--over", values, f"Write {dim}=1,8,32."))


def _whole_numbers(option_name: str, text: str, hint: str) -> tuple[int, ...]:
    try:
        return tuple(map(strict.whole_number, text.split(",")))
    except ValueError as error:
        raise UsageError(f"{option_name}: {error}", hint) from None
