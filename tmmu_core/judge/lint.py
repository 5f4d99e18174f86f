"""Check a plan by the lint rules of TMMU v2 VII.A. A lint rule groups rules of the verifier, or only warns."""

from dataclasses import replace

from tmmu_core.graph.model import Graph
from tmmu_core.judge.finding import Verdict, limited, warning
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans.model import Plan

RULES: dict[str, str] = {
    "aligned_and_slotted": "All tensors are aligned and slotted without live overlap (TMMU v2 VII.A, I.E).",
    "slots_equal_max_live": "Every arena has as many slots as its maximum of live storages (TMMU v2 VII.A, I.E).",
    "lifetimes": "No node of any phase accesses a tensor outside its live range (TMMU v2 VII.A, I.E).",
    "addresses": "Logical addresses are unique, and prefix sums and hashes follow from the rows (TMMU v2 VII.A).",
    "undeclared_inplace": "A node may reuse its input in place by default; its inplace is not declared (contract §1).",
    "split_scope": "A node runs between the nodes of a scope that it is not part of.",
    "slots_over_optimal": "must_not_alias pairs need slots above the optimum (contract §3).",
    "unit_not_stated": "The file does not state whether it places slots or bytes; its reader derived it (contract §9).",
    "no_content_hash": "The file has no content hash, so an edit may be undetected.",
}
"""Rule → its text. The first four rules require a property (errors); the others report a condition (warnings)."""

_LINT_RULE = {
    "slots_max_live": "slots_equal_max_live",
    **dict.fromkeys(("dead_access", "live_range"), "lifetimes"),
    **dict.fromkeys(("slot_offset", "numbering", "sparse_address", "address", "hash"), "addresses"),
    "slots_over_optimal": "slots_over_optimal",
    "places": "unit_not_stated",
    "content_hash": "no_content_hash",
}
"""Rule of the verifier → lint rule that contains it; all other verifier rules are in ``aligned_and_slotted``."""


def lint_verdict(plan: Plan, graph: Graph | None = None, verified: Verdict | None = None) -> Verdict:
    """Return the verdict of the lint rules; ``verified``: the verifier's verdict on the same plan, if known."""
    verified = verified or verify_plan(plan, graph)
    found = [replace(f, rule=_LINT_RULE.get(f.rule, "aligned_and_slotted")) for f in verified.findings]
    has_graph = verified.examined == "graph"
    if graph is not None and has_graph:
        undeclared = {node.node_id for node in graph.nodes if node.inplace is None}
        for step, x, y in plan.handoffs:
            node_id = plan.node_at(step)
            # A synthesised backward node has the permission of its forward node.
            if node_id in undeclared or node_id.removesuffix("@grad") in undeclared:
                arena = plan.arenas[plan.arena[plan.row_of[x]]].name if x in plan.row_of else ""
                message = f'{node_id!r} may reuse {x!r} for {y!r} by default; set inplace to "any", "none" or pairs.'
                found.append(warning("undeclared_inplace", message, tensor=x, other=y, arena=arena, step=step))
        # A loop body may run many times, so its nodes must be consecutive. ``outer/inner``: a nested body.
        scope = {node.node_id: node.scope for node in graph.nodes}
        members: dict[str, list[int]] = {}
        for k, node_id in enumerate(plan.execution_order):
            name = scope.get(node_id, "")
            while name:
                members.setdefault(name, []).append(k)
                name = name.rpartition("/")[0]
        for name, positions in sorted(members.items()):
            between = next((expected for expected, k in enumerate(positions, positions[0]) if expected != k), None)
            if between is not None:
                message = f"the node {plan.execution_order[between]!r} runs between the nodes of the scope {name!r}"
                hint = "add an execution_order that keeps them together"
                found.append(warning("split_scope", f"{message}; {hint}.", step=between + plan.has_inputs_step))
    checked = tuple(rule for rule in RULES if has_graph or rule not in ("undeclared_inplace", "split_scope"))
    return Verdict(limited(found), checked)
