"""Improve cuts: combine parts of two cuts by a knapsack, then recompute fewer nodes.

All layers of a network cost about the same per byte, so that they join a minimum cut at the same price. Choices that
recompute only some layers, or parts of layers, lie between two cuts. The difference of two cuts is split into connected
parts. The options of a part are its nodes in each cut, alone or with one more node and its predecessors. Each option is
simulated alone; equal parts share the result. A knapsack over bytes and FLOPs gives the cheapest combination.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from tmmu_core.fitting.recompute.recompute_model import HUBS, I64, Mask, connected_parts
from tmmu_core.fitting.recompute.recompute_search import Pair, Point, Search

MOST_ENDS = 3
"""Number of cuts that are mixed: of the cheapest that fit, and of those with the lowest peaks that do not fit."""
MOST_IMPROVED = 2
"""Maximum number of cheapest mixes that are improved."""
MOST_MIXES = 6
"""Maximum number of mixes simulated per pair of cuts; each has to save the excess of the previous one too."""
MOST_STATES = 2_000
"""Maximum number of sums of bytes and FLOPs that are kept from one part to the next."""


def mix_cuts(search: Search, cuts: Sequence[Pair]) -> list[Point]:
    """Return the cheapest point that fits, found from ``cuts``, as a list; empty if no cut fits."""
    fitting = sorted((pair for pair in cuts if not search.excess(pair[1].run)), key=_key)[:MOST_ENDS]
    if not fitting:
        return []
    start = search.simulations
    over = sorted((pair for pair in cuts if search.excess(pair[1].run)), key=lambda pair: pair[1].run.total)
    masks = [nodes for nodes, _ in cuts]
    known = {_key(fitting[0]): fitting[0]}
    for nodes, point in fitting:
        for less, cheaper in over[:MOST_ENDS]:
            if cheaper.run.flops < min(min(known)[0], point.run.flops) and not search.budget_is_spent(start):
                for hub in HUBS:
                    mixed = _mix(search, masks, less, connected_parts(search.model, less ^ nodes, hub))
                    if mixed is not None:
                        known[_key(mixed)] = mixed
    return [min((_keep_one_by_one(search, known[key]) for key in sorted(known)[:MOST_IMPROVED]), key=_key)[1]]


def _key(pair: Pair) -> tuple[int, int, int]:
    return pair[1].key


def _keep_one_by_one(search: Search, pair: Pair) -> Pair:
    """Return a pair that recomputes fewer nodes: keep outputs of one node after the other if that fits and is cheaper.

    The better of two passes: most FLOPs first, and most FLOPs per byte first.
    """
    nodes = np.flatnonzero(pair[0])
    flops = search.model.node_flops[nodes]
    found = []
    for cost in (flops, flops / np.maximum(search.idle_bytes[nodes], 1)):
        start, best = search.simulations, pair
        for n in nodes[np.argsort(-cost, kind="stable")].tolist():
            if search.budget_is_spent(start):
                break
            changed = best[0].copy()
            changed[n] = False
            tried = search.dropping(changed)
            if tried.run.valid and tried.key < _key(best) and not search.excess(tried.run):
                best = changed, tried
        found.append(best)
    return min(found, key=_key)


def _mix(search: Search, masks: Sequence[Mask], less: Mask, parts: list[I64]) -> Pair | None:
    """Return the cut ``less`` with options of ``parts`` that fits the goal; ``None`` if none is found.

    ``parts`` are the connected parts of its difference to another cut. ``masks`` of cuts give the options.
    """
    base = search.dropping(less).run
    at_base = _bytes_at_boundary(search, less)
    known: dict[tuple[bytes, bytes], tuple[int, int] | None] = {}
    """(FLOPs and bytes of the nodes, option) → (bytes saved, extra FLOPs); ``None`` if invalid."""
    options: list[list[Mask]] = []
    worth: list[I64] = []
    for part in parts:
        shape = np.stack([search.model.node_flops[part], search.idle_bytes[part]]).tobytes()
        of_part: dict[tuple[int, int], Mask] = {(0, 0): less[part]}
        for bits in _options(search, part, [less, *masks]):
            key = shape, bits.tobytes()
            if key not in known:
                mask = less.copy()
                mask[part] = bits
                found = search.dropping(mask).run
                extra_flops = found.flops - base.flops
                known[key] = (at_base - _bytes_at_boundary(search, mask), extra_flops) if found.valid else None
            if (figures := known[key]) is not None:
                of_part.setdefault(figures, bits)
        rows = np.array(list(of_part), np.int64)
        best = _pareto(rows)
        worth.append(rows[best])
        options.append([list(of_part.values())[k] for k in best.tolist()])
    needed = search.excess(base)
    for _ in range(MOST_MIXES):
        chosen = cheapest_mix(worth, needed)
        if chosen is None:
            return None
        mask = less.copy()
        for part, of_one, k in zip(parts, options, chosen, strict=True):
            mask[part] = of_one[k]
        point = search.dropping(mask)
        if not point.run.valid:
            return None
        missing = search.excess(point.run)
        if not missing:
            return mask, point
        needed += missing
    return None


def _bytes_at_boundary(search: Search, nodes: Mask) -> int:
    """Return the live bytes at the boundary after dropping the outputs of ``nodes`` across it."""
    found = search.simulate(search.choice(nodes)).run
    return int(found.live[search.arena, found.step_of[search.boundary.position]])


def _options(search: Search, part: I64, masks: Sequence[Mask]) -> Iterator[Mask]:
    """Yield the options of a part as masks: its nodes in each cut, alone or with one more node and its predecessors."""
    place = {n: k for k, n in enumerate(part.tolist())}
    producer, _, operands = search.columns
    closures = [np.zeros(len(part), np.bool_)]
    for n in part[search.idle_bytes[part] > 0].tolist():
        closed, pending = {n}, [n]
        while pending:
            for z in operands[pending.pop()]:
                node = producer[z]
                if node in place and node not in closed and not search.boundary.read_later[z]:
                    closed.add(node)
                    pending.append(node)
        closures.append(np.isin(part, sorted(closed)))
    seen = set()
    for mask in masks:
        for closure in closures:
            bits = mask[part] | closure
            if bits.tobytes() not in seen:
                seen.add(bits.tobytes())
                yield bits


def _pareto(figures: I64) -> I64:
    """Return the indices of the rows (bytes saved, FLOPs) that no other row dominates, by rising FLOPs."""
    order = np.lexsort((-figures[:, 0], figures[:, 1]))
    most = np.maximum.accumulate(figures[order, 0])
    return order[np.concatenate([[True], figures[order, 0][1:] > most[:-1]])]


def cheapest_mix(worth: Sequence[I64], needed: int) -> list[int] | None:
    """Return one option per part with the least sum of FLOPs that saves ``needed`` bytes; ``None`` if none does.

    ``worth``: for each part, the rows (bytes saved, FLOPs) of its options. Exact up to ``MOST_STATES`` states.
    """
    states = np.zeros((1, 2), np.int64)
    ways: list[tuple[I64, I64]] = []
    for rows in worth:
        sums = (states[:, None, :] + rows[None, :, :]).reshape(-1, 2)
        sums[:, 0] = np.minimum(sums[:, 0], needed)
        best = _pareto(sums)
        if len(best) > MOST_STATES:
            best = best[np.arange(MOST_STATES) * (len(best) - 1) // (MOST_STATES - 1)]
        ways.append((best // len(rows), best % len(rows)))
        states = sums[best]
    if states[-1, 0] < needed:
        return None
    at = len(states) - 1
    chosen = []
    for before, option in reversed(ways):
        chosen.append(int(option[at]))
        at = int(before[at])
    return chosen[::-1]
