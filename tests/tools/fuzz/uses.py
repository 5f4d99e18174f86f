"""Everything that the pages and the command line do with a file after it is read."""

from fractions import Fraction
from typing import Any

from app.canvas.component import pack_plan
from app.report import summary
from app.texts import tensor_text, totals_text
from tmmu_core.base.errors import TmmuError
from tmmu_core.formats.c_project import render_plan
from tmmu_core.formats.open_file import PlainInstance, read_any
from tmmu_core.formats.planfile import plan_file, trace
from tmmu_core.formats.planfile.compare_plans import compare
from tmmu_core.formats.planfile.trace import Trace
from tmmu_core.graph.model import Graph
from tmmu_core.graph.native import native_file
from tmmu_core.judge.finding import Verdict
from tmmu_core.judge.lint import lint_verdict
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans.analysis import waste_ledger
from tmmu_core.plans.analysis.gate import Limit, gate
from tmmu_core.plans.analysis.plan_notes import search_progress
from tmmu_core.plans.analysis.waste_ledger import resource_ledger
from tmmu_core.plans.figures.live_bytes import peak_step_of
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.model import Plan
from tmmu_core.seed.memory_plan import memory_plan

MODES = (
    ("inference", "inference"),
    ("backward", "train_full"),
    ("backward", "remat_enabled"),
    ("forward", "train_full"),
)


def use(data: bytes) -> None:
    """Read a file and use it in every way. Raises the exceptions of the program."""
    found = read_any(data, "given")
    if isinstance(found, Graph):
        use_graph(found)
    elif isinstance(found, PlainInstance):
        use_plan(make_plan(found, PlanRequest()).plan)
    else:
        use_plan(found.plan if isinstance(found, Trace) else found)


def use_graph(graph: Graph) -> None:
    """Plan a graph in several ways; the verifier must accept each plan."""
    native_file.encode_cbor(graph)
    refusals: list[Exception] = []
    for mode, preset in MODES:
        for planner in ("slots", "greedy"):
            try:
                solution = plan_graph(graph, mode=mode, preset=preset, planner=planner)  # type: ignore[arg-type]
            except Exception as error:
                refusals.append(error)
                continue
            verdict = verify_plan(solution.plan, graph)
            assert verdict.ok, f"{mode}, {planner}: {verdict.errors[0]}"
            plan_file.restore(plan_file.checkpoint(solution.plan, solution.liveness))
            use_plan(solution.plan)
            lint_verdict(solution.plan, graph)
    refusals.sort(key=lambda error: isinstance(error, TmmuError))  # untyped errors first
    if refusals:
        raise refusals[0]


def use_plan(plan: Plan) -> None:
    """Draw, verify and write a plan; one plan in sixteen is also described in texts."""
    verdict = verify_plan(plan)
    for arena in plan.arenas:
        peak_step_of(plan, arena.name)
        waste_ledger.waste_ledger(plan, arena.name).at(0)
    resource_ledger(plan)
    pack_plan(plan)
    written: list[Any] = [
        plan_file.to_json(plan),
        plan_file.to_cbor(plan),
        plan_file.to_csv(plan),
        trace.to_json_lines(plan),
    ]
    del written
    if verdict.ok:  # export refuses invalid plans
        render_plan.build_render_plan(plan)
    if plan.tmmu_plan_hash[0] % 16 == 0 or plan.notes:
        describe(plan, verdict)


def describe(plan: Plan, verdict: Verdict) -> None:
    """Run the texts of summary, comparison, gate and certificate on a plan."""
    summary.markdown(plan, verdict)
    compare(plan, plan)
    gate(plan, (Limit("extent", Fraction(1)),))
    for arena in plan.arenas:
        search_progress(plan, arena.name)
        totals_text.planner_of(plan, arena.name)
        totals_text.planner_remark(plan, arena.name)
        totals_text.certificate(plan, arena.name)
    for name in plan.tensor_ids[:3]:
        tensor_text.details(plan, None, name)
    if verdict.ok and plan.arenas and all("memory" in plan.notes.get(arena.name, {}) for arena in plan.arenas):
        memory_plan(plan)
