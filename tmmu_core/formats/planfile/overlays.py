"""Write a plan for other viewers: a trace for Perfetto, and node data for Model Explorer.

The trace is Chrome's JSON trace format, which https://ui.perfetto.dev and ``chrome://tracing`` open. One step is one
microsecond, an arena is a process with a counter of its live bytes, and a tensor is a slice. Node data colour the nodes
of a graph in Model Explorer by the live bytes at their step (``GraphNodeData`` of ``node_data_builder``).
"""

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import Any

import msgspec
import numpy as np

from tmmu_core.graph.model import PERSISTENT_ROLES
from tmmu_core.plans.analysis.plan_notes import input_warnings
from tmmu_core.plans.figures.live_bytes import curve_points_of, live_bytes
from tmmu_core.plans.model import Plan

GRADIENT = ("#ffffff", "#fdd49e", "#d7301f")  # colours of the lowest, the middle and the highest value


def to_perfetto(plan: Plan) -> bytes:
    """Return the trace: execution order, live bytes of each arena, and a slice for each tensor."""
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "execution order"}}]
    for step, node in _nodes(plan):
        events.append({"ph": "X", "name": node, "cat": "node", "pid": 0, "tid": 0, "ts": step, "dur": 1})
    for number in range(len(plan.arenas)):
        events += _arena_events(plan, number)
    lines = b",\n".join(map(msgspec.json.encode, events))
    other_data = msgspec.json.encode({"warnings": input_warnings(plan)})
    return b'{"displayTimeUnit": "ms", "otherData": ' + other_data + b', "traceEvents": [\n' + lines + b"\n]}\n"


def _nodes(plan: Plan) -> Iterator[tuple[int, str]]:
    """Yield ``(step, node)`` of each step; nothing for an instance, which has no nodes."""
    steps = len(plan.execution_order) + plan.has_inputs_step if plan.execution_order else 0
    return ((step, plan.node_at(step)) for step in range(min(steps, plan.steps)))


def _arena_events(plan: Plan, number: int) -> Iterator[dict[str, Any]]:
    arena, process = plan.arenas[number], number + 1
    yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": f"arena {arena.name}"}}
    yield {"ph": "M", "name": "process_sort_index", "pid": process, "args": {"sort_index": process}}
    curve = live_bytes(plan, arena.name)
    changes = np.flatnonzero(np.append(True, curve[1:] != curve[:-1]))
    steps = curve_points_of(plan).steps[changes].tolist()
    for step, size in [*zip(steps, curve[changes].tolist(), strict=True), (plan.steps, 0)]:
        yield {"ph": "C", "name": "live bytes", "pid": process, "ts": step, "args": {"bytes": size}}
    rows = np.flatnonzero(plan.arena == number)
    rows = rows[np.lexsort((plan.offset[rows], plan.birth[rows]))].tolist()
    for row, lane in zip(rows, _lanes(plan, rows), strict=True):
        tensor, birth = plan.row(row), int(plan.birth[row])
        details = {"offset_bytes": tensor.offset_bytes, "size_bytes": tensor.size_bytes, "dtype": tensor.dtype}
        details |= {"shape": tensor.shape, "slot": tensor.logical_slot, "base": tensor.base_tensor_uid}
        event = {"ph": "X", "name": tensor.tensor_id, "cat": tensor.role, "pid": process, "tid": lane + 1}
        yield event | {"ts": birth, "dur": int(plan.held_until[row]) - birth, "args": details}


def _lanes(plan: Plan, rows: Sequence[int]) -> Iterator[int]:
    """Yield a track number for each of ``rows``, sorted by birth, so that no two slices of a track overlap."""
    free: list[int] = []
    used: list[tuple[int, int]] = []
    for row in rows:
        while used and used[0][0] <= plan.birth[row]:
            heappush(free, heappop(used)[1])
        lane = heappop(free) if free else len(used)  # if no lane is free, all lanes 0 … len(used) − 1 are in use
        heappush(used, (int(plan.held_until[row]), lane))
        yield lane


def to_model_explorer(plan: Plan) -> bytes:
    """Return node data: the live bytes at the step of each node, by node id and by the ids of its results."""
    points = curve_points_of(plan)
    curves = [live_bytes(plan, arena.name).astype(object) for arena in plan.arenas]
    live = np.array(curves, object).reshape(-1, len(points)).sum(axis=0)
    nodes = dict(_nodes(plan))
    results = {node: {"value": live[points.at(step)]} for step, node in nodes.items()}
    for tensor_id, birth, role in zip(plan.tensor_ids, plan.birth.tolist(), plan.roles, strict=True):
        if birth in nodes and role not in PERSISTENT_ROLES | {"input"}:
            results[tensor_id] = results[nodes[birth]]
    gradient = [{"stop": k / 2, "bgColor": colour} for k, colour in enumerate(GRADIENT)]
    return msgspec.json.encode({"name": f"live bytes ({plan.planner})", "results": results, "gradient": gradient})
