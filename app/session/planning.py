"""Plan, verify and compare for the pages, in jobs whose results are cached by file, request and plan hash."""

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl

from app.session.opening import MIN_BYTES_FOR_WORKER, Opened, card_of, content_of, lacks_arenas, open_source, shelf
from app.session.view_state import Choice, from_query
from app.session.work import tasks, visitors
from app.session.work.jobs import Job, job_table, memoized
from app.session.work.workers import Task, TaskContext, TaskNotFinished
from tmmu_core.base.errors import ArenaTooSmall, TmmuError
from tmmu_core.formats.open_file import read_at
from tmmu_core.formats.planfile.compare_plans import Comparison, compare
from tmmu_core.formats.xla import xla_dump
from tmmu_core.graph.model import ONE_MEMORY, Graph
from tmmu_core.judge.finding import Verdict
from tmmu_core.judge.verifier.check_figures import with_recomputed_bounds
from tmmu_core.judge.verifier.finished_plan import verify_finished
from tmmu_core.liveness.timeline import Timeline
from tmmu_core.planners import PLANNERS
from tmmu_core.planners.problem import GIVEN, NODE_LIMIT, PlainInstance, Progress
from tmmu_core.plans.making import make
from tmmu_core.plans.making import request as making_request
from tmmu_core.plans.making.engine import Solution
from tmmu_core.plans.making.request import ANY_ARENA, DEFAULT_PLANNER, PlanRequest, arena_config
from tmmu_core.plans.making.request_options import FIELDS_OF_INSTANCES
from tmmu_core.plans.model import Plan

BEST = "auto"  # the planner of the button "Find the best plan"
WAIT_SECONDS = 2.5  # seconds that a page waits for a result before it shows progress
LINEAR_PLANNERS = ("slots", "naive", GIVEN)  # planners whose time is linear in the number of tensors
MAX_LINEAR_HERE = 40_000  # tensors up to which a planner of LINEAR_PLANNERS runs in the server process
MAX_VERIFIED_HERE = 5_000  # tensors below which a plan is verified in the server process: a worker starts slowly
_GRAPH_DEFAULTS = {name: value for name, value in vars(PlanRequest()).items() if name not in FIELDS_OF_INSTANCES}
"""Default values of the settings that apply only to graphs."""


@dataclass(frozen=True, eq=False)
class Shown:
    """The plan that the pages show, its inputs and its verdict."""

    choice: Choice  # with explicit defaults
    opened: Opened
    plan: Plan
    solution: Solution | None = None  # ``None`` for a finished plan and for a problem without a graph
    verdict: Verdict | None = None  # on the plan or offsets of the open file; ``None`` for a computed or reviewed plan

    @property
    def graph(self) -> Graph | None:
        """The planned graph: as in the file, or a rank's share of it; ``None`` for a file without a graph."""
        return self.solution.graph if self.solution is not None else self.opened.graph

    @property
    def timeline(self) -> Timeline:
        """The steps of a planned graph."""
        assert self.solution is not None
        return self.solution.liveness.timeline

    @property
    def key(self) -> str:
        """Key of the plan and its file, for caches and components."""
        return f"{self.plan.tmmu_plan_hash.hex()[:16]}.{self.plan.planner}.{self.opened.source}"


def open_files(files: list[tuple[str, bytes]]) -> tuple[list[str], list[dict[str, Any]]]:
    """Open files for the visitor; return ``(sources, error cards)``. A rejected file gets a card."""
    opened: list[str] = []
    cards: list[dict[str, Any]] = []
    for name, data in xla_dump.with_joined_modules(files):
        sources_before = {source for source, _ in shelf().names()}
        source = shelf().put(name, data)
        if source not in sources_before:
            job_table().forget(("open", source))  # a page with a link to the file may have failed before
        try:
            if len(data) < MIN_BYTES_FOR_WORKER:  # the page that shows a larger file reads it, with its progress
                open_source(source)
                first_plan = plan_job(Choice(source=source))
                with suppress(TaskNotFinished):  # a cancelled job does not mean that the file is invalid
                    if first_plan.wait(WAIT_SECONDS):
                        first_plan.result()  # reject a graph that cannot be planned
        except TmmuError as error:
            if not lacks_arenas(error):  # for a graph without declared arenas, the page offers to declare them
                cards.append(card_of(error, f"{name} was not opened", name))
                if source not in sources_before and not isinstance(error, TaskNotFinished):  # no page shows the file
                    shelf().drop(source)
                continue
        opened.append(source)
    return opened, cards


def planning_input(opened: Opened) -> Graph | PlainInstance:
    """Return the graph or instance to plan."""
    content = opened.instance or opened.graph
    assert content is not None
    return content


def opened_at(choice: Choice) -> tuple[Choice, Opened]:
    """Return the choice with explicit defaults and its file, read at the chosen sizes of its named dimensions."""
    opened = open_source(choice.source)
    full = with_explicit_defaults(choice, opened)
    if opened.graph is not None and opened.graph.assumed and full.dims:
        data, name = content_of(opened.source)
        graph = read_at(opened.graph, full.dims, data, name)
        opened = opened if graph is opened.graph else replace(opened, graph=graph)
    return full, opened


def with_explicit_defaults(choice: Choice, opened: Opened) -> Choice:
    """Return the choice with explicit defaults (contract §10)."""
    if opened.plan is not None:
        return choice.but(mode=opened.plan.mode, preset=opened.plan.preset, planner=opened.plan.planner)
    return choice.with_defaults(planning_input(opened))


def plan_job(choice: Choice) -> Job[Shown]:
    """Return the job that plans a choice. Equal choices share one job."""
    return job_table().job(plan_key(choice), "planning", lambda progress: make_plan(choice, progress))


def plan_key(choice: Choice) -> tuple[Any, ...]:
    """Return the key of the job that plans a choice. Writing a default explicitly does not change the key."""
    with suppress(TmmuError):  # the job raises the error
        choice = with_explicit_defaults(choice, open_source(choice.source))
    return ("plan", *choice.problem)


def make_plan(choice: Choice, progress: Progress | None = None) -> Shown:
    """Plan a choice, or verify its finished plan, and wait for the result. Raises ``TmmuError``."""
    full, opened = opened_at(choice)
    if opened.plan is not None:
        return _verified(full, opened, opened.plan)
    subject, request, progress = planning_input(opened), request_of(full, opened), progress or (lambda *_: True)
    count = len(subject.tensors) if isinstance(subject, Graph) else len(subject.problem)
    if full.planner in LINEAR_PLANNERS and full.shard_spec is None and count <= MAX_LINEAR_HERE:
        result = make.make_plan(subject, request, progress, over_limits=True)
    else:  # in a worker process, which can be killed
        result = job_table().run_task(progress, tasks.plan, subject, request)
    if result.plan.planner_options.get(NODE_LIMIT) != full.options.get(NODE_LIMIT):
        full = full.but(options=dict(result.plan.planner_options))  # the node limit that a stopped search reached
    if full.planner == GIVEN:
        return _verified(full, opened, result.plan)
    return Shown(full, opened, result.plan, result.solution)


def repeatable_choice(job: Job[Shown], choice: Choice) -> Choice | None:
    """Return a choice with the node limit that a stopped search reached, and cache the job under this choice.

    Return ``None`` if no search was stopped. Raises ``TaskNotFinished`` if only other visitors stopped the search.
    """
    planned_choice = job.result().choice
    if planned_choice.options.get(NODE_LIMIT) == choice.options.get(NODE_LIMIT):
        return None
    if job.stopped_for and visitors.visitor() not in job.stopped_for:
        raise TaskNotFinished("another visitor stopped this search.", "Plan it again.")
    limited = choice.but(planner=planned_choice.planner, options=planned_choice.options)
    job_table().forget(plan_key(choice))
    job_table().share(plan_key(limited), job)
    return limited


def task_job(what: str, choice: Choice, task: Task, *arguments: Any, key: tuple[Any, ...]) -> Job[Any]:
    """Return the job that runs a task on the graph of a choice in a worker; ``key`` identifies the arguments."""

    def run(progress: Progress) -> Any:
        full, opened = opened_at(choice)
        return job_table().run_task(progress, task, planning_input(opened), request_of(full, opened), *arguments)

    return job_table().job((task.__name__, *key, *choice.problem), what, run)


def _verified(full: Choice, opened: Opened, plan: Plan) -> Shown:
    """Verify a finished plan from a file and return it with its verdict (contract §11)."""
    verified_plan, verdict = verify_finished(plan, complete=opened.trace is None or opened.trace.complete)
    if verdict.only_over_capacity:  # not marked as invalid, because the page shows that it does not fit
        verified_plan = with_recomputed_bounds(plan, verdict.arenas)
    return Shown(full, opened, verified_plan, verdict=verdict)


def request_of(full: Choice, opened: Opened) -> PlanRequest:
    """Return the request for the planner, without the capacities of arenas that the graph does not use."""
    request = full.request
    if opened.graph is not None and request.has_no_arena_options:
        return request
    in_use = arenas_in_use(full, opened)
    capacities = {name: n for name, n in request.capacities.items() if name in (*in_use, ANY_ARENA)}
    request = request.but(capacities=capacities)
    if opened.graph is None:
        return request.but(**_GRAPH_DEFAULTS)
    if request.has_no_arena_options:
        return request
    config = arena_config(opened.graph, request, in_use)
    return request.but(arenas=config, alignment=None, capacities={}, page_size=None, one_memory=False)


def use_reviewed_plan(choice: Choice, plan: Plan) -> bool:
    """Store a review file's plan as the result of a planning job; return ``False`` if it does not match the choice."""
    full, opened = opened_at(choice)
    if opened.plan is not None:
        return opened.plan.tmmu_plan_hash == plan.tmmu_plan_hash
    quick_request = request_of(full, opened).but(planner=DEFAULT_PLANNER, options={})  # only hashes and graph matter
    quick = make.make_plan(planning_input(opened), quick_request, lambda *_: True, over_limits=True)
    if any(getattr(quick.plan, name) != getattr(plan, name) for name in ("ir_hash", "mode", "rank", "shard_spec_hash")):
        return False
    shown = _verified(full, opened, plan)
    if full.planner != GIVEN:
        shown = Shown(full, opened, shown.plan, quick.solution and replace(quick.solution, plan=shown.plan))
    job_table().forget(plan_key(full))  # the visitor may have planned the file before
    job_table().job(plan_key(full), "planning", lambda _: shown)
    return True


def baseline_of(choice: Choice) -> Choice | None:
    """Return the baseline of Compare as a choice; ``None`` without a baseline."""
    if not choice.baseline:
        return None
    kind, _, value = choice.baseline.partition(":")
    if kind == "planner":
        return choice.with_planner(value)
    if kind in ("mode", "preset"):
        return choice.but(**{kind: value})
    if kind == "order":
        return choice.but(order=None)
    query = dict(parse_qsl(value.partition("#")[0].split("?", 1)[-1]))  # the value is a link or a query
    if kind == "link" and "graph" in query:
        return from_query(query)[0]
    graph_fields = ("arenas", "capacities", "dims", "budget", "shard_spec", "rank")
    return choice.but(source=choice.baseline, **{name: getattr(Choice(), name) for name in graph_fields})


def planner_changes(full: Choice, planner: str | None) -> dict[str, Any]:
    """Return the fields that select ``planner``. If it replaces a file's offsets, an unset baseline is set to them."""
    replaces_given = full.planner == GIVEN and planner != GIVEN and not full.baseline
    return {"planner": planner} | ({"baseline": f"planner:{GIVEN}"} if replaces_given else {})


def best_plan_changes(full: Choice) -> dict[str, Any]:
    """Return the fields that select the best plan: planner ``auto``, which does not stop once the plan fits."""
    return planner_changes(full, BEST) | {"options": minimise_option(full, BEST)}


def minimise_option(choice: Choice, planner: str) -> dict[str, Any]:
    """Return the option to continue once the plan fits; {} if the planner has none, or the choice has no limit."""
    is_limited = bool(choice.capacities or choice.arenas)
    return {"minimise": True} if is_limited and planner in PLANNERS and "minimise" in PLANNERS[planner].options else {}


def minimising(choice: Choice, planner: str) -> Choice:
    """Return the choice with another planner. It continues once the plan fits, so that sizes are comparable."""
    other = choice.with_planner(planner)
    return other.but(options={**other.options, **minimise_option(choice, planner)})


def arenas_in_use(choice: Choice, opened: Opened) -> tuple[str, ...]:
    """Return the declared arenas, else the arenas that the plan uses; () if the graph needs an undeclared arena."""
    if opened.instance is not None:
        return tuple(problem.arena for problem in opened.problems)
    if opened.plan is not None:
        return tuple(arena.name for arena in opened.plan.arenas)
    if choice.is_one_memory:
        return (ONE_MEMORY,)
    if choice.arenas:
        return tuple(choice.arenas)
    job = job_table().known(plan_key(choice)) if choice.shard_spec is None else None
    if job is not None and job.succeeded and (solution := job.result().solution) is not None:
        return tuple(solution.liveness.arenas)
    assert opened.graph is not None
    graph, request = opened.graph, PlanRequest(mode=choice.mode, preset=choice.preset)
    key = ("arenas", choice.source, choice.mode, choice.preset)
    try:
        return job_table().cache.get_or_make(key, lambda: making_request.arenas_in_use(graph, request))
    except ArenaTooSmall:
        return ()


def planners_for(opened: Opened) -> list[str]:
    """Return the planners that apply to the open file."""
    if opened.plan is not None:
        return [opened.plan.planner]
    return [GIVEN, *PLANNERS] if opened.instance is not None and opened.instance.packing is not None else list(PLANNERS)


def verdicts_job(shown: Shown) -> Job[tasks.Verdicts]:
    """Return the job that verifies and lints a plan."""
    dims = dict(shown.choice.dims) or None
    whole_hash = shown.plan.ir_hash if shown.choice.shard_spec is not None else None

    def run(progress: Progress) -> tasks.Verdicts:
        if len(shown.plan) < MAX_VERIFIED_HERE:
            return tasks.verify_and_lint(TaskContext(progress), shown.graph, shown.plan, dims, whole_hash)
        return job_table().run_task(progress, tasks.verify_and_lint, shown.graph, shown.plan, dims, whole_hash)

    return job_table().job(("verdicts", shown.key), "verifying", run)


def known_verdicts_job(shown: Shown) -> Job[tasks.Verdicts] | None:
    """Return the job that verifies a plan; ``None`` if it was not started."""
    return job_table().known(("verdicts", shown.key))


@memoized
def comparison_of(left: Shown, right: Shown) -> Comparison:
    """Return the comparison of a baseline (``left``) with a candidate (``right``)."""
    return compare(left.opened.trace or left.plan, right.opened.trace or right.plan)
