"""Small odd cases, the same ones for ever: drawn from numbers by nothing but ``random``, and what of them is the same.

Graphs are whole but free otherwise: views of views, alias groups, in-place writes that may be denied, pairs apart that
may contradict, dead tensors, early outputs, several arenas, sizes of zero, phases, named dims, orders of their own.
Where ``tests/strategies.py`` draws new ones at every release of its library, these stand still, so that a golden line
can be said of each. :func:`spelled` writes any value down, so that two that differ anywhere differ there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from fractions import Fraction
from hashlib import sha256
from random import Random
from typing import Any

import msgspec
import numpy as np

from tests.strategies import Case
from tmmu_core.graph.dtypes import itemsize, tensor_bytes
from tmmu_core.graph.model import MODES, PRESETS, Dim, Graph, Node, Tensor, View

NAMES = ("t", "T", "t1_", "é", "𝄞", "z:", "A@")
"""Ids that sort apart as text, as bytes and as numbers."""
SHAPES: tuple[tuple[int | str, ...], ...] = (
    *((), (1,), (3,), (8,), (64,), (5, 8), (2, 3), (100, 7), (0,), (4, 0), ("B", 3), ("B",), ("B", "S"), (2, 2, 2)),
)
DTYPES = ("float32", "float32", "float32", "float16", "int64", "int4", "bool", "complex64")
PERSISTENT = ("parameter", "parameter", "constant", "buffer", "optimizer_state")
OPERATORS = ("MATMUL", "ADD", "Relu", "softmax", "MaxPool", "", "LAYERNORM")
CLOCKED = ("allocation_time_ns",)
"""What differs from run to run."""


def drawn(k: int) -> Case:
    """The case of a number: every third is tame, so that it is seldom refused."""
    return _Drawing(Random(f"odd/{k}"), tame=k % 3 == 0).case()


class _Drawing:
    """A graph while it is drawn."""

    def __init__(self, random: Random, tame: bool) -> None:
        self.random, self.tame = random, tame
        self.tensors: dict[str, Tensor] = {}
        self.nodes: list[Node] = []
        self.readable: list[str] = []
        self.gone: set[str] = set()

    def rarely(self, one_in: int) -> bool:
        return self.random.randrange(one_in) == 0

    def case(self) -> Case:
        graph = self.graph()
        pick = self.random.choice
        return Case(
            graph=graph,
            mode=pick(MODES),
            preset=pick(PRESETS),
            arenas=None if self.tame else self.arenas(),
            order=self.order() if self.rarely(4) else None,
            dims=pick((None, None, {"B": 1}, {"B": 3, "S": 0})),
            seed=self.random.randrange(2**32),
        )

    def graph(self) -> Graph:
        random = self.random
        inputs = [self.add(self.tensor("input")) for _ in range(random.randrange(3))]
        for _ in range(random.randrange(0 if inputs else 1, 3)):
            self.readable.append(self.add(self.tensor(random.choice(PERSISTENT))))
        self.readable += inputs
        count, own_backward = random.randrange(1, 9), self.rarely(4)
        for k in range(count):
            late = own_backward and k >= count // 2
            self.node("optimizer" if late and k == count - 1 else "backward" if late else "forward")
            if self.rarely(9):
                self.readable.append(self.add(self.view(random.choice(self.readable))))
        produced = [name for node in self.nodes for name in node.outputs]
        outputs = tuple(dict.fromkeys(random.choice(produced + inputs) for _ in range(random.randrange(3))))
        tensors, nodes = self.apart(), list(self.nodes)
        random.shuffle(tensors)
        random.shuffle(nodes)
        return Graph(
            tensors=tuple(tensors),
            nodes=tuple(nodes),
            inputs=tuple(inputs),
            outputs=outputs,
            name=random.choice(("", "odd")),
            dims={"B": Dim(1, 4), "S": Dim(0, 6)},
            execution_order=self.order() if self.rarely(5) else None,
        )

    def name(self) -> str:
        return f"{self.random.choice(NAMES)}{len(self.tensors)}"

    def add(self, tensor: Tensor) -> str:
        self.tensors[tensor.id] = tensor
        return tensor.id

    def tensor(self, role: str) -> Tensor:
        pick = self.random.choice
        return Tensor(
            id=self.name(),
            shape=pick(SHAPES),
            dtype=pick(DTYPES),
            role=role,  # type: ignore[arg-type]
            alias_group_id=pick((None,) * 8 + ("g", "h")),
            saved_for_backward=self.rarely(4),
            remat=self.rarely(4),
            alignment=pick((None,) * 6 + (1, 16, 256)),
            arena=None if self.tame else pick((None,) * 20 + ("gradients", "sram")),
        )

    def view(self, base: str) -> Tensor:
        """One that lies inside its base at every point of the dims: on a base with names it covers the whole."""
        random, tensor = self.random, self.tensors[base]
        if self.rarely(2) or not all(isinstance(dim, int) for dim in tensor.shape):
            return Tensor(self.name(), tensor.shape, tensor.dtype, view=View(base), saved_for_backward=self.rarely(9))
        dtype = random.choice(("int8", "float16", "float32"))
        grid = itemsize(dtype)
        room = tensor_bytes(tensor.shape, tensor.dtype) // grid  # type: ignore[arg-type]
        start = random.randint(0, room)
        length = random.randint(0, room - start)
        said = random.choice((None, length * grid))
        view = View(base, start * grid, said, random.choice((None, (1,))))
        return Tensor(self.name(), (length,), dtype, view=view, remat=self.rarely(9))

    def node(self, phase: str) -> None:
        random = self.random
        pool = [name for name in self.readable if name not in self.gone or self.rarely(10)] or self.readable
        reads = [random.choice(pool[-3:] if self.rarely(2) else pool) for _ in range(random.choice((1, 1, 2, 3)))]
        writes: list[str] = []
        in_place: list[tuple[int, int]] = []
        for o in range(random.choice((1, 1, 1, 2))):
            kind = random.choice(("plain",) * 6 + ("view", "in place"))
            if kind == "view":
                writes.append(self.add(self.view(reads[0])))
                continue
            role = "gradient" if phase == "backward" else random.choice(("activation",) * 5 + ("workspace", "output"))
            tensor = self.tensor(role)
            if kind == "in place" and not self.tame:
                i = random.randrange(len(reads))
                taken = self.tensors[reads[i]]
                tensor = msgspec.structs.replace(tensor, shape=taken.shape, dtype=taken.dtype)
                in_place.append((i, o))
                self.gone.add(reads[i])
            writes.append(self.add(tensor))
        self.nodes.append(
            Node(
                node_id=f"{random.choice(NAMES)}{len(self.nodes)}",
                instr=random.choice(OPERATORS),
                inputs=tuple(reads),
                outputs=tuple(writes),
                phase=phase,  # type: ignore[arg-type]
                inplace=random.choice((None, None, "any", "none", self.pairs(reads, writes))),
                in_place_write=tuple(in_place),
                grad_edges=random.choice(((), (), self.pairs(reads, writes))),
                params=random.choice(({}, {"axis": -1, "eps": 1e-5, "ks": [3, 3]})),
            )
        )
        self.readable += writes

    def pairs(self, reads: list[str], writes: list[str]) -> tuple[tuple[int, int], ...]:
        count = self.random.randrange(3)
        return tuple((self.random.randrange(len(reads)), self.random.randrange(len(writes))) for _ in range(count))

    def apart(self) -> list[Tensor]:
        names = sorted(self.tensors)
        for _ in range(self.random.choice((0, 0, 0, 1, 3))):
            a, b = self.random.choice(names), self.random.choice(names)
            words = {self.tensors[x].alias_group_id or self.tensors[x].view for x in (a, b)}
            if a != b and (not self.tame or words == {None}):
                apart = (*self.tensors[a].must_not_alias, b)
                self.tensors[a] = msgspec.structs.replace(self.tensors[a], must_not_alias=apart)
        return list(self.tensors.values())

    def order(self) -> tuple[str, ...]:
        """Writers before readers, ties drawn; also through views that nobody writes."""
        base = {t.id: t.view.base_tensor_uid for t in self.tensors.values() if t.view is not None}
        writer = {name: node.node_id for node in self.nodes for name in node.outputs}

        def source(name: str) -> str | None:
            while name not in writer and name in base:
                name = base[name]
            return writer.get(name)

        waits = {node.node_id: {s for s in map(source, node.inputs) if s is not None} for node in self.nodes}
        order: list[str] = []
        while waits:
            order.append(self.random.choice(sorted(n for n, sources in waits.items() if sources <= set(order))))
            del waits[order[-1]]
        return tuple(order)

    def arenas(self) -> dict[str, Any] | None:
        if self.rarely(5):
            return self.random.choice((None, {}))
        config: dict[str, Any] = {}
        for name in ("activations", "gradients", "parameters", "sram"):
            said = {
                "capacity_bytes": self.random.choice((None,) * 9 + (4096, 100)),
                "alignment_bytes": self.random.choice((None, 1, 16, 64, 512)),
                "page_size": self.random.choice((None, 4096, 1000)),
            }
            if not self.rarely(15):
                config[name] = {key: value for key, value in said.items() if value is not None}
        return config | ({"optimizer_state": {"alignment_bytes": 64}} if self.rarely(4) else {})


def twisted(case: Case, random: Random) -> Case:
    """The case with one thing in it that may not be, or that is at an edge of what may be."""
    graph, pick = case.graph, random.choice
    t, n = random.randrange(len(graph.tensors)), random.randrange(len(graph.nodes))
    tensor, node = graph.tensors[t], graph.nodes[n]
    names = [each.id for each in graph.tensors]
    any_pair = ((random.randrange(4) - 1, random.randrange(3)),)
    how = random.randrange(14)
    if how == 0:  # a circle, or what is read before it is written
        node = msgspec.structs.replace(node, inputs=(*node.inputs[1:], pick(names)))
    elif how == 1:  # a circle of one
        node = msgspec.structs.replace(node, inputs=(*node.inputs, *node.outputs[:1]))
    elif how == 2:
        node = msgspec.structs.replace(node, outputs=(*node.outputs, pick((*names, "nobody"))))
    elif how == 3:
        node = msgspec.structs.replace(node, **{pick(("grad_edges", "in_place_write", "inplace")): any_pair})
    elif how == 4:
        node = msgspec.structs.replace(node, inputs=(*node.inputs, "nobody"), node_id=pick((node.node_id, "@inputs")))
    elif how == 5:
        node = msgspec.structs.replace(node, node_id=pick(graph.nodes).node_id)
    elif how == 6:  # 2^62 bytes, 2^64 and more
        tensor = msgspec.structs.replace(tensor, shape=(2 ** pick((30, 31, 40)), 2**30), view=None)
    elif how == 7:
        alignment, arena = pick((None, 3, 0, 2**40)), pick((None, "sram", "nowhere"))
        tensor = msgspec.structs.replace(tensor, alignment=alignment, arena=arena)
    elif how == 8:
        view = View(pick((*names, "nobody")), pick((0, 2, 64)), pick((None, 8)))
        tensor = msgspec.structs.replace(tensor, view=view)
    elif how == 9:
        tensor = msgspec.structs.replace(
            tensor, must_not_alias=(pick((*names, "nobody")),), alias_group_id=pick((None, "g"))
        )
    elif how == 10:
        tensor = msgspec.structs.replace(
            tensor, shape=pick(((-1,), ("X",), ("B", 0), (2,))), dtype=pick(("float32", "what"))
        )
    graph = msgspec.structs.replace(
        graph,
        tensors=(*graph.tensors[:t], tensor, *graph.tensors[t + 1 :]),
        nodes=(*graph.nodes[:n], node, *graph.nodes[n + 1 :]),
    )
    if how == 11:
        graph = msgspec.structs.replace(
            graph, outputs=(*graph.outputs, pick((*names, "nobody"))), inputs=graph.inputs[1:]
        )
    if how == 12:
        order = [each.node_id for each in graph.nodes]
        random.shuffle(order)
        return replace(case, order=tuple(pick((order, order[1:], [*order, order[0]], [*order, "nobody"]))))
    if how == 13:
        arenas = {
            "activations": {"alignment_bytes": pick((3, 0, 64)), "capacity_bytes": pick((-1, 64, 512))},
            "parameters": {},
        }
        return replace(case, arenas=arenas, dims=pick((None, {"B": 9}, {"X": 1}, {"B": 0}, {"S": -1})))
    return replace(case, graph=graph)


# --- whatever it is, in words --------------------------------------------------------------------------------------


def spelled(value: Any) -> Any:
    """``value`` as JSON has it: arrays with their types, dataclasses by field, keys as texts, clocks left out."""
    if isinstance(value, Enum | Fraction) or value is msgspec.UNSET:
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value if not isinstance(value, float) else repr(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, np.ndarray):
        return [f"{value.dtype}{list(value.shape)}", value.tolist()]
    if isinstance(value, np.generic):
        return value.item()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: spelled(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, msgspec.Struct):
        return {name: spelled(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {str(key): spelled(item) for key, item in value.items() if key not in CLOCKED}
    if isinstance(value, set | frozenset):
        return sorted(json.dumps(spelled(item)) for item in value)
    if hasattr(value, "__iter__"):
        return [spelled(item) for item in value]
    return spelled(vars(value))


def digest(value: Any) -> str:
    """Enough of the hash of all that can be spelled of a value to know it again."""
    return sha256(json.dumps(spelled(value)).encode("utf-8", "backslashreplace")).hexdigest()[:12]
