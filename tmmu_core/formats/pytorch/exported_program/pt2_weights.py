"""Inputs of a saved program: names, roles, and weights that share a storage.

PyTorch saves a storage once, as a member of the archive, and for each weight its part: a tied weight is the same part,
a slice or transpose another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tmmu_core.formats.pytorch.exported_program.pt2_archive import Program
from tmmu_core.formats.pytorch.strides import StridedLayout
from tmmu_core.graph.model import Role

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
