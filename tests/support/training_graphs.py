"""Random small training graphs with views, in-place writes, phases and several arenas, one for each seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tmmu_core.graph.model import Dim, Graph, Node, Tensor, View

OPERATORS = ("Relu", "Relu", "Add", "Gelu", "Tanh", "Mul", "Frobnicate", "Softmax", "MatMul")


@dataclass
class _Made:
    """A graph while it is made."""

    rng: random.Random
    blocks: tuple[int, ...]
    """Sizes to choose from, in floats."""
    tensors: dict[str, Tensor] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    there: list[str] = field(default_factory=list)
    """What may be read, the latest last."""
    written_over: set[str] = field(default_factory=set)

    def tensor(self, name: str, role: str = "activation", like: str = "", **more: Any) -> str:
        rng = self.rng
        shape: tuple[int | str, ...] = self.tensors[like].shape if like else (rng.choice(self.blocks),)
        if not like and rng.random() < 0.06:
            shape = ("B", *shape)
        dtype = self.tensors[like].dtype if like else rng.choice(("float32",) * 9 + ("float16", "int8"))
        if rng.random() < 0.05 and "view" not in more:
            more["alignment"] = rng.choice((1, 32, 512))
        self.tensors[name] = Tensor(name, shape, dtype, role, **more)  # type: ignore[arg-type]
        return name

    def operands(self, most: int = 3) -> list[str]:
        pool = [name for name in self.there if name not in self.written_over]
        count = min(len(pool), self.rng.choice((1, 1, 1, 2, 2, most)))
        return self.rng.sample(pool[-4:] if self.rng.random() < 0.7 else pool, min(count, len(pool[-4:])))

    def permission(self, reads: list[str], writes: list[str]) -> Any:
        pairs = [(i, o) for i in range(len(reads)) for o in range(len(writes))]
        some = tuple(
            sorted(self.rng.sample(pairs, self.rng.randrange(len(pairs) + 1)), reverse=self.rng.random() < 0.3)
        )
        return self.rng.choice(("none", "none", "any", None, some))

    def node(self, instr: str, reads: list[str], writes: list[str], **more: Any) -> None:
        more.setdefault("inplace", self.permission(reads, writes))
        name = f"{more.get('phase', 'forward')[0]}{len(self.nodes):02}"
        self.nodes.append(Node(name, instr, tuple(reads), tuple(writes), **more))
        self.there += writes


def varied(seed: int) -> Graph:
    """One of the family: 5 to some 18 nodes."""
    rng = random.Random(f"varied/{seed}")
    made = _Made(
        rng,
        rng.choice(
            ((1, 3, 8, 33), (32, 64, 96, 128), (1024, 1100, 2048, 4096), (64, 1024, 3000), (2**17, 2**18, 300_000))
        ),
    )
    inputs = [made.tensor(f"x{k}", "input") for k in range(rng.choice((1, 1, 2, 3)))]
    made.there += inputs
    weights = [
        made.tensor(f"w{k}", rng.choice(("parameter", "parameter", "constant", "buffer")))
        for k in range(rng.choice((0, 1, 1, 2)))
    ]
    made.there += weights
    length = rng.randrange(3, 9)
    scope = rng.randrange(length) if rng.random() < 0.15 else length
    for k in range(length):
        _forward(made, k, {"scope": "loop/body"} if scope <= k < scope + 2 else {})
    forward = list(made.nodes)
    if rng.random() < 0.65:
        _backward(made, forward, weights)
    _apart(made)
    return _graph(made, inputs)


def _forward(made: _Made, k: int, params: dict[str, Any]) -> None:
    rng = made.rng
    kind = rng.choice(
        ("plain",) * 12 + ("view", "view", "two", "in place", "random", "spoken", "loose view", "batch norm")
    )
    reads = made.operands()
    saved = rng.random() < 0.25
    if kind == "view":
        base = reads[0]
        made.tensors[f"v{k}"] = _view(made, f"v{k}", base)
        made.node(
            rng.choice(("Reshape", "Frobnicate")), reads[:1] if rng.random() < 0.8 else reads, [f"v{k}"], params=params
        )
    elif kind == "two":
        writes = [made.tensor(f"t{k}"), made.tensor(f"u{k}", saved_for_backward=saved)]
        made.node("Split", reads, writes, params=params)
    elif kind == "in place":
        taken = next((name for name in reads if made.tensors[name].view is None), "")
        if not taken:
            made.node("Relu", reads, [made.tensor(f"t{k}")], params=params)
            return
        made.node(
            "Add",
            reads,
            [made.tensor(f"t{k}", made.tensors[taken].role if made.tensors[taken].persistent else "activation", taken)],
            in_place_write=((reads.index(taken), 0),),
            params=params,
        )
        made.written_over.add(taken)
    elif kind == "batch norm":
        state = made.tensor(f"r{k}", "buffer", reads[0])
        made.there.append(state)
        after = made.tensor(f"s{k}", "buffer", state)
        made.node(
            "native_batch_norm",
            [reads[0], state],
            [made.tensor(f"t{k}", "activation", reads[0]), after],
            in_place_write=((1, 1),),
            params=params,
        )
        made.written_over.add(state)
    elif kind == "loose view":
        made.node("Relu", reads, [made.tensor(f"t{k}")], params=params)
        made.tensors[f"v{k}"] = _view(made, f"v{k}", f"t{k}")
        made.there.append(f"v{k}")
    else:
        instr = {"random": "Dropout", "spoken": "all_reduce"}.get(kind) or rng.choice(OPERATORS)
        like = reads[0] if rng.random() < 0.5 and made.tensors[reads[0]].view is None else ""
        made.node(instr, reads, [made.tensor(f"t{k}", like=like, saved_for_backward=saved)], params=params)


def _view(made: _Made, name: str, base: str) -> Tensor:
    """All of its base, or its second half."""
    looked_at = made.tensors[base]
    size = looked_at.shape[-1]
    if len(looked_at.shape) > 1 or size < 2 or made.rng.random() < 0.6:  # type: ignore[operator]
        return Tensor(name, looked_at.shape, looked_at.dtype, view=View(base))
    width = {"float32": 4, "float16": 2, "int8": 1}[looked_at.dtype]
    return Tensor(name, (size // 2,), looked_at.dtype, view=View(base, (size - size // 2) * width, size // 2 * width))  # type: ignore[operator]


def _backward(made: _Made, forward: list[Node], weights: list[str]) -> None:
    """Every node of the forward pass the other way round, most of them; then the weights are written over."""
    rng = made.rng
    gradient = made.tensor("g", "gradient")
    made.node("Relu", [made.there[-1]], [gradient], phase="backward")
    for k, node in enumerate(reversed(forward)):
        if rng.random() < 0.2:
            continue
        again = [name for name in (*node.inputs, *node.outputs) if name not in made.written_over]
        reads = [gradient, *rng.sample(again, min(len(again), rng.choice((1, 1, 2))))]
        gradient = made.tensor(f"g{k}", rng.choice(("gradient", "gradient", "activation")))
        made.node(rng.choice(("Mul", "ReluBack", "MatMul", "Frobnicate")), reads, [gradient], phase="backward")
        if rng.random() < 0.12:  # a window of a window, of which one may be read
            made.tensors[f"q{k}"] = _view(made, f"q{k}", gradient)
            made.tensors[f"qq{k}"] = _view(made, f"qq{k}", f"q{k}")
            gradient = rng.choice((gradient, f"q{k}", f"qq{k}"))
    for k, name in enumerate(weights):
        if made.tensors[name].role == "parameter" and name not in made.written_over and rng.random() < 0.6:
            after = made.tensor(f"new{k}", "parameter", name)
            made.node("Sub", [name, gradient], [after], in_place_write=((0, 0),), phase="optimizer")


def _apart(made: _Made) -> None:
    """Now and then two in one group, or two that may not lie in one place."""
    rng = made.rng
    plain = [name for name, tensor in made.tensors.items() if not tensor.persistent and tensor.view is None]
    plain = [name for name in plain if made.tensors[name].role != "input"]
    if len(plain) < 2:
        return
    for chance, change in ((0.12, "group"), (0.15, "apart")):
        a, b = rng.sample(plain, 2)
        if rng.random() >= chance:
            continue
        if change == "group":
            for name in (a, b):
                made.tensors[name] = msgspec.structs.replace(made.tensors[name], alias_group_id="together")
        else:
            made.tensors[a] = msgspec.structs.replace(made.tensors[a], must_not_alias=(b,))


def _graph(made: _Made, inputs: list[str]) -> Graph:
    rng = made.rng
    read = {name for node in made.nodes for name in node.inputs}
    written = [name for node in made.nodes for name in node.outputs if not made.tensors[name].persistent]
    gives = [name for name in written if name not in read and rng.random() < 0.8] or written[-1:]
    if rng.random() < 0.2:
        gives.append(rng.choice([name for name in written if name not in gives] or gives))
    nodes = list(made.nodes)
    if rng.random() < 0.3:
        rng.shuffle(nodes)
    return Graph(
        tensors=tuple(made.tensors.values()),
        nodes=tuple(nodes),
        inputs=tuple(inputs if rng.random() < 0.8 else inputs[:1]),
        outputs=tuple(dict.fromkeys(gives)),
        dims={"B": Dim(1, 3)},
        name=f"varied {rng.random():.3f}",
        execution_order=tuple(node.node_id for node in made.nodes) if rng.random() < 0.4 else None,
    )
