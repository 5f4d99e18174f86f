"""Background jobs of the pages: changes that make a plan fit, sizes and ranks, and runs of a model in its runtime."""

from contextlib import suppress
from hashlib import sha256
from typing import Any
from urllib.parse import urlencode

import msgspec

from app.session import planning
from app.session.opening import MOVES, Opened, content_of, open_source, shelf
from app.session.planning import minimise_option, opened_at, planning_input, request_of, task_job
from app.session.view_state import Choice, compact, spec_of, to_query
from app.session.work import tasks
from app.session.work.jobs import Job, job_table
from tmmu_core.base.errors import Misuse, TmmuError
from tmmu_core.fitting.move import Kind, Move
from tmmu_core.fitting.problem.answer import Allowed, Capacity, Fitted
from tmmu_core.fitting.problem.planner_calls import Candidate
from tmmu_core.fitting.search.candidates import FittedSize
from tmmu_core.fitting.search.overviews import WhatIf, curve, what_if
from tmmu_core.graph.checks import arena_fields
from tmmu_core.graph.native import native_file
from tmmu_core.graph.sharding.shard_spec import read_spec
from tmmu_core.planners.problem import Progress
from tmmu_core.plans.making.plan_sets import DimCurve, RankPlans
from tmmu_core.plans.making.request_options import OPTION_SPECS
from tmmu_core.runtime.measure import measure_model

MOST_RANKS = 16_384  # maximum number of ranks on the page Scale


def fit_search(choice: Choice, capacity: Capacity, kinds: frozenset[Kind]) -> Job[Fitted]:
    """Return the job that searches for changes with which the plan fits; ``Job.found`` has the best plans so far."""
    return task_job("making it fit", choice, tasks.search, capacity, kinds, key=(capacity.key, kinds))


def largest_size(choice: Choice, dim: str, capacity: Capacity, kinds: frozenset[Kind]) -> Job[FittedSize]:
    """Return the job that finds the largest size of ``dim`` that fits."""
    graph = open_source(choice.source).graph
    must_reread = graph is not None and (dim in graph.ranges or dim in graph.assumed)
    model = content_of(choice.source) if must_reread else None
    what, key = f"finding the largest {dim}", (dim, capacity.key, kinds)
    return task_job(what, choice, tasks.largest, dim, capacity, kinds, model, key=key)


def ranked_changes(choice: Choice, kinds: frozenset[Kind]) -> Job[WhatIf]:
    """Return the job that plans single changes and ranks those that save bytes (see :func:`.what_if`)."""
    return task_job("ranking single changes", choice, tasks.from_plan, what_if, kinds, key=(what_if, kinds))


def one_change(choice: Choice, move: Move) -> Job[Candidate]:
    """Return the job that plans the graph with one change."""
    return task_job("planning one change", choice, tasks.one_move, move, key=(move.kind, move.what))


def cost_curve(choice: Choice, kinds: frozenset[Kind]) -> Job[tuple[Candidate, ...]]:
    """Return the job that computes the curve of bytes against cost: plans from the current one to the lower bound."""
    return task_job("planning lower limits", choice, tasks.from_plan, curve, Allowed(kinds), key=(curve, kinds))


def moves_of(choice: Choice) -> tuple[Move, ...]:
    """Return the moves from the baseline's graph to the current graph; () if they are unknown."""
    if choice.moves:
        with suppress(TmmuError, msgspec.DecodeError):  # a link may name any file, also one that was evicted
            return msgspec.json.decode(content_of(choice.moves)[0], type=tuple[Move, ...])
    return ()


def baseline_link(choice: Choice) -> str:
    """Return ``choice`` as the source of a baseline: a link with its file and its request."""
    request = {name: getattr(choice, name) for name in ("source", *OPTION_SPECS)}
    return f"link:?{urlencode(to_query(Choice(**request)))}"


def applied_changes(candidate: Candidate, choice: Choice, name: str) -> dict[str, Any]:
    """Return the fields of ``choice`` that show a candidate, with the current plan as its baseline. The limits stay."""
    plan_input = candidate.plan_input
    options = {**minimise_option(choice, plan_input.planner), **plan_input.options}  # a fit does not end the search
    limits = {"capacities": choice.capacities, "budget": choice.budget}
    arenas: dict[str, Any] = {field: getattr(choice, field) for field in ("arenas", "alignment", "page_size")}
    if any(move.kind == "alignment" for move in candidate.moves):  # changed alignments, but the user's capacities
        config, users_config = arena_fields(plan_input.arenas or {}), arena_fields(choice.arenas or {})
        for arena, settings in config.items():
            if "capacity_bytes" in users_config.get(arena, {}):
                config[arena] = {**settings, "capacity_bytes": users_config[arena]["capacity_bytes"]}
        arenas |= {"arenas": config, "alignment": None}
    planned = {"planner": plan_input.planner, "options": options}
    full = planning.with_explicit_defaults(choice, open_source(choice.source))
    moves = shelf().put(f"{name}{MOVES}", msgspec.json.encode(candidate.moves))
    compared = {"baseline": baseline_link(full), "moves": moves}
    graph = native_file.encode(candidate.plan_input.graph, "fitted.tmmu.cbor.gz")
    return {"source": shelf().put(f"{name}.fitted.tmmu.cbor.gz", graph), **compared, **limits, **arenas, **planned}


def scale_views(opened: Opened, choice: Choice) -> dict[str, str]:
    """Return view → title: Shapes for a graph with dimensions; Ranks for parameters, shards or a chosen shard spec."""
    graph = opened.graph
    if graph is None:
        return {}
    has_spec = bool(choice.shard or choice.shard_spec)
    can_shard = has_spec or any(t.role == "parameter" or t.shard is not None for t in graph.tensors)
    return ({"shapes": "Shapes"} if graph.dims and graph.tensors else {}) | ({"ranks": "Ranks"} if can_shard else {})


def all_ranks(choice: Choice) -> Job[RankPlans]:
    """Return the job that plans every rank of ``choice.shard``. Ranks with the same graph are planned once."""

    def run(progress: Progress) -> RankPlans:
        spec = spec_of(choice.shard)
        world = read_spec(spec).world_size
        if world > MOST_RANKS:
            what = f"the mesh has {world:,} ranks; this page shows up to {MOST_RANKS:,}."
            raise Misuse(what, "Plan single ranks with tmmu plan --shard FILE --rank R, or use a smaller mesh.")
        whole, opened = opened_at(choice.unsharded())
        request = request_of(whole, opened).but(shard_spec=spec)
        return job_table().run_task(progress, tasks.ranks, planning_input(opened), request)

    return job_table().job(("ranks", *choice.unsharded().problem, compact(choice.shard)), "planning the ranks", run)


def size_curve(choice: Choice, dim: str) -> Job[DimCurve]:
    """Return the job that plans the sizes of one dimension; the other dimensions keep their chosen sizes."""
    others = choice.unsharded().but(dims={name: n for name, n in choice.dims.items() if name != dim})
    return task_job("planning the sizes", others, tasks.dim_curve, dim, key=(dim,))


def run_key(choice: Choice, planned: bytes = b"") -> tuple[object, ...]:
    """Return the key of :func:`model_run`."""
    return "measure", choice.source, tuple(sorted(choice.dims.items())), sha256(planned).digest()


def model_run(choice: Choice, planned: bytes = b"") -> Job[measure_model.Measured]:
    """Return the job that measures the memory of the model, and of ``planned`` (model file with a plan) if given."""
    dims, runtime = (None, "tflm") if planned else (dict(choice.dims) or None, "")

    def run(progress: Progress) -> measure_model.Measured:
        data, name = content_of(choice.source)
        return job_table().run_task(progress, tasks.measured, data, name, dims, runtime, planned)

    return job_table().job(run_key(choice, planned), "running the model", run)
