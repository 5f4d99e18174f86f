"""Schedules: an order together with recomputation, for a capacity too low for recomputation in the given order.

*Goals* are nodes whose results stay live or are never read, and nodes that cannot run later or again. They run one
after the other. Before each, the missing operands are computed, recursively: the operand that needs the most memory
first (Sethi and Ullman, "The generation of optimal code for arithmetic expressions", 1970). If the live bytes exceed
the limit, storages are dropped in ascending order of FLOPs / (bytes × squared distance to the next use) (Kirisame et
al., "Dynamic tensor rematerialization", ICLR 2021).

The search repairs the steps that exceed the limit: a goal with live results runs later. Then it removes the runs whose
results can stay live from an earlier run. Only one arena is scheduled, without in-place reuse.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import accumulate

from tmmu_core.fitting.move import Cost, Move, some_names
from tmmu_core.fitting.order.order_model import csr_rows
from tmmu_core.fitting.problem.planner_calls import PlanInput
from tmmu_core.fitting.recompute.drop_moves import progress_check
from tmmu_core.fitting.recompute.recompute_model import RecomputeModel
from tmmu_core.fitting.recompute.recover_choice import recover_choice
from tmmu_core.planners.problem import Progress

WHY = "each node reads the same values as before; a node that runs again computes the same values"
MOST_WORK = 1_500_000  # default maximum number of nodes and storages that a search visits
MOST_REPEATED = 8  # maximum number of runs of a schedule, per node
MOST_COUNTED = 40  # maximum number of nodes that are counted for the FLOPs of a storage
SMALL_GOAL = 8  # a goal is not moved if its results have less than ``1 / SMALL_GOAL`` of the excess

Goals = tuple[int, ...]  # positions, in the order in which they run


class Scheduler:
    """Runs the nodes of a model for a sequence of goals within ``limit`` bytes."""

    def __init__(self, model: RecomputeModel, limit: int, most_work: int = MOST_WORK) -> None:
        self.model, self.limit, self.work, self.most_work = model, limit, 0, most_work
        self.most_runs = MOST_REPEATED * len(model.node_at)
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

    def peak_bytes(self, runs: Sequence[int]) -> int:
        """Return the peak of the live bytes. A result lives until its last read before its node runs again."""
        life = {s: [0, 0] for s in self.loaded}  # storage → first and last step of its current life
        lives = list(life.items())
        for k, n in enumerate(runs):
            for s in self.reads[n]:
                life[s][1] = k
            for s in self.writes[n]:
                lives.append((s, [k, k]))
                if s not in life or self.droppable[s]:  # else nothing reads this copy
                    life[s] = lives[-1][1]
        change = [0] * (len(runs) + 1)
        for s, (first, last) in lives:
            change[first] += self.size[s]
            change[last + 1] -= self.size[s]
        for s in filter(self.is_output.__getitem__, life):
            change[life[s][1] + 1] += self.size[s]
        self.work += 2 * len(runs)
        return max(accumulate(change))

    def without_needless(self, runs: list[int]) -> list[int]:
        """Return ``runs`` after removing repeated runs while the limit holds, those with the most FLOPs first."""
        count = 0
        while count != len(runs):
            count = len(runs)
            for n in sorted(set(runs), key=lambda n: (-self.flops[n], n)):
                for k in [k for k, each in enumerate(runs) if each == n][:0:-1]:
                    fewer = runs[:k] + runs[k + 1 :]
                    if self.work < self.most_work and self.peak_bytes(fewer) <= self.limit:
                        runs = fewer
        return runs


class _Schedule:
    """The runs for ``goals``, as positions in the initial order; a position that occurs again is recomputed."""

    def __init__(self, scheduler: Scheduler, goals: Goals) -> None:
        self.of, self.goals, self.runs = scheduler, goals, list[int]()
        self.excess = self.most = 0  # bytes over the limit: summed over the steps that exceed it, and at the fullest
        self.live_goals: set[int] = set()  # goals whose results are live at a step over the limit
        self.live = set(scheduler.loaded)
        self.live_bytes = scheduler.bytes_of(scheduler.loaded)
        self.pinned: Counter[int] = Counter()  # storage → number of waiting and running nodes that use it
        self.done: set[int] = set()
        self.frames: list[list[int]] = []  # nodes that wait for operands: [position, number of operands that are live]
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

    def fill(self) -> bool:
        """Run all goals; return ``False`` above ``MOST_WORK``, or if a node would read an overwritten storage."""
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
                if of.work > of.most_work or len(self.runs) > of.most_runs or of.expires[n] < highest:
                    return False
                self._run(n, place)
                frames.pop()
        return True

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
            self.excess += self.live_bytes - limit
            self.most = max(self.most, self.live_bytes - limit)
            kept = [s for s in self.live if not self.pinned[s] and not of.droppable[s] and of.producer[s] >= 0]
            self.live_goals.update(of.producer[s] for s in kept)
        self.pinned.subtract(writes)
        self.pinned.subtract(of.reads[n])
        self.runs.append(n)

    def _drop(self, place: int, limit: int) -> None:
        """Drop unpinned storages that are dead or droppable, until at most ``limit`` bytes are live or none is left."""
        of, distance = self.of, self._distances(place)
        ranked = []
        for s in self.live:
            is_dead = self.last_goal.get(s, -1) < place and not of.is_output[s] and s not in distance
            if self.pinned[s] or not of.size[s] or not (of.droppable[s] or is_dead):
                continue
            cost = self._flops(s) / (of.size[s] * (1 + distance[s]) ** 2) if s in distance else -1
            ranked.append((cost, -of.size[s], s))
        for _, size, s in sorted(ranked):
            if self.live_bytes <= limit:
                break
            self.live.remove(s)
            self.live_bytes += size

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
        """Return the FLOPs to recompute a storage from live ones; above ``MOST_COUNTED`` nodes, twice those counted."""
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

    Best-first search over orders of the goals, by excess of the schedule. Each order of large goals is expanded once.
    """
    start = tuple(scheduler.goals)
    known, expanded = {start}, set[Goals]()
    queue: list[tuple[int, int, int, _Schedule]] = []
    pending = iter([start])
    while scheduler.work < scheduler.most_work and should_continue():
        goals = next(pending, None)
        if goals is not None:
            known.add(goals)
            found = _Schedule(scheduler, goals)
            if found.fill():
                if not found.excess:
                    scheduler.work = 0
                    return scheduler.without_needless(found.runs)
                heappush(queue, (found.excess, found.most, len(known), found))
            continue
        if not queue:
            return None
        *_, found = heappop(queue)
        large = tuple(
            goal for goal in found.goals if SMALL_GOAL * scheduler.bytes_of(scheduler.writes[goal]) >= found.most
        )
        if large not in expanded:
            expanded.add(large)
            pending = (each for each in _repairs(found, set(large)) if each not in known)
    return None


def _repairs(found: _Schedule, large: set[int]) -> Iterator[Goals]:
    """Yield the orders that move one of ``live_goals`` after a later goal; both are in ``large``."""
    goals, is_fixed = found.goals, found.of.is_fixed
    for first, goal in enumerate(goals):
        if goal not in found.live_goals & large or is_fixed[goal]:
            continue
        for place in range(first + 1, len(goals)):
            if is_fixed[goals[place]]:
                break
            if goals[place] in large:
                yield (*goals[:first], *goals[first + 1 : place + 1], goal, *goals[place + 1 :])


def schedule_move(
    plan_input: PlanInput, limit: int, report: Progress | None = None, most_work: int = MOST_WORK
) -> Move | None:
    """Return the move to a schedule whose live bytes, with persistent storages, are at most ``limit``.

    ``most_work``: maximum number of nodes and storages that the search visits. ``None`` if none is found, or if the
    graph has several arenas or nested scopes.
    """
    model, choice = recover_choice(plan_input)
    if len(model.fixed) != 1 or len(choice.drops) or any(node.scope for node in model.timeline.graph.nodes):
        return None
    scheduler = Scheduler(model, limit - int(model.fixed[0]), most_work)
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
