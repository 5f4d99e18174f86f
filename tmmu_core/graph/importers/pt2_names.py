"""What a saved program calls its inputs: the names of ``forward``'s arguments, and the way into a nested one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tmmu_core.graph.importers.pt2_program import Program

DEEPEST = 50


def given_names(program: Program) -> dict[int, str]:
    """Number of an input of the graph → its name, where the file tells how the program is called.

    A tensor in a list or mapping is named by the way to it: ``x.0``, ``past.keys``.
    """
    calls = program.module.module_call_graph
    signature = calls[0].signature if calls else None
    if signature is None:
        return {}
    try:
        spec = msgspec.json.decode(signature.in_spec)
        (_, (positional, by_name)) = spec[0], spec[1]["children_spec"]
        named = signature.forward_arg_names or ()
        paths = [
            *(
                path
                for k, child in enumerate(positional["children_spec"])
                for path in _leaves(child, named[k] if k < len(named) else f"input_{k}", 0)
            ),
            *_leaves(by_name, "", 0),
        ]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError, TypeError, KeyError, IndexError):
        return {}  # named as in the graph, then
    given = [k for k, each in enumerate(program.module.signature.input_specs) if each.user_input is not None]
    return dict(zip(given, paths, strict=True)) if len(given) == len(paths) else {}


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
