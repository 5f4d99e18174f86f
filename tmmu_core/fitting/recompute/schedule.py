"""Schedules: an order together with recomputation, for a capacity that drops in a given order do not reach.

*Goals* are nodes whose results stay live, such as outputs, and nodes that cannot run again. They run one after the
other. Before each, the missing operands are computed, recursively: the operand that needs the most memory first (Sethi
and Ullman, "The generation of optimal code for arithmetic expressions", 1970). If the live bytes exceed the limit,
storages are dropped, the one with the least FLOPs per byte and distance to its next use first (Kirisame et al.,
"Dynamic tensor rematerialization", ICLR 2021).

The search repairs the steps that exceed the limit: a goal with live results runs later, or a storage that such a step
recomputes is kept instead. Only one arena is scheduled, without in-place reuse.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from tmmu_core.fitting.move import Cost, Move, some_names
from tmmu_core.fitting.order.order_model import csr_rows
from tmmu_core.fitting.problem.planner_calls import PlanInput
from tmmu_core.fitting.recompute.drop_moves import progress_check
from tmmu_core.fitting.recompute.recompute_model import RecomputeModel
from tmmu_core.fitting.recompute.recover_choice import recover_choice
from tmmu_core.planners.problem import Progress

WHY = "each node reads the same values as before; a node that runs again computes the same values"
MOST_RUNS = 8  # maximum number of runs of a schedule, per node
MOST_WORK = 3_000_000  # maximum number of nodes and storages that a search visits
MOST_COUNTED = 40  # maximum number of nodes that are counted for the FLOPs of a storage
SMALL_GOAL = 8  # a goal is not moved if its results have less than ``1 / SMALL_GOAL`` of the excess

Kept = tuple[int, int, int]  # a storage, and the goals from which and up to which it is not dropped
State = tuple[tuple[int, ...], frozenset[Kept]]  # the goals in order, and the kept storages


@dataclass(eq=False)
class Schedule:
    """The runs of positions of the initial order; a position that occurs again is recomputed."""

    runs: list[int] = field(default_factory=list)
    excess: int = 0  # bytes over the limit, summed over the steps that exceed it
    most: int = 0  # bytes over the limit at the fullest step
    live_goals: set[int] = field(default_factory=set)  # goals whose results are live at a step over the limit
    repeated: set[Kept] = field(default_factory=set)  # storages that are recomputed at a step over the limit


class Scheduler:
    """Runs the nodes of a model for a sequence of goals within ``limit`` bytes."""

    def __init__(self, model: RecomputeModel, limit: int) -> None:
        self.model, self.limit, self.work = model, limit, 0
        self.reads, self.writes = csr_rows(model.in_ptr, model.in_idx), csr_rows(model.out_ptr, model.out_idx)
        self.size, self.producer, self.flops = model.size.tolist(), model.producer.tolist(), model.node_flops.tolist()
        self.expires, stays_live, unread = model.expires.tolist(), model.stays_live.tolist(), model.never_read.tolist()
        tangents = [model.instr(k) == "tangent" for k in range(len(self.reads))]
        self.is_fixed = [not can or tangent for can, tangent in zip(model.can_delay.tolist(), tangents, strict=True)]
        """Position → whether its node keeps its place among the goals."""
        self.is_view = [not row and not fixed for row, fixed in zip(self.writes, self.is_fixed, strict=True)]
        self.droppable = model.droppable.tolist()
        readers: list[list[int]] = [[] for _ in self.size]
        for k, row in enumerate(self.reads):
            for s in row if not self.is_view[k] else ():
                readers[s].append(k)
        for s, row in enumerate(readers):
            self.droppable[s] &= not row or not all(self.is_fixed[k] for k in row)
        self.goals = [
            k
            for k, row in enumerate(self.writes)
            if self.is_fixed[k] or any(stays_live[s] or unread[s] or not self.droppable[s] for s in row)
        ]
        self.is_output = stays_live
        self.loaded = [s for s, starts in enumerate(model.starts_live.tolist()) if starts]
        self.operands = self._operands()

    def _operands(self) -> list[list[int]]:
        """Return position → the storages that its node reads, those that need the most bytes to compute first."""
        need = [0] * len(self.size)
        found = []
        for reads, writes in zip(self.reads, self.writes, strict=True):
            found.append(sorted(reads, key=lambda s: self.size[s] - need[s]))
            held = most = 0
            for s in found[-1]:
                most = max(most, held + max(need[s], self.size[s]))
                held += self.size[s]
            for s in writes:
                need[s] = max(most, held + self.bytes_of(writes))
        return found

    def bytes_of(self, storages: Sequence[int]) -> int:
        """Return the sum of the sizes of ``storages``."""
        return sum(self.size[s] for s in storages)


class _Run:
    """The state of one schedule."""

    def __init__(self, scheduler: Scheduler, goals: Sequence[int], kept: frozenset[Kept]) -> None:
        self.of, self.goals = scheduler, goals
        place = {goal: k for k, goal in enumerate(goals)}
        self.kept = [(s, place[first], place[last]) for s, first, last in kept]
        self.live = set(scheduler.loaded)
        self.live_bytes = scheduler.bytes_of(scheduler.loaded)
        self.pinned: Counter[int] = Counter()
        """Storage → number of nodes that are about to run and read it."""
        self.done: set[int] = set()
        self.dropped_at: dict[int, int] = {}
        """Storage → the goal at which it was dropped last."""
        self.frames: list[list[int]] = []
        """Nodes that wait for operands: [position, number of operands that are live]."""
        self.found = Schedule()
        self.last_goal = self._last_goals()

    def _last_goals(self) -> dict[int, int]:
        """Return storage → place of the last goal that depends on it."""
        last: dict[int, int] = {}
        for place in reversed(range(len(self.goals))):
            pending = [self.goals[place]]
            while pending:
                for s in self.of.reads[pending.pop()]:
                    if s not in last:
                        last[s] = place
                        pending += [self.of.producer[s]] if self.of.producer[s] >= 0 else []
        return last

    def schedule(self) -> Schedule | None:
        """Return the schedule; ``None`` above a maximum, or if a node would read an overwritten storage."""
        of, frames, highest = self.of, self.frames, -1
        for place, goal in enumerate(self.goals):
            if goal in self.done:
                continue
            frames.append([goal, 0])
            while frames:
                n, count = frames[-1]
                if count < len(of.operands[n]):
                    s = of.operands[n][count]
                    if s in self.live:
                        self.pinned[s] += 1
                        frames[-1][1] += 1
                    else:
                        frames.append([of.producer[s], 0])
                    continue
                highest = max(highest, n)
                is_too_long = len(self.found.runs) > MOST_RUNS * len(of.reads) or of.work > MOST_WORK
                if is_too_long or of.expires[n] < highest:
                    return None
                self._run(n, place)
                frames.pop()
        return self.found

    def _run(self, n: int, place: int) -> None:
        """Run the node of position ``n``, whose operands are live, for the goal at ``place``."""
        of, writes = self.of, self.of.writes[n]
        copied = of.bytes_of([s for s in writes if s in self.live])  # a second run writes all results again
        self.live_bytes += of.bytes_of(writes) - copied
        self.live.update(writes)
        self.done.add(n)
        self.pinned.update(writes)
        limit = of.limit - copied
        if self.live_bytes > limit:
            self._drop(place, limit)
        if self.live_bytes > limit:
            found, over = self.found, self.live_bytes - limit
            found.excess, found.most = found.excess + over, max(found.most, over)
            kept = [s for s in self.live if not self.pinned[s] and not of.droppable[s] and of.producer[s] >= 0]
            found.live_goals.update(of.producer[s] for s in kept)
            goal = self.goals[place]
            found.repeated.update(
                (s, self.dropped_at[s], goal) for k, _ in self.frames for s in of.writes[k] if s in self.dropped_at
            )
        self.pinned.subtract(writes)
        self.pinned.subtract(of.reads[n])
        self.found.runs.append(n)

    def _drop(self, place: int, limit: int) -> None:
        """Drop storages that no waiting node holds until ``limit`` bytes are live, if that is possible."""
        of, distance = self.of, self._distances(place)
        is_kept = {s for s, first, last in self.kept if first <= place <= last}
        ranked = []
        for s in self.live:
            is_dead = self.last_goal.get(s, -1) < place and not of.is_output[s] and s not in distance
            if self.pinned[s] or not of.size[s] or s in is_kept or not (of.droppable[s] or is_dead):
                continue
            cost = self._flops(s) / (of.size[s] * (1 + distance[s]) ** 2) if s in distance else -1
            ranked.append((cost, -of.size[s], s))
        for _, size, s in sorted(ranked):
            if self.live_bytes <= limit:
                break
            self.live.remove(s)
            self.live_bytes += size
            self.dropped_at[s] = self.goals[place]

    def _distances(self, place: int) -> dict[int, int]:
        """Return live storage → number of nodes to run before its next use; other storages are not used again."""
        of, seen, found = self.of, set[int](), dict[int, int]()
        waiting = [of.operands[n][count:] for n, count in reversed(self.frames)]
        later = (of.reads[goal] for goal in self.goals[place + 1 :] if goal not in self.done)
        for row in (*waiting, *later):
            pending = list(row)
            while pending:
                s = pending.pop()
                if s in self.live:
                    found.setdefault(s, len(seen))
                elif of.producer[s] >= 0 and of.producer[s] not in seen:
                    seen.add(of.producer[s])
                    pending += of.reads[of.producer[s]]
        of.work += len(seen) + len(found)
        return found

    def _flops(self, storage: int) -> int:
        """Return the FLOPs to recompute a storage from live ones; of ``MOST_COUNTED`` nodes, doubled, if it is more."""
        of, seen, pending = self.of, set[int](), [self.of.producer[storage]]
        total = 1
        while pending:
            n = pending.pop()
            if n in seen:
                continue
            seen.add(n)
            total += of.flops[n]
            if len(seen) > MOST_COUNTED:
                return 2 * total
            pending += [of.producer[s] for s in of.reads[n] if s not in self.live and of.producer[s] >= 0]
        of.work += len(seen)
        return total


def search_schedule(scheduler: Scheduler, should_continue: Callable[[], bool]) -> list[int] | None:
    """Return the runs of a schedule within the limit; ``None`` if none is found.

    Best-first search over sequences of goals and kept storages, by the excess of the schedule. Each sequence of large
    goals is expanded once.
    """
    start: State = tuple(scheduler.goals), frozenset()
    known, expanded = {start}, set[tuple[int, ...]]()
    queue: list[tuple[int, int, int, State, Schedule]] = []
    pending = iter([start])
    while scheduler.work < MOST_WORK and should_continue():
        state = next(pending, None)
        if state is not None:
            known.add(state)
            found = _Run(scheduler, *state).schedule()
            if found is not None and not found.excess:
                return found.runs
            if found is not None:
                heappush(queue, (found.excess, found.most, len(known), state, found))
            continue
        if not queue:
            return None
        *_, state, found = heappop(queue)
        sizes = ((goal, scheduler.bytes_of(scheduler.writes[goal])) for goal in state[0])
        large = tuple(goal for goal, size in sizes if SMALL_GOAL * size >= found.most)
        if large not in expanded:
            expanded.add(large)
            pending = (each for each in _repairs(scheduler, state, found, set(large)) if each not in known)
    return None


def _repairs(scheduler: Scheduler, state: State, found: Schedule, large: set[int]) -> Iterator[State]:
    """Yield the states with one large goal after a later one, and those with one more or one less kept storage."""
    goals, kept = state
    for first, goal in enumerate(goals):
        if goal not in found.live_goals & large or scheduler.is_fixed[goal]:
            continue
        for place in range(first + 1, len(goals)):
            if scheduler.is_fixed[goals[place]]:
                break
            if goals[place] in large:
                yield (*goals[:first], *goals[first + 1 : place + 1], goal, *goals[place + 1 :]), kept
    for each in sorted(found.repeated ^ kept):
        yield goals, kept ^ {each}


def schedule_move(plan_input: PlanInput, limit: int, report: Progress | None = None) -> Move | None:
    """Return the move to a schedule whose live bytes, with persistent storages, are at most ``limit``.

    ``None`` if none is found, or if the graph has several arenas or nested scopes.
    """
    model, choice = recover_choice(plan_input)
    if len(model.fixed) != 1 or len(choice.drops) or any(node.scope for node in model.timeline.graph.nodes):
        return None
    scheduler = Scheduler(model, limit - int(model.fixed[0]))
    runs = search_schedule(scheduler, progress_check(report, "schedule"))
    if runs is None:
        return None
    again = [n for n, count in Counter(runs).items() for _ in range(count - 1)]
    storages = dict.fromkeys(s for n in again for s in scheduler.writes[n] if scheduler.droppable[s])
    tensors = tuple(model.name_of(s) for s in storages)
    return Move(
        "recompute",
        "run the nodes in another order" + (f" and recompute {some_names(tensors)}" if tensors else ""),
        WHY,
        tensors,
        tuple(model.node_id(n) for n in dict.fromkeys(again)),
        Cost(sum(scheduler.flops[n] for n in again), 0, len(again)),
        details={"runs": [model.node_id(n) for n in runs]},
    )
