"""Plans written by hand: a row is (id, arena, slot, offset, size, birth, death)."""

from typing import Any

import numpy as np

from tmmu_core.plans.figures.live_bytes import live_bytes_of, peak_of
from tmmu_core.plans.model import ArenaSummary, Plan

Row = tuple[str, str, int, int, int, int, int]

FOUR: tuple[Row, ...] = (
    ("a", "activations", 0, 0, 1024, 0, 2),
    ("b", "activations", 1, 1024, 2048, 1, 4),
    ("c", "activations", 0, 0, 512, 2, 3),
    ("w", "parameters", 0, 0, 4096, 0, 4),
)
"""Peak 3,072 bytes at step 1; c takes slot 0 after a."""


def plan_of(
    rows: tuple[Row, ...] = FOUR,
    *,
    capacity: int = 2**64 - 1,
    nodes: tuple[str, ...] = ("n1", "n2", "n3"),
    bases: dict[str, str] | None = None,
    handoffs: tuple[tuple[int, str, str], ...] = (),
    **changes: Any,
) -> Plan:
    """Return the plan of these rows; its figures are computed by the core."""
    rows = tuple(sorted(rows, key=lambda row: row[0].encode("utf-8", "surrogatepass")))
    bases = bases or {}
    steps = len(nodes) + 1
    names = tuple(sorted({row[1] for row in rows}))
    summaries, storage = [], np.zeros(len(rows), np.int64)
    number = 0
    generation = np.zeros(len(rows), np.int64)
    for name in names:
        here = [row for row in rows if row[1] == name and row[0] not in bases]
        columns = [np.array([row[k] for row in here]) for k in (5, 6)]
        curve = live_bytes_of(*columns, np.array([row[4] for row in here], np.uint64), steps)
        extent = max(row[3] + row[4] for row in here)
        slots = len({row[2] for row in here})
        summaries.append(
            ArenaSummary(capacity, 128, 0, extent, extent, peak_of(curve)[1], slots, slots, len(here), name=name)
        )
        for slot in sorted({row[2] for row in here}):
            for k, row in enumerate(sorted((r for r in here if r[2] == slot), key=lambda r: r[5])):
                i = rows.index(row)
                storage[i], generation[i] = number, k
                number += 1
    ids = tuple(row[0] for row in rows)
    for view, base in bases.items():
        storage[ids.index(view)] = storage[ids.index(base)]
    digest = bytes(range(32))
    fields: dict[str, Any] = {
        "planner": "slots",
        "planner_options": {},
        "ir_name": "four",
        **dict.fromkeys(
            ("ir_hash", "replay_token", "shard_spec_hash", "arena_config_hash", "execution_order_hash"), digest
        ),
        "tmmu_plan_hash": digest,
        "layout_hash": digest,
        "mode": "inference",
        "preset": "inference",
        "places": "slots",
        "rank": 0,
        "world_size": 1,
        "steps": steps,
        "has_inputs_step": True,
        "execution_order": nodes,
        "arenas": tuple(summaries),
        "tensor_ids": ids,
        "arena": np.array([names.index(row[1]) for row in rows], np.int32),
        "logical_slot": np.array([row[2] for row in rows], np.int64),
        "offset": np.array([row[3] for row in rows], np.uint64),
        "size": np.array([row[4] for row in rows], np.uint64),
        "alignment": np.full(len(rows), 128, np.uint64),
        "birth": np.array([row[5] for row in rows], np.int64),
        "death": np.array([row[6] for row in rows], np.int64),
        "generation": generation,
        "storage": storage,
        "roles": tuple("parameter" if row[1] == "parameters" else "activation" for row in rows),
        "dtypes": ("float32",) * len(rows),
        "shapes": tuple((row[4] // 4,) for row in rows),
        "alias_group_ids": (None,) * len(rows),
        "base_tensor_uids": tuple(bases.get(row[0]) for row in rows),
        "handoffs": handoffs,
    }
    return Plan(**{**fields, **changes})
