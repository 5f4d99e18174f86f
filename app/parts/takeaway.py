"""What can be taken away of a plan: every file with what it is for, made when it is asked for; and the link. Pure."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import chain, count
from typing import Any, cast
from urllib.parse import quote, urlencode

import msgspec

from app.report.build import Known, build_report
from app.report.figures import ledger_figure
from app.report.look import Sheet
from app.report.still import Kind, still
from app.report.summary import markdown
from app.say import words
from app.session import placed, planning, repeat
from app.session.opening import content_of
from app.session.planning import Shown
from tmmu_core.errors import TmmuError
from tmmu_core.graph import native
from tmmu_core.judge.verifier import verify_plan
from tmmu_core.plan.analysis.waste import waste_ledger
from tmmu_core.plan.formats import checkpoint, files, parquet, trace
from tmmu_core.plan.formats.c_project import c_project, zipped
from tmmu_core.plan.formats.constants import constants_in
from tmmu_core.plan.formats.render import RenderIncomplete, RenderMemoryPlan, build_render_plan, residency
from tmmu_core.plan.formats.render_c import c_header, c_prefix, c_source
from tmmu_core.plan.making.wording import SAID
from tmmu_core.plan.model import Plan

ARENAS = repeat.FILES["arenas"]


def address(here: str, query: dict[str, str]) -> str:
    """The first page under the same server with ``query``; ``here`` is the address of this page."""
    base = here.partition("?")[0].rstrip("/").removesuffix("/report")
    return f"{base}/" + (f"?{urlencode(query, quote_via=quote, safe=':,*')}" if query else "")


Entry = tuple[str, str, str, str, Callable[[], bytes | str]]
"""Button, file name, media type, what it is for, and what makes it when it is asked for."""


def entries(shown: Shown, stem: str) -> dict[tuple[str, str], list[Entry]]:
    """``(heading, note) → files``: all that ``tmmu export`` writes, and what a planning command reads."""
    plan, solution, graph = shown.plan, shown.solution, shown.graph
    json_, text, stream = "application/json", "text/x-c", "application/octet-stream"
    prefix = c_prefix(plan.ir_name or "model")
    kept: list[Entry] = [
        (
            "Trace",
            f"{stem}.trace.jsonl",
            "application/x-ndjson",
            "step by step: to compare runs",
            _of(trace.to_json_lines, plan),
        ),
        (
            "Trace, CBOR",
            f"{stem}.trace.cborseq",
            "application/cbor-seq",
            "the same in less room",
            _of(trace.to_cbor_sequence, plan),
        ),
    ]
    if solution is not None:
        make = partial(checkpoint.checkpoint, plan, solution.liveness)
        kept.append(
            ("Checkpoint", f"{stem}.checkpoint.cbor", "application/cbor", "to restore a run: its hash is checked", make)
        )
    found: dict[tuple[str, str], list[Entry]] = {
        ("The plan", f"{words.count(len(plan), 'tensor')}, schema tmmu_plan/1"): [
            ("JSON", f"{stem}.plan.json", json_, "the whole plan, readable", _of(files.to_json, plan)),
            ("CBOR", f"{stem}.plan.cbor", "application/cbor", "the whole plan, small", _of(files.to_cbor, plan)),
            ("CSV", f"{stem}.plan.csv", "text/csv", "its rows, for spreadsheets", _of(files.to_csv, plan)),
            ("Parquet", f"{stem}.plan.parquet", stream, "its rows, for notebooks", _of(parquet.to_parquet, plan)),
        ],
        ("In words", "for a pull request"): [
            ("Summary", f"{stem}.md", "text/markdown", "the figures as Markdown", lambda: _summary(shown))
        ],
        ("The record", "what a run leaves behind"): kept,
        ("For a code generator", "the render plan: regions by role and memory"): [
            (
                "C header",
                f"{prefix}_memory.h",
                text,
                "offsets and sizes, asserted at compile time",
                lambda: c_header(_render(plan)),
            ),
            ("C source", f"{prefix}_memory.c", text, "the tables behind the header", lambda: c_source(_render(plan))),
            (
                "C project",
                f"{prefix}_c.zip",
                "application/zip",
                "arenas, constants where the file holds their bytes, hydration, self-test: cmake builds it",
                partial(_project, shown),
            ),
            (
                "Residency",
                f"{stem}.residency.json",
                json_,
                "which tensor resides in which memory",
                lambda: _residency(plan),
            ),
        ],
        ("As packing instances", "the CSV that MiniMalloc reads, with offsets; a file per arena"): [
            (
                words.shortened(arena.name, 16),
                f"{stem}.{name}.csv",
                "text/csv",
                f"{words.count(arena.storages, 'storage')}, {words.short_bytes(arena.extent_bytes)}",
                partial(files.to_instance, plan, arena.name),
            )
            for arena, name in zip(plan.arenas, _file_names([arena.name for arena in plan.arenas]), strict=True)
        ],
    }
    again: list[Entry] = []
    if graph is not None:
        share = "" if shown.choice.shard_spec is None else ", this rank's share"
        again.append(
            (
                "Graph",
                f"{stem}.tmmu.json",
                json_,
                f"the graph in the native form{share}",
                _of(native.encode_json, graph),
            )
        )
    chosen = repeat.files(shown)
    if ARENAS not in chosen:
        again.append(
            (
                "Arenas",
                ARENAS,
                json_,
                "its arenas, all defaults said: what --arenas reads",
                _of(repeat.arenas_spelled_out, plan),
            )
        )
    for name, data in chosen.items():
        reads = SAID[next(field for field, file in repeat.FILES.items() if file == name)].option
        again.append(
            (
                name.removesuffix(".json").capitalize(),
                name,
                json_,
                f"what {reads} of the command reads",
                partial(bytes, data),
            )
        )
    if shown.opened.plan is None:
        found["To plan it again", "what the command line reads"] = again
    return found


def report(shown: Shown, baseline: Shown | None, *, dark: bool = False) -> bytes:
    """The one-file report, alone or against a baseline; it says what the judge has found within a minute."""
    job = planning.judgement(shown)
    judged = job.answer() if job.wait(60) else None
    return build_report(
        shown.solution or shown.plan,
        baseline=(baseline.solution or baseline.plan) if baseline else None,
        title=shown.opened.name,
        known=Known(
            judged.verified if judged else None,
            judged.lint if judged else None,
            placed.operators(shown.key, shown),
            shown.choice.dims,
        ),
        theme="dark" if dark else "light",
    )


PICTURES = {"map": "arena map", "slots": "slots", "lifetimes": "lifetimes", "ledger": "live bytes and waste"}
"""Drawing → what it is called."""


def picture(plan: Plan, kind: str, arena: str, sheet: Sheet) -> str:
    """A drawing of an arena as SVG. ``KeyError`` for an arena that the plan does not have."""
    if kind == "ledger":
        return str(ledger_figure(plan, waste_ledger(plan, arena), sheet))
    return str(still(plan, arena, cast(Kind, kind), sheet))


def _file_names(arenas: list[str]) -> list[str]:
    """Arenas as parts of file names; the second of two that would be called alike, in any case, gets a number."""
    found: list[str] = []
    taken = {"plan"}
    for k, name in enumerate(map(repeat.file_stem, arenas)):
        spellings = chain((name,), (f"{name}-{number}" for number in count(k)))
        found.append(next(one for one in spellings if one.lower() not in taken))
        taken.add(found[-1].lower())
    return found


def _of(make: Callable[[Any], bytes | str], what: object) -> Callable[[], bytes | str]:
    return lambda: make(what)


def _render(plan: Plan) -> RenderMemoryPlan:
    return build_render_plan(plan, module_prefix=plan.ir_name or "model")


def _residency(plan: Plan) -> bytes:
    return msgspec.json.format(msgspec.json.encode(residency(_render(plan))), indent=2) + b"\n"


def _project(shown: Shown) -> bytes:
    """The C project, with the constants' bytes of the file that was opened; a finished plan's are nobody's."""
    constants = None
    if shown.graph is not None and shown.opened.graph is not None:
        with suppress(TmmuError):  # weights in other files stay where they are: an upload has no folder
            data, name = content_of(shown.opened.source)
            constants = dict(constants_in(data, shown.graph, name))
    try:
        return zipped(c_project(build_render_plan(shown.plan, constants, module_prefix=shown.plan.ir_name or "model")))
    except RenderIncomplete:  # constants among what is written, or the rank's share of them: without their bytes
        return zipped(c_project(_render(shown.plan)))


def _summary(shown: Shown) -> bytes:
    return markdown(shown.plan, verify_plan(shown.plan, shown.graph))
