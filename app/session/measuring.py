"""Memory use by other tools: a model is run by its runtime on request; given plans are compared at once."""

import functools
from hashlib import sha256

from app.session.opening import Opened, content_of
from app.session.planning import about
from app.session.view_state import Choice
from app.session.work import tasks
from app.session.work.jobs import Job, job_table
from app.session.work.workers import TaskCall
from tmmu_core.planners.problem import Progress
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.runtime.measure import measure_model

MOST_LIVES = 20_000
"""Given plans with more live ranges are planned only on request."""


def runtime_of(opened: Opened) -> str:
    """Return the runtime of a model file; ``""`` for other files."""
    return measure_model.runtime_of(content_of(opened.source)[0]) if opened.graph is not None else ""


def known(choice: Choice) -> Job[measure_model.Measured] | None:
    """Return the run of this model at these sizes, if one was requested."""
    return job_table().known(_key(choice))


def measured(choice: Choice, opened: Opened) -> Job[measure_model.Measured]:
    """Return the job that runs this model at these sizes."""
    call = TaskCall(tasks.measured, (*content_of(opened.source), dict(choice.dims) or None))
    return job_table().job(_key(choice), "running the model", functools.partial(job_table().run_task, call))


def compared(written: bytes, opened: Opened) -> Job[measure_model.Measured]:
    """Return the job that runs a model in TensorFlow Lite Micro without and with the plan in ``written``."""
    call = TaskCall(tasks.measured, (*content_of(opened.source), None, "tflm", written))
    key = ("compare", opened.source, sha256(written).digest())
    return job_table().job(key, "running the model", functools.partial(job_table().run_task, call))


def ours(choice: Choice, opened: Opened) -> Job[int] | None:
    """Return the job that computes the arena size of a quick plan; ``None`` for too many live ranges."""
    assert opened.problem is not None
    if len(opened.problem) > MOST_LIVES:
        return None

    def run(progress: Progress) -> int:
        made = job_table().run_task(about(tasks.plan, opened, {}, PlanRequest(planner=measure_model.PLANNER)), progress)
        return sum(arena.extent_bytes for arena in made.plan.arenas)

    return job_table().job(("ours", choice.source), "planning the live ranges", run)


def _key(choice: Choice) -> tuple[object, ...]:
    return "measure", choice.source, tuple(sorted(choice.dims.items()))
