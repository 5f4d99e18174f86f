"""A plan held against the graph it was made of: reads, writes, ranges, sharing, addresses, hand-offs.

What runs when, who lives when and who shares bytes is worked out again from the contract (:mod:`.steps`,
:mod:`.lives`); the plan's own columns are compared with that, and every read and write of every step is walked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tmmu_core.errors import ContractError
from tmmu_core.graph.model import PRESETS, Graph
from tmmu_core.judge.canonical import hash_of, ir_hash
from tmmu_core.judge.facts import PlanFacts
from tmmu_core.judge.finding import Finding, error
from tmmu_core.judge.lives import Lives, lives_of
from tmmu_core.judge.runs import run_of
from tmmu_core.plan.model import Plan

RULES: dict[str, str] = {
    "graph": "the graph can be run under the plan's mode, preset and order, and has the hash that the plan names",
    "tensors": "the plan has a row for every tensor of the timeline and for no other, and says what the graph says",
    "arena": "every tensor lies in the arena that it, or else its role, names",
    "dead_access": "every read happens while its tensor lives, every write at its birth",
    "live_range": "births and deaths are the contract's, given the hand-offs that the plan lists",
    "sharing": "tensors share a storage exactly where views, alias groups and in-place writes make them",
    "address": "views and what is written in place lie at their byte of their storage",
    "must_not_alias": "tensors that must not alias share neither a slot nor a byte",
    "illegal_handoff": "every hand-off is permitted by its node and refused by no condition of the contract",
    "retention": "bytes of activations, and of those kept past their last forward use, are what the graph makes them",
}
"""Rule → what holds when it is not found."""


@dataclass(frozen=True)
class Seen:
    """What the graph says of a plan."""

    findings: tuple[Finding, ...]
    alignment: dict[int, int] | None
    """What each storage (by number) asks for, in bytes; ``None`` where the graph could not be run."""
    arenas_with_pairs: frozenset[str] | None
    """Arenas in which storages must not alias."""
    left_out: dict[str, str]
    """Rules that were not tried, and why."""


def examine(facts: PlanFacts, graph: Graph, dims: Mapping[str, int] | None, cut_from: bytes | None = None) -> Seen:
    """Hold ``facts.plan`` against ``graph``, or against a rank's share of the graph whose hash is ``cut_from``."""
    plan = facts.plan
    try:
        lives = _lives(plan, graph, dims)
    except ContractError as refusal:
        found = error("graph", f"{_other(plan, graph, cut_from)}the graph cannot be run as the plan says: {refusal}")
        untried = {rule: "the graph cannot be run as the plan says" for rule in RULES if rule != "graph"}
        return Seen((found,), None, None, untried)
    findings = [
        *check_graph(plan, graph, lives, cut_from),
        *check_tensors(plan, lives),
        *([] if plan.own_arenas else check_homes(plan, lives)),
        *check_accesses(plan, lives),
        *check_ranges(plan, lives),
        *check_sharing(plan, lives),
        *check_addresses(plan, lives),
        *check_apart(plan, lives),
        *check_legality(plan, lives),
        *check_retention(plan, lives),
    ]
    number = {name: int(plan.storage[row]) for name, row in plan.row_of.items()}
    alignment = {number[s.name]: s.alignment for s in lives.storages.values() if s.name in number}
    pairs = frozenset(lives.storages[name].arena for pair in lives.apart for name in pair)
    return Seen(tuple(findings), alignment, pairs, {"arena": "its arenas are its own"} if plan.own_arenas else {})


def _other(plan: Plan, graph: Graph, cut_from: bytes | None) -> str:
    """Said before a refusal that comes of it: the plan's graph is not this one."""
    other = plan.ir_hash != (ir_hash(graph) if cut_from is None else cut_from)
    return "the plan was made of another graph: the ir_hash differs; " if other else ""


def _lives(plan: Plan, graph: Graph, dims: Mapping[str, int] | None) -> Lives:
    known = {node.node_id for node in graph.nodes}
    # The order as run holds inserted nodes too; what is left is the order of the graph's own.
    order = [node_id for node_id in plan.execution_order if node_id in known]
    preset = plan.preset if plan.preset in PRESETS else "inference"
    run = run_of(graph, plan.mode, preset, order, _point(plan, graph) if dims is None else dims)  # type: ignore[arg-type]
    if plan.own_arenas:
        return lives_of(run, None)
    return lives_of(run, () if plan.arena_config_hash == hash_of({}) else [arena.name for arena in plan.arenas])


def _point(plan: Plan, graph: Graph) -> dict[str, int]:
    """Where the named dimensions stand, read off the plan's shapes."""
    point: dict[str, int] = {}
    for tensor in graph.tensors:
        row = plan.row_of.get(tensor.id)
        if row is not None and len(plan.shapes[row]) == len(tensor.shape):
            for dim, value in zip(tensor.shape, plan.shapes[row], strict=True):
                if isinstance(dim, str) and dim in graph.dims:
                    low, high = graph.dims[dim].min, graph.dims[dim].max
                    point.setdefault(dim, min(max(value, low), high))
    return point


def check_graph(plan: Plan, graph: Graph, lives: Lives, cut_from: bytes | None = None) -> Iterator[Finding]:
    """Rule ``graph``."""
    if plan.ir_hash != (ir_hash(graph) if cut_from is None else cut_from):
        yield error("graph", "the plan was made of another graph: the ir_hash differs.")
    run = lives.run
    if (plan.steps, plan.has_inputs_step) != (run.steps, run.has_inputs_step):
        yield error("graph", f"the plan has {plan.steps} steps, the graph {run.steps} under {plan.mode}.")
    for k, (mine, theirs) in enumerate(zip(plan.execution_order, run.order, strict=False)):
        if mine != theirs:
            yield error("graph", f'the plan runs "{mine}" where the graph runs "{theirs}".', step=run.step_of(k))
            return
    if len(plan.execution_order) != len(run.order):
        yield error("graph", f"the plan runs {len(plan.execution_order)} nodes, the graph {len(run.order)}.")


def check_tensors(plan: Plan, lives: Lives) -> Iterator[Finding]:
    """Rule ``tensors``."""
    run = lives.run
    for name in lives.birth:
        if name not in plan.row_of:
            yield error("tensors", f'"{name}" is in the timeline and not in the plan.', tensor=name)
    for i, name in enumerate(plan.tensor_ids):
        if name not in lives.birth:
            yield error("tensors", f'"{name}" is in the plan and not in the timeline.', tensor=name)
            continue
        tensor = run.tensors[name]
        for what, mine, theirs in (
            ("size", int(plan.size[i]), run.sizes.row_bytes[name]),
            ("shape", plan.shapes[i], run.sizes.shape[name]),
            ("dtype", plan.dtypes[i], tensor.dtype),
            ("role", plan.roles[i], tensor.role),
            ("alias group", plan.alias_group_ids[i], tensor.alias_group_id),
            ("base", plan.base_tensor_uids[i], tensor.view.base_tensor_uid if tensor.view else None),
        ):
            if mine != theirs:
                yield error("tensors", f'"{name}" has the {what} {mine}, by the graph {theirs}.', tensor=name)


def check_homes(plan: Plan, lives: Lives) -> Iterator[Finding]:
    """Rule ``arena``."""
    for i, name in enumerate(plan.tensor_ids):
        if name in lives.storage_of:
            mine, theirs = plan.arenas[plan.arena[i]].name, lives.storages[lives.storage_of[name]].arena
            if mine != theirs:
                yield error("arena", f'"{name}" lies in the arena {mine}, by the graph in {theirs}.', tensor=name)


def check_accesses(plan: Plan, lives: Lives) -> Iterator[Finding]:
    """Rule ``dead_access``: walk every step. Reads come before writes, so a giver may be read at its death."""
    run, row_of = lives.run, plan.row_of
    handed = {(step, x) for step, x, _ in plan.handoffs}
    for step in range(run.steps):
        node = run.node_at(step)
        reads, writes = (node.inputs, node.outputs) if node else ((), run.graph.inputs)
        overwritten = {node.inputs[i] for i, _ in node.in_place_write} if node else set()
        for name in dict.fromkeys(reads):
            row = row_of.get(name)
            if row is None:
                continue
            birth, death = int(plan.birth[row]), int(plan.death[row])
            dies_here = death == step and ((step, name) in handed or name in overwritten)
            if not (birth <= step < death or dies_here):
                yield error(
                    "dead_access",
                    f'"{run.node_name(step)}" reads "{name}" at step {step}, which lives [{birth}, {death}).',
                    tensor=name,
                    step=step,
                )
        for name in writes:
            row = row_of.get(name)
            # What is there from the start may be written at any time.
            if row is not None and plan.birth[row] != step and not run.tensors[name].persistent:
                yield error(
                    "dead_access",
                    f'"{run.node_name(step)}" writes "{name}" at step {step}, which is born at {plan.birth[row]}.',
                    tensor=name,
                    step=step,
                )


def check_ranges(plan: Plan, lives: Lives) -> Iterator[Finding]:
    """Rule ``live_range``."""
    death = lives.unhanded_death | {x: step for step, x, _ in plan.handoffs}
    for name, row in plan.row_of.items():
        if name in lives.birth:
            mine, theirs = (int(plan.birth[row]), int(plan.death[row])), (lives.birth[name], death[name])
            if mine != theirs:
                yield error(
                    "live_range",
                    f'"{name}" lives [{mine[0]}, {mine[1]}), by the contract [{theirs[0]}, {theirs[1]}).',
                    tensor=name,
                    step=min(mine[0], theirs[0]),
                )


def check_sharing(plan: Plan, lives: Lives) -> Iterator[Finding]:
    """Rule ``sharing``: the plan's storages are the contract's."""
    number_of: dict[str, tuple[int, str]] = {}
    storage_of: dict[int, tuple[str, str]] = {}
    for name, row in plan.row_of.items():
        if name not in lives.storage_of:
            continue
        mine, theirs = int(plan.storage[row]), lives.storage_of[name]
        number, fellow = number_of.setdefault(theirs, (mine, name))
        if number != mine:
            yield error(
                "sharing", f'"{name}" and "{fellow}" are one storage, the plan parts them.', tensor=name, other=fellow
            )
        storage, fellow = storage_of.setdefault(mine, (theirs, name))
        if storage != theirs:
            yield error(
                "sharing",
                f'"{name}" and "{fellow}" are not one storage, the plan joins them.',
                tensor=name,
                other=fellow,
            )


def check_addresses(plan: Plan, lives: Lives) -> Iterator[Finding]:
    """Rule ``address``: all rows of a storage agree where it starts."""
    start_of: dict[str, tuple[int, int, str]] = {}
    for name, row in plan.row_of.items():
        if name not in lives.storage_of:
            continue
        start = int(plan.offset[row]) - lives.offset[name]
        expected, arena, fellow = start_of.setdefault(lives.storage_of[name], (start, int(plan.arena[row]), name))
        if (start, int(plan.arena[row])) != (expected, arena):
            yield error(
                "address",
                f'"{name}" lies at {plan.offset[row]}, by "{fellow}" at {expected + lives.offset[name]}.',
                tensor=name,
                other=fellow,
            )
        declared = lives.run.tensors[name].alignment
        if declared is not None and int(plan.offset[row]) % declared:
            yield error(
                "address", f'"{name}" asks for a multiple of {declared}, lies at {plan.offset[row]}.', tensor=name
            )


def check_apart(plan: Plan, lives: Lives) -> Iterator[Finding]:
    """Rule ``must_not_alias``: also for storages that are disjoint in time."""
    rows: dict[str, list[int]] = {}
    if lives.apart:
        for name, row in plan.row_of.items():
            if name in lives.storage_of:
                rows.setdefault(lives.storage_of[name], []).append(row)
    for a, b in sorted({tuple(sorted(pair)) for pair in lives.apart}):
        if a not in rows or b not in rows:
            continue
        i, j = rows[a][0], rows[b][0]
        if plan.arena[i] != plan.arena[j]:
            continue
        low = max(min(int(plan.offset[r]) for r in rows[a]), min(int(plan.offset[r]) for r in rows[b]))
        high = min(max(int(plan.offset[r] + plan.size[r]) for r in side) for side in (rows[a], rows[b]))
        if low < high or plan.logical_slot[i] == plan.logical_slot[j]:
            yield error("must_not_alias", f'"{a}" and "{b}" must not alias and share a place.', tensor=a, other=b)


def check_legality(plan: Plan, lives: Lives) -> Iterator[Finding]:
    """Rule ``illegal_handoff``."""
    run = lives.run
    for step, x, y in plan.handoffs:
        node = run.node_at(step) if 0 <= step < run.steps else None
        fields: dict[str, Any] = {"tensor": x, "other": y, "step": step}
        if node is None or (x, y) not in lives.judge.candidates(step, node):
            yield error(
                "illegal_handoff",
                f'"{run.node_name(step) if node else step}" does not permit "{y}" to take over "{x}".',
                **fields,
            )
        elif condition := lives.judge.refusal(step, node, x, y):
            yield error("illegal_handoff", f'"{x}" may not be handed to "{y}" at step {step}: {condition}.', **fields)


def check_retention(plan: Plan, lives: Lives) -> Iterator[Finding]:
    """Rule ``retention`` (contract §7, ``activation_retention_ratio`` in parts).

    A view has no bytes of its own: who reads it uses its root, and who hands it out hands out its root.
    """
    run = lives.run
    last = {name: lives.birth[name] for name in lives.birth}
    for name, steps in run.reads.items():
        root = run.root[name]
        forward = [step for step in steps if (node := run.node_at(step)) is not None and node.phase == "forward"]
        if root in last:
            last[root] = max([last[root], *forward])
    handed_out = {run.root[name] for name in run.graph.outputs}
    kept = activations = 0
    for name, used in last.items():
        tensor, row = run.tensors[name], plan.row_of.get(name)
        if row is not None and tensor.role == "activation" and tensor.view is None:
            activations += int(plan.size[row])
            kept += int(plan.size[row]) if plan.death[row] > used + 1 and name not in handed_out else 0
    for what, counted in (("activation_bytes", activations), ("activation_bytes_retained", kept)):
        if plan.metrics.get(what, counted) != counted:
            yield error("retention", f"the metrics say {what} {plan.metrics[what]}, the graph makes {counted}.")
