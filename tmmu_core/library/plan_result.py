"""The plan of the library: a plan with figures, checks, exports and a notebook view."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Self, Unpack

from tmmu_core.base.app_package import app_module
from tmmu_core.base.atomic_files import write_output_file
from tmmu_core.base.errors import UnreadableInput, need, require
from tmmu_core.base.escaping import visible
from tmmu_core.fitting.problem.answer import Allowed
from tmmu_core.fitting.problem.planner_calls import Candidate, initial_candidate
from tmmu_core.formats.planfile import plan_file
from tmmu_core.formats.planfile.compare_plans import Comparison, compare
from tmmu_core.formats.planfile.trace import Trace
from tmmu_core.graph.model import Graph
from tmmu_core.judge.finding import Verdict
from tmmu_core.judge.verifier.finished_plan import verify_finished, with_bounds_of_rows, with_certificates
from tmmu_core.judge.verifier.verify import verdict_warnings, verify_plan
from tmmu_core.library import arguments
from tmmu_core.library.arguments import Capacities, GateOptions, Share, Source, suggest_options
from tmmu_core.library.fit_result import Fit
from tmmu_core.planners.problem import Progress
from tmmu_core.plans import model
from tmmu_core.plans.analysis.gate import Check, baseline_warning, gate
from tmmu_core.plans.analysis.plan_notes import plan_warnings
from tmmu_core.plans.analysis.waste_ledger import Explanation, explain_peak
from tmmu_core.plans.figures.metrics import Totals, totals
from tmmu_core.plans.making.engine import Solution
from tmmu_core.plans.making.make import BetterPlanner, PlanningResult
from tmmu_core.plans.making.request import PlanRequest

REMARK_LENGTH = 400  # maximum number of characters of a remark in a plan's ``repr``


@dataclass(frozen=True, eq=False, repr=False)
class Plan(model.Plan):
    """A plan: live range, slot, arena and offset of each tensor, with figures, checks and exports.

    The columns are those of :class:`tmmu_core.plans.model.Plan`: numpy arrays or tuples with one entry per row, sorted
    by the bytes of the tensor ids. Offsets and sizes are in bytes; live ranges ``[birth, death)`` are in steps.
    """

    planning: PlanningResult | None = None
    """The request, and the graph or the problems of the instance; ``None`` for a plan from a file."""

    @classmethod
    def of(cls, plan: model.Plan, planning: PlanningResult | None = None) -> Self:
        """Return a plan of the core as a plan of the library."""
        return cls(**{f.name: getattr(plan, f.name) for f in fields(model.Plan)}, planning=planning)

    @classmethod
    def of_candidate(cls, candidate: Candidate) -> Self:
        """Return the plan of a candidate of a fit; its request has only the planner."""
        request = PlanRequest(planner=candidate.plan_input.planner)
        return cls.of(candidate.plan, PlanningResult(request, candidate.plan, candidate.solution))

    @property
    def solution(self) -> Solution | None:
        """Plan, liveness and graph; ``None`` without a graph."""
        return None if self.planning is None else self.planning.solution

    @property
    def graph(self) -> Graph | None:
        """The graph as planned; ``None`` for an instance and for a plan from a file."""
        return None if self.solution is None else self.solution.graph

    @cached_property
    def totals(self) -> Totals:
        """Peak, sum of extents and lower bound over all arenas, in bytes (contract §11)."""
        return totals(self)

    @property
    def extent_bytes(self) -> int:
        """Sum of the arena sizes, in bytes."""
        return self.totals.extent_bytes

    @property
    def peak_live_bytes(self) -> int:
        """Peak of the live bytes over all steps."""
        return self.totals.peak_live_bytes

    @property
    def lower_bound_bytes(self) -> int:
        """Lower bound of the extent of any plan of this problem, in bytes."""
        return self.totals.lower_bound_bytes

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the plan, such as assumed sizes, missing parts, rules without effect, unused reuse."""
        return (*(self.planning.warnings if self.planning else ()), *plan_warnings(self))

    @property
    def better(self) -> BetterPlanner | None:
        """A planner that needs less memory, found by a short search; ``None`` if none was found."""
        return None if self.planning is None else self.planning.better

    @cached_property
    def explanation(self) -> Explanation:
        """The needed bytes, the limit, and the cause of the gap to the lower bound; ``str`` gives it as text."""
        return explain_peak(self, None if self.planning is None else self.planning.request.budget)

    def verify(self, graph: Graph | None = None) -> Verdict:
        """Check the plan against ``graph`` [the graph that it was made from], as :func:`tmmu.verify`."""
        graph = self.graph if graph is None else graph
        if not isinstance(graph, Graph | None):
            raise UnreadableInput(
                f"graph: a value of type {type(graph).__name__} is not a graph.", hint="Give a Graph: tmmu.read(path)."
            )
        if self.planning is None:
            return verify_plan(self, graph)
        return verify_plan(self, graph, dims=self.planning.request.dims or None, whole_hash=self.planning.whole_hash)

    @suggest_options(GateOptions)
    def gate(self, **options: Unpack[GateOptions]) -> Gate:
        """Check the plan against limits, for use in CI.

        The plan is verified first. The gap of a plan from a file uses the recomputed lower bound.

        Parameters
        ----------
        max_extent, max_peak : int, str or dict, optional
            Maximum extent, and maximum live bytes: of all arenas together, or a dict from arena to limit.
        max_gap : float, str or dict, optional
            Largest gap to the lower bound, in percent.
        min_reuse : float, str or dict, optional
            Smallest share of reused bytes, in percent.
        max_reuse_cost : int or dict, optional
            Largest reuse cost: the sum of the penalties of tensors that share bytes.
        baseline : Plan or anything that :func:`tmmu.read` reads, optional
            A plan to compare with.
        max_growth : int or str, optional
            Maximum growth of live peak, extent and lower bound of each arena over the baseline: bytes or ``"5 %"`` [0].
        max_peak_growth, max_extent_growth : int or str, optional
            Maximum growth of peak and extent [``max_growth``]. Without ``max_growth``, the first also limits the bound.
        graph : Graph, optional
            Verify against this graph [the graph that the plan was made from].
        allow_incomplete : bool
            Accept a plan that omits a part of its graph [False].

        Returns
        -------
        Gate
            True if all limits hold.

        Raises
        ------
        UnreadableInput
            A limit cannot be read, or a growth limit has no baseline.
        ValueError
            No limit and no baseline is given.

        Examples
        --------
        >>> import tmmu
        >>> bool(tmmu.plan("sample_graphs/mixed_sizes.tmmu.json").gate(max_extent="1MiB"))
        True
        """
        baseline, allow_incomplete = options.get("baseline"), options.get("allow_incomplete", False)
        limits = arguments.limits_of(options)
        before = None if baseline is None else as_plan(baseline)
        if not limits:
            raise ValueError("a gate without a limit cannot fail. Give max_extent, max_peak, max_gap or baseline.")
        verdict = self.verify(options.get("graph"))
        checked = self if self.planning is not None else with_certificates(self, verdict)
        warnings = [*self.warnings, *(verdict_warnings(verdict) if self.planning is None else ())]
        with_bounds = None
        if before is not None:
            # Without a graph, the bounds of a plan file follow from its rows: then use the rows of both plans.
            if getattr(before, "planning", None) is None or (self.planning is None and verdict.examined == "rows"):
                with_bounds = with_bounds_of_rows
            if verdict.ok and not (baseline_verdict := verify_plan(before)).ok:
                verdict = baseline_verdict
            warnings = [*filter(None, [baseline_warning(self, before)]), *warnings]
            warnings += [f"baseline: {text}" for text in plan_warnings(before)]
        checks = gate(checked, limits, before, with_bounds) if verdict.ok else ()
        return Gate(verdict, checks, tuple(warnings), () if allow_incomplete else self.incomplete)

    def compare(self, other: Source) -> Comparison:
        """Compare with ``other`` (a plan or a source of :func:`tmmu.read`), as in :func:`tmmu.compare`."""
        return compare(self, as_plan(other))

    @suggest_options()
    def fit(
        self,
        capacity: Capacities,
        *,
        allow: str | Iterable[str] | None = None,
        max_cost: Share | None = None,
        keep_phases: bool = False,
        progress: Progress | None = None,
    ) -> Fit[Plan]:
        """Change the graph until it fits ``capacity``; the parameters are those of :func:`tmmu.fit`.

        Raises ``UnreadableInput`` for a plan without a graph.
        """
        if self.planning is None or self.graph is None:
            raise UnreadableInput("this plan has no graph.", hint="Plan the graph, because a fit changes its nodes.")
        moves = arguments.allowed_moves(allow, max_cost, keep_phases)
        return fit_graph(self.graph, self.planning.request, capacity, moves, progress)

    def table(self) -> Any:
        """Return a ``pandas.DataFrame`` with one row per tensor, indexed by tensor id.

        Columns: ``arena``, ``logical_slot``, ``offset_bytes``, ``size_bytes``, ``alignment``, ``birth``, ``death``
        (steps, half-open), ``generation``, ``role``, ``dtype``, ``shape``, ``alias_group_id``, ``base_tensor_uid``;
        for a snapshot, also ``category``.
        Raises ``MissingExtra`` without pandas.
        """
        pandas = need("pandas", "a table")
        columns = self.columns()
        columns |= {field: list(column) for field, column in columns.items() if isinstance(column, tuple)}
        ids = columns.pop("tensor_id")
        columns["arena"] = pandas.Categorical.from_codes(self.arena, [arena.name for arena in self.arenas])
        for field in columns.keys() & {"role", "dtype", "category"}:
            columns[field] = pandas.Categorical(columns[field])
        return pandas.DataFrame(columns, index=pandas.Index(ids, name="tensor_id"))

    def save(self, path: str | Path) -> Path:
        """Write the plan file (``.json``, ``.cbor``, ``.csv``, ``.parquet``; contract §9) and return its path.

        Raises ``UnreadableInput`` for an unsupported suffix, ``UnwritableOutput`` if the file cannot be written.
        """
        path = Path(path)
        writer = plan_file.WRITERS.get(path.suffix.removeprefix("."))
        if writer is None:
            what = f"a plan cannot be written as {path.suffix or 'a file without extension'}."
            hint = f"Use the extension .{', .'.join(plan_file.WRITERS)}."
            raise UnreadableInput(what, source=str(path), hint=hint)
        write_output_file(path, writer(self))
        return path

    def report(
        self, path: str | Path | None = None, *, baseline: Source | None = None, title: str = ""
    ) -> Path | bytes:
        """Write a report (``.html`` or ``.pdf``; ``.md``: a summary) and return its path.

        Without ``path``, return the HTML as bytes. ``baseline``: a plan to compare with; ignored by ``.md``.
        Raises ``UnreadableInput`` for an unsupported suffix; ``UnwritableOutput`` if the file cannot be written, and
        for PDF if no browser prints it.
        """
        suffix = "" if path is None else Path(path).suffix.lower()
        if suffix not in ("", ".html", ".htm", ".md", ".pdf"):
            hint = "Use the extension .html, .pdf or .md."
            raise UnreadableInput(f"a report cannot be written as {suffix}.", source=str(path), hint=hint)
        verdict = self.verify()
        if suffix == ".md":
            data = app_module("report.summary").markdown(self, verdict, title, self.better)
        else:
            before = None if baseline is None else as_plan(baseline)
            build = app_module("report.html_report")
            data = build.build_report(self.solution or self, baseline=before, title=title, verified=verdict)
        if path is None:
            return data
        write_output_file(Path(path), build.pdf(data) if suffix == ".pdf" else data)
        return Path(path)

    def show(self, *, browser: bool = True) -> subprocess.Popen[bytes]:
        """Open the explorer on this plan and return its process. Raises ``MissingExtra`` without the extra ``app``."""
        require("streamlit", "the explorer")
        folder = Path(tempfile.mkdtemp(prefix="tmmu-"))
        stem = "".join(c if c.isalnum() or c in "-_" else "-" for c in self.ir_name[:50]) or "plan"
        path = self.save(folder / f"{stem}.plan.json")
        command = [sys.executable, "-m", "tmmu_core", "explore", str(path)]
        return subprocess.Popen(command if browser else [*command, "--no-browser"])

    def __repr__(self) -> str:
        total = self.totals
        gap = app_module("texts.numbers").over_bound(*total.gap)
        status = "INVALID, " if self.is_invalid else "INCOMPLETE, " if self.incomplete else ""
        figures = f"{status}extent {total.extent_bytes:,} B, bound {total.lower_bound_bytes:,} B, gap {gap}"
        name = visible(self.ir_name or "a plan").replace("\n", " ")[:60]
        remarks = [self.remark(key) for key in (model.UNPLANNED, model.ASSUMED, model.READ, model.GIVEN_OFFSETS)]
        remarked = "".join(f"; {visible(text)[:REMARK_LENGTH].rstrip('.')}" for text in remarks if text)
        hint = app_module("texts.totals_text").better(self.better, 'planner="auto"')
        more = f" {hint}." if hint else ""
        why = self.explanation.reason
        return f"<Plan {name} · {self.mode} · {self.planner}: {figures}, {len(self):,} tensors{remarked}. {why}{more}>"

    def _repr_html_(self) -> str:
        return app_module("report.html_report").notebook_view(self, repr(self))


@dataclass(frozen=True)
class Gate:
    """The result of :meth:`Plan.gate`; true if :attr:`ok` is true."""

    verdict: Verdict
    checks: tuple[Check, ...]
    """One per limit and arena; empty if the plan or its baseline does not verify."""
    warnings: tuple[str, ...] = ()
    """Conditions that affect the result, such as a baseline made by another planner."""
    incomplete: tuple[str, ...] = ()
    """Arenas that omit a part of the graph; empty with ``allow_incomplete``."""

    @property
    def ok(self) -> bool:
        """Whether the plan verifies, is complete, and every limit holds."""
        return self.verdict.ok and not self.incomplete and all(check.ok for check in self.checks)

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        failed = [f"incomplete {', '.join(self.incomplete)}"] if self.incomplete else []
        failed += [f"{c.what}{' of ' + c.arena if c.arena else ''}" for c in self.checks if not c.ok]
        why = str(self.verdict) if not self.verdict.ok else ", ".join(failed)
        return "<Gate green>" if self.ok else f"<Gate red: {why}>"


def as_plan(source: Source) -> model.Plan:
    """Return the plan of a source; plan a graph or an instance with default options. Raises ``UnreadableInput``."""
    if isinstance(source, model.Plan):
        return source
    opened = arguments.open_source(source)
    if isinstance(opened, Trace):
        if not opened.complete:
            raise UnreadableInput("the trace is a digest without tensors.", hint="Give the plan or the full trace.")
        opened = opened.plan
    if isinstance(opened, model.Plan):
        return Plan.of(verify_finished(opened).plan)
    result = arguments.plan_opened(opened, PlanRequest())
    return Plan.of(result.plan, result)


def fit_graph(
    graph: Graph, request: PlanRequest, capacity: Capacities, moves: Allowed, progress: Progress | None
) -> Fit[Plan]:
    """Search for the cheapest moves that make ``graph`` fit ``capacity``. If nothing fits, return the smallest plan."""
    from tmmu_core.fitting.search.fit_search import fit  # only here: the import takes longer than packing

    limit = arguments.capacity_of(capacity)
    request = request.but(one_memory=request.is_one_memory or limit.total is not None)
    fitted = fit(initial_candidate(graph, request, progress), limit, moves, progress, smallest=True)
    return Fit(fitted, Plan.of_candidate(fitted.best))
