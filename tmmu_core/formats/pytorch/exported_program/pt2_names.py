"""Inputs of a saved program: names, roles, weights that share a storage, and open sizes.

The file does not hold the names of ``torch.export.Dim``. An open size is named after the first input and axis that
have it: ``x.0``. A data-dependent size (such as the number of nonzero elements) has the program's name, ``u0``, and its
upper bound, if the program has one. PyTorch saves a storage once, as a member of the archive, and for each weight its
part: a tied weight is the same part, a slice or transpose another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from tmmu_core.formats.pytorch.exported_program.pt2_document import End, Module
from tmmu_core.graph.model import Role

DEEPEST = 50
ROLES: dict[str, Role] = {"parameter": "parameter", "buffer": "buffer", "tensor_constant": "constant"}
"""Kind of an input → its role, for those whose bytes are saved."""


@dataclass(frozen=True)
class Incoming:
    """A tensor that the graph begins with."""

    name: str
    """In the graph."""
    called: str
    """By the signature."""
    role: Role
    member: str
    """Member of the archive with its bytes; empty if unknown."""
    label: str
    """For an input, its name as an argument; a tensor in a list or mapping is named by its path: ``x.0``."""


def incoming(module: Module, members: Mapping[str, str]) -> Iterator[Incoming]:
    """Yield the tensors that the graph begins with; ``members`` are those of weights by name."""
    specs = module.signature.input_specs
    paths = _argument_names(module)
    users = [k for k, spec in enumerate(specs) if "user_input" in spec]
    labels = dict(zip(users, paths, strict=True)) if len(users) == len(paths) else {}
    for k, value in enumerate(module.graph.inputs):
        name = End(value).tensor if "as_tensor" in value else ""
        if not name:
            continue
        kind, end = next(iter(specs[k].items()), ("", End())) if k < len(specs) else ("", End())
        called, role = (end.called or name, ROLES[kind]) if kind in ROLES else (name, "input")
        yield Incoming(name, called, role, members.get(called, "") if kind in ROLES else "", labels.get(k, name))


def _argument_names(module: Module) -> list[str]:
    """Return the names of the program's arguments, flattened; none if the file has no call signature."""
    signature = module.module_call_graph[0].signature if module.module_call_graph else None
    if signature is None:
        return []
    try:
        positional, by_name = msgspec.json.decode(signature.in_spec)[1]["children_spec"]
        named = signature.forward_arg_names or ()
        found = [
            path
            for k, child in enumerate(positional["children_spec"])
            for path in _leaves(child, named[k] if k < len(named) else f"input_{k}", 0)
        ]
        return [*found, *_leaves(by_name, "", 0)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError, TypeError, KeyError, IndexError):
        return []  # named as in the graph, then


def _leaves(spec: Any, path: str, depth: int) -> Iterator[str]:
    if depth > DEEPEST:
        raise ValueError("nested too deeply")
    if spec["type"] is None:
        yield path
        return
    children = spec["children_spec"]
    keys = [str(k) for k in range(len(children))]
    if spec["type"].endswith("dict"):
        context = msgspec.json.decode(spec["context"])
        keys = [str(key) for key in context] if isinstance(context, list) and len(context) == len(keys) else keys
    for key, child in zip(keys, children, strict=True):
        yield from _leaves(child, f"{path}.{key}" if path else key, depth + 1)
