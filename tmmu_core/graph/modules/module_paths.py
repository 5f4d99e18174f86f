"""Module and source line of each node: from the file, or derived from names in the file.

Three sources, the best one first::

    origins      ("block3", "expand")      origin of the node in the file (:attr:`Graph.origins`)
    names        block3/expand/op          ONNX, TFLite: scopes in ids of nodes or outputs, for at least half the nodes
    parameters   transformer.h.0.mlp.c_fc.weight    PyTorch: a node that reads a parameter is in its module

With ``parameters``, a node that reads no parameter is in the common module of its neighbours: a node between two
layers of ``h.0.mlp`` is in ``h.0.mlp``. If it reads results of two blocks, it is in the higher-numbered block.
With ``origins``, these rules also apply to a node without origin. A path is a tuple of names. Modules are not hashed.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import takewhile
from typing import Literal

import numpy as np

from tmmu_core.graph.index import I64, GraphIndex

Path = tuple[str, ...]
KnownBy = Literal["origins", "names", "parameters", ""]

MAX_DEPTH = 64  # maximum length of a path. Longer paths are cut, because each prefix of a path is a module.
MAX_LAYERS = 24  # maximum number of layers if no block repeats
PARSED_CHARACTERS = 4096  # maximum number of parsed characters of a path or trace in an untrusted file

_PARAMETER = re.compile(r"^(.+?)(?:_bn)?_(?:w|b|s|rm|riv|mean|var|scale|bias|weight)(?:_\d+)?$")
"""Name of a parameter with its layer as a prefix: ``conv1`` in ``conv1_bn_scale``."""
_NUMBERED = re.compile(r"\d+$")
_LAYER_OF_BLOCK = re.compile(r"^([A-Za-z]+\d*_\d+)_(.+)$")  # ``res2_0`` in ``res2_0_branch2a``
Families = frozenset[tuple[Path, str]]  # families of repeated blocks: (parent, name with a star for its number)


@dataclass(frozen=True, eq=False)
class Modules:
    """The modules of a graph, and the module of each node and tensor."""

    paths: tuple[Path, ...]  # distinct paths, sorted; the root first
    of_node: I64  # shape (nodes,): index into ``paths``
    of_tensor: I64  # shape (tensors,): index into ``paths``: the writer's module, or that in a persistent name
    known_by: KnownBy  # source of the modules; ``""`` if no module is known

    @cached_property
    def _blocks(self) -> tuple[Path, ...]:
        families = families_of(self.paths)
        return tuple([block_of(path, families) for path in self.paths])

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """Layer of each path: the shortest prefix that has no repeated block below it (``h.0`` of ``h.0.mlp``).

        Blocks inside a block do not count. A path without such a prefix is its own layer. If no block repeats, all
        paths are cut to the greatest depth that gives at most :data:`MAX_LAYERS` layers (at least depth 1).
        """
        blocks = self._blocks
        if any(blocks):
            parents = {block[:k] for block in blocks for k in range(1, len(block))}
            ends = [next((k for k in range(1, len(path)) if path[:k] not in parents), None) for path in self.paths]
            return tuple([".".join(path[:end]) for path, end in zip(self.paths, ends, strict=True)])
        deepest = max(map(len, self.paths))
        depth = next((k for k in range(deepest, 1, -1) if len({path[:k] for path in self.paths}) <= MAX_LAYERS), 1)
        return tuple([".".join(path[:depth]) for path in self.paths])

    @property
    def repeated(self) -> tuple[tuple[str, int], ...]:
        """Names of the outermost families of repeated blocks, with the number of blocks: ``(transformer.h.*, 12)``."""
        blocks = set(self._blocks) - {()}
        return tuple(sorted(Counter(".".join([*block[:-1], starred(block[-1])]) for block in blocks).items()))


def families_of(paths: Iterable[Path]) -> Families:
    """Return the families of at least two modules with one parent, whose names differ only in the number at the end."""
    found: dict[tuple[Path, str], set[str]] = {}
    for path in paths:
        for k, part in enumerate(path):
            if _NUMBERED.search(part):
                found.setdefault((path[:k], starred(part)), set()).add(part)
    return frozenset(family for family, members in found.items() if len(members) > 1)


@lru_cache(maxsize=4096)
def block_of(path: Path, families: Families) -> Path:
    """Return the path up to the first repeated block: ``h.0`` of ``h.0.mlp``; ``()`` for none."""
    return next((path[: k + 1] for k, part in enumerate(path) if (path[:k], starred(part)) in families), ())


def starred(part: str) -> str:
    """Return a name with the number at its end replaced by a star: ``block*`` for ``block3``."""
    return _NUMBERED.sub("*", part)


def modules_of(index: GraphIndex, order: Iterable[int]) -> Modules:
    """Return the modules of a graph; ``order``: the node number of each step, or −1. O(operands)."""
    sequence = [node for node in order if node >= 0]
    known_by: KnownBy
    scopes = [_scope(index, node) for node in range(len(index.node_ids))]
    if any(origin.module for origin in index.graph.origins.values()):
        origins = index.graph.origins  # ``conv@grad`` has the module of ``conv``
        found = [origins.get(name) or origins.get(name.split("@")[0]) for name in index.node_ids]
        from_file = {node: origin.module for node, origin in enumerate(found) if origin is not None}
        by_node, known_by = _by_parameters(index, sequence, from_file), "origins"
    elif any(scopes) and 2 * sum(map(bool, scopes)) >= len(scopes):
        by_node, known_by = scopes, "names"
    else:
        by_node = _by_parameters(index, sequence, {})
        known_by = "parameters" if any(by_node) else ""
    by_tensor: list[Path] = []
    for tensor, node in zip(index.written_base.tolist(), index.producer[index.written_base].tolist(), strict=True):
        named = _module_of_parameter(index.tensor_ids[tensor]) if known_by and index.is_persistent[tensor] else ()
        by_tensor.append(by_node[node] if node >= 0 else named)
    return _modules(by_node, by_tensor, known_by)


def modules_of_rows(by_row: Sequence[Path]) -> Modules:
    """Return the modules of a plan without a graph; ``by_row``: module of each row (one node and its tensor)."""
    return _modules(by_row, by_row, "origins" if any(by_row) else "")


def _modules(by_node: Sequence[Path], by_tensor: Sequence[Path], known_by: KnownBy) -> Modules:
    by_node, by_tensor = ([path[:MAX_DEPTH] for path in by] for by in (by_node, by_tensor))
    paths = tuple(sorted({(), *by_node, *by_tensor}))
    number = {path: k for k, path in enumerate(paths)}
    of_node, of_tensor = (np.array([number[path] for path in by], np.int64) for by in (by_node, by_tensor))
    return Modules(paths, of_node, of_tensor, known_by)


def _scope(index: GraphIndex, node: int) -> Path:
    """Return the module in the id of a node, else in the id of its first output: ``a/b`` in ``a/b/op``."""
    outputs = index.outputs_of(node)
    for name in (index.node_ids[node], index.tensor_ids[int(outputs[0])] if len(outputs) else ""):
        parts = [part for part in name.split("@")[0].split(";")[0].split("/") if part]
        if len(parts) > 1:
            return tuple(parts[:-1])
    return ()


def _module_of_parameter(parameter: str) -> Path:
    """Return the module in the id of a parameter: ``h.0.mlp`` for ``h.0.mlp.weight``; ``conv1`` for ``conv1_w``."""
    parts = path_of(parameter.split("@")[0])
    named = _PARAMETER.match(parts[-1]) if parts else None
    if named is None:
        return parts[:-1]
    of_block = _LAYER_OF_BLOCK.match(named[1])
    return (*parts[:-1], *(of_block.groups() if of_block else (named[1],)))


def _by_parameters(index: GraphIndex, order: Sequence[int], known: Mapping[int, Path]) -> list[Path]:
    """Return the module of each node by its parameters and neighbours; ``known``: node → module from the file."""
    by_node: list[Path] = [()] * len(index.node_ids)
    is_final = [False] * len(index.node_ids)
    parameters = np.flatnonzero(index.is_persistent).tolist()
    owner: dict[int, Path] = {t: _module_of_parameter(index.tensor_ids[t]) for t in parameters}
    families = families_of([*owner.values(), *known.values()])
    for node in order:
        if node in known:
            by_node[node], is_final[node] = known[node], True
            continue
        inputs = index.inputs_of(node).tolist()
        owners = [owner[t] for t in inputs if owner.get(t)]
        if owners:
            deepest = max(owners, key=lambda path: (len(path), path))  # for parameters without a common module
            by_node[node], is_final[node] = _common(owners) or deepest, True
            if all(t in owner for t in inputs):  # a transposed weight belongs to the module of the weight
                owner.update(dict.fromkeys(index.outputs_of(node).tolist(), by_node[node]))
            continue
        paths = [by_node[writer] for writer in index.producer[inputs].tolist() if writer >= 0 and by_node[writer]]
        blocks = [block for path in paths if (block := block_of(path, families))]
        by_node[node] = _common(paths)
        if blocks and not block_of(by_node[node], families):  # it reads several blocks
            by_node[node] = max(blocks, key=_block_number)
    # In reverse order, a node without parameters moves to the module it shares with its readers, if in the same block.
    for node in reversed(order):
        if is_final[node]:
            continue
        readers = {int(r) for t in index.outputs_of(node).tolist() for r in index.readers_of(t).tolist()}
        shared = _common([by_node[node], *[by_node[r] for r in sorted(readers) if by_node[r]]])
        if shared and block_of(shared, families) == block_of(by_node[node], families):
            by_node[node] = shared
    return by_node


def _block_number(path: Path) -> tuple[int, str, int]:
    """Return a sort key: the number of a block as text, because ``int`` refuses texts of very many digits."""
    digits = "".join(_NUMBERED.findall(path[-1])).lstrip("0")
    return len(digits), digits, len(path)


def _common(paths: Sequence[Path]) -> Path:
    return tuple([names[0] for names in takewhile(lambda names: len(set(names)) == 1, zip(*paths, strict=False))])


def path_of(text: str) -> tuple[str, ...]:
    """Return the parts of a module name with dots or slashes: ``("h", "0", "mlp")`` for ``h.0.mlp``."""
    return tuple([part for part in re.split(r"[./]", text[:PARSED_CHARACTERS]) if part])


def source_of(trace: str) -> str:
    """Return the source line of the innermost frame of a Python trace (:func:`line_of`); ``""`` without frames."""
    frames = re.findall(r'File "([^"\n]+)", line (\d+)', trace[-PARSED_CHARACTERS:])
    return line_of(*frames[-1]) if frames else ""


def line_of(file: str, line: object) -> str:
    """Return the last folder, the file name and the line: ``gpt2/model.py:12``."""
    return "/".join(re.split(r"[/\\]", file)[-2:]) + f":{line}"


def stack_path(text: str) -> tuple[str, ...]:
    """Return the path of the innermost module of a PyTorch ``nn_module_stack``: ``key,path,class;key,path,class;…``."""
    last = text[-PARSED_CHARACTERS:].rpartition(";")[2].split(",")
    return path_of(last[1].removeprefix("L['self']")) if len(last) > 2 else ()


def scopes_path(text: str) -> tuple[str, ...]:
    """Return the module in ``pkg.torch.onnx.name_scopes``, the second last name: ``h.0`` of ``['h.0', 'linear']``."""
    scopes = re.findall(r"['\"]([^'\"]*)['\"]", text[:PARSED_CHARACTERS])
    return path_of(scopes[-2]) if len(scopes) > 1 else ()
