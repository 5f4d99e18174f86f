"""In-place reuse (hand-off, buffer donation): when the last reader of x may write its output over x (contract §1).

The candidates are the permitted pairs of input and output at the last read of the input. A candidate is refused for
the first condition that it violates. Each node is granted the first of its candidates that violates none.
"""

import numpy as np

from tmmu_core.liveness.live_model import CONDITIONS, I64, Timeline
from tmmu_core.liveness.live_ranges import Ranges
from tmmu_core.liveness.storages import Groups

GRANTED = len(CONDITIONS)
ALREADY_TAKEN = CONDITIONS.index("already_taken")


def decide_handoffs(
    timeline: Timeline, ranges: Ranges, groups: Groups, heads: I64, arena_of: I64, forbidden: I64
) -> tuple[I64, I64]:
    """Return granted rows (step, from, to) and refused rows (step, from, to, index into ``CONDITIONS``), in step order.

    ``heads`` (tensors,): first-born member of each group; ``arena_of`` (tensors,): arena of each tensor's group;
    ``forbidden`` (pairs, 2): groups that must not alias, the lower number first.
    """
    index = timeline.index
    node, x, y, priority = _candidates(timeline)
    step = timeline.step_of[node]
    is_last_read = (ranges.last_read[x] == step) & (groups.group[x] != groups.group[y])
    node, x, y, priority, step = (column[is_last_read] for column in (node, x, y, priority, step))

    x_group, y_group = groups.group[x], groups.group[y]
    output_has_buffer = (heads[y_group] != y) | (ranges.birth[y] != step)
    alias_live = output_has_buffer | (_others_death(groups)[x] > step)
    low, high, group_count = np.minimum(x_group, y_group), np.maximum(x_group, y_group), len(groups.group)
    must_not_alias = np.isin(low * group_count + high, forbidden[:, 0] * group_count + forbidden[:, 1])

    persistent = np.zeros(group_count, np.bool_)  # indexed by group
    persistent[groups.group[index.is_persistent & ranges.planned]] = True
    refused_by = np.select(
        [
            np.diff(index.out_ptr)[node] > 1,
            persistent[x_group],
            index.is_output[x],
            ranges.saved[x],
            alias_live,
            must_not_alias,
            arena_of[x] != arena_of[y],
        ],
        range(ALREADY_TAKEN),
        default=GRANTED,
    ).astype(np.int64)

    order = np.lexsort((priority, step))
    step, x, y, refused_by = step[order], x[order], y[order], refused_by[order]
    permitted = np.flatnonzero(refused_by == GRANTED)
    first_of_step = np.ones(len(permitted), np.bool_)
    first_of_step[1:] = step[permitted][1:] != step[permitted][:-1]
    refused_by[permitted[~first_of_step]] = ALREADY_TAKEN

    granted = refused_by == GRANTED
    handoffs = np.stack([step[granted], x[granted], y[granted]], axis=1)
    refusals = np.stack([step[~granted], x[~granted], y[~granted], refused_by[~granted]], axis=1)
    return handoffs, refusals


def _candidates(timeline: Timeline) -> tuple[I64, I64, I64, I64]:
    """Return columns (node, input, output, priority) of every permitted pair, once per node and input.

    A tensor at several input positions needs permission for all of them: they are one buffer.
    """
    index = timeline.index
    reads, writes = index.in_idx.tolist(), index.out_idx.tolist()
    in_ptr, out_ptr, step_of = index.in_ptr.tolist(), index.out_ptr.tolist(), timeline.step_of.tolist()
    rows: list[tuple[int, int, int, int]] = []
    for k, node in enumerate(timeline.graph.nodes):
        if step_of[k] < 0 or node.inplace == "none" or not node.outputs:
            continue
        inputs, outputs = reads[in_ptr[k] : in_ptr[k + 1]], writes[out_ptr[k] : out_ptr[k + 1]]
        if isinstance(node.inplace, tuple):
            positions = {i for i, _ in node.inplace}
            without_permission = {x for i, x in enumerate(inputs) if i not in positions}
            pairs = [(inputs[i], outputs[o]) for i, o in node.inplace if inputs[i] not in without_permission]
        else:
            pairs = [(x, outputs[0]) for x in inputs]
        first_pair: dict[int, tuple[int, int, int, int]] = {}  # by input
        for priority, (x, y) in enumerate(pairs):
            first_pair.setdefault(x, (k, x, y, priority))
        rows += first_pair.values()
    columns: I64 = np.array(rows, np.int64).reshape(-1, 4).T
    return columns[0], columns[1], columns[2], columns[3]


def _others_death(groups: Groups) -> I64:
    """Return an array of shape (tensors,): the latest death of the *other* members of a tensor's storage; 0: none."""
    latest = np.zeros(len(groups.group), np.int64)
    members = np.flatnonzero(groups.shared)
    if not len(members):
        return latest
    members = members[np.lexsort((groups.death[members], groups.group[members]))]
    group, death = groups.group[members], groups.death[members]
    # The latest death of a group is the result for all members but the last; the last gets the death before it.
    last_of_group = np.flatnonzero(np.append(group[1:] != group[:-1], True))
    latest[members] = np.repeat(death[last_of_group], np.diff(last_of_group, prepend=-1))
    latest[members[last_of_group]] = death[last_of_group - 1]
    return latest
