"""Merge operators of a joint graph that compute the same value, and remove operators without effect on a compiled step.

The removed ones are the marks of ``torch.profiler.record_function``, and copies that only scatter operators read.
"""

import operator
from collections.abc import Hashable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_leaves

from tmmu_core.formats.pytorch.exported_program.pt2_operators import operator as operator_of
from tmmu_core.formats.pytorch.joint_graph.fx_patterns import SCATTERS


def merge_equal_nodes(joint: Any) -> None:
    """Replace operators of ``joint``, an fx ``GraphModule``, by an earlier operator with the same operands.

    An operator is replaced only if the earlier result is live when the operator runs, or if no remaining operator reads
    the operator's result. So no step needs more memory, and operators that the module recomputes in the backward pass
    remain there. Random operators remain too, and so do operators whose storage is a result of the step.
    """
    for node in reversed(joint.graph.nodes):
        if str(node.target).startswith("profiler."):
            joint.graph.erase_node(node)
    _remove_copies(joint)
    nodes = list(joint.graph.nodes)
    position = {node: k for k, node in enumerate(nodes)}
    equal = _equal_nodes(nodes)
    last_read: dict[int, int] = {}  # storage → position of its last read by a remaining operator
    is_read = set()  # operators that a remaining operator reads
    replaced: dict[Any, Any] = {}
    for node in reversed(nodes):
        earlier = equal.get(node, [])
        source = next((other for other in earlier if _is_live(other, node, last_read, position[node])), None)
        if earlier and node not in is_read:
            replaced[node] = earlier[0]
        elif source is not None:
            replaced[node] = source
            is_read.add(source)
            for kept, dropped in zip(_storages(source), _storages(node), strict=True):
                last_read[kept] = max(last_read.get(kept, -1), last_read.get(dropped, -1))
        else:
            is_read.update(node.all_input_nodes)
            for storage in () if node.target is operator.getitem else map(_storages, node.all_input_nodes):
                last_read.update({address: max(last_read.get(address, -1), position[node]) for address in storage})
    for node in nodes:
        if node in replaced:
            # An operator that replaces another can be replaced itself.
            replaced[node] = replaced.get(replaced[node], replaced[node])
            node.replace_all_uses_with(replaced[node])
            joint.graph.erase_node(node)
    joint.recompile()


def _remove_copies(joint: Any) -> None:
    """Let scatter operators read a value instead of its copy, if shape, type and device are the same."""
    for node in joint.graph.find_nodes(op="call_function", target=torch.ops.aten.copy.default):
        view, value = node.args[:2]
        forms = {(n.meta["val"].shape, n.meta["val"].dtype, n.meta["val"].device) for n in (view, value)}
        is_scattered = all(operator_of(str(u.target)).name in SCATTERS and u.args[0] is not node for u in node.users)
        if len(forms) == 1 and is_scattered:
            node.replace_all_uses_with(value)
            joint.graph.erase_node(node)
            if not view.users and view.op == "call_function":
                joint.graph.erase_node(view)


def _equal_nodes(nodes: list[Any]) -> dict[Any, list[Any]]:
    """Return node → the earlier nodes that compute the same value, for each node with at least one."""
    result_storages = {storage for node in nodes[-1].all_input_nodes for storage in _storages(node)}
    nodes_by_key: dict[Hashable, list[Any]] = {}
    first_equal: dict[Any, Any] = {}
    equal = {}
    for node in nodes:
        if _is_functional(node) and not result_storages & {*_storages(node)}:
            group = nodes_by_key.setdefault(_key(node, first_equal), [])
            if group:
                equal[node], first_equal[node] = group[:], group[0]
            group.append(node)
    return equal


def _is_live(source: Any, node: Any, last_read: dict[int, int], position: int) -> bool:
    """Return whether each result of ``node`` that is read has an equal result of ``source``, live at ``position``."""
    pairs = zip(_storages(source), _storages(node), strict=True)
    return all(own not in last_read or last_read.get(other, -1) >= position for other, own in pairs)


def _is_functional(node: Any) -> bool:
    """Return whether the results of a node depend on its operands only."""
    is_operator = isinstance(node.target, torch._ops.OpOverload) or node.target is operator.getitem
    return node.op == "call_function" and is_operator and not node.is_impure()


def _storages(node: Any) -> list[int]:
    values = [leaf for leaf in tree_leaves(node.meta.get("val")) if isinstance(leaf, torch.Tensor)]
    return [value.untyped_storage()._cdata for value in values if value.layout is torch.strided]


def _key(node: Any, first_equal: dict[Any, Any]) -> Hashable:
    """Return a key that is equal for equal nodes. Operands 1 and 1.0, and 0.0 and −0.0, give different keys."""
    leaves, form = tree_flatten((node.args, dict(node.kwargs)))
    leaf_keys = (first_equal.get(x, x) if isinstance(x, torch.fx.Node) else (type(x), repr(x)) for x in leaves)
    return node.target, str(form), *leaf_keys
