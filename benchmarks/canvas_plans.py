"""Synthetic plans with a given number of boxes, for measurements and tests, with a layout like that of a real network.

Sizes and lifetimes are computed from the index of a box, so equal numbers of boxes give equal plans.
"""

import numpy as np

from tmmu_core.plans.model import ArenaSummary, Plan

_OPERATORS = ("conv", "relu", "add", "matmul", "norm", "pool")


def synthetic_plan(boxes: int, *, slots: int = 48, name: str = "synthetic") -> tuple[Plan, list[str]]:
    """Return ``(plan, operator of each row)``; the plan is valid and has ``boxes`` tensors in three arenas.

    Of ten tensors, eight are activations, inputs or workspaces, one is a gradient and one a parameter. The tensors of a
    slot follow each other with pauses, except parameters.
    """
    spread = (np.arange(boxes, dtype=np.uint64) * np.uint64(2654435761)) % np.uint64(2**32)
    kind = np.where(np.arange(boxes) % 10 == 8, 1, np.where(np.arange(boxes) % 10 == 9, 2, 0))
    per_slot = np.where(kind == 0, slots, np.where(kind == 1, max(1, slots // 4), max(1, boxes)))
    number = np.zeros(boxes, np.int64)
    for k in range(3):
        number[kind == k] = np.arange(int((kind == k).sum()))
    slot, generation = number % per_slot, number // per_slot
    pitch = 6
    steps = int(max((generation[kind == k].max(initial=0) + 1) * pitch for k in (0, 1))) + 2
    birth = np.where(kind == 2, 0, generation * pitch + 1 + (slot * 5) % pitch)
    life = 1 + (spread % np.uint64(pitch)).astype(np.int64)
    death = np.where(kind == 2, steps, np.minimum(birth + life, steps))
    backing = (1 + (slot * 7919) % 13) * 65536
    size = np.where(kind == 2, 4096, backing - (spread % np.uint64(3)).astype(np.int64) * 16384).astype(np.uint64)
    offset = np.zeros(boxes, np.uint64)
    extent = []
    for k in range(3):
        here = kind == k
        count = int(slot[here].max(initial=-1)) + 1
        room = np.full(count, 4096) if k == 2 else (1 + (np.arange(count) * 7919) % 13) * 65536
        start = np.concatenate([[0], np.cumsum(room)])
        offset[here] = start[slot[here]].astype(np.uint64)
        extent.append((int(start[-1]), count))
    names = ("activations", "gradients", "parameters")
    roles = np.array(["activation", "gradient", "parameter"])[kind]
    # The first two activations are inputs of the network, some others are workspaces.
    roles = np.where(
        (kind == 0) & (number < 2), "input", np.where((kind == 0) & (number % 29 == 7), "workspace", roles)
    )
    operators = [_OPERATORS[i % len(_OPERATORS)] for i in range(boxes)]
    ids = tuple(f"{operators[i]}_{i:07d}:out" for i in range(boxes))
    by_id = sorted(range(boxes), key=lambda i: ids[i])
    order = np.array(by_id, np.int64)
    arenas = []
    for k, (end, count) in enumerate(extent):
        here = kind == k
        curve = np.zeros(steps + 1, np.int64)
        np.add.at(curve, birth[here], size[here].astype(np.int64))
        np.add.at(curve, death[here], -size[here].astype(np.int64))
        most = int(np.cumsum(curve).max(initial=0))
        capacity = 2**64 - 1 if k else end + end // 8
        alive = min(count, int(here.sum()))
        arenas.append(ArenaSummary(capacity, 128, 0, end, end, most, count, alive, int(here.sum()), name=names[k]))
    digest = bytes(32)
    plan = Plan(
        planner="slots", planner_options={}, ir_name=name, ir_hash=digest, mode="backward", preset="train_full",
        places="slots",
        replay_token=digest, rank=0, world_size=1, shard_spec_hash=digest, arena_config_hash=digest,
        execution_order_hash=digest, tmmu_plan_hash=digest, layout_hash=digest, steps=steps, has_inputs_step=True,
        execution_order=tuple(f"{_OPERATORS[k % 6]}_{k}" for k in range(1, steps)), arenas=tuple(arenas),
        tensor_ids=tuple(ids[i] for i in by_id), arena=kind[order].astype(np.int32), logical_slot=slot[order],
        offset=offset[order], size=size[order], alignment=np.full(boxes, 128, np.uint64), birth=birth[order],
        death=death[order], generation=generation[order],
        storage=np.argsort(np.lexsort((generation[order], slot[order], kind[order]))),
        roles=tuple(roles[order].tolist()), dtypes=("float32",) * boxes,
        shapes=tuple((int(size[i]) // 4,) for i in by_id), alias_group_ids=(None,) * boxes,
        base_tensor_uids=(None,) * boxes,
    )  # fmt: skip
    return plan, [operators[i] for i in by_id]
