"""Return the plan of a file or a store reference: plan a graph or an instance, or verify a finished plan."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.cli.console import STREAM, UsageError, format_by_ending, print_lines, print_note, read_input
from app.cli.options import STORE_ENV
from app.texts import numbers
from tmmu_core.base.errors import escaped_surrogates, open_error, require, source_of_errors
from tmmu_core.formats import signatures
from tmmu_core.formats.open_file import Opened, read_any, refuse_unplannable
from tmmu_core.formats.planfile.trace import Trace
from tmmu_core.graph.model import Graph
from tmmu_core.graph.native import native_file
from tmmu_core.judge.finding import Finding, Verdict
from tmmu_core.judge.verifier.finished_plan import refuse_invalid, verify_finished
from tmmu_core.judge.verifier.verify import verdict_warnings
from tmmu_core.planners.problem import GIVEN, PlainInstance
from tmmu_core.plans.analysis.plan_notes import plan_warnings, reuse_warnings
from tmmu_core.plans.making.engine import Solution
from tmmu_core.plans.making.make import BetterPlanner, PlanningResult, make_plan
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.making.request_options import OPTION_SPECS, first_graph_option, option_texts
from tmmu_core.plans.model import Plan
from tmmu_core.store.runs import PREFIX

if TYPE_CHECKING:
    from tmmu_core.store.store import Store

MAX_FINDINGS = 5  # maximum number of findings that commands print, except verify and lint

OPERATORS = dict.fromkeys(("checkpoint", "record"), "UML_OS.TMMU.PlanMemory_v2")
OPERATORS |= {"apply": "UML_OS.TMMU.ApplyPlan_v1", "export": "UML_OS.TMMU.MapToVirtualAddresses_v1"}
"""Command → operator of the specification, for the error about an invalid plan."""


@dataclass(frozen=True, eq=False)
class Resolved:
    """The plan of a file: computed by this command, or read from the file (a *finished plan*) and verified."""

    name: str  # name of the file, or reference of a stored plan
    plan: Plan
    result: PlanningResult | None = None  # ``None`` for a finished plan
    trace: Trace | None = None  # the trace in the file, if the file contains a trace
    whole_hash: bytes | None = None  # the ir_hash of the whole graph for the plan of a rank; else ``None``
    verdict: Verdict | None = None  # verdict on a finished plan, or on the offsets of an instance; else ``None``
    ignored: tuple[str, ...] = ()  # planning options without effect, because the plan is finished

    @property
    def solution(self) -> Solution | None:
        """The plan with its graph and live ranges; ``None`` for a finished plan or without a graph."""
        return self.result.solution if self.result else None

    @property
    def better(self) -> BetterPlanner | None:
        """A planner that needs less memory; ``None`` if no such planner is known."""
        return self.result.better if self.result else None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the request and the plan, such as assumed sizes or a missing content hash."""
        texts = [*plan_warnings(self.plan), *(() if self.verdict is None else verdict_warnings(self.verdict))]
        if self.ignored:
            texts.append(f"These options have no effect on a finished plan: {', '.join(self.ignored)}.")
        name = escaped_surrogates(self.name)  # JSON cannot contain surrogates
        return (*(self.result.warnings if self.result else ()), *(f"{name}: {text}" for text in texts))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The errors in :attr:`verdict`; empty for a valid plan and without a verdict."""
        return () if self.verdict is None else self.verdict.errors

    @property
    def graph(self) -> Graph | None:
        """The graph of :attr:`solution`: the input graph, or the share of a rank; ``None`` without a solution."""
        return self.solution.graph if self.solution else None

    def complete_plan(self) -> Plan:
        """Return the plan. Raises :class:`UsageError` for a digest: a trace without tensors."""
        if self.trace is not None and not self.trace.complete:
            raise UsageError(f"{self.name} is a digest without tensors.", "Pass the plan or a complete trace.")
        return self.plan

    def valid_plan(self, command: str) -> Plan:
        """Return the plan. Raises as :meth:`complete_plan`, and ``ContractError`` for an invalid plan."""
        plan = self.complete_plan()
        if self.verdict is not None:
            refuse_invalid(plan, OPERATORS[command], self.verdict)
        return plan


def open_any(name: str, dims: Mapping[str, int] | None = None) -> Opened:
    """Read a file, or standard input for ``-``. Dimensions that are not in ``dims`` get assumed sizes."""
    if name != STREAM:
        refuse_unplannable(Path(name))
    data, source = input_of(name)
    return read_any(data, source, dims)


def input_of(name: str) -> tuple[bytes, str]:
    """Return ``(bytes, name)`` of a file, of the only module of an XLA dump, or of standard input."""
    if name != STREAM and os.path.isdir(name):
        from tmmu_core.formats.xla import xla_dump

        if (unplannable_format := signatures.recognised_folder(Path(name))) is not None:
            raise unplannable_format.refusal(source=name)
        name = str(Path(name) / xla_dump.only_module(modules_in(Path(name)), name))
    data = read_input(name)
    if name.endswith(".txt"):
        from tmmu_core.formats.xla import xla_dump

        for companion in xla_dump.companions(name):
            if os.path.exists(companion):
                data += b"\n" + read_input(companion)
    return data, "standard input" if name == STREAM else name


def modules_in(folder: Path) -> dict[str, tuple[str, ...]]:
    """Return module → files of an XLA dump in a folder, largest module first. Raises ``UnreadableInput``."""
    from tmmu_core.formats.xla import xla_dump

    try:
        return xla_dump.modules(xla_dump.sizes_in(folder))
    except OSError as error:
        raise open_error(error, folder, what="the folder") from error


def resolve(name: str, request: PlanRequest) -> Resolved:
    """Read a file, return its plan (:func:`resolve_opened`), and call :func:`note_input_warnings`."""
    resolved = resolve_opened(open_any(name, request.dims), name, request)
    note_input_warnings(resolved)
    return resolved


def resolve_opened(opened: Opened, name: str, request: PlanRequest, **settings: Any) -> Resolved:
    """Return the plan of an opened file: plan a graph or an instance, or verify a finished plan. Raises ``TmmuError``.

    ``settings``: arguments of the verifier for a finished plan (:func:`verify_finished`).
    """
    if isinstance(opened, Plan | Trace):
        if ignored := planning_options(request):
            problem = f"{name} is a finished plan. These options have no effect on it: {', '.join(ignored)}."
            raise UsageError(problem, f"Remove {' and '.join(ignored)}; to plan again, pass the graph to tmmu plan.")
        plan, trace = (opened.plan, opened) if isinstance(opened, Trace) else (opened, None)
        return _verified(Resolved(name, plan, trace=trace, whole_hash=settings.get("whole_hash")), **settings)
    if isinstance(opened, PlainInstance):
        refuse_graph_options(opened, request)
    with progress_on_terminal() as progress, source_of_errors("standard input" if name == STREAM else name):
        result = make_plan(opened, request, progress)
    resolved = Resolved(name, result.plan, result, whole_hash=result.whole_hash)
    return _verified(resolved) if result.request.planner == GIVEN else resolved


def _verified(resolved: Resolved, **settings: Any) -> Resolved:
    """Return the plan with its verdict (contract §11) and the recomputed lower bounds (§12)."""
    verified = verify_finished(resolved.plan, complete=resolved.trace is None or resolved.trace.complete, **settings)
    trace = resolved.trace and replace(resolved.trace, plan=verified.plan)
    return replace(resolved, plan=verified.plan, trace=trace, verdict=verified.verdict)


def refuse_graph_options(instance: PlainInstance, request: PlanRequest) -> None:
    """Raise :class:`UsageError` if the request has options that apply only to graphs."""
    if (option := first_graph_option(request)) is not None:
        raise UsageError(f"{instance.name} is an instance without a graph: it has no {option}.", "Remove the option.")


def resolve_ignoring_options(name: str, request: PlanRequest) -> Resolved:
    """Return the plan of a file. For a finished plan, planning options are ignored with a warning."""
    opened = open_any(name, request.dims)
    if not isinstance(opened, Plan | Trace):
        return resolve_opened(opened, name, request)
    return replace(resolve_opened(opened, name, PlanRequest()), ignored=planning_options(request))


def warnings_of(*sides: Resolved | None) -> list[str]:
    """Return the warnings of several plans without duplicates."""
    return list(dict.fromkeys(text for side in sides if side is not None for text in side.warnings))


def note_input_warnings(resolved: Resolved) -> None:
    """Write the warnings to standard error, except warnings about in-place reuse."""
    about_reuse = reuse_warnings(resolved.plan)
    show_warnings([text for text in resolved.warnings if not text.endswith(about_reuse)], on_stderr=True)


def show_warnings(warnings: Sequence[str], *, on_stderr: bool = False) -> None:
    """Print an empty line and the warnings to standard output; with ``on_stderr``, only the warnings to stderr."""
    if on_stderr:
        print_note(*(f"warning: {text}" for text in warnings))
    elif warnings:
        print_lines("", *(f"warning: {text}" for text in warnings))


def graph_encoder(name: str) -> Callable[[Graph], bytes]:
    """Return the function that encodes a graph in the format of a file name; for ``-``, JSON. Raises ``UsageError``."""
    is_cbor = format_by_ending(name, {".json": "json", ".cbor": "cbor"}, "json") == "cbor"
    return native_file.encode_cbor if is_cbor else native_file.encode_json


def print_findings(resolved: Resolved) -> None:
    """Print the first findings of an invalid plan; print nothing for a valid plan."""
    if findings := resolved.findings:
        print_lines("", f"INVALID: {resolved.name} has {numbers.count(len(findings), 'finding')}:")
        print_lines(*(f"  {finding.rule}: {finding.message}" for finding in findings[:MAX_FINDINGS]))
        if len(findings) > MAX_FINDINGS:
            print_lines(f"  … and {len(findings) - MAX_FINDINGS} more. Use tmmu verify.")


def planning_options(request: PlanRequest) -> tuple[str, ...]:
    """Return the planning options that differ from their defaults."""
    return tuple([OPTION_SPECS[field].option for field in option_texts(request)])


class _Bars:
    """A progress callback that draws a bar per task, with the smallest arena size so far and its lower bound."""

    def __init__(self, bars: Any) -> None:
        self.bars, self.best_text, self.tasks = bars, "", dict[str, Any]()

    def __call__(self, what: str, done: int, of: int) -> bool:
        if what not in self.tasks:
            self.tasks[what] = self.bars.add_task(what, total=of or None)
        self.bars.update(self.tasks[what], completed=done, total=of or None, description=what + self.best_text)
        return True

    def improved(self, arena: str, _nodes: int, extent: int, bound: int) -> None:
        """Set the arena size and the lower bound that the bars show."""
        self.best_text = f": {arena} {extent:,} B, lower bound {bound:,} B"


@contextmanager
def progress_on_terminal() -> Iterator[Any]:
    """Yield a progress callback, which draws bars if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda *_: True
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        yield _Bars(bars)


def store_url(url: str | None) -> str:
    """Return the URL of a store (default: ``TMMU_STORE``). Raises ``TmmuError`` without a valid URL."""
    url = url or os.environ.get(STORE_ENV)
    if not url:
        raise UsageError("no store is given.", f"Use --store sqlite:///plans.db, or set {STORE_ENV}.")
    require("sqlalchemy", "a store")
    from tmmu_core.store.open_store import parsed_url

    parsed_url(url)
    return url


def open_store(url: str | None, *, create: bool = False) -> Store:
    """Open the store at ``url`` (default: ``TMMU_STORE``). Raises ``TmmuError``, for example without a URL."""
    url = store_url(url)
    from tmmu_core.store.store import Store

    return Store.at(url, create=create)


def resolve_side(name: str, request: PlanRequest, url: str | None, other_plan: Plan | None = None) -> Resolved:
    """Return the plan of a file, planned with ``request``, or the stored plan of a reference ``store:…``."""
    if not name.startswith(PREFIX):
        return resolve_ignoring_options(name, request)
    with closing(open_store(url)) as store:
        run = store.resolve(name, other_plan)  # a reference without a model refers to the model of ``other_plan``
        return resolve_opened(store.plan(run), f"{PREFIX}{run.model}@{run.commit}", PlanRequest())
