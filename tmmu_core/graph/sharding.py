"""Sharding: a graph and a shard spec to the graph that one rank runs (seed II.I).

A spec is a JSON object, hashed as it is given::

    {"mesh": [{"name": "dp", "size": 2}, {"name": "tp", "size": 4}],
     "tensors": {"embed": {"axis": 0, "mesh": "tp"}, "scale": null},
     "rules": [{"match": "layers.*.w1", "axis": 1, "mesh": "tp"}],
     "contracts": {"parameters": null, "activations": {"axis": 0, "mesh": "dp"},
                   "gradients": {"axis": 0, "mesh": "dp"}, "optimizer_state": {"axis": 0, "mesh": "dp"}}}

``mesh`` lists the axes from the slowest to the fastest; the ranks run through it as through a C array. Written as an
object (``{"dp": 2, "tp": 4}``) it is taken by name bytes, for a JSON object has no order.

What a tensor's sharding is, the first that speaks of it says:

1. ``tensors``, by id; ``null`` means on every rank whole;
2. ``rules``, the first whose pattern (``*``, ``?``, ``[…]``) fits;
3. the tensor's own ``shard`` field;
4. for ``x@grad`` and ``x@remat`` what is true of ``x``, for a view what keeps it inside its base;
5. the contract of its kind. A contract speaks of many tensors, so it passes over those without the axis, those with
   fewer rows than parts and those with a view that could not follow, where 1 to 3 are refused.

An axis of d rows in p parts: every rank gets ``d // p`` rows, the first ``d % p`` ranks one more. Fewer rows than parts
would leave a rank with nothing and are refused. One tensor may be split along several axes, over different mesh axes:
then a list of ``{"axis", "mesh"}`` stands in place of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, NamedTuple

import msgspec

from tmmu_core import limits
from tmmu_core.errors import InvalidIrShapes
from tmmu_core.graph import checks
from tmmu_core.graph.dtypes import itemsize, tensor_bytes
from tmmu_core.graph.model import Graph, Tensor, View

Split = tuple[tuple[int, str], ...]
"""(axis, mesh axis) pairs; empty where the tensor is whole on every rank."""

KIND_OF_ROLE = {
    "parameter": "parameters",
    "buffer": "parameters",
    "constant": "parameters",
    "activation": "activations",
    "input": "activations",
    "output": "activations",
    "workspace": "activations",
    "gradient": "gradients",
    "optimizer_state": "optimizer_state",
}
KINDS: tuple[str, ...] = ("parameters", "activations", "gradients", "optimizer_state")
FOLLOWERS: tuple[str, ...] = ("@grad", "@remat")


@dataclass(frozen=True)
class ShardSpec:
    """A spec as read."""

    mesh: tuple[tuple[str, int], ...]
    """Mesh axes and their sizes, from the slowest to the fastest."""
    tensors: Mapping[str, Split]
    rules: tuple[tuple[str, Split], ...]
    contracts: Mapping[str, Split]

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Mesh axis → parts."""
        return dict(self.mesh)

    @property
    def world_size(self) -> int:
        """How many ranks the mesh has."""
        return prod(size for _, size in self.mesh)

    def place(self, rank: int) -> dict[str, int]:
        """Mesh axis → coordinate of ``rank``."""
        place = {}
        for name, size in reversed(self.mesh):
            rank, place[name] = divmod(rank, size)
        return place


def rows_of(rows: int, parts: int, part: int) -> int:
    """How many of ``rows`` the part numbered ``part`` of ``parts`` gets: the first ones get the remainder."""
    return rows // parts + (part < rows % parts)


# --- reading -----------------------------------------------------------------------------------------------------


def read_spec(given: Mapping[str, Any]) -> ShardSpec:
    """Check a spec and give it as a value. Raises ``InvalidIrShapes`` (reasons ``shard_spec``, ``shard_mesh``)."""
    for key in given:
        if key not in ("mesh", "tensors", "rules", "contracts"):
            raise _bad(
                f"the shard spec has the unknown field {key!r}.", f"$.{key}", "Fields: mesh, tensors, rules, contracts."
            )
    mesh = _mesh(given.get("mesh", []))
    names = tuple(name for name, _ in mesh)
    rules = []
    for k, rule in enumerate(_list(given.get("rules", []), "$.rules")):
        path = f"$.rules[{k}]"
        if not isinstance(rule, Mapping) or not isinstance(rule.get("match"), str):
            raise _bad(f"{path} is no rule.", path, 'Write {"match": "layers.*.w1", "axis": 1, "mesh": "tp"}.')
        rest = {key: value for key, value in rule.items() if key != "match"}
        rules.append((rule["match"], _split(rest.pop("split", rest) if set(rest) == {"split"} else rest, names, path)))
    contracts = {}
    for kind, value in _mapping(given.get("contracts", {}), "$.contracts").items():
        if kind not in KINDS:
            raise _bad(f"there is no contract for {kind!r}.", f"$.contracts.{kind}", f"Kinds: {', '.join(KINDS)}.")
        contracts[kind] = _split(value, names, f"$.contracts.{kind}")
    return ShardSpec(
        mesh=mesh,
        tensors={
            tensor_id: _split(value, names, f"$.tensors.{tensor_id}")
            for tensor_id, value in _mapping(given.get("tensors", {}), "$.tensors").items()
        },
        rules=tuple(rules),
        contracts=contracts,
    )


def _mesh(given: Any) -> tuple[tuple[str, int], ...]:
    if isinstance(given, Mapping):
        given = [{"name": name, "size": given[name]} for name in sorted(given, key=str)]
    axes: list[tuple[str, int]] = []
    for k, axis in enumerate(_list(given, "$.mesh")):
        if not isinstance(axis, Mapping) or set(axis) != {"name", "size"} or not isinstance(axis["name"], str):
            raise _bad(f"$.mesh[{k}] is no mesh axis.", f"$.mesh[{k}]", 'Write {"name": "tp", "size": 8}.')
        size = axis["size"]
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise _bad(f"the mesh axis {axis['name']!r} has the size {size!r}.", f"$.mesh[{k}]", "Give a size ≥ 1.")
        axes.append((axis["name"], size))
    if len(dict(axes)) != len(axes):
        raise _bad("two mesh axes have one name.", "$.mesh", "Name each axis differently.")
    ranks, most = 1, limits.ceiling(limits.RANKS)
    for _, size in axes:
        ranks *= size
        if ranks > most:
            refusal = limits.past(limits.RANKS, "the mesh")
            raise _bad(refusal.message, "$.mesh", refusal.hint, reason="shard_mesh")
    return tuple(axes)


def _split(given: Any, names: Sequence[str], path: str) -> Split:
    """One ``{"axis", "mesh"}``, a list of them, or ``None``."""
    if given is None:
        return ()
    split: list[tuple[int, str]] = []
    for entry in given if isinstance(given, list | tuple) else [given]:
        if not isinstance(entry, Mapping) or set(entry) != {"axis", "mesh"}:
            raise _bad(f"{path} is no sharding.", path, 'Write {"axis": 0, "mesh": "tp"}, a list of these, or null.')
        axis, mesh = entry["axis"], entry["mesh"]
        if not isinstance(axis, int) or isinstance(axis, bool) or axis < 0:
            raise _bad(f"{path}: the axis {axis!r} is no number ≥ 0.", path, "Count axes from 0.")
        if mesh not in names:
            raise _bad(
                f"{path}: there is no mesh axis {mesh!r}.",
                path,
                f"The mesh has: {', '.join(names) or 'no axes'}.",
                reason="shard_mesh",
            )
        split.append((axis, mesh))
    if len({axis for axis, _ in split}) != len(split) or len({mesh for _, mesh in split}) != len(split):
        raise _bad(f"{path} uses an axis twice.", path, "Split each axis over one mesh axis, and each of those once.")
    return tuple(split)


def _list(value: Any, path: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise _bad(f"{path} is no list.", path, "Write a JSON array.")
    return value


def _mapping(value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _bad(f"{path} is no object.", path, "Write a JSON object.")
    return value


def _bad(message: str, path: str, hint: str, reason: str = "shard_spec", **more: Any) -> InvalidIrShapes:
    return InvalidIrShapes(message, hint=hint, reason=reason, node_id="", path=path, **more)


# --- who gets what -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Sharding:
    """A graph's tensors with their splits, whichever the rank."""

    graph: Graph
    spec: ShardSpec
    shapes: tuple[tuple[int, ...], ...]
    """Global shapes, named dimensions resolved."""
    splits: tuple[Split, ...]
    """Per tensor; of a view, those that were said, else ``None`` in ``follows``."""
    follows: tuple[bool, ...]
    """Whether a tensor is a view whose split is found from its base, rank by rank."""

    @cached_property
    def remainders(self) -> dict[str, tuple[int, ...]]:
        """Mesh axis → the remainders of the splits over it, ascending: where one rank's share differs from the next."""
        found: dict[str, set[int]] = {name: set() for name, _ in self.spec.mesh}
        for i, split in enumerate(self.splits):
            if self.follows[i]:
                # Whether a view can follow an uneven split may differ from rank to rank, along any of its axes.
                uneven = [
                    mesh for axis, mesh in self.root_split(i) if self.shapes[self.root[i]][axis] % self.parts(mesh)
                ]
                split = tuple((axis, mesh) for mesh in uneven for axis in range(len(self.shapes[i])))
            for axis, mesh in split:
                found[mesh].add(self.shapes[i][axis] % self.parts(mesh))
        return {name: tuple(sorted(values - {0})) for name, values in found.items()}

    @cached_property
    def known(self) -> dict[str, int]:
        """Tensor id → number."""
        return {tensor.id: i for i, tensor in enumerate(self.graph.tensors)}

    @cached_property
    def bases_first(self) -> tuple[int, ...]:
        """Numbers of the views, each after its base."""
        return tuple(_bases_first(self.graph, self.known))

    @cached_property
    def root(self) -> dict[int, int]:
        """View → the tensor whose split it follows in the end."""
        found: dict[int, int] = {}
        for i in self.bases_first:
            base = self.base(i)
            found[i] = found[base] if base in found and self.follows[base] else base
        return found

    def base(self, i: int) -> int:
        """The base of view ``i``."""
        view = self.graph.tensors[i].view
        assert view is not None
        return self.known[view.base_tensor_uid]

    def parts(self, mesh: str) -> int:
        """The size of a mesh axis."""
        return self.spec.sizes[mesh]

    def root_split(self, i: int) -> Split:
        """The split that view ``i`` follows in the end."""
        return self.splits[self.root[i]]

    def class_of(self, rank: int) -> tuple[int, ...]:
        """Equal for ranks whose local graphs are equal: for each mesh axis, how many remainders the rank is past."""
        place = self.spec.place(rank)
        return tuple(sum(place[name] >= remainder for remainder in self.remainders[name]) for name, _ in self.spec.mesh)


def shard(graph: Graph, spec: ShardSpec, dims: Mapping[str, int] | None = None) -> Sharding:
    """Decide every tensor's split. ``dims`` is a point inside the envelopes, at their upper ends otherwise.

    Raises ``InvalidIrShapes``: ``unknown_tensor`` (``tensors`` names one that is not there), ``shard_mesh``,
    ``shard_axis`` (no such axis), ``shard_too_small`` (fewer rows than parts).
    """
    known = {tensor.id: i for i, tensor in enumerate(graph.tensors)}
    for tensor_id in spec.tensors:
        # What a mode adds is there in that mode only.
        if tensor_id not in known and not tensor_id.endswith(FOLLOWERS):
            raise _bad(
                f"the shard spec names the tensor {tensor_id!r}, which the graph does not have.",
                f"$.tensors.{tensor_id}",
                "Correct the name, or use a rule with a pattern.",
                reason="unknown_tensor",
                tensor=tensor_id,
            )
    point = checks.resolve_dims(graph, dims)
    shapes = tuple(checks.resolve_shape(tensor, point, i) for i, tensor in enumerate(graph.tensors))
    splits: list[Split | None] = []
    contracted: list[int] = []
    for tensor, shape in zip(graph.tensors, shapes, strict=True):
        own = _said(tensor, spec)
        if own is not None:
            _check(tensor, shape, own, spec)
        splits.append(own)
    said = _Said(graph, spec, shapes, known)
    for i, tensor in enumerate(graph.tensors):
        if splits[i] is None and tensor.view is None:
            splits[i] = _unsaid(said, i, splits)
            if splits[i] and splits[i] == _contract(tensor, shapes[i], spec):
                contracted.append(i)
    found = Sharding(
        graph=graph,
        spec=spec,
        shapes=shapes,
        splits=tuple(split or () for split in splits),
        follows=tuple(split is None for split in splits),
    )
    whole = _left_behind(found, contracted)
    if not whole:
        return found
    return replace(found, splits=tuple(() if i in whole else split for i, split in enumerate(found.splits)))


def _left_behind(sharding: Sharding, bases: Sequence[int]) -> set[int]:
    """Those of ``bases`` with a view that cannot follow their split on some rank. Views that speak for themselves are
    not asked: where one of those does not fit, that is told when it is cut."""
    views: dict[int, list[int]] = {base: [] for base in bases}
    for i in sharding.bases_first:
        if sharding.root[i] in views:
            views[sharding.root[i]].append(i)
    found = set()
    for base, followers in views.items():
        if followers and all(sharding.follows[i] for i in followers):
            places = _places_to_try(sharding, base, followers)
            if not all(_all_follow(sharding, base, followers, place) for place in places):
                found.add(base)
    return found


def _places_to_try(sharding: Sharding, base: int, followers: Sequence[int]) -> list[dict[str, int]]:
    """Places in the mesh that stand for all: shares change only where a remainder ends."""
    split, shape = sharding.splits[base], sharding.shapes[base]
    nowhere = {name: 0 for name, _ in sharding.spec.mesh}
    if not any(shape[axis] % sharding.parts(mesh) for axis, mesh in split):
        return [nowhere]
    rows = {d for i in (base, *followers) for d in sharding.shapes[i]}
    names = [mesh for _, mesh in split]
    steps = [sorted({0, *(d % sharding.parts(mesh) for d in rows)}) for mesh in names]
    if prod(map(len, steps)) > limits.ceiling(limits.SHARES):
        refusal = limits.past(limits.SHARES, f"the tensor {sharding.graph.tensors[base].id!r} and its views")
        raise _bad(refusal.message, "$", refusal.hint, reason="shard_view", tensor=sharding.graph.tensors[base].id)
    return [{**nowhere, **dict(zip(names, at, strict=True))} for at in product(*steps)]


def _all_follow(sharding: Sharding, base: int, followers: Sequence[int], place: Mapping[str, int]) -> bool:
    split = sharding.splits[base]
    local = {base: _cut(sharding.graph.tensors[base], sharding.shapes[base], split, sharding.spec, place)}
    splits = {base: split}
    try:
        for i in followers:
            local[i], splits[i] = _view_on(sharding, i, local[sharding.base(i)], splits[sharding.base(i)], place)
    except InvalidIrShapes:
        return False
    return True


def _said(tensor: Tensor, spec: ShardSpec) -> Split | None:
    """What is said of this very tensor; ``None`` where nothing is."""
    if tensor.id in spec.tensors:
        return spec.tensors[tensor.id]
    for pattern, split in spec.rules:
        if fnmatchcase(tensor.id, pattern):
            return split
    if tensor.shard is not None:
        if tensor.shard.mesh not in spec.sizes:
            raise _bad(
                f"the tensor {tensor.id!r} is sharded over {tensor.shard.mesh!r}, which the mesh does not have.",
                "$.mesh",
                f"The mesh has: {', '.join(spec.sizes) or 'no axes'}.",
                reason="shard_mesh",
                tensor=tensor.id,
            )
        return ((tensor.shard.axis, tensor.shard.mesh),)
    return None


class _Said(NamedTuple):
    """What is asked for: a graph and how it is split, the shape of each tensor, and the number of each id."""

    graph: Graph
    spec: ShardSpec
    shapes: Sequence[tuple[int, ...]]
    known: Mapping[str, int]


def _unsaid(said: _Said, i: int, splits: Sequence[Split | None]) -> Split:
    """What follows from the tensor it belongs to, or from its kind's contract."""
    graph, spec, shapes, known = said
    tensor = graph.tensors[i]
    for ending in FOLLOWERS:
        leader = known.get(tensor.id.removesuffix(ending), i)
        if leader != i and shapes[leader] == shapes[i]:
            split = splits[leader]
            if split is None and graph.tensors[leader].view is None:
                split = _unsaid(said, leader, splits)
            if split:
                return split
    return _contract(tensor, shapes[i], spec)


def _contract(tensor: Tensor, shape: tuple[int, ...], spec: ShardSpec) -> Split:
    """What the contract of its kind makes of a tensor."""
    contract = spec.contracts.get(KIND_OF_ROLE[tensor.role], ())
    return tuple((axis, mesh) for axis, mesh in contract if axis < len(shape) and shape[axis] >= spec.sizes[mesh])


def _check(tensor: Tensor, shape: tuple[int, ...], split: Split, spec: ShardSpec) -> None:
    for axis, mesh in split:
        if axis >= len(shape):
            raise _bad(
                f"the tensor {tensor.id!r} is to be split along axis {axis}, but has {len(shape)} axes.",
                "$",
                f"Give an axis from 0 to {len(shape) - 1}." if shape else "A scalar cannot be split.",
                reason="shard_axis",
                tensor=tensor.id,
            )
        if shape[axis] < spec.sizes[mesh]:
            raise _bad(
                f"axis {axis} of the tensor {tensor.id!r} has {shape[axis]} rows, too few for the "
                f"{spec.sizes[mesh]} parts of mesh axis {mesh!r}: a rank would get none.",
                "$",
                "Split another axis, use a smaller mesh, or leave the tensor whole (null).",
                reason="shard_too_small",
                tensor=tensor.id,
            )


# --- one rank's graph --------------------------------------------------------------------------------------------


def local_graph(
    graph: Graph, spec: ShardSpec, rank: int, world_size: int | None = None, dims: Mapping[str, int] | None = None
) -> Graph:
    """The graph that ``rank`` runs: the same nodes, tensors of its share. Raises what :func:`shard` raises,
    ``shard_world_size``, ``shard_rank`` and ``shard_view`` (a view that does not fit its base's share)."""
    check_world(spec, world_size, rank)
    return local_graph_of(shard(graph, spec, dims), rank)


def check_world(spec: ShardSpec, world_size: int | None, rank: int = 0) -> int:
    """The number of ranks. Raises ``InvalidIrShapes`` (``shard_world_size``, ``shard_rank``)."""
    if world_size is not None and world_size != spec.world_size:
        mesh = " × ".join(f"{name} {size}" for name, size in spec.mesh) or "empty"
        raise _bad(
            f"the world has {world_size} ranks, but the mesh ({mesh}) has {spec.world_size}.",
            "$.mesh",
            "Let the product of the mesh axes be the number of ranks; add an axis for plain replicas.",
            reason="shard_world_size",
        )
    if not 0 <= rank < spec.world_size:
        raise _bad(
            f"there is no rank {rank} among {spec.world_size}.",
            "$",
            f"Give a rank from 0 to {spec.world_size - 1}.",
            reason="shard_rank",
        )
    return spec.world_size


def local_graph_of(sharding: Sharding, rank: int) -> Graph:
    """The same for a sharding that is decided already."""
    graph, spec = sharding.graph, sharding.spec
    place = spec.place(rank)
    local = list(graph.tensors)
    splits = list(sharding.splits)
    for i, tensor in enumerate(graph.tensors):
        if tensor.view is None and splits[i]:
            local[i] = _cut(tensor, sharding.shapes[i], splits[i], spec, place)
    for i in sharding.bases_first:
        base = sharding.base(i)
        local[i], splits[i] = _view_on(sharding, i, local[base], splits[base], place)
    return msgspec.structs.replace(graph, tensors=tuple(local))


def _bases_first(graph: Graph, known: Mapping[str, int]) -> list[int]:
    """Numbers of the views, each after its base."""
    order: dict[int, None] = {}
    for i, tensor in enumerate(graph.tensors):
        chain: list[int] = []
        at, view = i, tensor.view
        while view is not None and at not in order and len(chain) <= len(graph.tensors):
            chain.append(at)
            at = known[view.base_tensor_uid]
            view = graph.tensors[at].view
        order.update(dict.fromkeys(reversed(chain)))
    return list(order)


def _cut(tensor: Tensor, shape: tuple[int, ...], split: Split, spec: ShardSpec, place: Mapping[str, int]) -> Tensor:
    if not split:
        return tensor
    cut: list[int | str] = list(tensor.shape)
    for axis, mesh in split:
        cut[axis] = rows_of(shape[axis], spec.sizes[mesh], place[mesh])
    return msgspec.structs.replace(tensor, shape=tuple(cut))


def _view_on(
    sharding: Sharding, i: int, base_local: Tensor, base_split: Split, place: Mapping[str, int]
) -> tuple[Tensor, Split]:
    """A view inside this rank's share of its base, and its split.

    Where nothing was said of it, a view of the whole base is split along the axis that gives it just the share's
    bytes: the axis of the base's split first, then the others in order. A view of a part keeps its relative place.
    """
    tensor, shape, base = sharding.graph.tensors[i], sharding.shapes[i], sharding.base(i)
    view = tensor.view
    assert view is not None
    if not base_split and not sharding.splits[i]:
        return tensor, ()
    whole = tensor_bytes(sharding.shapes[base], base_local.dtype)
    share = tensor_bytes(_numbers(base_local, sharding.shapes[base]), base_local.dtype)
    length = tensor_bytes(shape, tensor.dtype) if view.byte_length is None else view.byte_length
    offset, wanted = view.byte_offset * share, length * share
    if not whole or offset % whole or wanted % whole:
        raise _misfit(tensor, "it does not divide as its base does")
    if length != whole and _deals_rows(sharding.shapes[base], base_split):
        raise _misfit(tensor, "it is a part of the very rows that the split deals out")
    offset, wanted = offset // whole, wanted // whole
    strides = view.stride_desc if view.stride_desc is not None and 0 in view.stride_desc else None
    for split in [sharding.splits[i]] if not sharding.follows[i] else _candidates(base_split, len(shape)):
        if any(shape[axis] < sharding.parts(mesh) for axis, mesh in split):
            continue
        cut = _cut(tensor, shape, split, sharding.spec, place)
        stored = [d for axis, d in enumerate(_numbers(cut, shape)) if strides is None or strides[axis]]
        if tensor_bytes(stored, tensor.dtype) == wanted and not offset % itemsize(tensor.dtype):
            return msgspec.structs.replace(cut, view=View(view.base_tensor_uid, offset, wanted, strides)), split
    raise _misfit(tensor, "no axis of it gives just its base's share")


def _candidates(base_split: Split, axes: int) -> list[Split]:
    """Splits that a view may take to follow its base's."""
    found = [base_split] if all(axis < axes for axis, _ in base_split) else []
    if len(base_split) == 1:
        found += [((axis, base_split[0][1]),) for axis in range(axes) if axis != base_split[0][0]]
    return found


def _numbers(tensor: Tensor, shape: Sequence[int]) -> tuple[int, ...]:
    """A local shape in numbers; ``shape`` is the global one, for named dimensions that are not split."""
    return tuple(d if isinstance(d, int) else shape[axis] for axis, d in enumerate(tensor.shape))


def _deals_rows(shape: tuple[int, ...], split: Split) -> bool:
    """Whether the split deals out the slowest axis that has more than one row: a part then belongs to some ranks."""
    slowest = next((axis for axis, rows in enumerate(shape) if rows > 1), 0)
    return any(axis <= slowest for axis, _ in split)


def _misfit(tensor: Tensor, why: str) -> InvalidIrShapes:
    assert tensor.view is not None
    return _bad(
        f"the view {tensor.id!r} cannot follow the split of its base {tensor.view.base_tensor_uid!r}: {why}.",
        "$",
        "Say how the view is split, split the base along another axis, or leave it whole (null).",
        reason="shard_view",
        tensor=tensor.id,
    )
