"""Inputs of a saved program: names, roles, weights that share a storage, and open sizes.

The file does not hold the names of ``torch.export.Dim``. An open size is named after the first input and axis that
have it: ``x.0``. A data-dependent size (such as the number of nonzero elements) has the program's name, ``u0``, and its
upper bound, if the program has one. PyTorch saves a storage once, as a member of the archive, and for each weight its
part: a tied weight is the same part, a slice or transpose another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.formats.pytorch.exported_program.pt2_archive import Program
from tmmu_core.formats.pytorch.exported_program.pt2_sizes import LARGEST, symbol_in
from tmmu_core.formats.pytorch.strides import StridedLayout
from tmmu_core.graph.model import Dim, Graph, Role

DEEPEST = 50


def given_names(program: Program) -> dict[int, str]:
    """Return input number → name, if the file has the call signature.

    A tensor in a list or mapping is named by its path: ``x.0``, ``past.keys``.
    """
    calls = program.module.module_call_graph
    signature = calls[0].signature if calls else None
    if signature is None:
        return {}
    try:
        spec = msgspec.json.decode(signature.in_spec)
        positional, by_name = spec[1]["children_spec"]
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


def open_dims(program: Program) -> dict[str, str]:
    """Return name → symbol of open sizes, in the order of the inputs; data-dependent ones last."""
    names, body = given_names(program), program.module.graph
    found: dict[str, str] = {}
    for k, spec in enumerate(program.module.signature.input_specs[: len(body.inputs)]):
        value = body.inputs[k].get("as_tensor") if spec.user_input is not None else None
        called = value.get("name") if isinstance(value, dict) else None
        meta = body.tensor_values.get(called) if isinstance(called, str) else None
        for axis, size in enumerate(meta.sizes if meta else ()):
            pair = symbol_in(size)
            if pair is not None and pair[0] not in found.values():
                found[f"{names.get(k, called)}.{axis}"] = pair[0]
    return found | {symbol: symbol for symbol in program.by_data}


def chosen_sizes(program: Program, envelopes: Mapping[str, Dim]) -> dict[str, int]:
    """Symbol → the upper end of what ``envelopes`` gives it. Raises ``InvalidIrShapes`` outside the program's range."""
    point = {}
    for name, symbol in open_dims(program).items():
        if name in envelopes:
            low, high = program.ranges.get(symbol, (0, envelopes[name].max))
            point[symbol] = envelopes[name].max
            outside = next((end for end in (envelopes[name].max, envelopes[name].min) if not low <= end <= high), None)
            if outside is not None:
                raise InvalidIrShapes(
                    f"{name} = {outside} lies outside of {low} to {high}, for which the program was exported.",
                    hint="Give a size inside, or export the program for others.",
                    reason="dim_out_of_envelope",
                    path=f"$.dims.{name}",
                    node_id="",
                )
    return point


def with_dims(graph: Graph, program: Program, given: Mapping[str, Dim]) -> Graph:
    """Return ``graph`` with the program's open sizes as fixed dimensions; those not ``given`` are assumed sizes."""
    opened = open_dims(program)
    sizes = {name: program.symbols[symbol] for name, symbol in opened.items() if symbol in program.symbols}
    return msgspec.structs.replace(
        graph,
        dims={name: given.get(name, Dim(size, size)) for name, size in sizes.items()},
        assumed={name: size for name, size in sizes.items() if name not in given},
        ranges={name: Dim(*program.ranges.get(opened[name], (0, LARGEST))) for name in sizes},
    )


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


INPUT: Role = "input"
SPEC_NAMES: tuple[tuple[str, str, Role], ...] = (
    ("parameter", "parameter_name", "parameter"),
    ("buffer", "buffer_name", "buffer"),
    ("tensor_constant", "tensor_constant_name", "constant"),
)
"""Kind of an input → field of its name, and its role."""


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


def incoming(program: Program, name: str, spec: Any) -> Incoming:
    """Return the input ``name``; ``spec`` is its entry in the signature, ``None`` without one."""
    called, role = name, INPUT
    for kind, key, its_role in SPEC_NAMES:
        if spec is not None and (named := getattr(spec, kind)) is not None:
            called, role = str(named.get(key, name)), its_role
    return Incoming(name, called, role, "" if role == INPUT else program.member_of(called))


def shared(parts: Iterable[tuple[str, StridedLayout]]) -> dict[str, int]:
    """Member that holds several parts → bytes from its beginning to the end of the last of them."""
    of_member: dict[str, set[StridedLayout]] = {}
    for member, lies in parts:
        if member and lies.own:
            of_member.setdefault(member, set()).add(lies)
    return {
        member: max(lies.offset * lies.itemsize + lies.covered for lies in each)
        for member, each in of_member.items()
        if len(each) > 1
    }
