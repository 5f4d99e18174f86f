"""The report: everything a plan has to say, in one HTML file that works offline and prints.

The same canvas script as in the explorer draws the boxes from the same packed bytes (gzip, base64); the still figures
are SVG. No plotly.js: it alone would be forty times the script. The file names no clock and no machine, so equal plans
give equal bytes. Every figure comes from ``tmmu_core``; this file only says it in words.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from app.canvas.pack import claim, pack_plan
from app.canvas.script import canvas_script
from app.report.figures import ACCOUNT_LOOKS, ledger_figure, patterns
from app.report.figures import HEIGHT as LEDGER_HEIGHT
from app.report.figures import WIDTH as LEDGER_WIDTH
from app.report.look import HEIGHT, WIDTH, Sheet, Theme
from app.report.still import map_figure
from app.say import glossary, totals, words
from tmmu_core.graph import unpacking
from tmmu_core.graph.assumed import assumed_at, in_words
from tmmu_core.judge.finding import Verdict
from tmmu_core.judge.finished import believed
from tmmu_core.judge.lint import lint_verdict
from tmmu_core.judge.verifier import verify_plan
from tmmu_core.plan.analysis.waste import WasteLedger, waste_ledger
from tmmu_core.plan.figures import metrics
from tmmu_core.plan.figures.storages import Peak, peak
from tmmu_core.plan.formats.compare import KINDS, Comparison, TensorChange, compare
from tmmu_core.plan.formats.trace import METRIC_SCHEMA, TRACE_SCHEMA
from tmmu_core.plan.making.engine import Solution
from tmmu_core.plan.model import PLAN_SCHEMA, ArenaSummary, Plan, TensorRow

ALIVE, LARGEST, HANDOFFS, CHANGED, FINDINGS = 120, 60, 200, 120, 40
"""Rows of each table at most; what is left out is told."""


class Known(NamedTuple):
    """What whoever asks for a report knows of the plan already: verdicts, each row's operator, the sizes asked for."""

    verified: Verdict | None = None
    linted: Verdict | None = None
    operators: Sequence[str] | None = None
    given: Mapping[str, int] | None = None
    """The sizes of named dimensions that were asked for: what a reader assumed of the others is told."""


NOTHING = Known()


def build_report(
    source: Solution | Plan,
    *,
    baseline: Solution | Plan | None = None,
    title: str = "",
    known: Known = NOTHING,
    theme: Theme = "light",
) -> bytes:
    """One HTML file (UTF-8) that tells of a plan, and of how it differs from ``baseline``.

    What is not ``known`` of it is found here, with its graph where ``source`` is a ``Solution``. ``theme``: the ground
    on which it stands.
    """
    verified, linted, operators, given = known
    plan = source.plan if isinstance(source, Solution) else source
    before = baseline.plan if isinstance(baseline, Solution) else baseline
    graph = source.graph if isinstance(source, Solution) else None
    if operators is None and isinstance(source, Solution):
        operators = _operators(source)
    verified = verified if verified is not None else verify_plan(plan, graph)
    if any(error.rule != "capacity" for error in verified.errors):  # what is over a limit is still what it says
        plan = believed(plan, verified)
    linted = linted if linted is not None else lint_verdict(plan, graph)
    packed = pack_plan(plan, baseline=before, operators=operators)
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters.update(full=words.full_bytes, short=words.short_bytes, offset=words.offset)
    template = environment.from_string((files(__package__) / "report.html.j2").read_text(encoding="utf-8"))
    text = template.render(
        title=title or f"{plan.ir_name or 'a graph'}: {plan.mode}, planned by {plan.planner}",
        plan=plan,
        assumed="" if graph is None else in_words(assumed_at(graph, given)),
        words=words,
        theme=theme,
        arenas=[_arena(plan, summary, theme) for summary in plan.arenas],
        judged=[_judged("verifier", verified), _judged("lint", linted)],
        largest=_rows(plan, _largest(plan)[:LARGEST]),
        handoffs=[
            (*_handoff(plan, *handoff), "on its bytes" if taken else "elsewhere")
            for handoff, taken in zip(plan.handoffs[:HANDOFFS], plan.taken[:HANDOFFS], strict=True)
        ],
        handoffs_shown=words.of(min(HANDOFFS, len(plan.handoffs)), len(plan.handoffs), "hand-off"),
        handoffs_taken=sum(plan.taken),
        largest_shown=words.of(min(LARGEST, len(plan)), len(plan), "tensor"),
        comparison=None if before is None else _comparison(compare(before, plan)),
        totals=totals.rows(plan),
        provenance=_provenance(plan),
        definitions={term: glossary.define(term) or text for term, text in DEFINITIONS.items()},
        looks=ACCOUNT_LOOKS,
        patterns=patterns(),
        script=Markup(canvas_script()),
        token=packed.token,
        packed=base64.b64encode(unpacking.pack(packed.data)).decode("ascii"),
        first_arena=_first_arena(plan),
        still=map_figure(plan, _first_arena(plan) or plan.arenas[0].name, Sheet(WIDTH, HEIGHT, theme))
        if plan.arenas and plan.steps
        else "",
    )
    return text.encode("utf-8", "replace")


# --- what the template is given ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _ArenaCard:
    name: str
    claim: str
    summary: ArenaSummary
    bound: int
    gap: str
    headroom: str
    reuse: str
    slots: str
    status: str
    figure: Markup
    at_peak: list[tuple[str, str, int, str]]
    """(account, words, bytes, share of the extent)."""
    peak_step: int
    peak_node: str
    alive: list[TensorRow]
    alive_shown: str
    changes: bool
    """Whether anything of it varies over the steps."""


def _arena(plan: Plan, summary: ArenaSummary, theme: Theme = "light") -> _ArenaCard:
    ledger = waste_ledger(plan, summary.name)
    highest = peak(plan, summary.name) if plan.steps else Peak(summary.name, 0, 0, ())
    as_many = "slots = max live" if summary.slots == summary.max_live else f"max live {summary.max_live:,}"
    return _ArenaCard(
        name=summary.name,
        claim=claim(plan, summary.name),
        summary=summary,
        bound=summary.bound_bytes,
        gap=words.over_bound(*summary.gap),
        headroom="no capacity given" if summary.headroom_bytes is None else words.full_bytes(summary.headroom_bytes),
        reuse=words.ratio(metrics.reuse_ratio(summary.slots, summary.storages)) if plan.has_slots else words.NO_SLOTS,
        slots=f"{summary.slots:,} ({as_many})"
        if plan.has_slots
        else f"{words.NO_SLOTS} (max live {summary.max_live:,})",
        status=summary.status,
        figure=ledger_figure(plan, ledger, Sheet(LEDGER_WIDTH, LEDGER_HEIGHT, theme)) if plan.steps else Markup(),
        at_peak=_accounts(ledger, highest.step) if plan.steps else [],
        peak_step=highest.step,
        peak_node=plan.node_at(highest.step),
        alive=_rows(plan, list(highest.rows[:ALIVE])),
        alive_shown=words.of(min(ALIVE, len(highest.rows)), len(highest.rows), "tensor"),
        changes=bool((ledger.live != ledger.live[:1]).any()),
    )


def _accounts(ledger: WasteLedger, step: int) -> list[tuple[str, str, int, str]]:
    return [
        (account, ACCOUNT_LOOKS[account][0], count, words.percent(count, ledger.extent))
        for account, count in ledger.at(step).items()
    ]


def _rows(plan: Plan, rows: list[int]) -> list[TensorRow]:
    return [plan.row(row) for row in rows]


def _largest(plan: Plan) -> list[int]:
    sizes = plan.size.tolist()
    return sorted(range(len(plan)), key=lambda row: (-sizes[row], row))


def _first_arena(plan: Plan) -> str | None:
    """Where parameters dwarf what moves, the first picture shows what moves; all arenas are one choice away."""
    most = max((arena.extent_bytes for arena in plan.arenas), default=0)
    moving = [a for a in plan.arenas if a.extent_bytes and a.name in ("activations", "gradients")]
    return moving[0].name if len(moving) == 1 and moving[0].extent_bytes * 4 < most else None


def _handoff(plan: Plan, step: int, source: str, target: str) -> tuple[str, str, str, str]:
    size = int(plan.size[plan.row_of[target]]) if target in plan.row_of else None
    return words.step(step, plan.node_at(step)), source, target, words.full_bytes(size)


def _operators(solution: Solution) -> list[str]:
    index, nodes = solution.liveness.timeline.index, solution.liveness.timeline.graph.nodes
    producers = index.producer.tolist()
    rows = (producers[index.tensor_of[tensor_id]] for tensor_id in solution.plan.tensor_ids)
    return [nodes[node].instr if node >= 0 else "" for node in rows]


def _judged(who: str, verdict: Verdict) -> dict[str, Any]:
    says = "nothing wrong" if verdict.ok else words.count(len(verdict.errors), "error")
    if verdict.warnings:
        says += ", " + words.count(len(verdict.warnings), "warning")
    return {
        "who": who,
        "ok": verdict.ok,
        "says": says,
        "findings": verdict.findings[:FINDINGS],
        "shown": words.of(min(FINDINGS, len(verdict.findings)), len(verdict.findings), "finding"),
        "checked": verdict.checked,
    }


def _comparison(comparison: Comparison) -> dict[str, Any]:
    def figure(arena: ArenaSummary | None, field: str) -> str:
        return "—" if arena is None else words.short_bytes(getattr(arena, field))

    changed = [change for change, _ in zip(comparison.changes(), range(CHANGED), strict=False)]
    number = int((comparison.kinds != 0).sum())
    return {
        "verdict": comparison.word,
        "why": [(d.path, _said(d.left), _said(d.right)) for d in comparison.incomparable],
        "first": None
        if comparison.first is None
        else (comparison.first.path, _said(comparison.first.left), _said(comparison.first.right)),
        "context": [(d.path, _said(d.left), _said(d.right)) for d in comparison.context],
        "left": f"{comparison.left.ir_name or 'a graph'} by {comparison.left.planner}",
        "right": f"{comparison.right.ir_name or 'a graph'} by {comparison.right.planner}",
        "arenas": [
            (a.name, *(words.change(figure(a.left, f), figure(a.right, f)) for f in _COMPARED))
            for a in comparison.arenas
        ],
        "sums": [
            (name, words.change(before, after))
            for (name, before), (_, after) in zip(
                totals.rows(comparison.left), totals.rows(comparison.right), strict=True
            )
        ],
        "totals": [(kind.replace("_", " "), *comparison.totals[kind]) for kind in KINDS if comparison.totals[kind][0]],
        "changed": [(c.tensor_id, ", ".join(c.kinds).replace("_", " "), *_moved(c, comparison)) for c in changed],
        "changed_shown": words.of(len(changed), number, "changed tensor"),
    }


_COMPARED = ("peak_live_bytes", "extent_bytes", "committed_bytes")


def _moved(change: TensorChange, comparison: Comparison) -> tuple[str, str, str]:
    sides = (change.left, comparison.left), (change.right, comparison.right)

    def both(say: Callable[[TensorRow, Plan], str]) -> str:
        return words.change(*("—" if row is None else say(row, plan) for row, plan in sides))

    return (
        both(_place),
        both(lambda row, _: words.short_bytes(row.size_bytes)),
        both(lambda row, _: words.live_range(row.birth, row.death)),
    )


def _place(row: TensorRow, plan: Plan) -> str:
    slot = f", slot {row.logical_slot}" if plan.has_slots else ""
    return f"{row.arena} {words.offset(row.offset_bytes)}{slot}"


def _said(value: Any) -> str:
    text = value.hex() if isinstance(value, bytes) else words.UNKNOWN if value is None else str(value)
    return text if len(text) <= 160 else f"{text[:157]}…"


def _provenance(plan: Plan) -> list[tuple[str, str]]:
    figures = plan.metrics
    options = ", ".join(f"{name} = {value}" for name, value in sorted(plan.planner_options.items())) or "none"
    rows = [
        ("graph", plan.ir_name or words.UNKNOWN),
        ("planner", plan.planner),
        ("planner options", options),
        ("mode", plan.mode),
        ("preset", plan.preset),
        ("steps", f"{plan.steps:,}" + (", step 0 loads the inputs" if plan.has_inputs_step else "")),
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
        (name, words.NO_SLOTS if name == ratios[0] and not plan.has_slots else words.ratio(figures.get(name)))
        for name in ratios
    ]
    rows += [(f"note: {name}", _said(value)) for name, value in sorted(plan.notes.items())]
    return [(name, value or words.UNKNOWN) for name, value in rows]


DEFINITIONS: dict[str, str] = {
    "step": "One node runs per step: it reads all its inputs, then writes its outputs. Loading the inputs is step 0.",
    "lives [a, b)": "From the step that writes a tensor, included, to the step after its last reader, excluded; graph "
    "outputs and persistent tensors live to the end. After a hand-off the reader's own step is excluded.",
    "live bytes": "At a step, the sum of the sizes of the storages alive then; views and aliases count once.",
    "peak": "The first step at which the most bytes of an arena are alive, and those bytes.",
    totals.PEAK: "The most bytes alive together in all arenas, at one step.",
    totals.EXTENT: "What must be reserved: every arena's extent.",
    "lower bound": "No plan of this arena can be smaller, whichever planner makes it.",
    "extent": "The end of the last byte used in an arena: the last offset plus its size.",
    "gap": "(extent − lower bound) ÷ lower bound.",
    "headroom": "Capacity − extent.",
    "reuse": "1 − slots ÷ storages: the share of storages that found a used slot.",
    "slots = max live": "As many slots as storages alive together at most: no assignment of slots needs fewer.",
    "waste ledger": "At every step, to the byte: live + slot rounding + alignment gaps + holes + tail = extent. Slot "
    "rounding is what a slot has beyond its tenant; gaps are what alignment skips between two blocks; holes are free "
    "bytes below the highest block alive; the tail lies above it.",
    "hand-off": "An output may take over the storage of an input that is read for the last time by the same step. It "
    "lies on the input's bytes then, or elsewhere, and the input's bytes are held through that step.",
    "certificate": "optimal: the extent is proven to be the smallest possible; feasible: it fits; unproven: over its "
    "capacity, and not proven impossible.",
    "layout_hash": "SHA-256 over every slot and offset: equal hashes, equal layouts.",
    "tmmu_plan_hash": "SHA-256 over the graph, the mode, the arenas, the order and the layout with its replay token.",
}
"""How each figure is computed, in a sentence: the glossary's where it has one, these where it is not at hand."""
