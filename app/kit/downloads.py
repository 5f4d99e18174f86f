"""The files of a plan for download."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple, cast

from app.report.html_report import ReviewSection, build_report
from app.report.pictures import Kind, Sheet, arena_picture, ledger_figure
from app.report.summary import markdown
from app.session import page_jobs, plan_rows, planning, repeat_command, review
from app.session.opening import content_of
from app.session.planning import Shown
from app.session.review import Review
from app.texts import numbers
from tmmu_core.base.errors import TmmuError
from tmmu_core.formats.c_project.c_export import c_project, zipped
from tmmu_core.formats.c_project.c_names import c_prefix
from tmmu_core.formats.c_project.render_plan import RenderIncomplete, build_render_plan
from tmmu_core.formats.edge import tflite
from tmmu_core.formats.edge.tflm_plan import MicroModel, with_plan
from tmmu_core.formats.planfile import plan_file, trace
from tmmu_core.formats.weights import constants_in
from tmmu_core.graph.native import native_file
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans.analysis.waste_ledger import explain_peak, waste_ledger
from tmmu_core.plans.making.request_options import OPTION_SPECS

MOST_TENSORS = 2_000  # largest plan that is written into its model file


class Entry(NamedTuple):
    """A file for download: label of the button, file name, purpose, and function that makes the content."""

    label: str
    name: str
    purpose: str
    make: Callable[[], bytes | str]


def _entry(label: str, name: str, purpose: str, make: Callable[..., bytes | str], *arguments: object) -> Entry:
    return Entry(label, name, purpose, partial(make, *arguments))


def entries(shown: Shown, stem: str) -> dict[tuple[str, str], list[Entry]]:
    """Return ``(heading, note) → files``: plan, trace, summary, C project, model, and the inputs of ``tmmu plan``."""
    plan = shown.plan
    prefix = c_prefix(plan.ir_name or "model")

    def summary() -> bytes:
        return markdown(plan, verify_plan(plan, shown.graph))

    sections = {
        ("The plan", f"{numbers.count(len(plan), 'tensor')}; tmmu export writes more formats"): [
            _entry("JSON", f"{stem}.plan.json", "the complete plan, readable", plan_file.to_json, plan),
            _entry("CBOR", f"{stem}.plan.cbor", "the complete plan, smaller", plan_file.to_cbor, plan),
            _entry("CSV", f"{stem}.plan.csv", "rows for spreadsheets", plan_file.to_csv, plan),
            _entry("Trace", f"{stem}.trace.jsonl", "a record per tensor, to compare runs", trace.to_json_lines, plan),
        ],
        ("Summary", "for a pull request"): [_entry("Summary", f"{stem}.md", "figures as Markdown", summary)],
        ("C code", "one region per role and memory"): [
            _entry("C project", f"{prefix}_c.zip", "arenas, constants, self-test; built by CMake", _project, shown)
        ],
    }
    if models := _models(shown, stem):
        sections["Model", "with this plan in it"] = models
    if shown.opened.plan is None:
        sections["Reproduce the plan", "input files of the command line"] = _inputs(shown, stem)
    return sections


def _models(shown: Shown, stem: str) -> list[Entry]:
    if shown.opened.graph is None or len(shown.plan) > MOST_TENSORS:
        return []
    with suppress(TmmuError):
        data, name = content_of(shown.opened.source)
        if not tflite.refuses(data):
            written = with_plan(MicroModel(data, name), shown.plan)
            purpose = f"TensorFlow Lite Micro places the tensors in {numbers.short_bytes(written.extent_bytes)}"
            return [_entry("TFLM model", f"{stem}.tflm.tflite", purpose, bytes, written.data)]
    return []


def _inputs(shown: Shown, stem: str) -> list[Entry]:
    inputs, data_of, source = [], repeat_command.files(shown), shown.opened.source
    if source.startswith("file:"):  # the visitor may lack this file: Fix made it, or another visitor opened it
        name, purpose = repeat_command.file_of(shown).removeprefix("./"), "the opened file, as in the commands"
        inputs.append(_entry("Opened file", name, purpose, lambda: content_of(source)[0]))
    if shown.graph is not None:
        rank_note = "" if shown.choice.shard_spec is None else ", this rank's share"
        purpose = f"the graph in the native format{rank_note}"
        inputs.append(_entry("Graph", f"{stem}.tmmu.json", purpose, native_file.encode_json, shown.graph))
    for field, name in repeat_command.FILES.items():
        label, option = name.removesuffix(".json").capitalize(), OPTION_SPECS[field].option
        if name in data_of:
            inputs.append(_entry(label, name, f"input of {option}", bytes, data_of[name]))
    return inputs


def review_page(shown: Shown, current: Review, link: str) -> bytes:
    """Return the review file: an HTML report with the review as JSON in it, readable without a server."""
    verdict = str(explain_peak(shown.plan, shown.choice.budget, shown.opened.name))
    return report(shown, None, current, embedded=review.to_json(shown, verdict, current, link))


def report(
    shown: Shown, baseline: Shown | None, current: Review, *, dark: bool = False, embedded: bytes = b""
) -> bytes:
    """Return the HTML report. Without a verdict after a minute, :func:`build_report` verifies the plan itself."""
    job = planning.judgement(shown)
    judged = job.result() if job.wait(60) and job.succeeded else None
    return build_report(
        shown.solution or shown.plan,
        baseline=None if baseline is None else baseline.solution or baseline.plan,
        title=shown.opened.name,
        verified=judged and judged.verified,
        budget=shown.choice.budget,
        theme="dark" if dark else "light",
        section=ReviewSection(current, page_jobs.moves_of(shown.choice), embedded.decode()),
    )


PICTURES = {"map": "arena map", "slots": "slots", "lifetimes": "lifetimes", "ledger": "live bytes and waste"}


def picture(shown: Shown, kind: str, arena: str, sheet: Sheet) -> str:
    """Return a drawing of an arena as SVG, in the colours of the page. ``kind``: a key of :data:`PICTURES`."""
    if kind == "ledger":
        return str(ledger_figure(shown.plan, waste_ledger(shown.plan, arena), sheet))
    return str(arena_picture(shown.plan, arena, cast(Kind, kind), sheet, plan_rows.row_colours(shown, kind)))


def _project(shown: Shown) -> bytes:
    constants = None
    if shown.graph is not None and shown.opened.graph is not None:
        with suppress(TmmuError):  # an uploaded model has no access to its external weight files
            data, name = content_of(shown.opened.source)
            constants = dict(constants_in(data, shown.graph, name))
    render = partial(build_render_plan, shown.plan, module_prefix=shown.plan.ir_name or "model")
    try:
        return zipped(c_project(render(constants)))
    except RenderIncomplete:  # the plan writes to constants, or contains only a rank's share of the constants
        return zipped(c_project(render()))
