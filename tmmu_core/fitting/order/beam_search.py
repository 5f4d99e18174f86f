"""Beam search over sets of executed units: keep the best few sets of each size.

Sets are ranked by the peak so far, then by live bytes, then by the executed units, so that the result is deterministic.
O(units · width · ready).
"""

from collections.abc import Callable

from tmmu_core.fitting.order.order_exact import OrderStates, Peaks, bits, order_of, ready_after, run_free_units

WIDTH = 24
TRIED = 120_000
"""Budget of expansions, shared equally by the set sizes; the beam is halved when the sets so far exceed their share."""


def beam(walk: OrderStates, upper: int, go_on: Callable[[], bool], width: int = WIDTH) -> tuple[int, ...] | None:
    """Return an order whose sum of peaks, with constants, is below ``upper``; ``None`` if none is found."""
    count = len(walk.before)
    peaks, live = walk.start()
    ready = sum(1 << unit for unit, before in enumerate(walk.before) if not before)
    paths: list[tuple[int, tuple[int, ...]]] = [(-1, ())]
    front: dict[int, tuple[Peaks, Peaks, int, int]] = {0: (peaks, live, ready, 0)}
    tried_before = walk.tried
    while front and go_on():
        # Narrow the beam when the budget per set size is exceeded.
        level = next(iter(front)).bit_count()
        if walk.tried - tried_before > TRIED * (level + 1) // count + TRIED // 8:
            width = max(1, width // 2)
        following: dict[int, tuple[Peaks, Peaks, int, int]] = {}
        for done, (peaks, live, ready, path_index) in front.items():
            done, ready, live, ran = run_free_units(walk, done, ready, peaks, live)
            if ran:
                paths.append((path_index, ran))
                path_index = len(paths) - 1
            if done == walk.all:
                return order_of(paths, path_index)
            for unit in bits(ready):
                during, after = walk.adds(unit, done)
                top = tuple(max(p, b + d) for p, b, d in zip(peaks, live, during, strict=True))
                if sum(top) + walk.constant >= upper:
                    continue
                then = done | 1 << unit
                left = tuple(map(int.__add__, live, after))
                known = following.get(then)
                if known is None or (sum(top), sum(left)) < (sum(known[0]), sum(known[1])):
                    paths.append((path_index, (unit,)))
                    following[then] = (top, left, ready_after(walk, unit, then, ready), len(paths) - 1)
        ranked = sorted(following.items(), key=lambda item: (sum(item[1][0]), sum(item[1][1]), item[0]))
        front = dict(ranked[:width])
    return None
