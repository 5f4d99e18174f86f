"""Module of each node: from the file, or derived from names in the file.

Three sources, the best one first::

    origins      ("block3", "expand")      origin of the node in the file (:attr:`Graph.origins`)
    names        block3/expand/op          ONNX scopes, TFLite names: in the name of a node or of its output
    parameters   transformer.h.0.mlp.c_fc.weight    PyTorch: a node that reads a parameter is in its module

Under ``parameters``, a node that reads no parameter is in the common module of its neighbours: between two layers of
``h.0.mlp`` it is in ``h.0.mlp``; a sum of two blocks is in the later block. A path is a tuple of names, the root is
``()``; modules are in no hash and no file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from tmmu_core.graph.index import I64, GraphIndex

Path = tuple[str, ...]

MOST_LAYERS = 24
"""Maximum number of layer names if no block repeats."""

_ENDING = re.compile(r"^(.+?)(?:_bn)?_(?:w|b|s|rm|riv|mean|var|scale|bias|weight)(?:_\d+)?$")
_NUMBERED = re.compile(r"\d+$")
_STEM = re.compile(r"^([A-Za-z]+\d*_\d+)_(.+)$")


@dataclass(frozen=True, eq=False)
class Modules:
    """The module tree of a graph, and the modules of its nodes and tensors."""

    paths: tuple[Path, ...]
    """Distinct paths, sorted; the root first."""
    of_node: I64
    """Shape (nodes,): index into ``paths``."""
    of_tensor: I64
    """Shape (tensors,): the module of the producer; for a parameter, the module that owns it; else the root."""
    known_by: Literal["origins", "names", "parameters", ""]
    """Source of the modules; ``""``: the file has no such names."""

    @cached_property
    def _blocks(self) -> tuple[Path, ...]:
        families = families_of(self.paths)
        return tuple([block_of(path, families) for path in self.paths])

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """The layer of each path: its repeated block, else as many levels as :data:`MOST_LAYERS` allows."""
        blocks = self._blocks
        if any(blocks):
            prefixes = {block[:k] for block in blocks for k in range(1, len(block))}
            ends = [next((k for k in range(1, len(path)) if path[:k] not in prefixes), None) for path in self.paths]
            return tuple([".".join(path[:end]) for path, end in zip(self.paths, ends, strict=True)])
        deepest = max(map(len, self.paths))
        depth = next((k for k in range(deepest, 1, -1) if len({path[:k] for path in self.paths}) <= MOST_LAYERS), 1)
        return tuple([".".join(path[:depth]) for path in self.paths])

    @property
    def repeated(self) -> tuple[tuple[str, int], ...]:
        """Repeated blocks by name, with their number: ``(transformer.h.*, 12)``."""
        found: dict[str, set[Path]] = {}
        for block in self._blocks:
            if block:
                found.setdefault(".".join([*block[:-1], starred(block[-1])]), set()).add(block)
        return tuple(sorted((name, len(blocks)) for name, blocks in found.items()))


Families = frozenset[tuple[Path, str]]


def families_of(paths: Iterable[Path]) -> Families:
    """Return the numbered names with several siblings, as (parent, name with a star for its number)."""
    found: dict[tuple[Path, str], set[str]] = {}
    for path in paths:
        for k, part in enumerate(path):
            if _NUMBERED.search(part):
                found.setdefault((path[:k], starred(part)), set()).add(part)
    return frozenset(family for family, members in found.items() if len(members) > 1)


def block_of(path: Path, families: Families) -> Path:
    """Return the path up to the first repeated block: ``h.0`` of ``h.0.mlp``; ``()`` for none."""
    return next((path[: k + 1] for k, part in enumerate(path) if (path[:k], starred(part)) in families), ())


def starred(part: str) -> str:
    """Return a name with its number replaced by a star: ``block*`` for ``block3``."""
    return _NUMBERED.sub("*", part)


def modules_of(index: GraphIndex, order: Iterable[int]) -> Modules:
    """Return the modules of a graph; ``order`` are its nodes as they run. O(operands)."""
    sequence = [node for node in order if node >= 0]
    named = [_scope(index, node) for node in range(len(index.node_ids))]
    placed = sum(1 for path in named if path)
    if any(origin.module for origin in index.graph.origins.values()):
        origins = index.graph.origins  # ``conv@grad`` has the module of ``conv``
        found = [origins.get(name) or origins.get(name.split("@")[0]) for name in index.node_ids]
        of_file = {node: origin.module for node, origin in enumerate(found) if origin is not None}
        by_node, known = _by_parameters(index, sequence, of_file), "origins"
    elif 2 * placed >= len(named) and placed:
        by_node, known = named, "names"
    else:
        by_node = _by_parameters(index, sequence)
        known = "parameters" if any(by_node) else ""
    by_tensor: list[Path] = []
    for tensor in index.root.tolist():
        node = int(index.producer[tensor])
        if node >= 0:
            by_tensor.append(by_node[node])
        else:
            by_tensor.append(_owner(index.tensor_ids[tensor]) if known and index.is_persistent[tensor] else ())
    paths = tuple(sorted({(), *by_node, *by_tensor}))
    number = {path: k for k, path in enumerate(paths)}
    return Modules(
        paths,
        np.array([number[path] for path in by_node], np.int64),
        np.array([number[path] for path in by_tensor], np.int64),
        known,  # type: ignore[arg-type]
    )


def modules_of_rows(of_rows: Sequence[Path]) -> Modules:
    """Return the modules of a plan without a graph, from the path of each storage; a storage counts as a node."""
    paths = tuple(sorted({(), *of_rows}))
    number = {path: k for k, path in enumerate(paths)}
    rows = np.array([number[path] for path in of_rows], np.int64)
    return Modules(paths, rows, rows, "origins" if len(paths) > 1 else "")


def _scope(index: GraphIndex, node: int) -> Path:
    """Return the module in the name of a node or of its first output."""
    outputs = index.outputs_of(node)
    for name in (index.node_ids[node], index.tensor_ids[int(outputs[0])] if len(outputs) else ""):
        parts = [part for part in name.split("@")[0].split(";")[0].split("/") if part]
        if len(parts) > 1:
            return tuple(parts[:-1])
    return ()


def _owner(parameter: str) -> Path:
    """Return the module that a parameter belongs to, by its name."""
    parts = [part for part in re.split(r"[./]", parameter.split("@")[0]) if part]
    found = _ENDING.match(parts[-1]) if parts else None
    if found is None:
        return tuple(parts[:-1])
    stem = _STEM.match(found[1])  # res2_0_branch2a: a layer of the block res2_0
    return (*parts[:-1], *(stem.groups() if stem else (found[1],)))


def _by_parameters(index: GraphIndex, order: Sequence[int], known: Mapping[int, Path] | None = None) -> list[Path]:
    """Return the modules of nodes by their parameters and neighbours; ``known``: node → module from the file."""
    known = known or {}
    by_node: list[Path] = [()] * len(index.node_ids)
    reads_own = [False] * len(index.node_ids)
    weight: dict[int, Path] = {t: _owner(index.tensor_ids[t]) for t in np.flatnonzero(index.is_persistent).tolist()}
    families = families_of([*weight.values(), *known.values()])
    for node in order:
        if node in known:
            by_node[node], reads_own[node] = known[node], True
            continue
        inputs = index.inputs_of(node).tolist()
        own = [weight[t] for t in inputs if weight.get(t)]
        if own:
            by_node[node], reads_own[node] = _common(own) or max(own, key=lambda path: (len(path), path)), True
            if all(t in weight for t in inputs):  # a transposed weight belongs to the module of the weight
                weight.update(dict.fromkeys(index.outputs_of(node).tolist(), by_node[node]))
            continue
        writers = [int(index.producer[t]) for t in inputs if index.producer[t] >= 0]
        by_node[node] = _common_of_producers([by_node[w] for w in writers], families)
    for node in reversed(order):
        if reads_own[node]:
            continue
        readers = {int(r) for t in index.outputs_of(node).tolist() for r in index.readers_of(t).tolist()}
        shared = _common([by_node[node], *[by_node[r] for r in sorted(readers) if by_node[r]]])
        if shared and block_of(shared, families) == block_of(by_node[node], families):
            by_node[node] = shared
    return by_node


def _common_of_producers(paths: Sequence[Path], families: Families) -> Path:
    """Return the common module of several producers; for different blocks, the block of the last producer."""
    paths = [path for path in paths if path]
    if not paths:
        return ()
    shared = _common(paths)
    blocks = [block_of(path, families) for path in paths]
    if any(blocks) and not block_of(shared, families):
        return max((block for block in blocks if block), key=_numbered)
    return shared


def _numbered(path: Path) -> tuple[int, str, int]:
    """Sort key by the number in a name, which may have more digits than Python converts."""
    digits = "".join(_NUMBERED.findall(path[-1])).lstrip("0")
    return len(digits), digits, len(path)


def _common(paths: Sequence[Path]) -> Path:
    shortest = min(paths, key=len)
    for k, part in enumerate(shortest):
        if any(path[k] != part for path in paths):
            return shortest[:k]
    return shortest
