"""Compare a plan with the live ranges and storages that the reference implementation computes from its graph."""

from collections.abc import Iterator, Mapping

from tmmu_core.base.errors import ContractError
from tmmu_core.graph.model import INPUTS_STEP, PRESETS, Graph
from tmmu_core.judge.canonical_hashes import hash_of, ir_hash
from tmmu_core.judge.finding import Finding, error
from tmmu_core.judge.reference.liveness import ReferenceLiveness, reference_liveness
from tmmu_core.judge.reference.schedule import run_of
from tmmu_core.judge.verifier.row_columns import PlanFacts
from tmmu_core.plans.model import Plan

RULES: dict[str, str] = {
    "graph": "the graph is valid under the plan's mode and preset, and has the plan's steps, order and ir_hash",
    "tensors": "the plan has one row per tensor of the timeline, with the graph's size, shape, dtype and role",
    "arena": "every tensor is in the arena that it declares, or else in the arena of its role",
    "dead_access": "every read is within the tensor's live range, every write is at its birth",
    "live_range": "births and deaths follow contract §1 and the in-place reuse that the plan lists",
    "sharing": "tensors share a storage if and only if a view, an alias group or an in-place write requires it",
    "address": "views and in-place outputs are at their offset in the storage",
    "must_not_alias": "must_not_alias pairs share neither a slot nor a byte",
    "illegal_handoff": "every in-place reuse is permitted by its node and satisfies the conditions of contract §1",
    "retention": "the activation and retained-activation bytes equal the figures of the graph",
}

OTHER_GRAPH = "the plan is of another graph: the ir_hash differs."
OWN_ARENAS = "the plan defines its own arenas"  # reason for not checking the rules about arenas


def examine(
    facts: PlanFacts, graph: Graph, dims: Mapping[str, int] | None, whole_hash: bytes | None = None
) -> tuple[list[Finding], ReferenceLiveness | None]:
    """Return the findings of all rules, and the live ranges and storages of ``graph`` (``None`` if it is invalid)."""
    plan = facts.plan
    is_of_other_graph = plan.ir_hash != (ir_hash(graph) if whole_hash is None else whole_hash)
    size_of_dim: dict[str, int] = {}  # from the shapes of the plan, limited to the range of the dimension
    for tensor in graph.tensors if dims is None else ():
        row = plan.row_of.get(tensor.id)
        if row is not None and len(plan.shapes[row]) == len(tensor.shape):
            for dim, value in zip(tensor.shape, plan.shapes[row], strict=True):
                if isinstance(dim, str) and dim in graph.dims:
                    size_of_dim.setdefault(dim, min(max(value, graph.dims[dim].min), graph.dims[dim].max))
    known = {node.node_id for node in graph.nodes}
    # The plan's order also lists inserted nodes. The reference implementation inserts these again.
    order = [node_id for node_id in plan.execution_order if node_id in known]
    preset = plan.preset if plan.preset in PRESETS else "inference"
    declared = () if plan.arena_config_hash == hash_of({}) else [arena.name for arena in plan.arenas]
    try:
        run = run_of(graph, plan.mode, preset, order, size_of_dim if dims is None else dims)  # type: ignore[arg-type]
        liveness = reference_liveness(run, None if plan.own_arenas else declared)
    except ContractError as refusal:
        invalid = f"the graph is invalid under the plan's mode, preset and order: {refusal}"
        return [error("graph", OTHER_GRAPH if is_of_other_graph else invalid)], None
    findings = [error("graph", OTHER_GRAPH)] if is_of_other_graph else []
    checks = (check_steps, check_tensors, check_accesses, check_sharing, check_addresses, check_must_not_alias)
    for check in (*checks, check_reuse, check_retention):
        findings += check(plan, liveness)
    return findings, liveness


def check_steps(plan: Plan, liveness: ReferenceLiveness) -> Iterator[Finding]:
    """Check rule ``graph``: number of steps and execution order."""
    run = liveness.run
    if plan.steps != run.steps:
        yield error("graph", f"the plan has {plan.steps} steps, the graph {run.steps} in mode {plan.mode}.")
    if plan.has_inputs_step != run.has_inputs_step:
        yield error("graph", f"the plan and the graph disagree on the step {INPUTS_STEP}.", step=0)
    for found, (step, node) in zip(plan.execution_order, run.timeline(), strict=False):
        if found != node.node_id:
            yield error("graph", f"the plan runs {found!r} where the graph runs {node.node_id!r}.", step=step)
            return
    if len(plan.execution_order) != len(run.nodes):
        yield error("graph", f"the plan runs {len(plan.execution_order)} nodes, the graph {len(run.nodes)}.")


def check_tensors(plan: Plan, liveness: ReferenceLiveness) -> Iterator[Finding]:
    """Check rules ``tensors``, ``arena`` and ``live_range``: one row per tensor, with the properties in the graph."""
    # Deaths follow from the in-place reuses that the plan lists: a planner may use fewer reuses than are granted.
    run, death = liveness.run, {**liveness.death_without_reuse, **{x: step for step, x, _ in plan.handoffs}}
    for name in liveness.birth:
        if name not in plan.row_of:
            yield error("tensors", f"{name!r} is in the timeline but has no row.", tensor=name)
    for i, name in enumerate(plan.tensor_ids):
        if name not in liveness.birth:
            yield error("tensors", f"{name!r} has a row but is not in the timeline.", tensor=name)
            continue
        tensor, birth, expected_birth = run.tensors[name], int(plan.birth[i]), liveness.birth[name]
        arena = plan.arenas[plan.arena[i]].name
        for rule, what, found, expected in (
            ("tensors", "size", int(plan.size[i]), run.row_bytes[name]),
            ("tensors", "shape", plan.shapes[i], run.index.shapes[run.index.tensor_of[name]]),
            ("tensors", "dtype", plan.dtypes[i], tensor.dtype),
            ("tensors", "role", plan.roles[i], tensor.role),
            ("tensors", "alias group", plan.alias_group_ids[i], tensor.alias_group_id),
            ("tensors", "base", plan.base_tensor_uids[i], tensor.view.base_tensor_uid if tensor.view else None),
            ("arena", "arena", arena, arena if plan.own_arenas else liveness.storages[liveness.storage_of[name]].arena),
            ("live_range", "live range", f"[{birth}, {plan.death[i]})", f"[{expected_birth}, {death[name]})"),
        ):
            if found != expected:
                step = min(birth, expected_birth) if rule == "live_range" else -1
                message = f"{name!r} has the {what} {found}; the graph has {expected}."
                yield error(rule, message, tensor=name, step=step)


def check_accesses(plan: Plan, liveness: ReferenceLiveness) -> Iterator[Finding]:
    """Check rule ``dead_access``. A step reads before it writes, so an input reused in place is read at its death."""
    run, row_of = liveness.run, plan.row_of
    reused = {(step, x) for step, x, _ in plan.handoffs}
    for step in range(run.steps):
        node = run.node_at(step)
        reads, writes = (node.inputs, node.outputs) if node else ((), run.graph.inputs)
        overwritten = {node.inputs[i] for i, _ in node.in_place_write} if node else set()
        accesses = [("reads", x) for x in dict.fromkeys(reads)] + [("writes", y) for y in writes]
        for verb, name in accesses:
            if (row := row_of.get(name)) is None:  # check_tensors reports this
                continue
            birth, death = int(plan.birth[row]), int(plan.death[row])
            if verb == "writes":  # a persistent tensor may be written at any step
                is_live = birth == step or run.tensors[name].persistent
            else:
                dies_here = death == step and ((step, name) in reused or name in overwritten)
                is_live = birth <= step < death or dies_here
            if not is_live:
                what = f"{node.node_id if node else INPUTS_STEP!r} {verb} {name!r} at step {step}"
                yield error("dead_access", f"{what}; its live range is [{birth}, {death}).", tensor=name, step=step)


def _common_rows(plan: Plan, liveness: ReferenceLiveness) -> Iterator[tuple[str, int, str]]:
    """Yield ``(tensor, row of the plan, storage of the graph)`` of the tensors that have both."""
    for name, row in plan.row_of.items():
        if name in liveness.storage_of:
            yield name, row, liveness.storage_of[name]


def check_sharing(plan: Plan, liveness: ReferenceLiveness) -> Iterator[Finding]:
    """Check rule ``sharing``: the plan's storages equal the storages of the graph."""
    number_of: dict[str, tuple[int, str]] = {}
    storage_of: dict[int, tuple[str, str]] = {}
    for name, row, expected in _common_rows(plan, liveness):
        found = int(plan.storage[row])
        number, first = number_of.setdefault(expected, (found, name))
        if number != found:
            message = f"{name!r} and {first!r} are one storage; the plan has two."
            yield error("sharing", message, tensor=name, other=first)
        storage, first = storage_of.setdefault(found, (expected, name))
        if storage != expected:
            message = f"{name!r} and {first!r} are two storages; the plan has one."
            yield error("sharing", message, tensor=name, other=first)


def check_addresses(plan: Plan, liveness: ReferenceLiveness) -> Iterator[Finding]:
    """Check rule ``address``: the rows of a storage imply one start of it, and each has its declared alignment."""
    start_of: dict[str, tuple[int, str]] = {}
    for name, row, storage in _common_rows(plan, liveness):
        offset, offset_in_storage = int(plan.offset[row]), liveness.offset[name]
        start, first = start_of.setdefault(storage, (offset - offset_in_storage, name))
        if offset - offset_in_storage != start:
            message = f"{name!r} has the offset {offset}; {first!r} implies {start + offset_in_storage}."
            yield error("address", message, tensor=name, other=first)
        declared = liveness.run.tensors[name].alignment
        if declared is not None and offset % declared:
            yield error("address", f"{name!r} requires alignment {declared}; its offset is {offset}.", tensor=name)


def check_must_not_alias(plan: Plan, liveness: ReferenceLiveness) -> Iterator[Finding]:
    """Check rule ``must_not_alias``, also for storages with disjoint live ranges."""
    rows: dict[str, list[int]] = {}
    for _, row, storage in _common_rows(plan, liveness) if liveness.must_not_alias else ():
        rows.setdefault(storage, []).append(row)
    for a, b in sorted(liveness.must_not_alias):  # pairs in both orders
        if a > b or a not in rows or b not in rows or plan.arena[rows[a][0]] != plan.arena[rows[b][0]]:
            continue
        low = max(min(int(plan.offset[r]) for r in side) for side in (rows[a], rows[b]))
        high = min(max(int(plan.offset[r] + plan.size[r]) for r in side) for side in (rows[a], rows[b]))
        if low < high or plan.logical_slot[rows[a][0]] == plan.logical_slot[rows[b][0]]:
            message = f"{a!r} and {b!r} must not alias, but share bytes or a slot."
            yield error("must_not_alias", message, tensor=a, other=b)


def check_reuse(plan: Plan, liveness: ReferenceLiveness) -> Iterator[Finding]:
    """Check rule ``illegal_handoff``: permission and conditions of each in-place reuse."""
    run = liveness.run
    for step, x, y in plan.handoffs:
        node = run.node_at(step) if 0 <= step < run.steps else None
        if node is None or (x, y) not in liveness.candidates(step, node):
            condition = "its node does not permit it"
        else:
            condition = liveness.refusal(step, node, x, y).replace("_", " ")
        if condition:
            message = f"{y!r} may not reuse {x!r} in place at step {step}: {condition}."
            yield error("illegal_handoff", message, tensor=x, other=y, step=step)


def check_retention(plan: Plan, liveness: ReferenceLiveness) -> Iterator[Finding]:
    """Check rule ``retention`` (contract §7, the parts of ``activation_retention_ratio``)."""
    # A view has no bytes of its own: its reads, live range and use as an output count for its root.
    run, last_use = liveness.run, dict(liveness.birth)
    for name, steps in run.reads.items():
        root = run.root[name]
        forward = [step for step in steps if (node := run.node_at(step)) is not None and node.phase == "forward"]
        if root in last_use:
            last_use[root] = max([last_use[root], *forward])
    output_roots = {run.root[name] for name in run.graph.outputs}
    death: dict[str, int] = {}
    for name, row_number in plan.row_of.items():
        root = run.root.get(name, name)
        death[root] = max(death.get(root, 0), int(plan.death[row_number]))
    retained = activations = 0
    for name, step in last_use.items():
        tensor, row = run.tensors[name], plan.row_of.get(name)
        if row is not None and tensor.role == "activation" and tensor.view is None:
            size = int(plan.size[row])
            activations += size
            retained += size if death[name] > step + 1 and name not in output_roots else 0
    for what, counted in (("activation_bytes", activations), ("activation_bytes_retained", retained)):
        if plan.metrics.get(what, counted) != counted:
            yield error("retention", f"metrics: {what} is {plan.metrics[what]}; the graph gives {counted}.")
