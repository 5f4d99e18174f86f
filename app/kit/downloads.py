"""The files of a plan for download, and the tmmu command that computes the shown plan again, byte for byte."""

import json
import re
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import cast

from app.report.html_report import ReviewSection, build_report
from app.report.pictures import Kind, Sheet, arena_picture, ledger_figure
from app.report.summary import markdown
from app.session import page_jobs, plan_rows, planning, review
from app.session.opening import SAMPLES, STORE_KIND, content_of, samples, shelf
from app.session.planning import Shown, request_of
from app.session.review import Review
from app.texts import numbers
from tmmu_core.base.errors import TmmuError
from tmmu_core.base.escaping import visible
from tmmu_core.formats.c_project.c_export import c_project, zipped
from tmmu_core.formats.c_project.render_plan import RenderIncomplete, build_render_plan, c_prefix
from tmmu_core.formats.edge import tflite
from tmmu_core.formats.edge.tflm_plan import MicroModel, with_plan
from tmmu_core.formats.open_file import constants_in
from tmmu_core.formats.planfile import plan_file, trace
from tmmu_core.graph.native import native_file
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.planners.problem import GIVEN
from tmmu_core.plans.analysis.waste_ledger import explain_peak, waste_ledger
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.making.request_options import OPTION_SPECS, option_pairs, option_texts

COMMAND_FILES = {"arenas": "arenas.json", "order": "order.json", "shard_spec": "shards.json"}  # option → file
_WINDOWS_DEVICE = re.compile(r"con|prn|aux|nul|(com|lpt)[0-9¹²³]", re.I)  # device names of Windows
MAX_STEM_BYTES = 100  # a file name has at most 255 bytes, and may also contain an arena name
MOST_TENSORS = 2_000  # maximum number of tensors of a plan that is offered as a part of its model file
PICTURES = {"map": "arena map", "slots": "slots", "lifetimes": "lifetimes", "ledger": "live bytes and waste"}


def command(shown: Shown, before_option: str = " ") -> str:
    """Return the command that plans again, or verifies a finished plan; ``before_option``: text before each option."""
    file = file_of(shown)
    if shown.opened.plan is not None:
        return _shell_command(["tmmu", "verify", file])
    parts = ["tmmu", "plan", file]
    request = _command_request(shown)
    for name, text in option_texts(request).items():
        spec = OPTION_SPECS[name]
        if name == "options":
            for key, value in request.options.items():
                is_text = option_pairs([f"{key}={value}"]) == {key: value}  # else the value needs JSON quotes
                text = value if is_text else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
                parts += [spec.option, f"{key}={text}"]
        else:
            parts += [spec.option, COMMAND_FILES.get(name, text)]
    stem = file_stem(shown.opened.name)
    output = f"{stem}.plan.json" if file != f"{stem}.plan.json" else f"{stem}.repeated.plan.json"
    return _shell_command([*parts, "-o", output], before_option)


def _shell_command(parts: Sequence[str], before_option: str = " ") -> str:
    """Return the words as a shell command. Control and invisible characters are written as octal codes."""
    words = ""
    for part in parts:
        words += (before_option if part.startswith("-") else " ") if words else ""
        if visible(part) == part:
            words += shlex.quote(part)
            continue
        inner = part.replace("\\", "\\\\").replace("'", "\\'").encode(errors="replace").decode()
        codes = ["".join(f"\\{byte:03o}" for byte in c.encode()) if visible(c) != c else c for c in inner]
        words += f"$'{''.join(codes)}'"
    return words


def command_files(shown: Shown) -> dict[str, bytes]:
    """Return name → content of the files that the command reads in addition to the graph."""
    if shown.opened.plan is not None:
        return {}
    request = _command_request(shown)
    value_of = {file: getattr(request, name) for name, file in COMMAND_FILES.items() if name in option_texts(request)}
    return {file: json.dumps(value, indent=2).encode() + b"\n" for file, value in value_of.items()}


def _command_request(shown: Shown) -> PlanRequest:
    request = request_of(shown.choice, shown.opened)
    # Only without --planner, ``tmmu plan`` uses the offsets in the file.
    return request.but(planner=None, options={}) if request.planner == GIVEN else request


def file_of(shown: Shown) -> str:
    """Return the name of the open file for the command line."""
    source = shown.opened.source
    paths = {f"sample:{sample.name}": sample.path for sample in samples()}
    if source in paths:
        return f"{SAMPLES.name}/{paths[source].relative_to(SAMPLES).as_posix()}"
    if source.startswith(f"{STORE_KIND}:"):
        return f"{file_stem(shown.opened.name)}.plan.cbor"  # the page Export offers this file
    stored = shelf().get(source)
    name = stored[0] if stored is not None else shown.opened.name
    return f"./{name}" if name.startswith("-") else name  # with "./", "-x" is not read as an option


def file_stem(name: str) -> str:
    """Return a valid file name without extension for a graph's name."""
    safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in name)
    stem = safe.split(".")[0].lstrip("-").encode()[:MAX_STEM_BYTES].decode(errors="ignore")
    return f"{stem}_" if _WINDOWS_DEVICE.fullmatch(stem) else stem or "plan"


Entry = tuple[str, str, str, Callable[[], bytes | str]]
"""A file for download: label of the button, file name, purpose, and function that makes the content."""


def _entry(label: str, name: str, purpose: str, make: Callable[..., bytes | str], *arguments: object) -> Entry:
    return label, name, purpose, partial(make, *arguments)


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
        ("C code", "one array per arena and role (scratch, persistent, constant)"): [
            _entry("C project", f"{prefix}_c.zip", "arenas, constants, self-test; built by CMake", _project, shown)
        ],
    }
    if shown.opened.graph is not None and len(plan) <= MOST_TENSORS:
        with suppress(TmmuError):
            data, name = content_of(shown.opened.source)
            if not tflite.refusal(data):
                written = with_plan(MicroModel(data, name), plan)
                purpose = f"TensorFlow Lite Micro places the tensors in {numbers.short_bytes(written.extent_bytes)}"
                model = _entry("TFLM model", f"{stem}.tflm.tflite", purpose, bytes, written.data)
                sections["Model", "with this plan in it"] = [model]
    if shown.opened.plan is not None:
        return sections
    inputs, data_of, source = [], command_files(shown), shown.opened.source
    if source.startswith("file:"):  # the visitor may lack this file: Fix made it, or another visitor opened it
        name, purpose = file_of(shown).removeprefix("./"), "the opened file, as in the commands"
        inputs.append(_entry("Opened file", name, purpose, lambda: content_of(source)[0]))
    if shown.graph is not None:
        rank_note = "" if shown.choice.shard_spec is None else ", this rank's share"
        purpose = f"the graph in the native format{rank_note}"
        inputs.append(_entry("Graph", f"{stem}.tmmu.json", purpose, native_file.encode_json, shown.graph))
    for field, name in COMMAND_FILES.items():
        label, option = name.removesuffix(".json").capitalize(), OPTION_SPECS[field].option
        if name in data_of:
            inputs.append(_entry(label, name, f"input of {option}", bytes, data_of[name]))
    sections["Reproduce the plan", "input files of the command line"] = inputs
    return sections


def review_page(shown: Shown, current: Review, link: str) -> bytes:
    """Return the review file: an HTML report with the review as JSON in it, readable without a server."""
    verdict = str(explain_peak(shown.plan, shown.choice.budget, shown.opened.name))
    return report(shown, None, current, payload=review.to_json(shown, verdict, current, link))


def report(shown: Shown, baseline: Shown | None, current: Review, *, dark: bool = False, payload: bytes = b"") -> bytes:
    """Return the HTML report. Without a verdict after a minute, :func:`build_report` verifies the plan itself."""
    job = planning.verdicts_job(shown)
    verdicts = job.result() if job.wait(60) and job.succeeded else None
    return build_report(
        shown.solution or shown.plan,
        baseline=None if baseline is None else baseline.solution or baseline.plan,
        title=shown.opened.name,
        verified=verdicts and verdicts.verified,
        budget=shown.choice.budget,
        theme="dark" if dark else "light",
        section=ReviewSection(current, page_jobs.moves_of(shown.choice), payload.decode()),
    )


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
    except RenderIncomplete:  # omit the constants: the plan writes to them, or has only a rank's share of them
        return zipped(c_project(render()))
