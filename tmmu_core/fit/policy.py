"""A fitted PyTorch step as a policy for PyTorch's own selective checkpointing: Python that runs.

What the fitted graph keeps for its backward pass is told call by call: "of ``addmm`` the calls 0 and 2 keep their
result"; all else is run again by PyTorch. Calls are counted per operator in the order of the forward pass, so views,
detaches and other operators that differ between the traced and the eager program do not disturb the count.
"""

from __future__ import annotations

from collections import Counter

from tmmu_core.graph.model import Graph

TANGENT = "tangent"
"""With which operator a joint graph begins its backward pass (``graph/importers/fx_joint.py``, which needs PyTorch)."""

TEMPLATE = '''"""What {title} keeps for its backward pass, as tmmu fitted it; everything else is run again.

    from {module} import checkpointed
    loss = checkpointed(model)(inputs)

Calls are counted per operator, from 0, in the order of the forward pass of the module that was traced.
"""

from collections import Counter

from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

KEPT = {{
{kept}}}
"""Operator → those of its calls that keep their results."""


def policy():
    """A policy that counts from the beginning: one for each forward pass."""
    counted = {{False: Counter(), True: Counter()}}

    def decide(context, operator, *args, **kwargs):
        name = str(operator).split(".")[1].rstrip("_")
        calls = counted[bool(context.is_recompute)]
        call = calls[name]
        calls[name] += 1
        kept = call in KEPT.get(name, ())
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    return decide


def context_fn():
    """For ``torch.utils.checkpoint.checkpoint(…, use_reentrant=False, context_fn=context_fn)``."""
    return create_selective_checkpoint_contexts(policy())


def checkpointed(module):
    """``module`` as a function that keeps what ``KEPT`` says."""

    def run(*args, **kwargs):
        return checkpoint(module, *args, use_reentrant=False, context_fn=context_fn, **kwargs)

    return run
'''


def is_from_torch(graph: Graph) -> bool:
    """Whether the graph is a joint graph of PyTorch: it says where the gradient of its output comes from."""
    return any(node.instr == TANGENT for node in graph.nodes)


def kept_calls(given: Graph, fitted: Graph) -> dict[str, tuple[int, ...]]:
    """Operator → those of its calls in ``given``'s forward pass whose results ``fitted``'s backward pass reads."""
    base = {tensor.id: tensor.view.base_tensor_uid for tensor in fitted.tensors if tensor.view is not None}
    maker = {name: node.node_id for node in fitted.nodes for name in node.outputs}
    read: set[str] = set()
    for node in fitted.nodes:
        if node.phase != "forward":
            for name in node.inputs:
                while name in base:
                    name = base[name]
                read.add(maker.get(name, ""))
    nodes = {node.node_id: node for node in given.nodes}
    counted: Counter[str] = Counter()
    found: dict[str, list[int]] = {}
    for node_id in given.execution_order or nodes:
        node = nodes[node_id]
        if node.phase != "forward":
            continue
        name = node.instr.split(".")[0].rstrip("_")
        if node_id in read:
            found.setdefault(name, []).append(counted[name])
        counted[name] += 1
    return {name: tuple(calls) for name, calls in sorted(found.items())}


def checkpoint_policy(given: Graph, fitted: Graph, module: str = "policy") -> str:
    """The policy's source: ``context_fn`` for ``checkpoint``, and ``checkpointed`` around a module.

    ``module`` is what the file will be imported as. Needs PyTorch 2.5 or newer to run.
    """
    kept = "".join(f"    {name!r}: {set(calls)!r},\n" for name, calls in kept_calls(given, fitted).items())
    return TEMPLATE.format(title=given.name or "this step", module=module, kept=kept)
