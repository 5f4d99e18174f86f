"""``tmmu sweep``: one graph under every planner, mode and alignment asked for, in one table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from app.cli.console import BAD_INPUT, FINE, Column, UsageFault, say_json, table
from app.cli.options import AsJson, Source, open_any, planning, resolve_opened, resolve_ranks
from app.say import words
from app.session import worlds
from tmmu_core.errors import ContractError
from tmmu_core.graph.model import MODES, PRESETS, Graph
from tmmu_core.plan.formats.reading import Opened
from tmmu_core.plan.making.replan import sample_points
from tmmu_core.plan.making.request import PlanRequest
from tmmu_core.plan.metrics import totals
from tmmu_core.plan.model import Plan
from tmmu_core.planners import PLANNERS
from tmmu_core.planners.problem import PlainInstance

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


@planning
def command(
    graph: Source,
    request: PlanRequest,
    planners: Planners = None,
    modes: Modes = None,
    presets: Presets = None,
    alignments: Alignments = None,
    over: Over = None,
    ranks: Ranks = False,
    json: AsJson = False,
) -> int:
    """Plan one graph (or instance) many times and tabulate. A row that cannot be planned tells its error's code.

    Exit code: 0 when at least one row was planned, else 2.
    """
    for option, name in ((request.planner, "planner"), (request.mode, "mode"), (request.preset, "preset")):
        if option is not None:
            raise UsageFault(f"--{name} has no effect on a sweep.", f"Give --{name}s.")
    opened = open_any(graph)
    if not isinstance(opened, Graph | PlainInstance):
        raise UsageFault(f"{graph} holds a plan already.", "Give a graph or an instance.")
    if ranks and (not isinstance(opened, Graph) or request.shard_spec is None):
        raise UsageFault("--ranks needs a graph and its shard spec.", "Give a graph, and the spec with --shard FILE.")
    if ranks and request.rank:
        raise UsageFault("--rank has no effect with --ranks.", "All ranks are planned.")
    rows = list(
        _rows(
            opened,
            graph,
            request,
            _words(planners, tuple(PLANNERS)) or ("slots", "naive"),
            _words(modes, MODES) or (None,),
            _words(presets, PRESETS) or (None,),
            tuple(_number(text) for text in alignments.split(",")) if alignments else (None,),
            _sizes(over, opened, graph) if over else (None,),
            ranks,
        )
    )
    if json:
        say_json({"graph": rows[0]["name"] if rows else graph, "rows": rows})
    else:
        more = (Column("ranks"), Column("how many", True)) if ranks else ()
        dims = (Column("dims"),) if over is not None else ()
        arenas = (Column("extents"),) if ranks else ()
        table((*more, *dims, *_COLUMNS, *arenas), [_in_words(row) for row in rows])
    return FINE if any(row["error"] is None for row in rows) else BAD_INPUT


def _rows(
    opened: Opened,
    name: str,
    request: PlanRequest,
    planners: tuple[str | None, ...],
    modes: tuple[str | None, ...],
    presets: tuple[str | None, ...],
    alignments: tuple[int | None, ...],
    points: tuple[tuple[str, int] | None, ...],
    ranks: bool = False,
) -> Iterator[dict[str, Any]]:
    for mode in modes:
        for preset in presets:
            for alignment in alignments:
                for planner, point in ((planner, point) for planner in planners for point in points):
                    asked = request.but(mode=mode, preset=preset, planner=planner)
                    if alignment is not None:
                        asked = asked.but(alignment=alignment)
                    row: dict[str, Any] = {"planner": planner, "mode": mode, "preset": preset, "alignment": alignment}
                    if point is not None:
                        asked = asked.but(dims={**request.dims, point[0]: point[1]})
                        row["dims"] = dict(asked.dims)
                    try:
                        plans = (
                            _every_rank(opened, asked) if ranks else [({}, resolve_opened(opened, name, asked).plan)]
                        )
                        for ranks_planned, plan in plans:
                            yield {**row, **ranks_planned, **_figures(plan), "error": None}
                    except ContractError as error:
                        whom = {"ranks": None} if ranks else {}
                        yield {**row, **whom, **dict.fromkeys(_FIGURES), "error": error.record()}


def _every_rank(opened: Opened, request: PlanRequest) -> list[tuple[dict[str, Any], Plan]]:
    """``({"ranks": …}, plan)`` of each class of ranks that run the same graph, by their first rank."""
    assert isinstance(opened, Graph)
    return [({"ranks": list(one.ranks)}, one.solution.plan) for one in resolve_ranks(opened, request).classes]


_FIGURES = ("name", "lower_bound_bytes", "extent_bytes", "places", "slots", "storages", "steps", "layout_hash")


def _figures(plan: Plan) -> dict[str, Any]:
    return {
        "name": plan.ir_name,
        "mode": plan.mode,
        "preset": plan.preset,
        "lower_bound_bytes": totals(plan).lower_bound_bytes,
        "extent_bytes": sum(a.extent_bytes for a in plan.arenas),
        "places": plan.places,
        "slots": sum(a.slots for a in plan.arenas),
        "storages": sum(a.storages for a in plan.arenas),
        "steps": plan.steps,
        "layout_hash": plan.layout_hash.hex(),
        "arenas": {a.name: a.extent_bytes for a in plan.arenas},
        "allocation_time_ns": plan.metrics.get("allocation_time_ns"),
    }


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
    head = [worlds.runs(row["ranks"] or []), words.count(len(row["ranks"] or []))] if "ranks" in row else []
    head += [",".join(f"{name}={size}" for name, size in row["dims"].items())] if "dims" in row else []
    head += [row["planner"], row["mode"] or "", row["preset"] or ""]
    head.append("" if row["alignment"] is None else f"{row['alignment']:,}")
    if row["error"] is not None:
        return [*head, "", "", "", "", row["error"]["code_id"], *[""] * ("ranks" in row)]
    bound, extent = row["lower_bound_bytes"], row["extent_bytes"]
    figures = [words.full_bytes(bound), words.full_bytes(extent), words.gap(extent, bound)]
    figures.append(words.count(row["slots"]) if row["places"] != "bytes" else words.NO_SLOTS)
    arenas = [", ".join(f"{name} {words.short_bytes(n)}" for name, n in row["arenas"].items())] * ("ranks" in row)
    return [*head, *figures, row["layout_hash"][:12], *arenas]


def _words(text: str | None, known: tuple[str, ...]) -> tuple[str | None, ...]:
    if text is None:
        return ()
    return known if text.strip() == "all" else tuple(word.strip() for word in text.split(",") if word.strip())


def _sizes(text: str, opened: Opened, name: str) -> tuple[tuple[str, int], ...]:
    """The points of ``--over``."""
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
