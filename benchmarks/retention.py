"""Optimal rematerialization with OR-Tools CP-SAT: ``python benchmarks/retention.py PROBLEM.json ANSWER.json SECONDS``.

The model has the staged retention intervals of Moccasin (Bartan and others, arXiv 2304.14463). The first runs of all
nodes keep the given order. Stage k ends with the first run of node k. Within a stage, each earlier node can run once
again, in the given order. Booleans state whether a node runs in a stage and whether a storage is retained from the
previous stage; the memory at every first run is linear in them. The memory at a further run is constrained only if an
answer exceeds the capacity there; then the problem is solved again. The lower bound is valid at every iteration. The
module uses no package of this project (``benchmarks/peers.py``).
"""

import json
import sys
import time
from functools import reduce
from math import gcd
from pathlib import Path
from typing import Any

from ortools.sat.python import cp_model

WORKERS = 4
Stage = tuple[int, int]
"""``(stage, node)`` or ``(stage, storage)``."""


class Retention:
    """The model of a problem (``benchmarks/optimal.py``)."""

    def __init__(self, problem: dict[str, Any]) -> None:
        self.model = cp_model.CpModel()
        self.nodes, self.count = problem["nodes"], len(problem["nodes"])
        self.droppable, self.held = problem["droppable"], problem["held"]
        unit = reduce(gcd, problem["size"], 0) or 1
        self.size, self.capacity = [each // unit for each in problem["size"]], problem["capacity"] // unit
        self.price = reduce(gcd, (node["flops"] for node in self.nodes), 0) or 1
        self.maker = {s: n for n, node in enumerate(self.nodes) for s in node["makes"]}
        self.readers: list[list[int]] = [[] for _ in self.size]
        for n, node in enumerate(self.nodes):
            for s in node["reads"]:
                self.readers[s].append(n)
        self.until = self.last_needs()
        self.runs: dict[Stage, Any] = {}
        """(stage, node) → whether the node runs again."""
        self.kept: dict[Stage, Any] = {}
        """(stage, storage) → whether the storage is retained from the previous stage."""
        self.slots: set[Stage] = set()  # further runs whose memory is constrained
        self.add_variables(problem["first_over"])
        for stage in range(self.count):
            self.add_stage(stage)
        self.objective = sum(self.nodes[n]["flops"] // self.price * flag for (_, n), flag in self.runs.items())
        self.model.minimize(self.objective)
        self.hint({(stage, n) for n, stages in enumerate(problem["hint"]) for stage in stages})

    def last_needs(self) -> list[int]:
        """Return the last stage in which each storage can be used."""
        until = [self.count if held else -1 for held in self.held]
        for n in reversed(range(self.count)):
            node = self.nodes[n]
            last = max([n, *(until[s] for s in node["makes"] if node["again"] and self.droppable[s])])
            for s in node["reads"]:
                until[s] = max(until[s], last)
        return until

    def add_variables(self, first_over: int) -> None:
        """Add the booleans. No node runs again before the first step that exceeds the capacity."""
        for n, node in enumerate(self.nodes):
            last = max((self.until[s] for s in node["makes"] if self.droppable[s]), default=-1)
            for stage in range(max(n, first_over) + 1, min(last, self.count - 1) + 1) if node["again"] else ():
                self.runs[stage, n] = self.model.new_bool_var(f"run {stage} {n}")
        for s, until in enumerate(self.until):
            for stage in range(self.maker.get(s, -1) + 1, until + 1):
                self.kept[stage, s] = 1 if self.held[s] else self.model.new_bool_var(f"keep {stage} {s}")

    def run(self, stage: int, n: int) -> Any:
        """Return whether a node runs in a stage."""
        return 1 if stage == n else self.runs.get((stage, n), 0)

    def sources(self, stage: int, s: int) -> list[Any]:
        """Return the booleans that make a storage available in a stage: retained or computed."""
        maker = self.maker.get(s, -1)
        made = self.run(stage, maker) if maker == stage or (maker >= 0 and self.droppable[s]) else 0
        retained = 1 if stage == 0 and maker < 0 else self.kept.get((stage, s), 0)
        return [each for each in (retained, made) if not isinstance(each, int) or each]

    def add_stage(self, stage: int) -> None:
        """Add the constraints of inputs, of retention, and of the memory at first runs."""
        for n in range(stage + 1):
            flag = self.run(stage, n)
            if isinstance(flag, int) and not flag:
                continue
            for s in self.nodes[n]["reads"]:
                self.model.add(sum(self.sources(stage, s)) >= flag)
            makes = self.nodes[n]["makes"]
            if n < stage and len(makes) == 1:
                self.model.add(flag + self.kept.get((stage, makes[0]), 0) <= 1)
        touched = {*self.nodes[stage]["reads"], *self.nodes[stage]["makes"]}
        memory = sum(self.size[s] for s in touched)
        for s in range(len(self.size)):
            later = self.kept.get((stage + 1, s), 0)
            if isinstance(later, int) and not later:
                continue
            self.model.add(sum(self.sources(stage, s)) >= later)
            memory += self.size[s] * later if s not in touched else 0
        self.model.add(memory <= self.capacity)

    def add_slot(self, stage: int, n: int) -> None:
        """Add the constraint of the memory at a further run."""
        touched = {*self.nodes[n]["reads"], *self.nodes[n]["makes"]}
        memory = sum(self.size[s] for s in touched)
        for s in range(len(self.size)):
            maker = self.maker.get(s, -1)
            have = [self.kept.get((stage, s), 0), self.run(stage, maker) if self.droppable[s] and maker < n else 0]
            need = [self.kept.get((stage + 1, s), 0), *(self.run(stage, c) for c in self.readers[s] if n < c <= stage)]
            if s in touched or not self.size[s]:
                continue
            live = self.model.new_bool_var(f"live {stage} {n} {s}")
            for a in have:
                for b in need:
                    self.model.add(live >= a + b - 1)
            memory += self.size[s] * live
        self.model.add(memory <= self.capacity).only_enforce_if(self.runs[stage, n])
        self.slots.add((stage, n))

    def hint(self, runs: set[Stage]) -> None:
        """Set the further runs of the initial solution."""
        self.model.clear_hints()
        for key, flag in self.runs.items():
            self.model.add_hint(flag, key in runs)

    def overfull(self, runs: set[Stage], kept: set[Stage]) -> list[Stage]:
        """Return the further runs of an answer at which it exceeds the capacity."""
        found = []
        for stage, n in sorted(runs):
            touched = {*self.nodes[n]["reads"], *self.nodes[n]["makes"]}
            live = sum(self.size[s] for s in touched)
            for s in range(len(self.size)):
                maker = self.maker.get(s, -1)
                have = (stage, s) in kept or (self.droppable[s] and maker < n and (stage, maker) in runs)
                later = (stage + 1, s) in kept
                need = later or any(c == stage or (stage, c) in runs for c in self.readers[s] if n < c <= stage)
                live += self.size[s] if s not in touched and have and need else 0
            if live > self.capacity and (stage, n) not in self.slots:
                found.append((stage, n))
        return found

    def solved(self, seconds: float) -> dict[str, Any]:
        """Return the status, the proven lower bound of the extra FLOPs, and the executed nodes in order."""
        began, bound, answer = time.monotonic(), 0, None
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = WORKERS
        solver.parameters.random_seed = 0
        while True:
            solver.parameters.max_time_in_seconds = max(0.1, seconds - time.monotonic() + began)
            status = solver.solve(self.model)
            if status == cp_model.INFEASIBLE:
                break
            bound = max(bound, int(solver.best_objective_bound))
            if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
                break
            runs = {key for key, flag in self.runs.items() if solver.value(flag)}
            kept = {key for key, flag in self.kept.items() if isinstance(flag, int) or solver.value(flag)}
            more = self.overfull(runs, kept)
            for each in more:
                self.add_slot(*each)
            self.hint(runs)
            if not more:
                answer = sorted([*runs, *((n, n) for n in range(self.count))])
                break
            if time.monotonic() - began > seconds:
                status = cp_model.UNKNOWN
                break
        return {
            "status": solver.status_name(status),
            "bound": bound * self.price,
            "seconds": time.monotonic() - began,
            "slots": len(self.slots),
            "runs": None if answer is None else [n for _, n in answer],
        }


def main() -> None:
    """Solve a problem and write the answer."""
    problem, answer, seconds = sys.argv[1:]
    found = Retention(json.loads(Path(problem).read_text())).solved(float(seconds))
    Path(answer).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
