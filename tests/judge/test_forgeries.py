"""An edited plan file, with all figures adjusted to the edit, gets no better verdict.

Each forgery changes the rows or the figures of a sound plan and then recomputes all hashes and figures that follow
from them, so that the file is consistent. Without the graph, an edit of the problem itself (sizes, live ranges,
permissions) cannot be seen; with the graph each forgery is found, or gains nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import pytest

import tmmu
from tests.judge.faults import refigured, rehashed
from tests.support.paths import SAMPLES
from tmmu_core.formats.planfile import plan_file
from tmmu_core.graph.model import Graph
from tmmu_core.judge.verifier.finished_plan import verify_finished
from tmmu_core.plans.figures.metrics import totals
from tmmu_core.plans.model import Plan

BASES = [
    ("mixed_sizes", "slots"),
    ("mixed_sizes", "greedy"),
    ("residual_block", "slots"),
    ("fan_out_fan_in", "slots"),
    ("linear_chain_none", "slots"),
]

CAUGHT, NO_GAIN, PROBLEM = "caught", "no gain", "another problem"
"""What happens to a forgery without the graph. ``PROBLEM``: it may gain, for only the graph shows the edit."""

Edit = Callable[[Plan], Plan]


# --- edits ---------------------------------------------------------------------------------------------------------


def arenas(**fields: Any) -> Edit:
    """Return a forgery that sets figures of every arena; sums and ratios of the metrics are recomputed."""

    def edit(plan: Plan) -> Plan:
        changed = [
            replace(arena, **{name: value(arena) if callable(value) else value for name, value in fields.items()})
            for arena in plan.arenas
        ]
        return with_sums(replace(plan, arenas=tuple(changed)))

    return edit


def with_sums(plan: Plan) -> Plan:
    """Return the metrics with their sums over the arenas recomputed."""

    def total(name: str) -> int:
        return sum(getattr(arena, name) for arena in plan.arenas)

    slots, storages, extent = total("slots"), total("storages"), total("extent_bytes")
    peaks = total("peak_live_bytes")
    stated = dict(plan.metrics["totals"])
    if len(plan.arenas) == 1:
        stated["peak_live_bytes"] = peaks
    stated |= {"extent_bytes": extent, "lower_bound_bytes": total("bound_bytes")}
    metrics = {
        **plan.metrics,
        "totals": stated,
        "peak_logical_slots": slots,
        "max_live": total("max_live"),
        "storages": storages,
        "extent_bytes": extent,
        "committed_bytes": total("committed_bytes"),
        "peak_live_bytes": stated["peak_live_bytes"],
        "peak_physical_bytes_per_arena": {arena.name: arena.extent_bytes for arena in plan.arenas},
        "peak_tmmu_usage_per_arena": {arena.name: arena.peak_live_bytes for arena in plan.arenas},
        "memory_reuse_ratio": (storages - slots) / storages,
        "internal_fragmentation_ratio": (extent - peaks) / extent,
    }
    return replace(plan, metrics=metrics)


def highest(plan: Plan) -> dict[str, tuple[str, ...]]:
    """Return arena → the tensor that ends at the extent."""
    found = {}
    for number, arena in enumerate(plan.arenas):
        rows = np.flatnonzero(plan.arena == number)
        found[arena.name] = (plan.tensor_ids[rows[np.argmax((plan.offset + plan.size)[rows])]],)
    return found


def bound_of_highest(plan: Plan) -> Plan:
    """Return the end of the highest storage, which is the bound if its offset is given."""
    names = highest(plan)
    edit = arenas(lower_bound_bytes=lambda a: a.extent_bytes, status="optimal", witness=lambda a: names[a.name])
    return edit(plan)


def rows(**columns: Callable[[Plan], Any]) -> Edit:
    """Return a forgery that sets columns or fields of the plan and recomputes every figure."""

    def edit(plan: Plan) -> Plan:
        return following(replace(plan, **{name: value(plan) for name, value in columns.items()}))

    return edit


def following(plan: Plan) -> Plan:
    """Return the plan with all figures recomputed from the rows, and without a bound."""
    found = refigured(plan)
    kinds = zip(plan.roles, plan.base_tensor_uids, plan.size.tolist(), strict=True)
    activations = sum(size for role, base, size in kinds if role == "activation" and base is None)
    kept = {"activation_bytes": activations, "activation_bytes_retained": 0, "activation_retention_ratio": 0.0}
    return replace(found, metrics={**found.metrics, **kept})


def halved(plan: Plan) -> Plan:
    """Return the plan with every size and offset halved."""
    shapes = tuple([(int(size) // 2,) for size in plan.size])
    small = replace(plan, size=plan.size // 2, shapes=shapes, dtypes=("uint8",) * len(plan))
    aligned = np.full(len(plan), 64, np.uint64)
    config = tuple([replace(arena, alignment_bytes=64) for arena in plan.arenas])
    return following(
        replace(small, offset=plan.offset // 2, alignment=aligned, arenas=config, arena_config_hash=bytes(32))
    )


def coarse(plan: Plan) -> Plan:
    """Return the plan with the largest alignments that its offsets have, which raises the bound."""
    grid = int(np.gcd.reduce(np.append(plan.offset, np.uint64(1 << 30))))
    config = tuple([replace(arena, alignment_bytes=grid) for arena in plan.arenas])
    raised = replace(plan, alignment=np.full(len(plan), grid, np.uint64), arenas=config, arena_config_hash=bytes(32))
    return arenas(lower_bound_bytes=lambda a: a.extent_bytes, status="optimal", witness=())(raised)


def one_storage(plan: Plan) -> Plan:
    """Return the plan with all rows that share nothing in one alias group at byte 0."""
    zero = np.zeros(len(plan), np.int64)
    joined = replace(plan, offset=zero.astype(np.uint64), logical_slot=zero, generation=zero)
    numbered = replace(
        joined, storage=plan.arena.astype(np.int64), alias_group_ids=tuple([f"g{k}" for k in plan.arena])
    )
    return following(numbered)


def until_reuse(plan: Plan) -> Plan:
    """Return the plan with every row live until its bytes are used again, which raises the bound."""
    stop = plan.offset + plan.size
    death = plan.death.copy()
    for i in range(len(plan)):
        over = (plan.arena == plan.arena[i]) & (plan.offset < stop[i]) & (plan.offset[i] < stop)
        over &= plan.birth >= plan.death[i]
        death[i] = plan.birth[over].min(initial=plan.steps)
    longer = following(replace(plan, death=death, handoffs=()))
    return arenas(lower_bound_bytes=lambda a: a.extent_bytes, status="optimal")(longer)


def without_last(plan: Plan) -> Plan:
    """Return the plan without the row with the highest end."""
    last = int(np.argmax(plan.offset + plan.size))
    left = [i for i in range(len(plan)) if i != last]
    columns: dict[str, Any] = {}
    for column in ("arena", "logical_slot", "offset", "size", "alignment", "birth", "death", "generation"):
        columns[column] = getattr(plan, column)[left]
    for column in ("tensor_ids", "roles", "dtypes", "shapes", "alias_group_ids", "base_tensor_uids"):
        columns[column] = tuple([getattr(plan, column)[i] for i in left])
    columns["storage"] = np.unique(plan.storage[left], return_inverse=True)[1].astype(np.int64)
    columns["handoffs"] = tuple([row for row in plan.handoffs if plan.tensor_ids[last] not in row])
    return following(replace(plan, **columns, taken=()))


def handed_off(plan: Plan) -> Plan:
    """Return the plan with an in-place reuse at the last read of every row by the row born there at its offset."""
    born = {int(step): name for name, step in zip(plan.tensor_ids, plan.birth, strict=True)}
    givers = [(int(end) - 1, name) for name, end in zip(plan.tensor_ids, plan.death, strict=True)]
    pairs = [(step, name, born[step]) for step, name in sorted(givers) if step in born and born[step] != name]
    death, offset = plan.death.copy(), plan.offset.copy()
    for step, giver, taker in pairs:
        death[plan.row_of[giver]] = step
        offset[plan.row_of[taker]] = offset[plan.row_of[giver]]
    edited = replace(plan, death=death, offset=offset, handoffs=tuple(pairs), taken=(True,) * len(pairs))
    slot = np.zeros(len(plan), np.int64)
    order = np.argsort(plan.birth, kind="stable")
    generation = np.empty(len(plan), np.int64)
    generation[order] = np.arange(len(plan))
    storage = generation.copy()
    return following(replace(edited, logical_slot=slot, generation=generation, storage=storage))


def renamed(plan: Plan) -> Plan:
    """Return the plan with another planner's name and options."""
    return replace(plan, planner="exact", planner_options={"budget": 1}, ir_name="other")


OPTIMAL_BOUND: dict[str, Any] = {"lower_bound_bytes": lambda a: a.extent_bytes, "status": "optimal"}


@dataclass(frozen=True)
class Forgery:
    """An edit of a plan, and the verdict on it without the graph."""

    edit: Edit
    alone: str


FORGERIES = {
    "bound without a witness": Forgery(arenas(**OPTIMAL_BOUND, witness=(), witness_step=-1), NO_GAIN),
    "bound of the highest storage": Forgery(bound_of_highest, NO_GAIN),
    "search proof": Forgery(arenas(proven_bytes=lambda a: a.extent_bytes, status="optimal"), NO_GAIN),
    "search proof, unproven": Forgery(arenas(proven_bytes=lambda a: a.extent_bytes, status="unproven"), NO_GAIN),
    "bound under the status claimed": Forgery(
        arenas(proven_bytes=lambda a: a.extent_bytes, status="claimed", witness=()), NO_GAIN
    ),
    "bound left out": Forgery(arenas(lower_bound_bytes=None, witness=(), witness_step=-1), NO_GAIN),
    "bound with the old witness": Forgery(arenas(**OPTIMAL_BOUND), CAUGHT),
    "optimal alone": Forgery(arenas(status="optimal"), CAUGHT),
    "bound of zero": Forgery(arenas(lower_bound_bytes=0, witness=(), witness_step=-1), NO_GAIN),
    "extent": Forgery(arenas(extent_bytes=lambda a: a.bound_bytes, committed_bytes=lambda a: a.bound_bytes), CAUGHT),
    "peak": Forgery(arenas(peak_live_bytes=lambda a: a.peak_live_bytes // 2), CAUGHT),
    "slots": Forgery(arenas(slots=1), CAUGHT),
    "storages": Forgery(arenas(storages=10**6), CAUGHT),
    "max live": Forgery(arenas(max_live=1), CAUGHT),
    "pages": Forgery(arenas(page_size=1), CAUGHT),
    "capacity": Forgery(arenas(capacity_bytes=2**40), CAUGHT),
    "sizes": Forgery(halved, PROBLEM),
    "alignment": Forgery(coarse, PROBLEM),
    "alias group": Forgery(one_storage, PROBLEM),
    "live ranges": Forgery(until_reuse, PROBLEM),
    "row left out": Forgery(without_last, PROBLEM),
    "hand-offs added": Forgery(handed_off, PROBLEM),
    "order": Forgery(rows(execution_order=lambda p: p.execution_order[::-1]), PROBLEM),
    "mode": Forgery(rows(mode=lambda p: "forward"), PROBLEM),
    "preset": Forgery(rows(preset=lambda p: "train_full"), PROBLEM),
    "graph": Forgery(rows(ir_hash=lambda p: bytes(32)), PROBLEM),
    "roles": Forgery(rows(roles=lambda p: ("workspace",) * len(p)), PROBLEM),
    "places": Forgery(rows(places=lambda p: "bytes" if p.places == "slots" else "slots"), PROBLEM),
    "own arenas": Forgery(lambda p: replace(arenas(**OPTIMAL_BOUND, witness=())(p), own_arenas=True), NO_GAIN),
    "notes": Forgery(rows(notes=lambda p: {}), NO_GAIN),
    "planner": Forgery(renamed, NO_GAIN),
    "token": Forgery(rows(replay_token=lambda p: bytes(32)), NO_GAIN),
    "rank": Forgery(rows(rank=lambda p: 1, world_size=lambda p: 2), NO_GAIN),
}


# --- verdicts ------------------------------------------------------------------------------------------------------


def gains(honest: Plan, forged: Plan) -> list[str]:
    """Return the figures and statuses that are better in the forged plan."""
    better = [
        name
        for name in ("extent_bytes", "peak_live_bytes")
        if getattr(totals(forged), name) < getattr(totals(honest), name)
    ]
    better += ["lower bound"] * (totals(forged).lower_bound_bytes > totals(honest).lower_bound_bytes)
    before, after = (sum(a.storages - a.slots for a in plan.arenas) for plan in (honest, forged))
    better += ["reuse"] * (after > before)
    statuses = [(arena.status, honest.arena_of[arena.name].status) for arena in forged.arenas]
    return better + [new for new, old in statuses if new == "optimal" and old != "optimal"]


def sealed(plan: Plan) -> bytes:
    return plan_file.to_json(rehashed(plan))


def unsealed(plan: Plan) -> bytes:
    document = msgspec.json.decode(sealed(plan))
    document.pop("content_hash", None)
    return msgspec.json.encode(document)


@pytest.fixture(scope="module", params=BASES, ids="-".join)
def honest(request: pytest.FixtureRequest) -> tuple[Graph, Plan]:
    name, planner = request.param
    plan = tmmu.plan(SAMPLES / f"{name}.tmmu.json", planner=planner)
    return plan.graph, plan_file.from_document(plan_file.to_json(plan))


@pytest.mark.parametrize("written", [sealed, unsealed])
@pytest.mark.parametrize("name", FORGERIES)
def test_consistent_forgery_is_caught_or_gains_nothing(
    name: str, written: Callable[[Plan], bytes], honest: tuple[Graph, Plan]
) -> None:
    graph, plan = honest
    forgery = FORGERIES[name]
    forged = plan_file.from_document(written(forgery.edit(plan)))
    alone, with_graph = verify_finished(forged), verify_finished(forged, graph)
    if forgery.alone == CAUGHT:
        assert not alone.verdict.ok or forged.metrics == plan.metrics
    if forgery.alone == NO_GAIN:
        assert not alone.verdict.ok or not gains(plan, alone.plan)
    assert not with_graph.verdict.ok or not gains(plan, with_graph.plan)
