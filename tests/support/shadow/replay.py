"""The shadow replay: a plan is proven by executing it.

Every step is run on symbols in place of numbers. What is resident is loaded; then, step by step::

    zero     the storages of several tensors that are born now get a tag of their own
    look     who is alive in a storage that is about to be written is checked
    poison   the outputs' blocks, before anything is read: a kernel may write while it reads
    read     every input must hold what it would hold if every storage had memory of its own
    write    each output leaves its own tag, byte for byte
    end      what the plan lets die after this step is read once more

and after the last step graph outputs, saved and resident tensors are read. An output may lie over an input only where
the node says so (a hand-off that it permits, an in-place write, a view). A read outside the plan's own ``[birth,
death)`` is found even where the bytes happen to be right.

Without a graph a row is written at its birth and read at ``death − 1``; rows of one storage may share bytes.

The replay uses the graph, its timeline and the plan's rows; it shares no code with liveness or planners.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tests.support.shadow.columns import AT_END, Fault, Scene, scene_of
from tests.support.shadow.static_checks import check
from tests.support.shadow.two_memories import CHECK, FILL, FINE, NOTHING, Tape, cut, run
from tmmu_core.base.errors import U64_MAX
from tmmu_core.judge.finding import summary
from tmmu_core.liveness.live_model import Liveness, Timeline
from tmmu_core.plans.making.sparse_addresses import in_memory
from tmmu_core.plans.model import Plan

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
Mask = NDArray[np.bool_]

MOST_FAULTS = 100
"""Findings that are put into words; all are counted."""

_ZERO, _LOOK, _POISON, _READ, _ZERO_TAKEN, _WRITE, _END = range(7)
"""The phases of a step."""


class Solved(Protocol):
    """A plan with what it was made from, such as :class:`~tmmu_core.plans.making.engine.Solution`."""

    @property
    def liveness(self) -> Liveness: ...
    @property
    def plan(self) -> Plan: ...


@dataclass(frozen=True)
class ShadowFinding:
    """One thing that goes wrong when the plan is executed."""

    kind: str
    """One of ``shadow_rules.KINDS``."""
    step: int
    """−1 where no step is concerned."""
    tensor: str
    reader: str
    """The node that reads (or writes); ``@end`` after the last step; ``""`` where nobody does."""
    culprit: str
    """The tensor whose bytes are found instead; ``""`` where there is none."""
    message: str


@dataclass(frozen=True)
class ShadowVerdict:
    """What was executed and what was found."""

    findings: tuple[ShadowFinding, ...]
    found: int
    """How many there are; ``findings`` holds the first ``TOLD`` in words."""
    steps: int
    reads: int
    writes: int
    cells: int
    """Cells of the planned memory."""
    with_graph: bool

    @property
    def ok(self) -> bool:
        """Whether nothing went wrong."""
        return not self.found

    def __str__(self) -> str:
        ran = f"{self.steps:,} steps, {self.writes:,} writes, {self.reads:,} reads"
        if self.ok:
            return f"executed: {ran}, every byte as it should be"
        return f"executed: {ran}, {summary(self.found, self.findings[0].message)}"


def shadow_replay(subject: Plan | Solved, timeline: Timeline | None = None) -> ShadowVerdict:
    """Execute a plan on symbols and say what goes wrong.

    ``subject`` is a solution, or a plan with the ``timeline`` it is for; a plan alone is replayed by its rows. Never
    raises for a plan that is wrong: the verdict says so.
    """
    if isinstance(subject, Plan):
        plan = subject
    else:
        plan, timeline = subject.plan, timeline or subject.liveness.timeline
    plan = in_memory(plan)
    scene = scene_of(plan, timeline)
    faults = list(check(scene))
    replay = _Replay(scene)
    faults += replay.faults()
    first = sorted(faults, key=lambda fault: (fault.step, fault.row, fault.kind, fault.reader))[:MOST_FAULTS]
    return ShadowVerdict(
        findings=tuple([_in_words(scene, fault) for fault in first]),
        found=len(faults),
        steps=scene.steps,
        reads=replay.reads,
        writes=replay.writes,
        cells=len(replay.planned.edge) - 1,
        with_graph=timeline is not None,
    )


class _Replay:
    """A scene turned into a tape, and the tape run.

    Tags: a row's number for what its producer wrote; n + row for what was loaded; 2n + row for its poison; 3n +
    storage for the storage's zeros.
    """

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        n, storages = len(scene.size), len(scene.block_start)
        row_stop, block_stop = _end(scene.start, scene.size), _end(scene.block_start, scene.block_size)
        self.planned = cut(
            np.concatenate([scene.arena, scene.block_arena]),
            np.concatenate([scene.start, scene.block_start]),
            np.concatenate([row_stop, block_stop]),
        )
        zero = np.zeros(storages, np.uint64)
        self.ideal = cut(
            np.concatenate([scene.storage, np.arange(storages)]),
            np.concatenate([scene.offset, zero]),
            np.concatenate([scene.offset + scene.size, scene.block_size]),
        )
        self.tag_planned = np.concatenate([scene.start, scene.start, scene.start, scene.block_start])
        self.tag_ideal = np.concatenate([scene.offset, scene.offset, scene.offset, zero])
        self.n = n
        self.step, self.phase, self.reader, self.tape = self._record()
        self.reads = int((self.tape.kind == CHECK).sum())
        self.writes = int((self.tape.kind == FILL).sum())

    def _record(self) -> tuple[I64, I64, I64, Tape]:
        """All operations in the order in which they run, with their steps, phases and readers."""
        scene, n = self.scene, self.n
        storages = np.arange(len(scene.block_start))
        columns: list[tuple[I64, ...]] = []

        def add(does: tuple[int, int], step: I64, block: I64, tag: I64, reader: I64) -> None:
            """Operations of one (phase, kind): in a step, on a block, with a tag, by or for a reader."""
            phase, kind = does
            begin = poisoned[block] if phase == _POISON else self.planned.low[block]
            stop = np.maximum(self.planned.high[block], begin)
            # Poison is the planned memory's alone: nobody claims a block of the ideal one too early.
            ideal_end = self.ideal.low[block] if phase == _POISON else self.ideal.high[block]
            phases, kinds = np.full(len(block), phase), np.full(len(block), kind)
            columns.append((step, phases, block, reader, kinds, begin, stop, self.ideal.low[block], ideal_end, tag))

        # An output over a place handed to it may be written only after the reads; what it is larger by, before.
        taken = scene.taken_from >= 0
        taker = np.where(taken[scene.storage], scene.taken_from[scene.storage], 0)
        poisoned = np.maximum(self.planned.low[:n], np.where(taken[scene.storage], self.planned.high[n + taker], 0))
        # A storage of one tensor is that tensor: its own write and the end of its life say all.
        shared = np.bincount(scene.storage, minlength=len(storages)) > 1
        nobody = np.full(len(storages), AT_END)
        for phase, which in ((_ZERO, storages[shared & ~taken]), (_ZERO_TAKEN, storages[shared & taken])):
            add((phase, FILL), scene.block_birth[which], n + which, 3 * n + which, nobody[: len(which)])
        out = np.flatnonzero(scene.poisons)
        row = scene.write_row[out]
        add((_POISON, FILL), scene.write_step[out], row, 2 * n + row, scene.write_node[out])
        looked = scene.look_row
        add((_LOOK, CHECK), scene.look_step, looked, looked, np.full(len(looked), AT_END))
        add((_READ, CHECK), scene.read_step, scene.read_row, scene.read_row, scene.read_node)
        tag = np.where(scene.write_step < 0, n, 0) + scene.write_row
        add((_WRITE, FILL), scene.write_step, scene.write_row, tag, scene.write_node)
        blocks = storages[shared]
        for ending, death in ((np.arange(n), scene.death), (n + blocks, scene.block_death[blocks])):
            last = np.clip(death - 1, 0, scene.steps - 1)  # of which there is one at least
            add((_END, CHECK), last, ending, ending, np.full(len(ending), AT_END))

        joined = [np.concatenate(column).astype(np.int64) for column in zip(*columns, strict=True)]
        steps, phases, block, readers, kinds, low, high, ideal_low, ideal_high, tags = joined
        order = np.lexsort((np.arange(len(steps)), phases, steps))
        starts = np.concatenate([scene.start, scene.block_start])[block]
        offsets = np.concatenate([scene.offset, np.zeros(len(storages), np.uint64)])[block]
        tape = Tape(
            kind=kinds[order].astype(np.int8),
            planned_low=low[order],
            planned_high=high[order],
            ideal_low=ideal_low[order],
            ideal_high=ideal_high[order],
            tag=np.where(kinds == CHECK, block, tags)[order],
            planned_start=starts[order],
            ideal_start=offsets[order],
        )
        return steps[order], phases[order], readers[order], tape

    def faults(self) -> Iterator[Fault]:
        """Run the tape and name what was found; a row once for each reader."""
        found, at = run(self.tape, self.planned, self.ideal, self.tag_planned, self.tag_ideal)
        seen: set[int] = set()
        for k in np.flatnonzero(found != FINE).tolist():
            block, tag = int(self.tape.tag[k]), int(found[k])
            row = block if block < self.n else int(self.scene.head[block - self.n])
            # The end of a life repeats what a read of the same bytes has told already.
            if self.phase[k] == _END and row in seen:
                continue
            seen.add(row)
            kind, culprit = self._culprit(tag)
            yield Fault(kind, int(self.step[k]), row, int(self.reader[k]), culprit, at=int(at[k]))

    def _culprit(self, tag: int) -> tuple[str, int]:
        if tag == NOTHING:
            return "never_written", -1
        if tag >= 3 * self.n:
            return "overwritten", int(self.scene.head[tag - 3 * self.n])
        return ("poisoned" if tag >= 2 * self.n else "overwritten"), tag % self.n


def _end(start: U64, size: U64) -> U64:
    """``start + size``, held at 2^64 − 1: what lies past it is told by the rules, and must not wrap to 0 here."""
    return start + np.minimum(size, np.uint64(U64_MAX) - start)


def _in_words(scene: Scene, fault: Fault) -> ShadowFinding:
    tensor, culprit = scene.name(fault.row), scene.name(fault.culprit)
    reader = scene.reader_name(fault.reader, fault.step)
    return ShadowFinding(
        kind=fault.kind,
        step=fault.step,
        tensor=tensor,
        reader=reader,
        culprit=culprit,
        message=fault.message or _sentence(fault, tensor, culprit, reader),
    )


def _sentence(fault: Fault, tensor: str, culprit: str, reader: str) -> str:
    who = f"{reader!r} reads {tensor!r}" if reader else f"the life of {tensor!r} ends"
    where = f"step {fault.step}: {who}, and byte {fault.at:,} of it "
    if fault.kind == "never_written":
        return where + "was never written."
    if fault.kind == "poisoned":
        return where + f"is about to be written by the same step's output {culprit!r}."
    if culprit == tensor:
        return where + "holds another part or an earlier version of it."
    return where + f"was overwritten by {culprit!r}."


def kinds(findings: Iterable[ShadowFinding]) -> tuple[str, ...]:
    """The kinds among ``findings``, each once, in alphabetical order."""
    return tuple(sorted({finding.kind for finding in findings}))
