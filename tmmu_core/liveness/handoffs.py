"""Hand-offs: when the last reader of x may write its output over x (contract §1).

One pass over the edges, as columns: keep the permitted ones at which the input is read for the last time, find for
each the first condition that refuses it, and grant each node the first candidate that none refuses.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tmmu_core.liveness.groups import Groups
from tmmu_core.liveness.model import CONDITIONS, Timeline
from tmmu_core.liveness.ranges import Ranges

I64 = NDArray[np.int64]

GRANTED = len(CONDITIONS)
ALREADY_TAKEN = CONDITIONS.index("already_taken")


class Grouping(NamedTuple):
    """Who shares bytes with whom, and who may not: ranges and groups of tensors, before hand-offs are decided."""

    ranges: Ranges
    groups: Groups
    heads: I64
    """Shape (tensors,), read at a group's number: its first-born member."""
    arena_of: I64
    """Shape (tensors,): the number of the arena of each tensor's group."""
    apart: I64
    """Shape (pairs, 2): groups that must not share bytes, each pair once, the lower number first."""


def decide_handoffs(timeline: Timeline, grouping: Grouping) -> tuple[I64, I64]:
    """Granted rows (step, from, to) and refused rows (step, from, to, condition), both in step order."""
    ranges, groups, heads, arena_of, forbidden = grouping
    index = timeline.index
    node, x, y, priority = _candidates(timeline)
    step = timeline.step_of[node]
    last_here = (ranges.last_read[x] == step) & (groups.group[x] != groups.group[y])
    node, x, y, priority, step = (column[last_here] for column in (node, x, y, priority, step))

    x_group, y_group = groups.group[x], groups.group[y]
    alias_live = (heads[y_group] != y) | (ranges.birth[y] != step)
    alias_live |= _others_death(groups)[x] > step
    low, high, groups_there = np.minimum(x_group, y_group), np.maximum(x_group, y_group), len(groups.group)
    must_not = np.isin(low * groups_there + high, forbidden[:, 0] * groups_there + forbidden[:, 1])

    refused_by = np.select(
        [
            np.diff(index.out_ptr)[node] > 1,
            _persistent_groups(timeline, ranges, groups)[x_group],
            index.is_output[x],
            ranges.saved[x],
            alias_live,
            must_not,
            arena_of[x] != arena_of[y],
        ],
        range(ALREADY_TAKEN),
        default=GRANTED,
    ).astype(np.int64)

    order = np.lexsort((priority, step))
    step, x, y, refused_by = step[order], x[order], y[order], refused_by[order]
    free = np.flatnonzero(refused_by == GRANTED)
    first_of_step = np.ones(len(free), np.bool_)
    first_of_step[1:] = step[free][1:] != step[free][:-1]
    refused_by[free[~first_of_step]] = ALREADY_TAKEN

    granted = refused_by == GRANTED
    handoffs = np.stack([step[granted], x[granted], y[granted]], axis=1)
    refusals = np.stack([step[~granted], x[~granted], y[~granted], refused_by[~granted]], axis=1)
    return handoffs, refusals


def _candidates(timeline: Timeline) -> tuple[I64, I64, I64, I64]:
    """Columns (node, input tensor, output tensor, priority) of every permitted pair, a pair of tensors once a node.

    A tensor that a node reads at several positions is permitted only if each of them is: all are one buffer.
    """
    index = timeline.index
    nodes = timeline.graph.nodes
    has_output = np.diff(index.out_ptr) > 0
    listed: list[tuple[int, int, int, int]] = []
    permissions = [node.inplace for node in nodes]
    kinds = dict.fromkeys(permissions)
    of_any = {kind: kind is None or kind == "any" for kind in kinds}
    everything = np.fromiter(map(of_any.__getitem__, permissions), np.bool_, len(nodes))
    in_pairs = any(isinstance(kind, tuple) for kind in kinds)
    for k, permission in enumerate(permissions) if in_pairs else ():
        if isinstance(permission, tuple):
            inputs, outputs = index.inputs_of(k).tolist(), index.outputs_of(k).tolist()
            whole = _permitted_whole(inputs, {i for i, _ in permission})
            listed += [(k, inputs[i], outputs[o], at) for at, (i, o) in enumerate(permission) if inputs[i] in whole]

    everything &= has_output & (timeline.step_of >= 0)
    reads = np.diff(index.in_ptr)
    of_edge = np.repeat(np.arange(len(nodes), dtype=np.int64), reads)
    position = np.arange(len(of_edge), dtype=np.int64) - np.repeat(index.in_ptr[:-1], reads)
    chosen = everything[of_edge]
    node, x, priority = of_edge[chosen], index.in_idx[chosen], position[chosen]
    y = index.out_idx[index.out_ptr[node]]

    rows = np.array([row for row in listed if timeline.step_of[row[0]] >= 0], np.int64).reshape(-1, 4)
    node, x, y, priority = (np.concatenate(pair) for pair in zip((node, x, y, priority), rows.T, strict=True))
    return _first_mentions(node, x, y, priority)


def _permitted_whole(inputs: list[int], positions: set[int]) -> set[int]:
    """The tensors among ``inputs`` that stand at no position which is not permitted (contract §11)."""
    return set(inputs) - {x for i, x in enumerate(inputs) if i not in positions}


def _first_mentions(node: I64, x: I64, y: I64, priority: I64) -> tuple[I64, I64, I64, I64]:
    """Keep, of several mentions of one input by one node, the one of highest priority."""
    order = np.lexsort((priority, x, node))
    node, x, y, priority = node[order], x[order], y[order], priority[order]
    keep = np.ones(len(node), np.bool_)
    keep[1:] = (node[1:] != node[:-1]) | (x[1:] != x[:-1])
    return node[keep], x[keep], y[keep], priority[keep]


def _persistent_groups(timeline: Timeline, ranges: Ranges, groups: Groups) -> NDArray[np.bool_]:
    """Shape (tensors,), read at a group's number: whether a member is persistent."""
    persistent = np.zeros(len(groups.group), np.bool_)
    persistent[groups.group[timeline.index.is_persistent & ranges.planned]] = True
    return persistent


def _others_death(groups: Groups) -> I64:
    """Shape (tensors,): the latest death among the *other* members of each tensor's storage; 0 where it is alone."""
    latest = np.zeros(len(groups.group), np.int64)
    members = np.flatnonzero(groups.shared)
    if not len(members):
        return latest
    members = members[np.lexsort((groups.death[members], groups.group[members]))]
    group, death = groups.group[members], groups.death[members]
    last = np.append(group[1:] != group[:-1], True)
    # Sorted by death within a group: everybody's latest other is the last one, and the last one's is the last but one.
    last_of_group = np.flatnonzero(last)
    latest[members] = np.repeat(death[last_of_group], np.diff(last_of_group, prepend=-1))
    latest[members[last_of_group]] = death[last_of_group - 1]
    return latest
