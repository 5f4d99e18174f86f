"""``python -m tests.planners_asked``: write anew what each room of the planners says of small problems.

A planner's answer hides most of how it came about: another branch gives another right packing, or the same one later.
So the rooms are asked one by one: what a problem is made into, its bounds, every order and loop, the tables of the
exact search, its nodes with every pruning left out, which attempt follows which, how the search goes on between parts,
pieces and hand-offs, and when it is told to stop. ``sample_graphs/golden/planners.json`` has a line for each, reviewed
like code.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.exact_asked import (
    MODELLED,
    above_bounds,
    answered,
    budgets,
    cut,
    hunts,
    in_pieces,
    modelled,
    searched,
    steered,
    stubborn,
    within,
)
from tests.searches import SAMPLES, Row, digest
from tests.small_problems import PROBLEMS, ladder
from tmmu_core.planners import PLANNERS, kernels, near_kernel
from tmmu_core.planners.bounds import bound_of, lower_bound, reachable
from tmmu_core.planners.columns import columns, extent_of
from tmmu_core.planners.exact.apart import apart, part
from tmmu_core.planners.greedy import ORDERS as GREEDY
from tmmu_core.planners.greedy import _free_list, _place, widest
from tmmu_core.planners.helia import Facts
from tmmu_core.planners.helia import place as spread
from tmmu_core.planners.near import near_of, neighbours, place_near
from tmmu_core.planners.platform import Memory, Platform
from tmmu_core.planners.platform import Rule as Sending
from tmmu_core.planners.problem import Problem, without_empty
from tmmu_core.planners.r10 import AllocationPlan, MemoryPlanner, MemoryRegion, SharingOpportunity, TensorLifetime
from tmmu_core.planners.slots import assign_slots
from tmmu_core.writing import replace_file

sys.path.append(str(Path(__file__).parent / "planners"))  # its helpers stand in no package

from packings import faults, offsets, problem, problem_with

PLANNERS_FILE = SAMPLES / "golden" / "planners.json"


# --- what a problem is made into ---------------------------------------------------------------------------------


def squeezed(name: str) -> Row:
    """Lives in squeezed time, what is alive when, who conflicts otherwise, which parts never meet."""
    asked = PROBLEMS[name]()
    cols = columns(asked)
    first, other, kind = cols.odd_rows
    rest, kept = without_empty(asked)
    return {
        "parts": [cols.part_of.tolist(), cols.part_lo.tolist(), cols.part_hi.tolist()],
        "births": cols.births.tolist(),
        "odd": [first.tolist(), other.tolist(), kind.tolist()],
        "rows": None if cols.odd is None else [[*map(list, row)] for row in cols.odd],
        "is": [cols.plain, cols.small],
        "live": cols.live_bytes(),
        "alive": [" ".join(map(str, cols.alive_at(k))) for k in range(len(cols.births))],
        "apart": [each.tolist() for each in apart(cols)],
        "with bytes": [kept.tolist(), said_of(rest)],
        "of parts": [said_of(part(asked, each)) for each in apart(cols)][:3],
    }


def said_of(p: Problem) -> list[Any]:
    """Whatever a problem says beside lives and sizes, by its ids."""
    given = [None if column is None else column.tolist() for column in (p.handoff_from, p.must_not_alias, p.fixed)]
    return [" ".join(p.ids), *given, None if p.gaps is None else [len(gaps) for gaps in p.gaps], len(p.roles)]


def bounded(name: str) -> Row:
    """The bound, its witness and its reason, in the problem and without what has no bytes; what can be reached."""
    cols = columns(PROBLEMS[name]())
    found = [bound_of(cols), lower_bound(PROBLEMS[name]())]
    return {
        "bounds": [[b.bytes, list(b.witness), b.step, b.rule, b.max_live] for b in found],
        "reachable": [reachable(cols, at) for at in (0, 1, *range(5, 60, 9))],
    }


def ordered(name: str) -> Row:
    """Every greedy order, and the fullest moment of each life."""
    cols = columns(PROBLEMS[name]())
    return {order: " ".join(map(str, GREEDY[order](cols))) for order in GREEDY} | {"widest": widest(cols)}


def laid(name: str) -> Row:
    """Every order with every fit, by the tree, and by each of the loops that give the same."""
    asked = ladder(60) if name == "ladder" else PROBLEMS[name]()
    cols = columns(asked)
    near, table = (near_of(cols), neighbours(cols, 1000)) if cols.plain else (None, None)
    row: Row = {"extents": [], "tree": [], "loop": [], "near": [], "sorted": []}
    for order, tightest in ((order, tightest) for order in GREEDY for tightest in (False, True)):
        sequence = sorted(GREEDY[order](cols), key=lambda i: cols.fixed[i] < 0)
        found = {"tree": _place(cols, sequence, tightest)}
        if cols.small:
            found["loop"] = kernels.place(cols, sequence, tightest)
        if near is not None:
            found["near"] = place_near(cols, sequence, near, tightest)
        if table is not None and cols.small:
            found["sorted"] = near_kernel.place(cols, sequence, table, tightest)
        assert faults(asked, found["tree"]) == []
        row["extents"].append(extent_of(cols, found["tree"]))
        for way, offset in found.items():
            row[way].extend(offset)
    row |= {way: digest(np.array(row[way], dtype=np.uint64)) for way in ("tree", "loop", "near", "sorted") if row[way]}
    return row | {"list": _free_list(cols) if cols.plain else None}


def met(name: str) -> Row:
    """Who is alive with whom."""
    cols = columns(PROBLEMS[name]())
    found = neighbours(cols, 1000)
    assert found is not None
    return {"first": found[0].tolist(), "others": found[1].tolist()}


def coloured(name: str) -> Row:
    """Slots, and what the planners that search nothing make of it."""
    asked = PROBLEMS[name]()
    row: Row = {"slots": assign_slots(asked).tolist()}
    for planner in ("slots", "naive", "ffd"):
        packing = answered(lambda planner=planner: PLANNERS[planner].pack(asked, {}, None))  # type: ignore[union-attr,misc]
        row[planner] = packing if isinstance(packing, dict) else [offsets(packing), dict(packing.notes)]
    return row


# --- planners of other kinds -------------------------------------------------------------------------------------

TENSORS = ("weight", "conv.bias", "conv.out", "state", "table")


def spread_out(seed: int) -> Row:
    """Storages of all roles over memories and rules at random: regions, offsets, spills and who said so."""
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
        found = spread(p, facts, platform)
        return {
            "regions": [
                [r.name, r.source_memory, r.alignment, r.used, r.members, r.asked_for, r.is_staged]
                for r in found.regions
            ],
            "region": list(found.region_of),
            "offset": list(found.offset),
            "said by": list(found.said_by),
            "spills": [[s.storage, s.wanted, s.got, s.reason] for s in found.spills],
        }

    return {"answer": answered(answer)}


def by_r10(seed: int) -> Row:
    """r10's planner: regions, who shares, what is saved; and whether plans with one region moved are still valid."""
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


# --- all of them -------------------------------------------------------------------------------------------------

PLAIN = [name for name in PROBLEMS if name.startswith(("plain", "twins", "giant", "joined"))]
QUESTIONS: dict[str, Callable[[], Row]] = {
    **{f"{name}, squeezed": partial(squeezed, name) for name in PROBLEMS},
    **{f"bounds of {name}": partial(bounded, name) for name in PROBLEMS},
    **{f"orders of {name}": partial(ordered, name) for name in PROBLEMS},
    **{f"layouts of {name}": partial(laid, name) for name in PROBLEMS},
    "layouts of a ladder": partial(laid, "ladder"),
    **{f"who meets whom in {name}": partial(met, name) for name in PLAIN},
    **{f"slots of {name}": partial(coloured, name) for name in PROBLEMS},
    **{f"models of {name}": partial(modelled, name) for name in MODELLED},
    **{f"{name} at {above} over its bound": partial(searched, name, above) for name, above in above_bounds()},
    **{f"steering {script}": partial(steered, "plain 1", script) for script in range(8)},
    "steering, late": stubborn,
    **{f"exact on {name}, {how}": partial(within, name, how) for name, how in budgets()},
    **{f"hunt on {name}, {how}": partial(within, name, how, budget) for name, how, budget in hunts()},
    **{f"{name} in pieces": partial(in_pieces, name) for name in PLAIN if name.startswith(("plain", "joined"))},
    "cuts": cut,
    **{f"helia {seed}": partial(spread_out, seed) for seed in range(60)},
    **{f"r10 {seed}": partial(by_r10, seed) for seed in range(16)},
}


def said(row: Row) -> Row:
    """As it comes back from the file."""
    return json.loads(json.dumps(row))  # type: ignore[no-any-return]


@cache
def kept() -> dict[str, Row]:
    """Question → answer, as the file has them."""
    return json.loads(PLANNERS_FILE.read_text())  # type: ignore[no-any-return]


def main() -> None:
    """Write the file, a question a line."""
    lines = [f"{json.dumps(name)}: {json.dumps(ask(), separators=(',', ':'))}" for name, ask in QUESTIONS.items()]
    replace_file(PLANNERS_FILE, ("{\n" + ",\n".join(lines) + "\n}\n").encode())
    print(f"{len(lines)} questions")


if __name__ == "__main__":
    main()
