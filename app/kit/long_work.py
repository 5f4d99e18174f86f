"""Draw a running job (title, progress, best result so far and stop button), or the error card of a failed job."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

import streamlit as st

from app.kit import controls
from app.kit.charts import draw_chart, search_chart
from app.session import planning
from app.session.opening import card_of
from app.session.work.jobs import Job, job_table
from app.session.work.workers import TaskNotFinished
from app.texts import markup, numbers
from tmmu_core.base.errors import TmmuError
from tmmu_core.base.escaping import for_markdown

T = TypeVar("T")
Cancel = Callable[[Job[Any]], None]  # callback of a stop button
REFRESH = 0.5  # seconds between two updates of the progress


def progress(job: Job[Any], title: str, *, follow: bool = False, cancel: Cancel | None = None) -> None:
    """Draw the progress of a job, its best result, its time and a stop button; rerun the page when the job ends.

    ``follow``: also rerun the page after each part of the work. ``cancel``: callback of the stop button; without it,
    the button stops the job with its best result.
    """
    drawn_state = job.done, len(job.found)

    @st.fragment(run_every=REFRESH)
    def watch() -> None:
        if job.finished or (follow and (job.done, len(job.found)) != drawn_state):
            st.rerun()
        count = f"{job.done:,} of {job.total:,}" if job.total else (f"{job.done:,}" if job.done else "")
        activity = "" if job.doing == job.what else job.doing
        parts = (title, f"{activity} {count}".strip(), f"{time.monotonic() - job.began:,.0f} s")
        text = " · ".join(filter(None, parts))
        with controls.row("progress"):
            if job.total:
                st.progress(min(1.0, job.done / job.total), text=for_markdown(text))
            else:
                st.html(f'<div class="tm" role="status">{markup.esc(text)}</div>')
            label = "Stop and keep the best plan" if job.what in ("planning", "making it fit") else "Stop"
            label = "Stopping …" if job.stopped_for else label
            st.button(label, key="stop-job", on_click=cancel or Job.stop, args=(job,), disabled=bool(job.stopped_for))
        improvements = [found for found in job.found if isinstance(found, tuple)]  # planning reports (arena, point)
        if not improvements:
            return
        arena, last = improvements[-1]
        size, bound = numbers.short_bytes(last.extent), numbers.short_bytes(last.bound)
        gap = numbers.over_bound(last.extent - last.bound, last.bound)
        best = f"<b>{markup.esc(arena)} {size}</b>, lower bound {bound}, gap {gap}"
        st.html(f'<div class="tm" id="best-so-far">Best so far: {best}</div>')
        points = tuple(point for name, point in improvements if name == arena)
        if len(points) > 1:
            # A changed chart flickers: change it only when the first digit of the number of nodes changes.
            unit = 10 ** (len(str(job.done)) - 1)
            draw_chart(search_chart(points, job.done // unit * unit, height=150), "search-so-far")

    watch()


def result(job: Job[T], title: str, error_title: str, *, source: str = "", timeout: float | None = None) -> T | None:
    """Return the result of a finished job; else draw its progress or its error card, and return ``None``.

    ``source``: file that the error card names. ``timeout``: seconds until the progress is drawn.
    """
    if not job.wait(planning.WAIT_SECONDS if timeout is None else timeout):
        progress(job, title, follow=True)
        return None
    try:
        return job.result()
    except TmmuError as error:
        st.html(markup.error_card(card_of(error, error_title, source)))
        restart_button(job)
        return None


def restart_button(job: Job[Any]) -> None:
    """Draw a button that starts a job again if its task did not finish."""
    if isinstance(job.error, TaskNotFinished):
        st.button("Start again", key=f"restart.{hash(job.key)}", on_click=job_table().forget, args=(job.key,))
