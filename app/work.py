"""Computing for the pages, apart from drawing: open, plan, judge, keep. Every page reads what this file gives.

Everything heavy is kept by what it depends on (a file's digest, a choice's problem, a plan's hash) and runs off the
page (``jobs``), so that it can be watched and stopped. Nothing is computed here that the core knows.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec
import numpy as np
import streamlit as st

from app import words
from app.choice import Choice, arena_config, declared_of, has_defaults, options_of
from app.jobs import Desk, Job
from app.judging import Judgement, judge_politely
from app.slots import has_slots
from app.worlds import spec_of
from tmmu_core.errors import ArenaTooSmall, TmmuError, UnreadableInput
from tmmu_core.graph.model import PERSISTENT_ROLES, Graph
from tmmu_core.liveness.timeline import default_mode, default_preset
from tmmu_core.plan.compare import Comparison, compare
from tmmu_core.plan.engine import Solution, plan_graph
from tmmu_core.plan.instance import GIVEN, plan_problem
from tmmu_core.plan.metrics import PlanStorages, arena_number, storages_of
from tmmu_core.plan.model import Plan
from tmmu_core.plan.ranks import RankPlans, plan_rank
from tmmu_core.plan.reading import read_any
from tmmu_core.plan.trace import Trace
from tmmu_core.planners import PLANNERS
from tmmu_core.planners.problem import Packing, Problem, Progress
from tmmu_core.runtime.shadow import ShadowVerdict, shadow_replay

SAMPLES = Path(__file__).resolve().parents[1] / "sample_graphs"
DEFAULT_PLANNER = "slots"
PATIENCE = 2.5
"""Seconds that a page waits for an answer before it shows progress instead."""


# --- what can be opened ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """A line of the gallery."""

    name: str
    """The file's name without its endings: what a link says."""
    title: str
    path: Path
    teaches: str
    group: str


@dataclass(frozen=True, eq=False)
class Opened:
    """A file that was read: a graph to plan, a plain problem to plan, or a finished plan to look at."""

    source: str
    name: str
    kind: str
    """``graph``, ``problem``, ``plan`` or ``trace``."""
    graph: Graph | None = None
    problem: Problem | None = None
    plan: Plan | None = None
    packing: Packing | None = None
    """Offsets that came with a plain problem."""
    trace: Trace | None = None
    told: tuple[str, ...] = ()
    """What the reader has to say about the file."""


class Shelf:
    """Files that people brought, by digest: a link to one works as long as this server runs."""

    def __init__(self, keep_bytes: int = 2**31) -> None:
        self._files: OrderedDict[str, tuple[str, bytes]] = OrderedDict()
        self._lock, self._keep = Lock(), keep_bytes

    def put(self, name: str, data: bytes) -> str:
        """Keep a file; its source (``file:<digest>``). The oldest ones go when there are too many bytes."""
        digest = hashlib.sha256(data).hexdigest()[:16]
        with self._lock:
            self._files[digest] = (name, data)
            self._files.move_to_end(digest)
            while len(self._files) > 1 and sum(len(kept) for _, kept in self._files.values()) > self._keep:
                self._files.popitem(last=False)
        return f"file:{digest}"

    def get(self, source: str) -> tuple[str, bytes] | None:
        """``(name, bytes)`` of a source."""
        return self._files.get(source.removeprefix("file:"))

    def names(self) -> list[tuple[str, str]]:
        """``(source, name)``, the latest first."""
        return [(f"file:{digest}", name) for digest, (name, _) in reversed(self._files.items())]


@st.cache_resource(show_spinner=False)
def shelf() -> Shelf:
    """This server's shelf."""
    return Shelf()


@st.cache_resource(show_spinner=False)
def desk() -> Desk:
    """This server's desk."""
    return Desk()


@st.cache_resource(show_spinner=False)
def samples() -> tuple[Sample, ...]:
    """The gallery, in the order of its catalogue."""
    return read_catalogue(SAMPLES)


def read_catalogue(folder: Path) -> tuple[Sample, ...]:
    """The samples that ``index.json`` in ``folder`` lists; none where there is no catalogue."""
    path = folder / "index.json"
    if not path.exists():
        return ()
    listed = msgspec.json.decode(path.read_bytes())
    return tuple(
        Sample(
            name=entry["file"].split("/")[-1].split(".")[0],
            title=entry.get("title", entry["file"]),
            path=folder / entry["file"],
            teaches=entry.get("teaches", ""),
            group=entry.get("group", "samples"),
        )
        for entry in [*listed["samples"], *listed.get("instances", ())]
    )


@st.cache_resource(show_spinner=False)
def golden() -> tuple[Path, ...]:
    """The golden traces of the samples, by name."""
    folder = SAMPLES / "golden"
    return tuple(sorted(p for p in folder.glob("*") if p.is_file() and not p.name.startswith(("README", "."))))


def sample_named(name: str) -> Sample | None:
    """The sample of this name."""
    return next((sample for sample in samples() if sample.name == name), None)


@st.cache_resource(show_spinner=False, max_entries=24)
def open_source(source: str) -> Opened:
    """Read a sample or a shelved file. Raises what the readers raise; ``UnreadableInput`` for what is not there."""
    return read_bytes(*content_of(source), source)


def content_of(source: str) -> tuple[bytes, str]:
    """``(bytes, name)`` of a sample, a golden trace or a shelved file. ``UnreadableInput`` for what is not there."""
    kind, _, name = source.partition(":")
    if kind == "golden":
        path = next((p for p in golden() if p.name == name), None)
        if path is None:
            raise UnreadableInput(f"there is no golden trace {name!r}.", source=source, hint="Choose another baseline.")
        return path.read_bytes(), path.name
    if kind == "sample":
        sample = sample_named(name)
        if sample is None:
            raise UnreadableInput(
                f"there is no sample {name!r}.", source=source, hint="Choose one from the gallery, or open a file."
            )
        return sample.path.read_bytes(), sample.path.name
    kept = shelf().get(source)
    if kept is None:
        raise UnreadableInput(
            "the link names a file that this server does not hold.",
            source=source,
            hint="Open the file again; a file's link lives as long as the server that opened it.",
        )
    return kept[1], kept[0]


def read_bytes(data: bytes, name: str, source: str) -> Opened:
    """Read bytes of any kind that the core reads. Raises ``TmmuError``."""
    thing = read_any(data, name)
    if isinstance(thing, Graph):
        return Opened(source, thing.name or name, "graph", graph=thing)
    if isinstance(thing, Trace):
        return Opened(source, name, "trace", plan=thing.plan, trace=thing)
    if isinstance(thing, Plan):
        return Opened(source, thing.ir_name or name, "plan", plan=thing)
    return Opened(source, thing.name, "problem", problem=thing.problem, packing=thing.packing, told=thing.told)


def take(files: list[tuple[str, bytes]]) -> tuple[list[Opened], list[dict[str, Any]]]:
    """``(opened, refusals)``: put files on the shelf, each on its own; one that is refused stops none of the others."""
    opened: list[Opened] = []
    cards: list[dict[str, Any]] = []
    for name, data in files:
        try:
            thing = open_source(shelf().put(name, data))
            first_plan = plan_job(Choice(source=thing.source))
            if first_plan.wait(PATIENCE):
                first_plan.answer()  # a graph that cannot be planned at all is refused like one that cannot be read
            opened.append(thing)
        except TmmuError as error:
            if lacks_arenas(error):  # it can be planned once the arenas that it names are declared
                opened.append(thing)
            else:
                cards.append(card_of(error, f"{name} was not opened", name))
    return opened, cards


def lacks_arenas(error: TmmuError) -> bool:
    """Whether a graph names an arena that is not declared (contract §4: capacity 0)."""
    return isinstance(error, ArenaTooSmall) and error.diagnostics.get("capacity") == 0


def arenas_named(graph: Graph) -> dict[str, dict[str, Any]]:
    """Every arena that a graph's tensors can need, without limits: those they name, and those of their roles."""
    by_role = {"gradient": "gradients"} | dict.fromkeys(PERSISTENT_ROLES, "parameters")
    roles = {by_role.get(tensor.role, "activations") for tensor in graph.tensors if tensor.arena is None}
    named = {tensor.arena for tensor in graph.tensors if tensor.arena is not None}
    backward = {"gradients"} if "parameters" in roles else set()
    return {name: {} for name in sorted(roles | named | backward)}


def card_of(error: TmmuError, title: str, source: str = "") -> dict[str, Any]:
    """An error as an error card: code, place, way out, and the whole record."""
    record: dict[str, Any] = error.record()  # type: ignore[attr-defined]
    diagnostics = record.get("diagnostics", {})
    place = record.get("place") or diagnostics.get("path") or ""
    return {
        "title": title,
        "code": record["code_id"],
        "number": record.get("numeric_code"),
        "severity": record.get("severity"),
        "message": record["message"],
        "source": record.get("source") or source,
        "place": place,
        "tried": [(row["reader"], row["reason"]) for row in record.get("tried", [])],
        "hint": error.hint,
        "record": record,
    }


# --- planning ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Shown:
    """What the pages look at: a plan, what it was made from, and what the judge says."""

    choice: Choice
    """With mode, preset and planner spelled out."""
    opened: Opened
    plan: Plan
    solution: Solution | None = None
    """``None`` for a finished plan and for a problem without a graph."""

    @property
    def graph(self) -> Graph | None:
        """The graph that is planned, where there is one: as given, or a rank's share of it."""
        return self.solution.graph if self.solution is not None else self.opened.graph

    @property
    def key(self) -> str:
        """Names the plan's content among all plans: for the keys of caches and components."""
        return f"{self.plan.tmmu_plan_hash.hex()[:16]}.{self.plan.planner}.{self.opened.source}"


def spelled_out(choice: Choice, opened: Opened) -> Choice:
    """The choice with its defaults said, as the core has them (contract §10)."""
    if opened.plan is not None:
        return choice.but(mode=opened.plan.mode, preset=opened.plan.preset, planner=opened.plan.planner)
    if opened.problem is not None:
        planner = choice.planner or (GIVEN if opened.packing is not None else DEFAULT_PLANNER)
        return choice.but(planner=planner)
    assert opened.graph is not None
    mode = choice.mode or default_mode(opened.graph)
    return choice.but(
        mode=mode,
        preset=choice.preset or default_preset(mode),  # type: ignore[arg-type]
        planner=choice.planner or DEFAULT_PLANNER,
    )


def plan_job(choice: Choice) -> Job[Shown]:
    """The job that plans a choice; the same one whoever asks."""
    return desk().job(plan_key(choice), "planning", lambda progress: make_plan(choice, progress))


def plan_key(choice: Choice) -> tuple[Any, ...]:
    """What names the job that plans a choice: the same whether the defaults are said or not."""
    with suppress(TmmuError, OSError):  # the job itself tells
        choice = spelled_out(choice, open_source(choice.source))
    return ("plan", *choice.problem)


def make_plan(choice: Choice, progress: Progress | None = None) -> Shown:
    """Plan a choice now. Raises ``TmmuError``."""
    opened = open_source(choice.source)
    full = spelled_out(choice, opened)
    if opened.plan is not None:
        return Shown(full, opened, opened.plan)
    if opened.problem is not None:
        given = full.planner == GIVEN
        plan = plan_problem(
            with_capacity(opened.problem, full),
            planner=DEFAULT_PLANNER if given else full.planner,
            options=None if given else options_of(full),
            name=opened.name,
            packing=opened.packing if given else None,
            progress=progress,
        )
        return Shown(full, opened, plan)
    assert opened.graph is not None
    if full.rank is None:
        solution = plan_graph(opened.graph, **how_to_plan(full, opened), progress=progress)
    else:
        solution = _plan_a_rank(choice, opened.graph, full.rank, how_to_plan(full, opened))
    return Shown(full, opened, solution.plan, solution)


def how_to_plan(full: Choice, opened: Opened) -> dict[str, Any]:
    """The arguments of ``plan_graph`` that a choice with its defaults said makes."""
    return {
        "mode": full.mode,
        "preset": full.preset,
        "planner": full.planner,
        "options": options_of(full),
        "arenas": None if has_defaults(full) else arena_config(full, arenas_in_use(full, opened)),
        "dims": dict(full.dims) or None,
        "budget": full.budget,
    }


def ranks_key(choice: Choice) -> tuple[Any, ...]:
    """What the plans of all ranks depend on."""
    return ("ranks", *choice.but(rank=None).problem, choice.shard)


def _plan_a_rank(choice: Choice, graph: Graph, rank: int, how: dict[str, Any]) -> Solution:
    known = desk().known(ranks_key(choice))
    if known is not None and known.worked and rank < known.answer().world_size:  # all ranks are planned: this one too
        everybody: RankPlans = known.answer()
        return replace(everybody.solution(rank), plan=everybody.plan(rank))
    return plan_rank(graph, spec_of(choice.shard), rank, **how)


def baseline_of(choice: Choice) -> Choice | None:
    """The choice that Compare sets against the current one; ``None`` where nothing was chosen."""
    if not choice.baseline:
        return None
    if choice.baseline.startswith("planner:"):
        return choice.under(choice.baseline.removeprefix("planner:"))
    return choice.but(
        source=choice.baseline,
        **{name: getattr(Choice(), name) for name in ("arenas", "capacities", "dims", "budget", "rank")},
    )


def picking(full: Choice, planner: str) -> dict[str, str]:
    """What changes when a planner is picked: offsets that came with the file become what its plan is compared with."""
    changes = {"planner": planner}
    if full.planner == GIVEN and planner != GIVEN and not full.baseline:
        changes["baseline"] = f"planner:{GIVEN}"
    return changes


def every_planner(choice: Choice) -> Job[list[str]]:
    """The job that runs all planners on the chosen problem, one after the other so that their times are their own."""
    names = [name for name in PLANNERS if name in planners_for(open_source(choice.source))]

    def run(progress: Progress) -> list[str]:
        for k, name in enumerate(names):
            if not progress(name, k, len(names)):
                return names[:k]
            job = plan_job(choice.under(name))
            while not job.wait(0.05):
                if not progress(name, k, len(names)):
                    job.stop()
        return names

    return desk().job(_all_key(choice), "all planners", run)


def go_on(choice: Choice) -> None:
    """Let the planners that were stopped run again when they are asked for."""
    desk().forget(_all_key(choice))
    for name in planners_for(open_source(choice.source)):
        key = plan_key(choice.under(name))
        job = desk().known(key)
        if job is not None and job.stopping:
            desk().forget(key)


def _all_key(choice: Choice) -> tuple[Any, ...]:
    return ("planners", *choice.but(planner="").problem)


def arenas_in_use(choice: Choice, opened: Opened) -> tuple[str, ...]:
    """The arenas that the choice's tensors need, by name, whatever their capacities."""
    if opened.problem is not None:
        return (opened.problem.arena,)
    if opened.plan is not None:
        return tuple(arena.name for arena in opened.plan.arenas)
    if choice.arenas:
        return tuple(declared_of(choice))
    planned = desk().known(plan_key(choice))
    if planned is not None and planned.worked:
        solution = planned.answer().solution
        if solution is not None and choice.rank is None:
            return tuple(solution.liveness.arenas)
    try:
        return _arena_names(choice.source, choice.mode, choice.preset)
    except ArenaTooSmall:
        return ()


@st.cache_resource(show_spinner=False, max_entries=64)
def _arena_names(source: str, mode: str, preset: str) -> tuple[str, ...]:
    from tmmu_core.liveness.analyse import analyse
    from tmmu_core.liveness.timeline import build_timeline

    graph = open_source(source).graph
    assert graph is not None
    return analyse(build_timeline(graph, mode, preset)).arenas  # type: ignore[arg-type]


def with_capacity(problem: Problem, choice: Choice) -> Problem:
    """A plain problem under the chosen capacity and alignment of its one arena."""
    changes: dict[str, Any] = {}
    capacity = dict(choice.capacities).get(problem.arena)
    if capacity is not None:
        changes["capacity"] = capacity
    if choice.alignment is not None:
        changes["arena_alignment"] = choice.alignment
        changes["alignment"] = np.maximum(problem.alignment, np.uint64(choice.alignment))
    return replace(problem, **changes) if changes else problem


def planners_for(opened: Opened) -> list[str]:
    """The planners that can be chosen for what is open."""
    if opened.plan is not None:
        return [opened.plan.planner]
    return [GIVEN, *PLANNERS] if opened.packing is not None else list(PLANNERS)


@st.cache_resource(show_spinner=False, max_entries=32)
def operators(key: str, _shown: Shown) -> list[str] | None:
    """For each row of the plan the operator that writes it, ``""`` for none; ``None`` without the graph."""
    del key
    if _shown.solution is None:
        return None
    timeline = _shown.solution.liveness.timeline
    index, nodes = timeline.index, timeline.graph.nodes
    tensor_of = index.tensor_of
    producers = index.producer.tolist()
    return [
        nodes[producers[tensor_of[name]]].instr if producers[tensor_of[name]] >= 0 else ""
        for name in _shown.plan.tensor_ids
    ]


def place_of(shown: Shown) -> dict[str, str]:
    """Tensor → ``slot 3 · [4, 14)`` for small drawings of the graph."""
    return _places(shown.key, shown)


@st.cache_resource(show_spinner=False, max_entries=16)
def _places(key: str, _shown: Shown) -> dict[str, str]:
    del key
    plan = _shown.plan
    rows = zip(plan.tensor_ids, plan.logical_slot.tolist(), plan.birth.tolist(), plan.death.tolist(), strict=True)
    slotted = has_slots(plan)
    return {
        name: (f"slot {slot} · " if slotted else "") + words.live_range(birth, death)
        for name, slot, birth, death in rows
    }


def storages(shown: Shown) -> PlanStorages:
    """The plan's storages: what is alive as one and lies in one place."""
    return _storages(shown.key, shown)


@st.cache_resource(show_spinner=False, max_entries=32)
def _storages(key: str, _shown: Shown) -> PlanStorages:
    del key
    return storages_of(_shown.plan)


def storages_alive(shown: Shown, step: int, arena: str) -> list[tuple[int, int]]:
    """``(row of the head, bytes)`` of the storages of an arena that are alive at a step, the largest first.

    A view can outlive its base, so bytes are counted by storages: their sum is the live bytes of the step.
    """
    s = storages(shown)
    alive = np.flatnonzero((s.arena == arena_number(shown.plan, arena)) & (s.birth <= step) & (step < s.death))
    found = list(zip(s.head[alive].tolist(), s.size[alive].tolist(), strict=True))
    return sorted(found, key=lambda pair: (-pair[1], pair[0]))


# --- judging and comparing ---------------------------------------------------------------------------------------


def judgement(shown: Shown) -> Job[Judgement]:
    """The job that judges a plan as it is, whoever made it."""
    dims = dict(shown.choice.dims) or None
    cut_from = shown.plan.ir_hash if shown.choice.rank is not None else None
    file = None
    if shown.opened.kind == "graph" and shown.graph is shown.opened.graph:
        with suppress(TmmuError):  # gone from the shelf: the graph itself is still at hand
            file = content_of(shown.opened.source)
    return desk().job(
        ("judge", shown.key), "judging", lambda _: judge_politely(shown.plan, shown.graph, dims, cut_from, file)
    )


def replay(shown: Shown) -> Job[ShadowVerdict]:
    """The job that executes a plan on shadow memory."""
    return desk().job(("replay", shown.key), "executing", lambda _: shadow_replay(shown.solution or shown.plan))


def compared(left: Shown, right: Shown) -> Comparison:
    """``left`` is the baseline, ``right`` the candidate."""
    return _compared(left.key, right.key, left, right)


@st.cache_resource(show_spinner=False, max_entries=16)
def _compared(left_key: str, right_key: str, _left: Shown, _right: Shown) -> Comparison:
    del left_key, right_key
    return compare(_left.opened.trace or _left.plan, _right.opened.trace or _right.plan)
