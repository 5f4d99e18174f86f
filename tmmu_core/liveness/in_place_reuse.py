"""In-place reuse (hand-off, buffer donation): when the last reader of x may write its output over x (contract §1).

The candidates are the permitted pairs of input and output at the last read of the input. A candidate is refused for
the first condition that it violates. Each node is granted the first of its candidates that violates none.
"""

from collections.abc import Iterable

import numpy as np

from tmmu_core.graph.index import GraphIndex
from tmmu_core.liveness.live_model import I64, Timeline
from tmmu_core.liveness.live_ranges import Ranges
from tmmu_core.liveness.storages import Groups


def decide_handoffs(
    timeline: Timeline, ranges: Ranges, groups: Groups, heads: I64, arena_of: I64, forbidden: I64
) -> tuple[I64, I64]:
    """Return granted rows (step, from, to) and refused rows (step, from, to, index into ``CONDITIONS``), in step order.

    ``heads`` (tensors,): first-born member of each group; ``arena_of`` (tensors,): arena of each tensor's group;
    ``forbidden`` (pairs, 2): groups that must not alias, the lower number first.
    """
    index = timeline.index
    persistent = set(groups.group[index.is_persistent & ranges.planned].tolist())
    must_not_alias = set(map(tuple, forbidden.tolist()))
    latest_deaths = _latest_deaths(groups)
    columns = (ranges.last_read, ranges.birth, groups.death, groups.group, heads, arena_of)
    last_read, birth, death, group, head, arena = (column.tolist() for column in columns)
    handoffs: list[tuple[int, ...]] = []
    refusals: list[tuple[int, ...]] = []
    for step, node in enumerate(timeline.node_at.tolist()):
        has_granted = False
        for x, y in permitted_reuses(index, node) if node >= 0 else ():
            low, high = sorted((group[x], group[y]))
            if last_read[x] != step or low == high:
                continue
            second, latest = latest_deaths.get(group[x], (0, 0))
            others_death = second if death[x] == latest else latest
            violated = (  # in the order of ``CONDITIONS``
                len(index.outputs_of(node)) > 1,
                group[x] in persistent,
                bool(index.is_output[x]),
                bool(ranges.saved[x]),
                head[group[y]] != y or birth[y] != step or others_death > step,
                (low, high) in must_not_alias,
                arena[x] != arena[y],
                has_granted,
            )
            if any(violated):
                refusals.append((step, x, y, violated.index(True)))
            else:
                has_granted = True
                handoffs.append((step, x, y))
    return np.array(handoffs, np.int64).reshape(-1, 3), np.array(refusals, np.int64).reshape(-1, 4)


def permitted_reuses(index: GraphIndex, k: int) -> Iterable[tuple[int, int]]:
    """Return the pairs (input, output) that node ``k`` permits, each input once, in the order of preference.

    A tensor at several input positions needs permission for all of them: they are one buffer.
    """
    inplace = index.graph.nodes[k].inplace
    if inplace == "none":
        return ()
    inputs, outputs = index.inputs_of(k).tolist(), index.outputs_of(k).tolist()
    if not isinstance(inplace, tuple):
        return dict.fromkeys(inputs, outputs[0]).items() if outputs else ()
    positions = {i for i, _ in inplace}
    not_permitted = {x for i, x in enumerate(inputs) if i not in positions}
    output_of: dict[int, int] = {}
    for i, o in inplace:
        if inputs[i] not in not_permitted:
            output_of.setdefault(inputs[i], outputs[o])
    return output_of.items()


def _latest_deaths(groups: Groups) -> dict[int, list[int]]:
    """Return storage → the two latest deaths of its members, ascending, for storages with several members."""
    members = np.flatnonzero(groups.shared)
    deaths: dict[int, list[int]] = {}
    for group, death in zip(groups.group[members].tolist(), groups.death[members].tolist(), strict=True):
        deaths[group] = sorted([*deaths.get(group, ()), death])[-2:]
    return deaths
