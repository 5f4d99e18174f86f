"""The lint rules of the seed (VII.A) by their names, and the contract's warnings.

The rules are the verifier's, told in the seed's words: a plan that passes them is aligned and slotted without live
overlap, uses as many slots as storages are ever alive together, keeps what the backward pass reads, and has unique
addresses that its hashes fix.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tmmu_core.graph.model import Graph
from tmmu_core.judge.finding import Finding, Verdict, shortened
from tmmu_core.judge.runs.order import timeline_order
from tmmu_core.judge.verifier import verify_plan
from tmmu_core.plan.model import Plan


@dataclass(frozen=True)
class LintRule:
    """One rule: its name, what it says, the clause it comes from, and the verifier's rules that make it."""

    name: str
    says: str
    source: str
    made_of: tuple[str, ...] = ()


RULES: tuple[LintRule, ...] = (
    LintRule(
        "aligned_and_slotted",
        "All tensors are aligned and slotted without live overlap.",
        "seed VII.A, I.E",
        (
            *("columns", "range", "row", "alignment", "bounds", "extent", "capacity", "overlap", "slot", "storage"),
            *("sharing", "must_not_alias", "handoff", "illegal_handoff", "tensors", "graph", "arena", "configuration"),
            *("figures", "certificate", "retention"),
        ),
    ),
    LintRule(
        "slots_equal_max_live",
        "In every arena there are exactly as many slots as storages are ever alive together.",
        "seed VII.A, I.E",
        ("slots_max_live",),
    ),
    LintRule(
        "lifetimes",
        "Nothing is read or written while it is dead; what the backward pass reads lives until then.",
        "seed VII.A, I.E",
        ("dead_access", "live_range"),
    ),
    LintRule(
        "addresses",
        "Logical addresses are unique and follow from the rows alone: prefix sums and hashes agree.",
        "seed VII.A",
        ("slot_offset", "numbering", "sparse_address", "address", "hash"),
    ),
    LintRule(
        "undeclared_inplace",
        "A node hands its input's storage to its output and its graph never said that it may.",
        "contract §1",
    ),
    LintRule(
        "backward_before_forward",
        "No order is given, and by the order of ids a backward node runs before a forward node.",
        "contract §2",
    ),
    LintRule(
        "split_scope",
        "A node runs between the nodes of a nested scope that it is not in.",
        "docs/decisions/0004",
    ),
    LintRule(
        "untouched",
        "A tensor is read and written by no node, and is no input and no output.",
        "design",
    ),
    LintRule(
        "unread",
        "A tensor is written, and is read by nobody and no output.",
        "design",
    ),
    LintRule(
        "slots_over_optimal",
        "must_not_alias pairs cost slots above the optimum.",
        "contract §3",
        ("slots_over_optimal",),
    ),
    LintRule(
        "places_unsaid",
        "The file does not say whether it places slots or bytes, so that the rules for its offsets are guessed.",
        "contract §9",
        ("places",),
    ),
    LintRule(
        "unheld",
        "The file holds no hashes of what was written, so that an edit that leaves it a sound plan is not found.",
        "docs/decisions/0060",
        ("held",),
    ),
)
"""The first four are errors when broken, the others are warnings."""

_ASKS_THE_GRAPH = ("undeclared_inplace", "backward_before_forward", "split_scope", "untouched", "unread")

_RULE_OF = {rule: lint.name for lint in RULES for rule in lint.made_of}


def lint_plan(
    plan: Plan, graph: Graph | None = None, *, dims: Mapping[str, int] | None = None, cut_from: bytes | None = None
) -> tuple[Finding, ...]:
    """Findings under the lint's names; those on lifetimes and hand-offs need the graph."""
    verified = verify_plan(plan, graph, dims=dims, cut_from=cut_from)
    found = [replace(finding, rule=_RULE_OF[finding.rule]) for finding in verified.findings]
    if graph is not None:
        found += [*_undeclared(plan, graph), *_out_of_phase(plan, graph), *_split_scopes(plan, graph), *_idle(graph)]
    return shortened(found)


def lint_verdict(
    plan: Plan, graph: Graph | None = None, *, dims: Mapping[str, int] | None = None, cut_from: bytes | None = None
) -> Verdict:
    """The same with the list of rules tried; ``ok`` when there are at most warnings."""
    tried = [rule.name for rule in RULES if graph is not None or rule.name not in _ASKS_THE_GRAPH]
    return Verdict(lint_plan(plan, graph, dims=dims, cut_from=cut_from), tuple(tried))


def _undeclared(plan: Plan, graph: Graph) -> Iterator[Finding]:
    """Warning ``undeclared_inplace``: the default permits what a real operator may not do."""
    unsaid = {node.node_id for node in graph.nodes if node.inplace is None}
    for step, x, y in plan.handoffs:
        node_id = plan.node_at(step)
        # A synthesised backward step permits what its forward node does.
        if node_id in unsaid or node_id.removesuffix("@grad") in unsaid:
            yield Finding(
                "undeclared_inplace",
                "warning",
                f'"{node_id}" lets "{y}" take over the storage of "{x}" because its graph says nothing of inplace; '
                'say "any", "none" or the pairs.',
                tensor=x,
                other=y,
                arena=plan.arenas[plan.arena[plan.row_of[x]]].name if x in plan.row_of else "",
                step=step,
            )


def _out_of_phase(plan: Plan, graph: Graph) -> Iterator[Finding]:
    """Warning ``backward_before_forward``: ready ties go to the lowest id, and nothing else holds a backward node back.

    It is told once, with the first backward node and the first forward node after it.
    """
    phase = {node.node_id: node.phase for node in graph.nodes}
    ran = [node_id for node_id in plan.execution_order if node_id in phase]
    early = next((k for k, node_id in enumerate(ran) if phase[node_id] == "backward"), len(ran))
    late = next((k for k in range(early, len(ran)) if phase[ran[k]] == "forward"), None)
    if late is None or graph.execution_order is not None or ran != timeline_order(graph, "backward", None):
        return
    yield Finding(
        "backward_before_forward",
        "warning",
        f'no order is given, and by the order of ids the backward node "{ran[early]}" runs before the forward node '
        f'"{ran[late]}"; give the graph an execution_order.',
        step=early + plan.has_inputs_step,
    )


def _split_scopes(plan: Plan, graph: Graph) -> Iterator[Finding]:
    """Warning ``split_scope``: a body may run many times, and what stands inside its steps would run as often.

    ``params.scope`` names a node's scope, ``outer/inner`` for one in another. Told once a scope, with its first
    stranger.
    """
    scope = {node.node_id: str(node.params.get("scope", "")) for node in graph.nodes}
    members: dict[str, list[int]] = {}
    for k, node_id in enumerate(plan.execution_order):
        name = scope.get(node_id, "")
        while name:
            members.setdefault(name, []).append(k)
            name = name.rpartition("/")[0]
    for name, steps in sorted(members.items()):
        if steps[-1] - steps[0] + 1 == len(steps):
            continue
        stranger = next(k for k, mine in enumerate(steps, steps[0]) if k != mine)
        yield Finding(
            "split_scope",
            "warning",
            f'the node "{plan.execution_order[stranger]}" runs between the nodes of the scope "{name}", whose ranges '
            "hold where its nodes follow one another; give an execution_order that keeps them together.",
            step=stranger + plan.has_inputs_step,
        )


def _idle(graph: Graph) -> Iterator[Finding]:
    """Warnings ``untouched`` and ``unread``: bytes that nobody has a use for, perhaps a slip in a name.

    Whoever reads one view of bytes, or one of an alias group, reads them for all; a gradient that leaves the step and
    what is written into another tensor are results.
    """
    base = {tensor.id: tensor.view.base_tensor_uid for tensor in graph.tensors if tensor.view is not None}
    group = {tensor.id: tensor.alias_group_id for tensor in graph.tensors if tensor.alias_group_id is not None}

    def bytes_of(name: str) -> tuple[bool, str]:
        for _ in base:
            if name not in base:
                break
            name = base[name]
        return (True, group[name]) if name in group else (False, name)

    written = {bytes_of(name) for node in graph.nodes for name in node.outputs}
    read = {bytes_of(name) for node in graph.nodes for name in node.inputs}
    into = {node.outputs[k] for node in graph.nodes for _, k in node.in_place_write}
    used = read | {bytes_of(name) for name in (*graph.outputs, *into)}
    for tensor in sorted(graph.tensors, key=lambda tensor: tensor.id.encode()):
        own = bytes_of(tensor.id)
        if own in used or tensor.role in ("output", "gradient"):
            continue
        if own in written:
            message = f'"{tensor.id}" is written, and nobody reads it; list it in outputs, or let nobody write it.'
            yield Finding("unread", "warning", message, tensor=tensor.id)
        elif tensor.id not in graph.inputs:
            message = f'"{tensor.id}" is read and written by no node; is it written otherwise there?'
            yield Finding("untouched", "warning", message, tensor=tensor.id)
