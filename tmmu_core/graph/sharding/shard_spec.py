"""A shard spec: the mesh over which a graph is split, and the split axis of each tensor (seed II.I).

A spec is a JSON object, hashed as it is given::

    {"mesh": [{"name": "dp", "size": 2}, {"name": "tp", "size": 4}],
     "tensors": {"embed": {"axis": 0, "mesh": "tp"}, "scale": null},
     "rules": [{"match": "layers.*.w1", "axis": 1, "mesh": "tp"}],
     "contracts": {"parameters": null, "activations": {"axis": 0, "mesh": "dp"},
                   "gradients": {"axis": 0, "mesh": "dp"}, "optimizer_state": {"axis": 0, "mesh": "dp"}}}

``mesh`` lists the axes from the slowest to the fastest; the ranks run through it as through a C array. Written as an
object (``{"dp": 2, "tp": 4}``) it is taken by name bytes, for a JSON object has no order.

A contract ``"follow"`` of ``activations`` or ``gradients`` gives them the split that follows from that of the weights
(:mod:`.follow`): heads and the hidden units of an MLP are then shared by the ranks.

The first matching entry determines the sharding of a tensor:

1. ``tensors``, by id; ``null`` means on every rank whole;
2. ``rules``, the first whose pattern (``*``, ``?``, ``[…]``) fits;
3. the tensor's own ``shard`` field;
4. for ``x@grad`` and ``x@remat`` what is true of ``x``, for a view what keeps it inside its base;
5. the contract of its kind. A contract applies to many tensors; it skips those without the axis, those with
   fewer rows than parts and those with a view that could not follow, where 1 to 3 are refused.

An axis of d rows in p parts: every rank gets ``d // p`` rows, the first ``d % p`` ranks one more. Fewer rows than parts
would leave a rank with nothing and are refused. One tensor may be split along several axes, over different mesh axes:
then the value is a list of ``{"axis", "mesh"}``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Annotated, Any, Literal

import msgspec

from tmmu_core.base import limits, strict
from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.base.struct_types import register_types

Split = tuple[tuple[int, str], ...]
"""(axis, mesh axis) pairs; empty where the tensor is whole on every rank."""

FOLLOW = "follow"


@dataclass(frozen=True)
class ShardSpec:
    """A spec as read."""

    mesh: tuple[tuple[str, int], ...]
    """Mesh axes and their sizes, from the slowest to the fastest."""
    tensors: Mapping[str, Split]
    rules: tuple[tuple[str, Split], ...]
    contracts: Mapping[str, Split]
    following: frozenset[str] = frozenset()
    """Kinds whose splits follow from those of the weights."""

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Mesh axis → parts."""
        return dict(self.mesh)

    @property
    def world_size(self) -> int:
        """Number of ranks of the mesh."""
        return prod(size for _, size in self.mesh)

    def place(self, rank: int) -> dict[str, int]:
        """Mesh axis → coordinate of ``rank``."""
        place = {}
        for name, size in reversed(self.mesh):
            rank, place[name] = divmod(rank, size)
        return place


def rows_of(rows: int, parts: int, part: int) -> int:
    """Return the number of ``rows`` in part ``part`` of ``parts``; the first parts get the remainder."""
    return rows // parts + (part < rows % parts)


def check_world(spec: ShardSpec, world_size: int | None, rank: int = 0) -> int:
    """The number of ranks. Raises ``InvalidIrShapes`` (``shard_world_size``, ``shard_rank``)."""
    if world_size is not None and world_size != spec.world_size:
        mesh = " × ".join(f"{name} {size}" for name, size in spec.mesh) or "empty"
        raise refused(
            f"the world has {world_size} ranks, but the mesh ({mesh}) has {spec.world_size}.",
            "$.mesh",
            "Let the product of the mesh axes be the number of ranks; add an axis for plain replicas.",
            reason="shard_world_size",
        )
    if not 0 <= rank < spec.world_size:
        raise refused(
            f"there is no rank {rank} among {spec.world_size}.",
            "$",
            f"Give a rank from 0 to {spec.world_size - 1}.",
            reason="shard_rank",
        )
    return spec.world_size


class _On(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    axis: Annotated[int, msgspec.Meta(ge=0)]
    mesh: str


_Where = _On | tuple[_On, ...] | None


class _Axis(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    size: Annotated[int, msgspec.Meta(ge=1)]


class _Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    match: str
    axis: Annotated[int, msgspec.Meta(ge=0)] | msgspec.UnsetType = msgspec.UNSET
    mesh: str | msgspec.UnsetType = msgspec.UNSET
    split: _Where | msgspec.UnsetType = msgspec.UNSET


class _Contracts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    parameters: _Where = None
    activations: _Where | Literal["follow"] = None
    gradients: _Where | Literal["follow"] = None
    optimizer_state: _Where = None


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mesh: tuple[_Axis, ...] | dict[str, Annotated[int, msgspec.Meta(ge=1)]] = ()
    tensors: dict[str, _Where] = {}
    rules: tuple[_Rule, ...] = ()
    contracts: _Contracts = _Contracts()


register_types(_Document)


def read_spec(given: Mapping[str, Any]) -> ShardSpec:
    """Check a spec and return it as a value. Raises ``InvalidIrShapes`` (reasons ``shard_spec``, ``shard_mesh``)."""
    try:
        read = msgspec.convert(dict(given), _Document)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `")
        hint = strict.field_hint(error, _Document) or 'Write {"match": "layers.*.w1", "axis": 1, "mesh": "tp"}.'
        raise refused(f"the shard spec is invalid: {what}.", path.rstrip("`") or "$", hint) from error
    mesh = _mesh(read.mesh)
    names = tuple(name for name, _ in mesh)
    rules = []
    for k, rule in enumerate(read.rules):
        split = rule.split
        if split is msgspec.UNSET and rule.axis is not msgspec.UNSET and rule.mesh is not msgspec.UNSET:
            split = _On(rule.axis, rule.mesh)
        elif split is msgspec.UNSET or rule.axis is not msgspec.UNSET or rule.mesh is not msgspec.UNSET:
            raise refused(f"$.rules[{k}] is no rule.", f"$.rules[{k}]", "Write an axis with its mesh, or a split.")
        rules.append((rule.match, _split(split, names, f"$.rules[{k}]")))
    contracts = msgspec.structs.asdict(read.contracts)
    following = frozenset(kind for kind, value in contracts.items() if value == FOLLOW)
    return ShardSpec(
        mesh=mesh,
        tensors={name: _split(value, names, f"$.tensors.{name}") for name, value in read.tensors.items()},
        rules=tuple(rules),
        contracts={
            kind: _split(value, names, f"$.contracts.{kind}")
            for kind, value in contracts.items()
            if kind not in following
        },
        following=following,
    )


def _mesh(given: tuple[_Axis, ...] | dict[str, int]) -> tuple[tuple[str, int], ...]:
    axes = sorted(given.items()) if isinstance(given, dict) else [(axis.name, axis.size) for axis in given]
    if len(dict(axes)) != len(axes):
        raise refused("two mesh axes have one name.", "$.mesh", "Name each axis differently.")
    if prod(size for _, size in axes) > limits.ceiling(limits.RANKS):
        refusal = limits.past(limits.RANKS, "the mesh")
        raise refused(refusal.message, "$.mesh", refusal.hint, reason="shard_mesh")
    return tuple(axes)


def _split(given: _Where, names: Sequence[str], path: str) -> Split:
    entries = () if given is None else (given,) if isinstance(given, _On) else given
    for on in entries:
        if on.mesh not in names:
            hint = strict.closest_hint(on.mesh, names)
            raise refused(f"{path}: there is no mesh axis {on.mesh!r}.", path, hint, reason="shard_mesh")
    if len({on.axis for on in entries}) != len(entries) or len({on.mesh for on in entries}) != len(entries):
        raise refused(
            f"{path} uses an axis twice.", path, "Split each axis over one mesh axis, and each of those once."
        )
    return tuple((on.axis, on.mesh) for on in entries)


def refused(message: str, path: str, hint: str, reason: str = "shard_spec", **more: Any) -> InvalidIrShapes:
    """Return the error for a spec, or for a graph under it, with its place."""
    return InvalidIrShapes(message, hint=hint, reason=reason, node_id="", path=path, **more)
