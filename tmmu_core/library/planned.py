"""The plan as the library gives it: the core's value, and what one asks of it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from tmmu_core.door import face
from tmmu_core.errors import UnreadableInput, UnwritableOutput
from tmmu_core.extras import need, require
from tmmu_core.graph.model import Graph
from tmmu_core.judge.finding import Verdict
from tmmu_core.judge.verifier import verify_plan
from tmmu_core.library import requests
from tmmu_core.library.fitted import Fit, fitted_of
from tmmu_core.names import visible
from tmmu_core.once import cached_property
from tmmu_core.plan import model
from tmmu_core.plan.analysis.gate import Check, Limit, gate
from tmmu_core.plan.figures.metrics import Totals, totals
from tmmu_core.plan.formats import files
from tmmu_core.plan.formats.compare import Comparison, compare
from tmmu_core.plan.formats.trace import Trace
from tmmu_core.plan.making.engine import Solution
from tmmu_core.plan.making.make import Made
from tmmu_core.plan.making.request import PlanRequest
from tmmu_core.writing import put

DRAWN = 460
"""Pixels of height of the map in a notebook."""


@dataclass(frozen=True, eq=False, repr=False)
class Plan(model.Plan):
    """Where everything lies, and what one asks of it: figures, tables, reports, gates, comparisons, fits.

    Its columns (numpy, shape (tensors,), rows by tensor id bytes; offsets and sizes in bytes, births and deaths in
    steps, half-open) are those of :class:`tmmu_core.plan.model.Plan`, which it is.
    """

    made: Made | None = None
    """What it was made from; ``None`` for a plan that came finished."""

    @classmethod
    def of(cls, plan: model.Plan, made: Made | None = None) -> Self:
        """The same plan, with what can be asked of it."""
        return cls(**{f.name: getattr(plan, f.name) for f in fields(model.Plan)}, made=made)

    # --- figures --------------------------------------------------------------------------------------------------

    @property
    def solution(self) -> Solution | None:
        """Plan, liveness and graph together; ``None`` where there is no graph."""
        return None if self.made is None else self.made.solution

    @property
    def graph(self) -> Graph | None:
        """The graph as planned; ``None`` for an instance, and for a plan that came finished."""
        return None if self.solution is None else self.solution.graph

    @cached_property
    def totals(self) -> Totals:
        """Peak, sum of extents and lower bound over all arenas, in bytes (contract §11)."""
        return totals(self)

    @property
    def extent_bytes(self) -> int:
        """What must be reserved: the sum of the arenas' extents."""
        return self.totals.extent_bytes

    @property
    def peak_live_bytes(self) -> int:
        """The most bytes alive together, at one step."""
        return self.totals.peak_live_bytes

    @property
    def lower_bound_bytes(self) -> int:
        """No plan of this problem takes fewer."""
        return self.totals.lower_bound_bytes

    # --- what one asks --------------------------------------------------------------------------------------------

    def verify(self, graph: Graph | None = None) -> Verdict:
        """What a judge says that shares no code with the planners; against ``graph``, or the one it was made from."""
        graph = self.graph if graph is None else graph
        if self.made is None:
            return verify_plan(self, graph)
        return verify_plan(self, graph, dims=self.made.request.dims or None, cut_from=self.made.cut_from)

    def gate(self, *, baseline: Any = None, max_growth: int | str = 0, **limits: Any) -> Gate:
        """Hold it to ``max_extent``, ``max_peak`` (bytes), ``max_gap``, ``min_reuse`` (percent), or to a ``baseline``.

        A limit is for all arenas together, or a mapping from arena to its own. ``max_growth`` is bytes, or ``"5 %"``,
        over the baseline, in each arena. The plan is verified first: figures of an invalid one are nobody's. Raises
        ``ValueError`` without any limit, for such a gate can never be red.
        """
        unknown = sorted(set(limits) - set(_MEASURES))
        if unknown:
            raise TypeError(f"there is no limit {unknown[0]!r}; limits are {', '.join(_MEASURES)}")
        asked = [limit for name, given in limits.items() for limit in requests.limits_of(_MEASURES[name], given)]
        before = None if baseline is None else as_plan(baseline)
        if before is not None:
            asked.append(requests.growth_of(max_growth))
        if not asked:
            raise ValueError(f"a gate without a limit can never be red; give {', '.join(_MEASURES)} or baseline")
        return _gated(self, tuple(asked), before)

    def compare(self, other: Any) -> Comparison:
        """This plan → ``other`` (a plan, or whatever :func:`tmmu_core.read` reads): comparable, identical, or where
        they part."""
        return compare(self, as_plan(other))

    def fit(self, capacity: Any, **how: Any) -> Fit[Plan]:
        """Make the graph fit ``capacity``, as :func:`tmmu_core.fit` does.

        Raises ``UnreadableInput`` for a plan without a graph, and what that raises.
        """
        if self.made is None or self.graph is None:
            raise UnreadableInput(
                "what is moved are a graph's nodes, and this plan has no graph.", hint="Plan the graph."
            )
        return fit_of(self.graph, self.made.request, capacity, how)

    # --- what one takes away --------------------------------------------------------------------------------------

    def table(self) -> Any:
        """A row per tensor as a ``pandas.DataFrame``, indexed by tensor id. Raises ``MissingExtra`` without pandas.

        Columns: ``arena``, ``logical_slot``, ``offset_bytes``, ``size_bytes``, ``alignment``, ``birth``, ``death``
        (steps, half-open), ``generation``, ``role``, ``dtype``, ``shape``, ``alias_group_id``, ``base_tensor_uid``.
        """
        pandas = need("pandas", "a table")
        names = [arena.name for arena in self.arenas]
        columns = {
            "arena": pandas.Categorical.from_codes(self.arena, names),
            "logical_slot": self.logical_slot,
            "offset_bytes": self.offset,
            "size_bytes": self.size,
            "alignment": self.alignment,
            "birth": self.birth,
            "death": self.death,
            "generation": self.generation,
            "role": pandas.Categorical(self.roles),
            "dtype": pandas.Categorical(self.dtypes),
            "shape": list(self.shapes),
            "alias_group_id": list(self.alias_group_ids),
            "base_tensor_uid": list(self.base_tensor_uids),
        }
        return pandas.DataFrame(columns, index=pandas.Index(self.tensor_ids, name="tensor_id"))

    def save(self, path: str | Path) -> Path:
        """Write the plan file: ``.json``, ``.cbor``, ``.csv`` or ``.parquet`` (contract §9). Gives the path.

        Raises ``UnreadableInput`` for another ending, ``UnwritableOutput`` where the file cannot be written.
        """
        path = Path(path)
        writer = files.WRITERS.get(path.suffix.removeprefix("."))
        if writer is None:
            raise UnreadableInput(
                f"a plan is not written as {path.suffix or 'a file without an ending'}.",
                source=str(path),
                hint=f"End the name in .{', .'.join(files.WRITERS)}.",
            )
        put(path, writer(self))
        return path

    def report(self, path: str | Path | None = None, *, baseline: Any = None, title: str = "") -> Any:
        """The report: one offline HTML file; a summary where ``path`` ends in ``.md``, on paper in ``.pdf``.

        Gives the path; without one, the HTML as bytes. With ``baseline`` it tells what changed from there to here.
        Raises ``UnreadableInput`` for another ending, and where no browser is installed that prints;
        ``UnwritableOutput`` where the file cannot be written.
        """
        ending = "" if path is None else Path(path).suffix.lower()
        if ending not in ("", ".html", ".htm", ".md", ".pdf"):
            hint = "End the name in .html, .pdf or .md."
            raise UnreadableInput(f"a report is not written as {ending}.", source=str(path), hint=hint)
        verdict = self.verify()
        if ending == ".md":
            data = face("report.summary").markdown(self, verdict, title)
        else:
            before = None if baseline is None else as_plan(baseline)
            build = face("report.build")
            data = build.build_report(
                self.solution or self, baseline=before, title=title, known=build.Known(verified=verdict)
            )
        if path is None:
            return data
        put(Path(path), _printed(data) if ending == ".pdf" else data)
        return Path(path)

    def show(self, *, browser: bool = True) -> subprocess.Popen[bytes]:
        """Open the explorer on this plan, in a process of its own, which is given back: ``.terminate()`` ends it.

        Raises ``MissingExtra`` where the extra ``app`` is not installed.
        """
        require("streamlit", "the explorer")
        folder = Path(tempfile.mkdtemp(prefix="tmmu-"))
        stem = "".join(c if c.isalnum() or c in "-_" else "-" for c in self.ir_name[:50]) or "plan"
        path = self.save(folder / f"{stem}.plan.json")
        command = [sys.executable, "-m", "tmmu_core", "explore", str(path)]
        return subprocess.Popen(command if browser else [*command, "--no-browser"])

    # --- in a notebook --------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        t = self.totals
        gap = face("say.words").over_bound(*t.gap)
        figures = f"extent {t.extent_bytes:,} B, bound {t.lower_bound_bytes:,} B, gap {gap}"
        if any(arena.status == model.INVALID for arena in self.arenas):
            figures = f"INVALID, {figures}"
        name = visible(self.ir_name or "a plan").replace("\n", " ")[:60]
        return f"<Plan {name} · {self.mode} · {self.planner}: {figures}, {len(self):,} tensors>"

    def _repr_html_(self) -> str:
        """The figures, and the map of the arena where most moves, as SVG: no script, no network."""
        escape = face("say.markup").esc
        busiest = max(self.arenas, key=lambda a: (a.max_live < a.storages, a.extent_bytes, a.name), default=None)
        sheet = face("report.look").Sheet(height=DRAWN)
        drawn = "" if busiest is None else str(face("report.still").map_figure(self, busiest.name, sheet))
        return f'<div style="max-width:1100px"><code>{escape(repr(self))}</code>{drawn}</div>'


@dataclass(frozen=True)
class Gate:
    """Green or red, and why; true where it is green."""

    verdict: Verdict
    checks: tuple[Check, ...]
    """One per limit and arena; none where the plan, or its baseline, does not verify."""

    @property
    def ok(self) -> bool:
        """Whether the plan verifies and every limit holds."""
        return self.verdict.ok and all(check.ok for check in self.checks)

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        exceeded = [f"{c.what}{' of ' + c.arena if c.arena else ''}" for c in self.checks if not c.ok]
        why = str(self.verdict) if not self.verdict.ok else ", ".join(exceeded)
        return "<Gate green>" if self.ok else f"<Gate red: {why}>"


_MEASURES: Mapping[str, Any] = {
    "max_extent": "extent",
    "max_peak": "peak live bytes",
    "max_gap": "gap",
    "min_reuse": "reuse",
}


def as_plan(other: Any) -> model.Plan:
    """A plan from whatever holds one, or can be planned with the defaults."""
    if isinstance(other, model.Plan):
        return other
    found = requests.opened(other)
    if isinstance(found, Trace):
        return Plan.of(requests.finished(requests.whole(found)))
    if isinstance(found, model.Plan):
        return Plan.of(requests.finished(found))
    made = requests.made_of(found, PlanRequest())
    return Plan.of(made.plan, made)


def fit_of(graph: Graph, request: PlanRequest, capacity: Any, how: Mapping[str, Any]) -> Fit[Plan]:
    """``graph`` brought within ``capacity``. Raises ``TypeError`` for an option that there is not."""
    fitted = fitted_of(graph, request, capacity, how)
    best = fitted.best
    return Fit(fitted, Plan.of(best.plan, Made(PlanRequest(planner=best.question.planner), best.plan, best.solution)))


def _printed(report: bytes) -> bytes:
    paper = face("report.pdf")
    program = paper.browser()
    if program is None:
        raise UnreadableInput("a PDF is printed by a browser, and none is installed.", hint="Write .html instead.")
    try:
        printed: bytes = paper.pdf(report, program)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnwritableOutput(f"the report was not printed: {error}.", "Write .html, and print that.") from error
    return printed


def _gated(plan: Plan, limits: tuple[Limit, ...], before: model.Plan | None) -> Gate:
    verdict = plan.verify()
    earlier = None if before is None else verify_plan(before)
    if earlier is not None and not earlier.ok:
        verdict = earlier
    return Gate(verdict, gate(plan, limits, before) if verdict.ok else ())
