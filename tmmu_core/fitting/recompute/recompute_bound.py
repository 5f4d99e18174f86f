"""Find storages that are live at a node whatever allowed moves are applied; compute lower bounds from the outputs.

A storage that no allowed move drops is live from the first node that touches it to the last one. If the order can
change, the storage is live at each node that must run after one node that touches it and before another. Results of
operators with unknown properties are left out: they could be recomputed if the properties were known.
"""

from collections import Counter

import numpy as np

from tmmu_core.fitting.order.order_exact import bits
from tmmu_core.fitting.order.order_model import csr_rows, order_model
from tmmu_core.fitting.problem.answer import Allowed, unknown_operators
from tmmu_core.fitting.problem.lower_bounds import LiveSet, alignments_of, live_sets
from tmmu_core.fitting.problem.planner_calls import Candidate
from tmmu_core.fitting.recompute.recompute_model import I64, RecomputeModel, recompute_model

ORDERED_UP_TO = 2_500  # maximum number of units (``order/order_model.py``); for more, no storages are listed
MOST_BEFORE = 400  # :func:`output_bounds` chooses the source of an output from about this many nodes


def always_live(start: Candidate, allowed: Allowed) -> list[list[int]]:
    """Return node → storages that are live when it first runs, without persistent ones.

    Storages that the node itself touches can be missing. O(nodes² / 64 · operands).
    """
    liveness = start.liveness
    order = order_model(liveness, keep_phases=allowed.keep_phases)
    found: list[list[int]] = [[] for _ in liveness.timeline.graph.nodes]
    if order is None or len(order) > ORDERED_UP_TO:
        return found
    model = recompute_model(start.plan_input)
    droppable = model.movable if "offload" in allowed.kinds else model.droppable
    is_kept = ~droppable & ~liveness.storages.persistent
    unknown = {operator.name for operator in unknown_operators(liveness.timeline, allowed.kinds)}
    is_kept[[s for s, n in enumerate(model.producer.tolist()) if n >= 0 and model.instr(n) in unknown]] = False
    before, after = [0] * len(order), [0] * len(order)  # unit → units that must run before it, after it; bit masks
    units = range(len(order))
    later = order.successors if "order" in allowed.kinds else [[u + 1] for u in units[:-1]] + [[]]
    for u in units:
        for other in later[u]:
            before[other] |= before[u] | 1 << u
    for u in reversed(units):
        for other in later[u]:
            after[u] |= after[other] | 1 << other
    all_units = (1 << len(order)) - 1
    # Storage → units that must run after a unit that touches it, and units that must run before one; bit masks.
    after_first = [all_units if starts_live else 0 for starts_live in order.starts_live.tolist()]
    before_last = [all_units if stays_live else 0 for stays_live in order.stays_live.tolist()]
    for u in units:
        for s in {s for node in order.units[u] for s in order.touches[node]}:
            after_first[s] |= after[u]
            before_last[s] |= before[u]
    for s in np.flatnonzero(is_kept).tolist():
        for u in bits(after_first[s] & before_last[s]):
            for node in order.units[u]:
                found[node].append(s)
    return found


def output_bounds(start: Candidate, allowed: Allowed) -> dict[str, int]:
    """Return arena → lower bound of its bytes over all orders, from the outputs, which stay live once computed.

    Example: nodes a and b touch 100 bytes each; a path leads from each to an output of 10 bytes. If a runs first, then
    a storage on its path, or its output, is live when b runs: at least 110 bytes.

    Each output has a *source*: the node that computes it, or one that it depends on. From the run of the source on (if
    there are several: the run that the output uses), the output or a storage on the path to it is live. Storages on a
    path have at least the bytes of the output, and no two paths share bytes. So when a source runs, its own bytes are
    live (those that it touches, except bytes of other paths), and the output bytes of all earlier sources. The peak is
    least if the sources run by falling own − output bytes. O(outputs · storages · operands).
    """
    model = recompute_model(start.plan_input)
    found = {}
    for number, arena in enumerate(model.liveness.arenas):
        in_arena = (model.arena == number) & ~model.liveness.storages.persistent
        always = in_arena & model.starts_live & model.stays_live
        nodes = _NodesOfArena(start, allowed, model, number, np.where(always, 0, model.size * in_arena))
        least = max(nodes.least_peak(most_before) for most_before in (1, MOST_BEFORE))
        found[arena] = int(model.fixed[number] + model.size[always].sum() - model.padding[number]) + least
    return found


class _NodesOfArena:
    """The nodes of a model, and the bytes of one arena that each needs."""

    def __init__(self, start: Candidate, allowed: Allowed, model: RecomputeModel, arena: int, size: I64) -> None:
        self.outputs = np.flatnonzero(model.stays_live & (model.producer >= 0)).tolist()
        self.size, self.producer = size.tolist(), model.producer.tolist()
        self.operands = csr_rows(model.in_ptr, model.in_idx)
        self.resident_bytes = (size * ~model.movable).tolist() if "offload" in allowed.kinds else self.size
        """Storage → its bytes; 0 if it can be offloaded between uses."""
        name = model.liveness.arenas[arena]
        self.alignment = alignments_of(start.plan_input, [name])[name]
        self.live_sets: list[list[LiveSet]] = [[] for _ in self.operands]
        position = {model.node_id(k): k for k in range(len(self.live_sets))}
        for live_set in live_sets(start.liveness, arena, self.alignment, "inplace" in allowed.kinds):
            if live_set.step in position:
                self.live_sets[position[live_set.step]].append(live_set)

    def needed(self, n: int, used: Counter[int]) -> int:
        """Return the bytes that a node needs, without the ``used`` bytes of each storage."""

        def unused(s: int, size: int) -> int:
            return max(0, min(self.size[s], -(-size // self.alignment) * self.alignment) - used[s])

        needs = (sum(unused(*row) for row in live.sizes.items()) - live.reused for live in self.live_sets[n])
        return max(needs, default=0)

    def least_peak(self, most_before: int) -> int:
        """Return a lower bound of the peak; each source is one of about ``most_before`` nodes nearest to its output."""
        needed = [self.needed(n, Counter()) for n in range(len(self.live_sets))]
        unassigned = list(self.resident_bytes)  # storage → bytes that no path uses yet
        paths: dict[int, Counter[int]] = {}  # source → storage → bytes used by paths from the source
        output_bytes: Counter[int] = Counter()  # source → bytes of its outputs
        for output in self.outputs:
            size = self.size[output]
            path_from = {self.producer[output]: (output, -1)}
            """Node → the storage that it computes on a path to the output, and the next node of the path."""
            pending = list(path_from)
            for n in pending:
                for s in self.operands[n] if len(pending) < most_before else ():
                    if self.producer[s] >= 0 and self.producer[s] not in path_from and unassigned[s] >= size:
                        path_from[self.producer[s]] = s, n
                        pending.append(self.producer[s])
            source = n = max(pending, key=needed.__getitem__)
            output_bytes[source] += size
            while n >= 0:
                s, n = path_from[n]
                unassigned[s] -= size
                paths.setdefault(source, Counter())[s] += size
        used = sum(paths.values(), Counter[int]())
        own = {source: self.needed(source, used - path) for source, path in paths.items()}
        peak = earlier_outputs = 0
        for source in sorted(own, key=lambda source: output_bytes[source] - own[source]):
            peak = max(peak, earlier_outputs + own[source])
            earlier_outputs += output_bytes[source]
        return peak
