"""The report of a plan: one HTML file that works offline and can be printed.

The canvas script of the explorer draws the plan from the same packed bytes (gzip, base64); still figures are SVG. The
file contains no time and no machine name, so equal plans give equal bytes.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from app.canvas.pack import NO_ORIGIN, Origin, claim, pack_plan
from app.canvas.script import canvas_script
from app.report.report_figures import ACCOUNT_LOOKS, ledger_figure, patterns
from app.report.report_figures import HEIGHT as LEDGER_HEIGHT
from app.report.report_figures import WIDTH as LEDGER_WIDTH
from app.report.report_theme import HEIGHT, WIDTH, Sheet, Theme
from app.report.still_pictures import still
from app.texts import certificate_text, glossary, numbers, totals_text
from app.texts.palette import default_scheme, row_colours
from tmmu_core.formats.planfile.compare_plans import KINDS, Comparison, TensorChange, compare
from tmmu_core.formats.planfile.trace import METRIC_SCHEMA, TRACE_SCHEMA
from tmmu_core.graph.modules.module_paths import modules_of
from tmmu_core.graph.native import unpacking
from tmmu_core.judge.finding import Verdict
from tmmu_core.judge.lint import lint_verdict
from tmmu_core.judge.verifier.finished_plan import believed
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans.analysis.explain_peak import explain_peak
from tmmu_core.plans.analysis.plan_warnings import remarks
from tmmu_core.plans.analysis.waste_ledger import waste_ledger
from tmmu_core.plans.figures import metrics
from tmmu_core.plans.figures.plan_storages import Peak, peak
from tmmu_core.plans.making.engine import Solution
from tmmu_core.plans.making.make import better_than
from tmmu_core.plans.making.placement_order import problems_of
from tmmu_core.plans.model import PLAN_SCHEMA, ArenaSummary, Plan, TensorRow

ALIVE, LARGEST, HANDOFFS, CHANGED, FINDINGS = 120, 60, 200, 120, 40
"""Maximum rows of each table; captions show the number of all rows."""


class Known(NamedTuple):
    """Results that the caller has already computed: verdicts, the origins of all rows, and the limit of all arenas."""

    verified: Verdict | None = None
    linted: Verdict | None = None
    origin: Origin | None = None
    budget: int | None = None


NOTHING = Known()


class ReviewPart(NamedTuple):
    """The review in a report."""

    notes: Sequence[tuple[str, str, str, str]] = ()
    """``(place, text, author, date)``."""
    decision: Any = None
    """The attributes ``answer``, ``text``, ``author`` and ``date``; ``None`` for an open review."""
    moves: Sequence[tuple[str, str, int]] = ()
    """``(kind, details, bytes saved)`` of the changes that Fit made."""
    element: str = ""
    embedded: str = ""
    """A review file, put into an element with this id, so that the report can be opened as a review."""


NO_REVIEW = ReviewPart()


def build_report(
    source: Solution | Plan,
    *,
    baseline: Solution | Plan | None = None,
    title: str = "",
    known: Known = NOTHING,
    theme: Theme = "light",
    review: ReviewPart = NO_REVIEW,
) -> bytes:
    """Return the HTML report (UTF-8) of a plan, compared with ``baseline`` if given.

    Verdicts and origins that are not ``known`` are computed, with the graph if ``source`` is a ``Solution``.
    """
    verified, linted, origin, budget = known
    plan = source.plan if isinstance(source, Solution) else source
    before = baseline.plan if isinstance(baseline, Solution) else baseline
    graph = source.graph if isinstance(source, Solution) else None
    origin = origin or (_origin(source) if isinstance(source, Solution) else NO_ORIGIN)
    verified = verified if verified is not None else verify_plan(plan, graph)
    if any(error.rule != "capacity" for error in verified.errors):  # a plan over its capacity has correct figures
        plan = believed(plan, verified)
    linted = linted if linted is not None else lint_verdict(plan, graph)
    before_origin = _origin(baseline) if isinstance(baseline, Solution) else NO_ORIGIN
    packed = pack_plan(plan, origin, baseline=before, baseline_origin=before_origin)
    by_size = sorted(range(len(plan)), key=plan.size.tolist().__getitem__, reverse=True)
    picture = ""
    if plan.arenas and plan.steps:
        colours = row_colours(plan, default_scheme(plan, origin.layers), origin.operators, origin.layers)
        picture = still(plan, first_arena(plan) or plan.arenas[0].name, "map", Sheet(WIDTH, HEIGHT, theme), colours)
    text = _template().render(
        title=title or f"{plan.ir_name or 'a graph'}: {plan.mode}, planned by {plan.planner}",
        plan=plan,
        remarks=remarks(plan),
        explanation=explain_peak(plan, budget),
        missing=certificate_text.missing(plan),
        words=numbers,
        theme=theme,
        review=review,
        embedded=Markup(review.embedded.replace("<", "\\u003c")),
        arenas=[_arena(plan, summary, theme) for summary in plan.arenas],
        judged=[_judged("verifier", verified), _judged("lint", linted)],
        largest=[plan.row(row) for row in by_size[:LARGEST]],
        handoffs=list(_handoffs(plan)),
        handoffs_shown=numbers.of(min(HANDOFFS, len(plan.handoffs)), len(plan.handoffs), "in-place reuse"),
        handoffs_taken=sum(plan.taken),
        largest_shown=numbers.of(min(LARGEST, len(plan)), len(plan), "tensor"),
        comparison=None if before is None else _comparison(compare(before, plan)),
        totals=totals_text.rows(plan),
        hint=_hint(source),
        provenance=_provenance(plan),
        definitions={term: glossary.define(term) or text for term, text in DEFINITIONS.items()},
        looks=ACCOUNT_LOOKS,
        patterns=patterns(),
        style=style(),
        script=Markup(canvas_script()),
        token=packed.token,
        packed=base64.b64encode(unpacking.pack(packed.data)).decode("ascii"),
        first_arena=first_arena(plan),
        still=picture,
    )
    return text.encode("utf-8", "replace")


def _template() -> jinja2.Template:
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters.update(full=numbers.full_bytes, short=numbers.short_bytes, offset=numbers.offset)
    return environment.from_string((files(__package__) / "report.html.j2").read_text(encoding="utf-8"))


def style() -> Markup:
    """Return the style sheet of a report."""
    return Markup((files(__package__) / "report.css").read_text(encoding="utf-8"))


# --- template values ----------------------------------------------------------------------------------


def _arena(plan: Plan, summary: ArenaSummary, theme: Theme) -> dict[str, Any]:
    """Return the values of an arena's section."""
    ledger = waste_ledger(plan, summary.name)
    highest = peak(plan, summary.name) if plan.steps else Peak(summary.name, 0, 0, ())
    as_many = "slots = max live" if summary.slots == summary.max_live else f"max live {summary.max_live:,}"
    reuse = numbers.ratio(metrics.reuse_ratio(summary.slots, summary.storages))
    accounts = ledger.at(highest.step).items() if plan.steps else ()
    return {
        "name": summary.name,
        "claim": claim(plan, summary.name),
        "summary": summary,
        "bound": summary.bound_bytes,
        "gap": numbers.over_bound(*summary.gap),
        "headroom": "no capacity" if summary.headroom_bytes is None else numbers.full_bytes(summary.headroom_bytes),
        "reuse": reuse if plan.has_slots else numbers.NO_SLOTS,
        "slots": f"{summary.slots:,} ({as_many})"
        if plan.has_slots
        else f"{numbers.NO_SLOTS} (max live {summary.max_live:,})",
        "status": summary.status,
        "figure": ledger_figure(plan, ledger, Sheet(LEDGER_WIDTH, LEDGER_HEIGHT, theme)) if plan.steps else "",
        "at_peak": [
            (account, ACCOUNT_LOOKS[account][0], count, numbers.percent(count, ledger.extent))
            for account, count in accounts
        ],
        "peak_step": highest.step,
        "peak_node": plan.node_at(highest.step),
        "alive": [plan.row(row) for row in highest.rows[:ALIVE]],
        "alive_shown": numbers.of(min(ALIVE, len(highest.rows)), len(highest.rows), "tensor"),
        "changes": bool((ledger.live != ledger.live[:1]).any()),
    }


def first_arena(plan: Plan) -> str | None:
    """Return the arena to show first: activations or gradients if another arena is four times as large, else all."""
    most = max((arena.extent_bytes for arena in plan.arenas), default=0)
    moving = [a for a in plan.arenas if a.extent_bytes and a.name in ("activations", "gradients")]
    return moving[0].name if len(moving) == 1 and moving[0].extent_bytes * 4 < most else None


def _handoffs(plan: Plan) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield ``(step, from, to, bytes, whether taken)`` of the first in-place reuses."""
    for (step, source, target), taken in list(zip(plan.handoffs, plan.taken, strict=True))[:HANDOFFS]:
        size = int(plan.size[plan.row_of[target]]) if target in plan.row_of else None
        where = numbers.step(step, plan.node_at(step))
        yield where, source, target, numbers.full_bytes(size), "yes" if taken else "no"


def _origin(solution: Solution) -> Origin:
    """Return operator and layer of each row."""
    timeline = solution.liveness.timeline
    index, nodes, tree = timeline.index, timeline.graph.nodes, modules_of(timeline.index, timeline.node_at.tolist())
    rows = [index.tensor_of[tensor_id] for tensor_id in solution.plan.tensor_ids]
    operators = [nodes[node].instr if node >= 0 else "" for node in index.producer[rows].tolist()] if rows else []
    layers = [tree.layers[k] for k in tree.of_tensor[rows].tolist()] if rows else []
    return Origin(operators, layers if tree.known_by and any(layers) else None)


def _hint(source: Solution | Plan) -> str:
    """Return the hint of a planner that needs less; "" for a finished plan."""
    if not isinstance(source, Solution):
        return ""
    return totals_text.better(better_than(source.plan, lambda: problems_of(source)))


def _judged(who: str, verdict: Verdict) -> dict[str, Any]:
    if verdict.ok:
        text = "passed"
    elif all(error.rule == "capacity" for error in verdict.errors):
        text = "valid plan, over its capacity"
    else:
        text = numbers.count(len(verdict.errors), "error")
    if verdict.warnings:
        text += ", " + numbers.count(len(verdict.warnings), "warning")
    return {
        "who": who,
        "ok": verdict.ok,
        "text": text,
        "findings": verdict.findings[:FINDINGS],
        "shown": numbers.of(min(FINDINGS, len(verdict.findings)), len(verdict.findings), "finding"),
        "checked": verdict.checked,
    }


def _comparison(comparison: Comparison) -> dict[str, Any]:
    def figure(arena: ArenaSummary | None, field: str) -> str:
        return "—" if arena is None else numbers.short_bytes(getattr(arena, field))

    changed = [change for change, _ in zip(comparison.changes(), range(CHANGED), strict=False)]
    number = int((comparison.kinds != 0).sum())
    return {
        "verdict": comparison.word,
        "why": [(d.path, _value_text(d.left), _value_text(d.right)) for d in comparison.incomparable],
        "first": None
        if comparison.first is None
        else (comparison.first.path, _value_text(comparison.first.left), _value_text(comparison.first.right)),
        "context": [(d.path, _value_text(d.left), _value_text(d.right)) for d in comparison.context],
        "left": f"{comparison.left.ir_name or 'a graph'} by {comparison.left.planner}",
        "right": f"{comparison.right.ir_name or 'a graph'} by {comparison.right.planner}",
        "arenas": [
            (a.name, *(numbers.change(figure(a.left, f), figure(a.right, f)) for f in _COMPARED))
            for a in comparison.arenas
        ],
        "sums": totals_text.changes(comparison.left, comparison.right),
        "totals": [(kind.replace("_", " "), *comparison.totals[kind]) for kind in KINDS if comparison.totals[kind][0]],
        "changed": [(c.tensor_id, ", ".join(c.kinds).replace("_", " "), *_moved(c, comparison)) for c in changed],
        "changed_shown": numbers.of(len(changed), number, "changed tensor"),
    }


_COMPARED = ("peak_live_bytes", "extent_bytes", "committed_bytes")


def _moved(change: TensorChange, comparison: Comparison) -> tuple[str, str, str]:
    sides = (change.left, comparison.left), (change.right, comparison.right)

    def both(text_of: Callable[[TensorRow, Plan], str]) -> str:
        return numbers.change(*("—" if row is None else text_of(row, plan) for row, plan in sides))

    return (
        both(_place),
        both(lambda row, _: numbers.short_bytes(row.size_bytes)),
        both(lambda row, _: numbers.live_range(row.birth, row.death)),
    )


def _place(row: TensorRow, plan: Plan) -> str:
    slot = f", slot {row.logical_slot}" if plan.has_slots else ""
    return f"{row.arena} {numbers.offset(row.offset_bytes)}{slot}"


def _value_text(value: Any) -> str:
    text = value.hex() if isinstance(value, bytes) else numbers.UNKNOWN if value is None else str(value)
    return text if len(text) <= 160 else f"{text[:157]}…"


def _provenance(plan: Plan) -> list[tuple[str, str]]:
    figures = plan.metrics
    options = ", ".join(f"{name} = {value}" for name, value in sorted(plan.planner_options.items())) or "none"
    rows = [
        ("graph", plan.ir_name or numbers.UNKNOWN),
        ("planner", plan.planner),
        ("planner options", options),
        ("mode", plan.mode),
        ("preset", plan.preset),
        ("steps", f"{plan.steps:,}" + ("; step 0 loads the inputs" if plan.has_inputs_step else "")),
        ("tensors", f"{len(plan):,}"),
        ("rank of world size", f"{plan.rank} of {plan.world_size}"),
        ("ir_hash", plan.ir_hash.hex()),
        ("arena_config_hash", plan.arena_config_hash.hex()),
        ("execution_order_hash", plan.execution_order_hash.hex()),
        ("shard_spec_hash", plan.shard_spec_hash.hex()),
        ("tmmu_plan_hash", plan.tmmu_plan_hash.hex()),
        ("layout_hash", plan.layout_hash.hex()),
        ("replay_token", plan.replay_token.hex()),
        ("schemas", f"{PLAN_SCHEMA}, {TRACE_SCHEMA}, {METRIC_SCHEMA}"),
    ]
    ratios = ("memory_reuse_ratio", "internal_fragmentation_ratio", "activation_retention_ratio")
    rows += [
        (name, numbers.NO_SLOTS if name == ratios[0] and not plan.has_slots else numbers.ratio(figures.get(name)))
        for name in ratios
    ]
    rows += [(f"note: {name}", _value_text(value)) for name, value in sorted(plan.notes.items())]
    return [(name, value or numbers.UNKNOWN) for name, value in rows]


DEFINITIONS: dict[str, str] = {
    "step": "One node runs per step: it reads all its inputs, then writes its outputs. Step 0 loads the inputs.",
    "live [a, b)": "From the step that writes a tensor to the step of its last read, included; graph outputs and "
    "persistent tensors are live to the end. With in-place reuse the step of the last read is excluded.",
    "live bytes": "Sum of the sizes of the buffers live at a step; views and aliases count once.",
    "peak": "The first step with the most live bytes of an arena, and those bytes.",
    totals_text.PEAK: "The most live bytes of all arenas at one step.",
    totals_text.EXTENT: "Sum of the arena sizes.",
    "lower bound": "No plan of this arena can be smaller.",
    "arena size": "End of the last byte used in an arena: the last offset plus its size.",
    "gap": "(arena size − lower bound) ÷ lower bound.",
    "headroom": "Capacity − arena size.",
    "reuse": "1 − slots ÷ buffers: the share of buffers that reuse a slot.",
    "slots = max live": "The number of slots equals the maximum number of live buffers, which is the minimum.",
    "waste ledger": "At every step: live + slot rounding + alignment gaps + holes + tail = arena size. Slot rounding "
    "is the unused part of a slot; gaps are skipped for alignment; holes are free bytes below the highest live block; "
    "the tail is above it.",
    "in-place reuse": "An output uses the bytes of an input whose last read is the same step. If the planner does not "
    "use it, the input stays in memory through that step.",
    "optimality": "optimal: the arena size is proven minimal; feasible: valid; unproven: the search limit was reached; "
    "claimed: the file states a bound that was not recomputed; incomplete: a part of the graph is not in the plan.",
    "layout_hash": "SHA-256 over every slot and offset: equal hashes, equal layouts.",
    "tmmu_plan_hash": "SHA-256 over the graph, the mode, the arenas, the order and the layout with its replay token.",
}
"""Figure → definition, used if the glossary has none."""
