"""A shard spec: the mesh over which a graph is split, and the split axis of each tensor (TMMU v2 II.I).

A spec is a JSON object, which is hashed as given::

    {"mesh": [{"name": "dp", "size": 2}, {"name": "tp", "size": 4}],
     "tensors": {"embed": {"axis": 0, "mesh": "tp"}, "scale": null},
     "rules": [{"match": "layers.*.w1", "axis": 1, "mesh": "tp"}],
     "contracts": {"parameters": null, "activations": {"axis": 0, "mesh": "dp"},
                   "gradients": {"axis": 0, "mesh": "dp"}, "optimizer_state": {"axis": 0, "mesh": "dp"}}}

``mesh`` lists the axes from the slowest to the fastest, like the axes of a C array. If ``mesh`` is an
object (``{"dp": 2, "tp": 4}``), its axes are sorted by name, because an object has no order in JSON.

The contract ``"follow"`` of ``activations`` or ``gradients`` derives their split from that of the weights:
attention heads and the hidden units of an MLP are then split over the ranks.

The first of these that applies determines the sharding of a tensor:

1. ``tensors``, by id; ``null``: the whole tensor is on every rank;
2. ``rules``, the first whose pattern (``*``, ``?``, ``[…]``) matches;
3. the tensor's own ``shard`` field;
4. for ``x@grad`` and ``x@remat``, the split of ``x``, unless ``x`` is whole; for a view, a split that follows its base;
5. the contract of its kind. It is ignored for a tensor that lacks the axis, has fewer rows than parts, or has a view
   that cannot follow the split. For 1 to 3, such a tensor is an error.

An axis of d rows is split into p parts. The first ``d % p`` parts have ``d // p + 1`` rows, the others ``d // p``. A
tensor can be split along several axes over different mesh axes by a list of ``{"axis", "mesh"}`` (``split`` in a rule).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from tmmu_core.base import limits, strict
from tmmu_core.base.errors import InvalidIrShapes, source_of_errors

Split = tuple[tuple[int, str], ...]  # (tensor axis, mesh axis) pairs; empty if every rank has the whole tensor


@dataclass(frozen=True)
class ShardSpec:
    """A parsed shard spec."""

    mesh: tuple[tuple[str, int], ...]  # mesh axes and their sizes, from the slowest to the fastest
    tensors: Mapping[str, Split]  # tensor id → split
    rules: tuple[tuple[str, Split], ...]  # patterns of tensor ids, with their splits
    contracts: Mapping[str, Split]  # kind → split
    following_kinds: frozenset[str] = frozenset()  # kinds with the contract ``"follow"``

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Mesh axis → number of parts."""
        return dict(self.mesh)

    @property
    def world_size(self) -> int:
        """Number of ranks of the mesh."""
        return prod(size for _, size in self.mesh)

    def coordinates(self, rank: int) -> dict[str, int]:
        """Return the coordinate of ``rank`` on each mesh axis."""
        coordinates = {}
        for name, size in reversed(self.mesh):
            rank, coordinates[name] = divmod(rank, size)
        return coordinates


def rows_of(rows: int, parts: int, part: int) -> int:
    """Return the number of ``rows`` in part ``part`` of ``parts``; the first parts get the remainder."""
    return rows // parts + (part < rows % parts)


def check_world(spec: ShardSpec, world_size: int | None, rank: int = 0) -> int:
    """Return the number of ranks. Raises ``InvalidIrShapes`` (``shard_world_size``, ``shard_rank``)."""
    if world_size is not None and world_size != spec.world_size:
        mesh = " × ".join(f"{name} {size}" for name, size in spec.mesh) or "empty"
        message = f"--world-size is {world_size}, but the number of ranks of the mesh ({mesh}) is {spec.world_size}."
        hint = "The product of the mesh axes must equal the number of ranks. Add an axis for replicas."
        raise spec_error(message, "$.mesh", hint, reason="shard_world_size")
    if not 0 <= rank < spec.world_size:
        hint = f"Give a rank from 0 to {spec.world_size - 1}."
        raise spec_error(f"there is no rank {rank}: the number of ranks is {spec.world_size}.", "$", hint, "shard_rank")
    return spec.world_size


@source_of_errors("shard spec")
def read_spec(spec: Mapping[str, Any]) -> ShardSpec:
    """Parse and check a spec. Raises ``InvalidIrShapes`` (reasons ``shard_spec``, ``shard_mesh``)."""
    example = "Write a JSON object."
    _object(spec, ("mesh", "tensors", "rules", "contracts"), "$", "a shard spec", example)
    listed = spec.get("mesh", [])
    if isinstance(listed, Mapping):
        listed = [{"name": name, "size": listed[name]} for name in sorted(listed, key=str)]
    mesh: list[tuple[str, int]] = []
    for k, axis in enumerate(_list(listed, "$.mesh")):
        path, axis_example = f"$.mesh[{k}]", 'Write {"name": "tp", "size": 8}.'
        _object(axis, ("name", "size"), path, "a mesh axis", axis_example)
        name, size = axis.get("name"), axis.get("size")
        if not isinstance(name, str) or type(size) is not int or size < 1:
            raise spec_error(f'{path} has no text "name", or no "size" ≥ 1.', path, axis_example)
        mesh.append((name, size))
    names = tuple(dict(mesh))
    if len(names) != len(mesh):
        raise spec_error("two mesh axes have the same name.", "$.mesh", "Use a different name for each axis.")
    if prod(size for _, size in mesh) > limits.ceiling(limits.RANKS):
        refusal = limits.limit_error(limits.RANKS, "the mesh")
        raise spec_error(refusal.message, "$.mesh", refusal.hint, reason="shard_mesh")
    rules = []
    for k, rule in enumerate(_list(spec.get("rules", []), "$.rules")):
        path, rule_example = f"$.rules[{k}]", 'Write {"match": "layers.*.w1", "axis": 1, "mesh": "tp"}.'
        _object(rule, ("match", "axis", "mesh", "split"), path, "a rule", rule_example)
        if not isinstance(rule.get("match"), str):
            raise spec_error(f'{path} has no text "match".', path, rule_example)
        rest = {key: value for key, value in rule.items() if key != "match"}
        rules.append((rule["match"], _split(rest["split"] if set(rest) == {"split"} else rest, names, path)))
    contracts, following = {}, set()
    kinds = ("parameters", "activations", "gradients", "optimizer_state")
    for kind, value in _object(spec.get("contracts", {}), kinds, "$.contracts", "an object", example).items():
        if value == "follow" and kind in ("activations", "gradients"):
            following.add(kind)
        else:
            contracts[kind] = _split(value, names, f"$.contracts.{kind}")
    tensors = _object(spec.get("tensors", {}), (), "$.tensors", "an object", example)
    splits = {name: _split(value, names, f"$.tensors.{name}") for name, value in tensors.items()}
    return ShardSpec(tuple(mesh), splits, tuple(rules), contracts, frozenset(following))


def _split(value: Any, names: Sequence[str], path: str) -> Split:
    if value is None:
        return ()
    split: list[tuple[int, str]] = []
    for entry in value if isinstance(value, list | tuple) else [value]:
        example = 'Write {"axis": 0, "mesh": "tp"}, a list of these, or null.'
        _object(entry, ("axis", "mesh"), path, "a sharding", example)
        axis, mesh = entry.get("axis"), entry.get("mesh")
        if type(axis) is not int or axis < 0 or mesh is None:
            raise spec_error(f'{path} has no "axis" ≥ 0, or no "mesh".', path, example)
        if mesh not in names:
            message, hint = f"{path}: there is no mesh axis {mesh!r}.", strict.closest_hint(str(mesh), names)
            raise spec_error(message, path, hint, reason="shard_mesh")
        split.append((axis, mesh))
    if any(len(set(axes)) < len(split) for axes in zip(*split, strict=True)):  # tensor axes, then mesh axes
        hint = "Split each tensor axis over one mesh axis, and use each mesh axis once for a tensor."
        raise spec_error(f"{path} uses an axis twice.", path, hint)
    return tuple(split)


def _object(value: Any, known: Sequence[str], path: str, noun: str, example: str) -> Mapping[str, Any]:
    """Return ``value``. Raises ``InvalidIrShapes`` unless it is an object with keys in ``known`` (empty: any keys)."""
    if not isinstance(value, Mapping):
        raise spec_error(f"{path} is not {noun}.", path, example)
    for key in value if known else ():
        if key not in known:
            raise spec_error(f"unknown field {key!r}.", f"{path}.{key}", strict.closest_hint(key, known))
    return value


def _list(value: Any, path: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise spec_error(f"{path} is not a list.", path, "Write a JSON array.")
    return value


def spec_error(message: str, path: str, hint: str, reason: str = "shard_spec", **more: Any) -> InvalidIrShapes:
    """Return the error for a spec, or for a graph that it splits; ``path`` is the JSON path in the spec."""
    return InvalidIrShapes(message, hint=hint, reason=reason, node_id="", path=path, **more)
