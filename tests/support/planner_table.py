"""Write the golden results of the planners on small problems: ``python -m tests.support.planner_table``.

``golden/planners.json`` holds a row for each problem: the lower bound, and for each planner the extent, what is proven
of it, and a digest of the offsets. Further rows hold the regions of ``helia`` and ``r10``.
"""

import json
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tests.planners.packings import problem, problem_with
from tests.support.searches import SAMPLES, Row, digest
from tests.support.small_problems import EVERY
from tmmu_core.base.atomic_files import replace_file
from tmmu_core.base.errors import TmmuError
from tmmu_core.planners import ARENA_PLANNERS
from tmmu_core.planners.bounds import lower_bound
from tmmu_core.planners.helia import Facts, Memory, Platform
from tmmu_core.planners.helia import Rule as Sending
from tmmu_core.planners.helia import place as spread
from tmmu_core.planners.slots import assign_slots
from tmmu_core.seed.r10 import AllocationPlan, MemoryPlanner, MemoryRegion, SharingOpportunity, TensorLifetime

PLANNERS_FILE = SAMPLES / "golden" / "planners.json"
PLACED = ("persistent", "constant", "scratch")
OPTIONS: dict[str, Row] = {
    "naive": {},
    "slots": {},
    "ffd": {},
    "greedy": {},
    "portfolio": {},
    "search": {"iterations": 20, "seed": 1},
    "exact": {"budget": 400},
}


def result_or_record(compute: Callable[[], Any]) -> Any:
    """Return the result, or the code and the condition of the refusal."""
    try:
        return compute()
    except TmmuError as error:
        record = error.record()  # type: ignore[attr-defined]
        details = record.get("diagnostics", {})
        return {"refused": [record["code_id"], details.get("reason"), details.get("condition")]}


def problem_row(name: str) -> Row:
    """Return the bound, the slots and the packing of every planner for one problem."""
    asked = EVERY[name]()
    bound = lower_bound(asked)
    packings = {planner: result_or_record(partial(packing_row, name, planner)) for planner in OPTIONS}
    return {
        "bound": [bound.bytes, bound.rule, bound.max_live],
        "slot_numbers": assign_slots(asked).tolist(),
        **packings,
    }


def packing_row(name: str, planner: str) -> list[Any]:
    """Return extent, proven bound, optimality and the offsets' digest of one packing."""
    asked = EVERY[name]()
    packing = ARENA_PLANNERS[planner].pack(asked, OPTIONS[planner], None)
    extent = int((packing.offset + asked.size).max(initial=0))
    return [extent, packing.lower_bound, packing.optimal, digest(packing.offset)]


def helia_row(seed: int) -> Row:
    """Return regions, offsets and spills of helia for random storages, memories and rules."""
    rng = random.Random(f"helia/{seed}")
    names = ("DTCM", "SRAM", "FLASH")[: rng.randrange(1, 4)]
    memories = tuple(
        Memory(
            name,
            rng.choice((None, 64, 160, 400)),
            rng.choice((None, None, 32)),
            writable=name != "FLASH" or not rng.randrange(3),
        )
        for name in names
    )
    rules = []
    for _ in range(rng.randrange(4)):
        to = rng.choice(names) if rng.randrange(2) else None
        rules.append(
            Sending(
                rng.choice(names),
                to,
                rng.choice((None, "scratch", "persistent", "constant", "gradient")) if to is None else "constant",
                rng.choice((None, None, "conv*")),
                rng.choice((None, None, "t1*", "t[0-4]")),
                rng.choice((0, 0, 9)),
                rng.choice((None, None, 24)),
            )
        )
    platform = Platform(memories, tuple(rules), rng.choice((1, 8, 16)))
    rows = [(at := rng.randrange(8), at + rng.randrange(1, 5), rng.choice((0, 3, 8, 9, 24, 40))) for _ in range(12)]
    p = problem(*rows, alignment=[rng.choice((1, 2, 16)) for _ in rows])
    p = problem_with(p, roles=tuple(rng.choice(("activation", "gradient")) for _ in rows) if seed % 2 else ())
    if seed % 3 == 0:
        p = problem_with(p, must_not_alias=np.array([sorted(rng.sample(range(12), 2))], dtype=np.int64))
    facts = [
        Facts(
            rng.choice(("scratch", "scratch", "persistent", "constant")),
            rng.choice(("conv_1", "relu", "")),
            rng.choice((1, 4, 8)),
            rng.choice((None, None, None, None, rng.choice(names))),
        )
        for _ in rows
    ]

    def answer() -> Row:
        regions = spread(p, facts, platform)
        region_of = {i: k for k, region in enumerate(regions) for i in region.offset}
        offset = {i: at for region in regions for i, at in region.offset.items()}
        decider = {name: by for region in regions for by, names in region.decided_by.items() for name in names}
        number = {"order": -1, "tensor": -2} | {f"rule {k + 1}": k for k in range(len(platform.rules))}
        spills = [(s, r) for r in regions for s in r.spills]
        spills.sort(key=lambda pair: (PLACED.index(pair[1].role), p.ids.index(pair[0]["storage"])))
        return {
            "regions": [
                [r.name, r.source_memory, r.alignment, r.used, list(r.offset), r.is_requested, r.is_staged]
                for r in regions
            ],
            "region": [region_of[i] for i in range(len(p))],
            "offset": [offset[i] for i in range(len(p))],
            "decided by": [number[decider[name]] for name in p.ids],
            "spills": [[s["storage"], s["wanted"], r.name, s["reason"]] for s, r in spills],
        }

    return {"answer": result_or_record(answer)}


def r10_row(seed: int) -> Row:
    """Return regions, shared pairs and savings of the r10 planner for random lifetimes."""
    rng = random.Random(f"r10/{seed}")
    lives = []
    for k in range(9):
        birth = rng.randrange(9)
        life = (birth, birth + rng.randrange(0, 5), rng.choice((0, 4, 4, 7, 16)), rng.choice((1, 1, 4, 8)))
        lives.append(TensorLifetime(f"t{k}", *life))
    pairs = None
    if seed % 2:
        pairs = [SharingOpportunity(f"t{rng.randrange(9)}", f"t{rng.randrange(9)}") for _ in range(25)]
    plan = MemoryPlanner(lives, pairs).generate_plan()
    moved = []
    for k in range(9):
        old = plan.allocations[f"t{k}"]
        for by in (-1, 1, 8):
            at = MemoryRegion(max(old.offset_bytes + by, 0), old.size_bytes)
            moved.append(AllocationPlan({**plan.allocations, f"t{k}": at}).is_valid(lives))
    beside = [[int(one.overlaps(other)) for other in lives] for one in lives]
    regions = [plan.allocations[f"t{k}"] for k in range(9)]
    return {
        "regions": [[each.offset_bytes, each.size_bytes] for each in regions],
        "bytes": [plan.peak_bytes, plan.pool_bytes, plan.saved_bytes],
        "pairs": [len(plan.sharing_pairs), *map(list, plan.sharing_pairs)],
        "valid": [plan.is_valid(lives), "".join("01"[each] for each in moved)],
        "alive together": ["".join(map(str, row)) for row in beside],
        "on common bytes": ["".join("01"[one.overlaps(other)] for other in regions) for one in regions],
    }


QUESTIONS: dict[str, Callable[[], Row]] = {
    **{name: partial(problem_row, name) for name in EVERY},
    **{f"helia {seed}": partial(helia_row, seed) for seed in range(40)},
    **{f"r10 {seed}": partial(r10_row, seed) for seed in range(12)},
}


def as_stored(row: Row) -> Row:
    """Return the row as it is read back from the file."""
    return json.loads(json.dumps(row))  # type: ignore[no-any-return]


def kept_rows() -> dict[str, Row]:
    """Return the table as the file has it."""
    return json.loads(PLANNERS_FILE.read_text())  # type: ignore[no-any-return]


def main() -> None:
    """Write the file, one line for each row."""
    lines = [f"{json.dumps(name)}: {json.dumps(row(), separators=(',', ':'))}" for name, row in QUESTIONS.items()]
    replace_file(PLANNERS_FILE, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


if __name__ == "__main__":
    main()
