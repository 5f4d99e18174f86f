"""Schedules: an order together with recomputation, for a capacity too low for recomputation in the given order.

The nodes that must run in any case are *goals*: nodes with a result that is an output, is never read or cannot be
dropped, and nodes that cannot run later. The goals run one after the other. All other nodes run only to compute the
missing operands of a goal, recursively. Of several operands, the one with the greatest difference (peak bytes of its
computation − its bytes) comes first (Sethi and Ullman, "The generation of optimal code for arithmetic expressions",
1970). If the live bytes exceed the limit, storages are *dropped*: freed now, computed again before the next use. The
storage with the least FLOPs / (bytes × squared distance to the next use) is dropped first (Kirisame et al., "Dynamic
tensor rematerialization", ICLR 2021).

If a step still exceeds the limit, the search tries other orders of the goals: a goal whose results are live at this
step runs later. In a schedule that fits, it removes unneeded runs. It handles one arena, without in-place reuse.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import accumulate

from tmmu_core.fitting.move import Cost, Move, some_names
from tmmu_core.fitting.order.order_model import csr_rows
from tmmu_core.fitting.problem.planner_calls import PlanInput
from tmmu_core.fitting.recompute.drop_moves import progress_check, recover_choice
from tmmu_core.fitting.recompute.recompute_model import RecomputeModel
from tmmu_core.planners.problem import Progress

WHY = "each node reads the same values as before; a node that runs again computes the same values"
MOST_WORK = 1_500_000  # default maximum number of nodes and storages that a search visits
MOST_REPEATED = 8  # maximum number of runs of a schedule, as a multiple of the number of nodes
MOST_COUNTED = 40  # maximum number of nodes that are counted for the FLOPs of a storage
SMALL_GOAL = 8  # a goal is not moved if its results have less than ``1 / SMALL_GOAL`` of the largest excess

Goals = tuple[int, ...]  # positions, in the order in which they run


class ScheduleProblem:
    """A model as lists per position and storage, its goals, a limit in bytes, and the work that the search has done."""

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
            if row and all(self.is_fixed[k] for k in row):  # only fixed nodes read it: its producer becomes a goal
                self.droppable[s] = False
        self.goals = [
            k
            for k, row in enumerate(self.writes)
            if self.is_fixed[k] or any(stays_live[s] or unread[s] or not self.droppable[s] for s in row)
        ]
        self.is_output = stays_live
        self.loaded = [s for s, starts in enumerate(model.starts_live.tolist()) if starts]
        need = [0] * len(self.size)  # storage → bytes that its computation needs
        self.operands: list[list[int]] = []
        """Position → the storages that its node reads, in the order in which missing ones are computed."""
        for reads, writes in zip(self.reads, self.writes, strict=True):
            self.operands.append(sorted(reads, key=lambda s: self.size[s] - need[s]))
            held = most = 0
            for s in self.operands[-1]:
                most = max(most, held + max(need[s], self.size[s]))
                held += self.size[s]
            for s in writes:
                need[s] = max(most, held + self.bytes_of(writes))

    def bytes_of(self, storages: Sequence[int]) -> int:
        """Return the sum of the sizes of ``storages``."""
        return sum(self.size[s] for s in storages)

    def peak_bytes(self, runs: Sequence[int]) -> int:
        """Return the peak of the live bytes. A second run of a node writes new copies of its results."""
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

    def without_unneeded_runs(self, runs: list[int]) -> list[int]:
        """Return ``runs`` after removing, most FLOPs first, repeated runs that the limit does not require."""
        count = 0
        while count != len(runs):
            count = len(runs)
            for n in sorted(set(runs), key=lambda n: (-self.flops[n], n)):
                positions = [k for k, run in enumerate(runs) if run == n]
                for k in reversed(positions[1:]):
                    fewer = runs[:k] + runs[k + 1 :]
                    if self.work < self.most_work and self.peak_bytes(fewer) <= self.limit:
                        runs = fewer
        return runs


class _Schedule:
    """The runs for ``goals``, as positions in the initial order; a position that occurs again is recomputed."""

    def __init__(self, problem: ScheduleProblem, goals: Goals) -> None:
        self.problem, self.goals, self.runs = problem, goals, list[int]()
        self.excess = self.most_excess = 0  # bytes over the limit, summed over the steps; the most at one step
        self.live_goals: set[int] = set()  # goals whose results are live at a step over the limit
        self.live = set(problem.loaded)
        self.live_bytes = problem.bytes_of(problem.loaded)
        self.pinned: Counter[int] = Counter()  # storage → number of waiting and running nodes that use it
        self.done: set[int] = set()
        self.frames: list[list[int]] = []  # nodes that wait for operands: [position, number of operands that are live]
        self.last_goal: dict[int, int] = {}  # storage → place of the last goal that depends on it
        for place in reversed(range(len(goals))):
            pending = [goals[place]]
            while pending:
                for s in problem.reads[pending.pop()]:
                    if s not in self.last_goal:
                        self.last_goal[s] = place
                        pending += [problem.producer[s]] if problem.producer[s] >= 0 else []

    def fill(self) -> bool:
        """Run all goals; return ``False`` above the maximum work or runs, or if a node would read overwritten bytes."""
        problem, frames, highest = self.problem, self.frames, -1
        for place, goal in enumerate(self.goals):
            if goal in self.done:
                continue
            frames.append([goal, 0])
            while frames:
                n, count = frames[-1]
                if count < len(problem.operands[n]):
                    s = problem.operands[n][count]
                    if s in self.live:
                        self.pinned[s] += 1
                        frames[-1][1] += 1
                    else:
                        frames.append([problem.producer[s], 0])
                    continue
                highest = max(highest, n)
                is_over_maximum = problem.work > problem.most_work or len(self.runs) > problem.most_runs
                if is_over_maximum or problem.expires[n] < highest:
                    return False
                self._run(n, place)
                frames.pop()
        return True

    def _run(self, n: int, place: int) -> None:
        """Run the node of position ``n``, whose operands are live, for the goal at ``place``."""
        problem, writes = self.problem, self.problem.writes[n]
        copied = problem.bytes_of([s for s in writes if s in self.live])
        self.live_bytes += problem.bytes_of(writes) - copied
        self.live.update(writes)
        self.done.add(n)
        self.pinned.update(writes)
        limit = problem.limit - copied  # during this run, the earlier copies of its results are live too
        if self.live_bytes > limit:  # drop unpinned storages that are dead or droppable
            ranked, distance = [], self._distances(place)
            for s in self.live:
                is_dead = self.last_goal.get(s, -1) < place and not problem.is_output[s] and s not in distance
                if not self.pinned[s] and problem.size[s] and (problem.droppable[s] or is_dead):
                    cost = self._flops(s) / (problem.size[s] * (1 + distance[s]) ** 2) if s in distance else -1
                    ranked.append((cost, -problem.size[s], s))
            for _, size, s in sorted(ranked):
                if self.live_bytes > limit:
                    self.live.remove(s)
                    self.live_bytes += size
        if self.live_bytes > limit:
            self.excess += self.live_bytes - limit
            self.most_excess = max(self.most_excess, self.live_bytes - limit)
            kept = [s for s in self.live if not (self.pinned[s] or problem.droppable[s]) and problem.producer[s] >= 0]
            self.live_goals.update(problem.producer[s] for s in kept)
        self.pinned.subtract(writes)
        self.pinned.subtract(problem.reads[n])
        self.runs.append(n)

    def _distances(self, place: int) -> dict[int, int]:
        """Return live storage → number of nodes to run before its next use; omit storages that are not used again."""
        problem, seen, found = self.problem, set[int](), dict[int, int]()
        waiting = [problem.operands[n][count:] for n, count in reversed(self.frames)]
        later = (problem.reads[goal] for goal in self.goals[place + 1 :] if goal not in self.done)
        for row in (*waiting, *later):
            pending = list(row)
            while pending:
                s = pending.pop()
                if s in self.live:
                    found.setdefault(s, len(seen))
                elif problem.producer[s] >= 0 and problem.producer[s] not in seen:
                    seen.add(problem.producer[s])
                    pending += problem.reads[problem.producer[s]]
        problem.work += len(seen) + len(found)
        return found

    def _flops(self, storage: int) -> int:
        """Return the FLOPs to recompute a storage from live ones; above ``MOST_COUNTED`` nodes, twice the sum."""
        problem, seen, pending = self.problem, set[int](), [self.problem.producer[storage]]
        total = 1
        while pending:
            n = pending.pop()
            if n in seen:
                continue
            seen.add(n)
            total += problem.flops[n]
            if len(seen) > MOST_COUNTED:
                return 2 * total
            missing = [s for s in problem.reads[n] if s not in self.live]
            pending += [problem.producer[s] for s in missing if problem.producer[s] >= 0]
        problem.work += len(seen)
        return total


def search_schedule(problem: ScheduleProblem, should_continue: Callable[[], bool]) -> list[int] | None:
    """Return the runs of a schedule within the limit; ``None`` if none is found.

    Best-first search over orders of the goals, least excess first. Orders of the same large goals are repaired once.
    """
    start = tuple(problem.goals)
    known, expanded = {start}, set[Goals]()
    queue: list[tuple[int, int, int, _Schedule]] = []
    pending = iter([start])
    while problem.work < problem.most_work and should_continue():
        goals = next(pending, None)
        if goals is not None:
            known.add(goals)
            found = _Schedule(problem, goals)
            if found.fill():
                if not found.excess:
                    problem.work = 0
                    return problem.without_unneeded_runs(found.runs)
                heappush(queue, (found.excess, found.most_excess, len(known), found))
            continue
        if not queue:
            return None
        *_, found = heappop(queue)
        large = tuple(g for g in found.goals if SMALL_GOAL * problem.bytes_of(problem.writes[g]) >= found.most_excess)
        if large not in expanded:
            expanded.add(large)
            pending = (goals for goals in _repairs(found, set(large)) if goals not in known)
    return None


def _repairs(found: _Schedule, large: set[int]) -> Iterator[Goals]:
    """Yield orders that move one of ``live_goals`` after a later goal, past no fixed goal; both goals are ``large``."""
    goals, is_fixed = found.goals, found.problem.is_fixed
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
    graph has several arenas, nested scopes, recomputation or offload.
    """
    model, choice = recover_choice(plan_input)
    if len(model.fixed) != 1 or len(choice.drops) or any(node.scope for node in model.timeline.graph.nodes):
        return None
    problem = ScheduleProblem(model, limit - int(model.fixed[0]), most_work)
    runs = search_schedule(problem, progress_check(report, "schedule"))
    if runs is None:
        return None
    repeated = [n for n, count in Counter(runs).items() for _ in range(count - 1)]
    storages = dict.fromkeys(s for n in repeated for s in problem.writes[n] if problem.droppable[s])
    tensors = tuple(model.name_of(s) for s in storages)
    what = "run the nodes in another order" + (f" and recompute {some_names(tensors)}" if tensors else "")
    nodes = tuple(model.node_id(n) for n in dict.fromkeys(repeated))
    cost = Cost(sum(problem.flops[n] for n in repeated), 0, len(repeated))
    return Move("recompute", what, WHY, tensors, nodes, cost, details={"runs": [model.node_id(n) for n in runs]})
