"""HTML pages that work offline (the report of a plan, a plan in a notebook, the viewer), and the report as PDF."""

import base64
import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jinja2
import msgspec
from markupsafe import Markup, escape

from app.canvas.component import NO_ORIGIN, VIEWER, Origin, arena_title, canvas_script, pack_plan
from app.report import pictures
from app.texts import markup, numbers, totals_text
from app.texts.palette import default_scheme, row_colours
from tmmu_core.base.errors import UnwritableOutput
from tmmu_core.fitting.move import Move
from tmmu_core.formats.planfile.compare_plans import Comparison, compare
from tmmu_core.formats.planfile.trace import METRIC_SCHEMA, TRACE_SCHEMA
from tmmu_core.graph.modules.module_paths import modules_of
from tmmu_core.graph.native import document
from tmmu_core.judge.finding import Verdict
from tmmu_core.judge.lint import lint_verdict
from tmmu_core.judge.verifier.finished_plan import with_certificates
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans.analysis.plan_notes import remarks, unplanned_parts
from tmmu_core.plans.analysis.waste_ledger import explain_peak, waste_ledger
from tmmu_core.plans.figures.live_bytes import alive_at, peak_step_of
from tmmu_core.plans.making.engine import Solution
from tmmu_core.plans.making.make import better_than
from tmmu_core.plans.making.sparse_addresses import in_memory
from tmmu_core.plans.model import PLAN_SCHEMA, ArenaSummary, Plan

MOST_LIVE, MOST_CHANGED, MOST_FINDINGS = 120, 120, 40
"""Maximum number of rows of each table. The caption shows the total number of rows."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
PDF_SECONDS = 120
NOTEBOOK_HEIGHT, NOTEBOOK_MARGIN = 420, 110
"""Pixels in a notebook: height of the arena map; total height of its heading, curve of live bytes and legend."""

_NOTEBOOK = """<!doctype html><meta charset="utf-8"><title>plan</title><body style="margin:0;background:#fff">
<div id="map" style="font:14px system-ui,sans-serif"></div><script>{script}</script><script>
const state = {{ view: "map", link: "notebook", arena: {arena}, height: {height} }};
const map = document.getElementById("map"), plan = tmmuCanvas.keepBase64("{packed}");
plan.then((token) => tmmuCanvas.show(map, {{ plan: token, ...state }}, () => {{}}));
</script></body>"""


@dataclass(frozen=True)
class ReviewSection:
    """The parts of a report that only the explorer writes."""

    review: Any = None  # ``app.session.review.Review``, which this module must not import
    moves: Sequence[Move] = ()  # changes that the page Fix made to the graph
    embedded: str = ""  # the review file as JSON, so that the report can be opened as a review


def build_report(
    source: Solution | Plan,
    *,
    baseline: Solution | Plan | None = None,
    title: str = "",
    theme: pictures.Theme = "light",
    verified: Verdict | None = None,
    origin: Origin | None = None,
    budget: int | None = None,
    section: ReviewSection = ReviewSection(),
) -> bytes:
    """Return the HTML report (UTF-8) of a plan, with a comparison to ``baseline`` if given.

    Equal inputs give equal bytes. ``verified``: the verifier's verdict (default: computed); ``origin``: operators and
    layers of the rows (default: from the graph); ``budget``: limit of all arenas together.
    """
    plan = source.plan if isinstance(source, Solution) else source
    before = baseline.plan if isinstance(baseline, Solution) else baseline
    graph = source.graph if isinstance(source, Solution) else None
    hint = totals_text.better(better_than(plan, source)) if isinstance(source, Solution) else ""
    origin = origin or _origin(source)
    verified = verified or verify_plan(plan, graph)
    linted = lint_verdict(plan, graph, verified)
    if not verified.ok and not verified.only_over_capacity:
        plan = with_certificates(plan, verified)  # each arena gets the status ``invalid``
    drawn_before = None if before is None else in_memory(before)
    packed = pack_plan(in_memory(plan), origin, baseline=drawn_before, baseline_origin=_origin(baseline))
    picture, arena = "", totals_text.main_arena(plan)
    if arena and plan.steps:
        colours = row_colours(plan, default_scheme(plan, origin.layers), origin.operators, origin.layers)
        picture = pictures.arena_picture(plan, arena, "map", pictures.Sheet(theme=theme), colours)
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.globals.update(numbers=numbers, markup=markup, totals=totals_text, status_text=markup.optimality)
    text = environment.from_string((files(__package__) / "report.html.j2").read_text(encoding="utf-8")).render(
        title=title or f"{plan.ir_name or 'a graph'}: {plan.mode}, planned by {plan.planner}",
        plan=plan,
        remarks=remarks(plan),
        explanation=explain_peak(plan, budget),
        missing=unplanned_parts(plan),
        theme=theme,
        review=section.review,
        moves=section.moves,
        views=[] if section.review is None else msgspec.to_builtins(section.review.views),
        embedded=Markup(section.embedded.replace("<", "\\u003c")),
        arenas=[_arena(plan, summary, theme) for summary in plan.arenas],
        checks=_checks(verified, linted),
        comparison=None if before is None else _comparison(compare(before, plan)),
        hint=hint,
        schemas=f"{PLAN_SCHEMA}, {TRACE_SCHEMA}, {METRIC_SCHEMA}",
        account_styles=pictures.ACCOUNT_STYLES,
        patterns=pictures.patterns(),
        style=_style(),
        script=Markup(canvas_script()),
        packed=_gzip_base64(packed.data),
        first_arena=arena or None,
        picture=picture,
    )
    return text.encode("utf-8", "replace")


def _style() -> Markup:
    return Markup((files(__package__) / "report.css").read_text(encoding="utf-8"))


def viewer_page() -> bytes:
    """Return an HTML page (UTF-8) that opens finished plans and review files in the browser without a server."""
    page = (files(__package__) / "viewer.html").read_text(encoding="utf-8")
    return page.replace("/* style */", _style()).replace("/* script */", canvas_script(VIEWER)).encode()


def notebook_view(plan: Plan, text: str) -> str:
    """Return HTML with ``text`` and the arena map. The map is in an ``iframe``, which needs a trusted notebook."""
    packed, arena = _gzip_base64(pack_plan(plan).data), json.dumps(totals_text.main_arena(plan) or None)
    page = _NOTEBOOK.format(script=canvas_script(), packed=packed, height=NOTEBOOK_HEIGHT, arena=arena)
    style = f"width:100%;height:{NOTEBOOK_HEIGHT + NOTEBOOK_MARGIN}px;border:0"
    frame = f'<iframe title="Arena map" srcdoc="{escape(page)}" style="{style}"></iframe>' if len(plan) else ""
    return f'<div style="max-width:1100px"><code>{escape(text)}</code>{frame}</div>'


def _gzip_base64(packed: bytes) -> str:
    return base64.b64encode(document.pack(packed)).decode("ascii")


def browser() -> str | None:
    """Return the path of an installed browser that can print; ``None`` without one."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def pdf(report: bytes) -> bytes:
    """Return an HTML report as PDF. Raises ``UnwritableOutput`` if no browser writes the file."""
    program = browser()
    if program is None:
        raise UnwritableOutput("a PDF needs a browser, and none is installed.", "Install Chromium, or write OUT.html.")
    with TemporaryDirectory() as folder:
        page, pdf_file = Path(folder) / "report.html", Path(folder) / "report.pdf"
        page.write_bytes(report)
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"]
        options += [f"--user-data-dir={folder}/profile", f"--print-to-pdf={pdf_file}"]
        try:
            subprocess.run([program, *options, page.as_uri()], capture_output=True, timeout=PDF_SECONDS)
            return pdf_file.read_bytes()
        except (OSError, subprocess.TimeoutExpired) as error:
            hint = "Write OUT.html, and print this file in a browser."
            raise UnwritableOutput(f"the browser did not print the report: {error}.", hint) from error


def _arena(plan: Plan, summary: ArenaSummary, theme: pictures.Theme) -> dict[str, Any]:
    ledger = waste_ledger(plan, summary.name)
    peak_step = peak_step_of(plan, summary.name)[0] if plan.steps else 0
    alive = alive_at(plan, peak_step, summary.name).tolist() if plan.steps else []
    at_peak = [
        (pictures.ACCOUNT_STYLES[account][0], numbers.full_bytes(count), numbers.percent(count, ledger.extent))
        for account, count in (ledger.at(peak_step).items() if plan.steps else ())
    ]
    cells: list[tuple[str, ...]] = []  # id, arena, size, offset, slot, live range, role and type of each tensor
    for row in map(plan.row, alive[:MOST_LIVE]):
        name = f"{row.tensor_id} (view of {row.base_tensor_uid})" if row.base_tensor_uid else row.tensor_id
        place = row.arena, numbers.full_bytes(row.size_bytes), numbers.offset(row.offset_bytes), f"{row.logical_slot}"
        live = numbers.live_range(row.birth, row.death)
        cells.append((name, *place, live, row.role, f"{row.dtype} {numbers.shape(row.shape)}"))
    sheet = pictures.Sheet(height=pictures.LEDGER_HEIGHT, theme=theme)
    return {
        "title": arena_title(plan, summary, peak_step),
        "summary": summary,
        "figure": pictures.ledger_figure(plan, ledger, sheet) if plan.steps else "",
        "at_peak": at_peak and [*at_peak, ("arena size", numbers.full_bytes(ledger.extent), "")],
        "peak": numbers.step(peak_step, plan.node_at(peak_step)),
        "alive": cells,
        "alive_shown": numbers.of(len(cells), len(alive), "tensor"),
        "live_bytes_vary": bool((ledger.live != ledger.live[:1]).any()),
    }


def _origin(solution: Solution | Plan | None) -> Origin:
    if not isinstance(solution, Solution):
        return NO_ORIGIN
    timeline = solution.liveness.timeline
    tree = modules_of(timeline.index, timeline.node_at.tolist())
    layers = [tree.layers[tree.of_tensor[timeline.index.tensor_of[name]]] for name in solution.plan.tensor_ids]
    return Origin(solution.operators, layers if tree.known_by and any(layers) else None)


def _checks(verified: Verdict, linted: Verdict) -> list[dict[str, Any]]:
    rows = []
    for name, verdict in (("verifier", verified), ("lint", linted)):
        text = numbers.count(len(verdict.errors), "error")
        if verdict.ok:
            text = "passed"
        elif verified.only_over_capacity:
            text = "valid plan, over its capacity"
        if verdict.warnings:
            text += ", " + numbers.count(len(verdict.warnings), "warning")
        shown = [(finding.rule, finding.severity, finding.message) for finding in verdict.findings[:MOST_FINDINGS]]
        caption = numbers.of(len(shown), len(verdict.findings), "finding")
        rows.append({"name": name, "ok": verdict.ok, "text": text, "findings": shown, "shown": caption})
    return rows


def _comparison(comparison: Comparison) -> dict[str, Any]:
    changed = list(islice(comparison.changes(), MOST_CHANGED))
    return {
        "result": comparison,
        "sides": totals_text.sides,
        "heads": (("arena", *totals_text.ARENA_FIGURES), ("tensor", "change", *totals_text.TENSOR_FIGURES)),
        "arenas": [totals_text.arena_change(change, comparison) for change in comparison.arenas],
        "totals": [[kind.replace("_", " "), *texts] for kind, *texts in totals_text.kind_rows(comparison)],
        "changed": [totals_text.tensor_change(change, comparison) for change in changed],
        "changed_shown": numbers.of(len(changed), int((comparison.kinds != 0).sum()), "changed tensor"),
    }
