"""Small graphs that each show one rule. Sizes are round, so that a plan can be checked without a computer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tmmu_core.graph.model import GRAPH_SCHEMA, Dim, Graph, Node, Shard, Tensor, View

Rows = Sequence[Tensor]

ELEMENTWISE = ((0, 0),)
"""In-place pairs: output 0 may reuse input 0."""


def graph(
    name: str, tensors: Rows, nodes: Sequence[Node], inputs: Sequence[str], outputs: Sequence[str], **more: Any
) -> Graph:
    return Graph(
        ir_schema=GRAPH_SCHEMA,
        name=name,
        tensors=tuple(tensors),
        nodes=tuple(nodes),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        **more,
    )


def kib(name: str, size: int, **more: Any) -> Tensor:
    """Return a tensor of ``size`` KiB."""
    return Tensor(id=name, shape=(size, 256), dtype="float32", **more)


def op(node_id: str, instr: str, reads: str, writes: str, inplace: Any = "none", **more: Any) -> Node:
    return Node(
        node_id=node_id,
        instr=instr,
        inputs=tuple(reads.split()),
        outputs=tuple(writes.split()),
        inplace=inplace,
        **more,
    )


def linear_chain(inplace: Any = ELEMENTWISE, name: str = "linear_chain", length: int = 8) -> Graph:
    """Return x → relu → relu → …: each output may reuse the memory of its input."""
    tensors = [kib("t0", 64, role="input")]
    tensors += [kib(f"t{i}", 64, role="output" if i == length else "activation") for i in range(1, length + 1)]
    nodes = [op(f"relu{i}", "RELU", f"t{i - 1}", f"t{i}", inplace) for i in range(1, length + 1)]
    return graph(name, tensors, nodes, ["t0"], [f"t{length}"])


def linear_chain_none() -> Graph:
    return linear_chain("none", "linear_chain_none")


def residual_block() -> Graph:
    """Return a residual block: its input is live until the addition after the branch."""
    image = (1, 64, 56, 56)
    tensors = [
        Tensor(id="x", shape=image, role="input"),
        Tensor(id="w1", shape=(64, 64, 3, 3), role="parameter"),
        Tensor(id="w2", shape=(64, 64, 3, 3), role="parameter"),
        *[Tensor(id=name, shape=image) for name in ("c1", "r1", "c2", "sum")],
        Tensor(id="y", shape=image, role="output"),
    ]
    nodes = [
        op("conv1", "CONV", "x w1", "c1"),
        op("relu1", "RELU", "c1", "r1", ELEMENTWISE),
        op("conv2", "CONV", "r1 w2", "c2"),
        op("add", "ADD", "c2 x", "sum", ((0, 0), (1, 0))),
        op("relu2", "RELU", "sum", "y", ELEMENTWISE),
    ]
    return graph("residual_block", tensors, nodes, ["x"], ["y"])


def fan_out_fan_in() -> Graph:
    """Return a tensor with four readers; the results of all four are live until the concatenation."""
    tensors = [kib("x", 64, role="input")]
    nodes = []
    for i in range(4):
        tensors += [kib(f"a{i}", 32), kib(f"b{i}", 32)]
        nodes += [op(f"left{i}", "CONV", "x", f"a{i}"), op(f"right{i}", "RELU", f"a{i}", f"b{i}", ELEMENTWISE)]
    tensors.append(kib("y", 128, role="output"))
    nodes.append(op("join", "CONCAT", "b0 b1 b2 b3", "y"))
    return graph("fan_out_fan_in", tensors, nodes, ["x"], ["y"])


def early_output() -> Graph:
    """Return a graph with a graph output of the second step, which is live to the end."""
    tensors = [
        kib("x", 32, role="input"),
        kib("features", 64, role="output"),
        *[kib(f"h{i}", 32) for i in range(1, 5)],
        kib("logits", 1, role="output"),
    ]
    nodes = [
        op("backbone", "CONV", "x", "features"),
        op("head1", "CONV", "features", "h1"),
        op("head2", "CONV", "h1", "h2"),
        op("head3", "CONV", "h2", "h3"),
        op("head4", "CONV", "h3", "h4"),
        op("classify", "MATMUL", "h4", "logits"),
    ]
    return graph("early_output", tensors, nodes, ["x"], ["features", "logits"])


def mixed_sizes() -> Graph:
    """Return a graph whose slots are few but large, because a slot is as large as its largest tensor.

    Every tensor is read by the next two steps, so three slots suffice. The large tensors are never live together, but each
    uses another slot, so that all three slots are large.
    """
    large = {"c", "g", "k"}
    names = list("abcdefghijkl")
    tensors = [
        kib(name, 256 if name in large else 4, role={"a": "input", "l": "output"}.get(name, "activation"))
        for name in names
    ]
    nodes = [
        op(f"make_{names[i]}", "MATMUL", " ".join(names[max(0, i - 2) : i]), names[i]) for i in range(1, len(names))
    ]
    return graph("mixed_sizes", tensors, nodes, ["a"], ["l"])


def two_arenas() -> Graph:
    """Return a graph with two arenas: weights are placed one after the other; activations reuse memory."""
    tensors = [Tensor(id="x", shape=(32, 256), role="input")]
    nodes = []
    widths = [256, 512, 512, 128]
    for i in range(3):
        tensors += [
            Tensor(id=f"w{i}", shape=(widths[i], widths[i + 1]), role="parameter"),
            Tensor(id=f"m{i}", shape=(32, widths[i + 1])),
            Tensor(id=f"h{i}", shape=(32, widths[i + 1]), role="output" if i == 2 else "activation"),
        ]
        nodes += [
            op(f"matmul{i}", "MATMUL", f"{'x' if i == 0 else f'h{i - 1}'} w{i}", f"m{i}"),
            op(f"relu{i}", "RELU", f"m{i}", f"h{i}", ELEMENTWISE),
        ]
    tensors.append(Tensor(id="table", shape=(32, 512), arena="parameters"))
    nodes.insert(2, op("keep", "COPY", "h0", "table"))
    nodes[3] = op("matmul1", "MATMUL", "h0 w1 table", "m1")
    return graph("two_arenas", tensors, nodes, ["x"], ["h2"])


def views() -> Graph:
    """Return a graph with views, which use bytes of their base: a reshape, halves of a tensor, and a view of a view."""
    tensors = [
        Tensor(id="x", shape=(8, 1024), role="input"),
        Tensor(id="qkv", shape=(8, 3072)),
        Tensor(id="flat", shape=(24576,), view=View(base_tensor_uid="qkv")),
        Tensor(id="front", shape=(12288,), view=View(base_tensor_uid="flat", byte_length=49152)),
        Tensor(id="back", shape=(12288,), view=View(base_tensor_uid="flat", byte_offset=49152)),
        Tensor(id="tail", shape=(1024,), view=View(base_tensor_uid="back", byte_offset=45056)),
        Tensor(id="spread", shape=(4, 1024), view=View(base_tensor_uid="tail", byte_length=4096, stride_desc=(0, 1))),
        Tensor(id="p", shape=(12288,)),
        Tensor(id="y", shape=(4, 1024), role="output"),
    ]
    nodes = [
        op("project", "MATMUL", "x", "qkv"),
        op("flatten", "RESHAPE", "qkv", "flat"),
        op("multiply", "MUL", "front back", "p", ((0, 0), (1, 0))),
        op("expand", "EXPAND", "tail", "spread"),
        op("mix", "GATHER", "p spread", "y"),
    ]
    return graph("views", tensors, nodes, ["x"], ["y"])


def in_place() -> Graph:
    """Return a graph with ``in_place_write``: the output must use the bytes of the input.

    Only the token is saved for a backward pass, because overwritten tensors cannot be saved.
    """
    tensors = [
        Tensor(id="token", shape=(1, 1024), role="input", saved_for_backward=True),
        Tensor(id="cache", shape=(128, 1024), role="buffer"),
        Tensor(id="cache_next", shape=(128, 1024), role="buffer"),
        Tensor(id="scores", shape=(1, 1024)),
        Tensor(id="scores_masked", shape=(1, 1024)),
        Tensor(id="scores_soft", shape=(1, 1024)),
        Tensor(id="y", shape=(1, 1024), role="output"),
    ]
    nodes = [
        op("append", "SCATTER", "cache token", "cache_next", in_place_write=((0, 0),)),
        op("attend", "MATMUL", "token cache_next", "scores"),
        op("mask", "ADD", "scores", "scores_masked", in_place_write=((0, 0),)),
        op("softmax", "SOFTMAX", "scores_masked", "scores_soft", in_place_write=((0, 0),)),
        op("weigh", "MATMUL", "scores_soft cache_next", "y"),
    ]
    return graph("in_place", tensors, nodes, ["token"], ["y"])


def must_not_alias() -> Graph:
    """Return two staging buffers of a copy engine that must not share bytes, although their live ranges do not overlap."""
    tensors = [
        kib("x", 16, role="input"),
        kib("ping", 32, role="workspace", must_not_alias=("pong",)),
        kib("h1", 16),
        kib("pong", 32, role="workspace", must_not_alias=("ping",)),
        kib("h2", 16),
        kib("y", 16, role="output"),
    ]
    nodes = [
        op("fetch1", "COPY", "x", "ping"),
        op("work1", "CONV", "ping", "h1"),
        op("fetch2", "COPY", "h1", "pong"),
        op("work2", "CONV", "pong", "h2"),
        op("finish", "RELU", "h2", "y", ELEMENTWISE),
    ]
    return graph("must_not_alias", tensors, nodes, ["x"], ["y"])


def alias_group() -> Graph:
    """Return tied weights: the embedding and the output projection are one storage, and so are two halves of a state."""
    tensors = [
        Tensor(id="tokens", shape=(16,), dtype="int32", role="input"),
        Tensor(id="embedding", shape=(1000, 64), role="parameter", alias_group_id="tied"),
        Tensor(id="projection", shape=(64, 1000), role="parameter", alias_group_id="tied"),
        Tensor(id="h", shape=(16, 64), alias_group_id="state"),
        Tensor(id="hidden", shape=(16, 64)),
        Tensor(id="h_again", shape=(16, 64), alias_group_id="state"),
        Tensor(id="logits", shape=(16, 1000), role="output"),
    ]
    nodes = [
        op("embed", "GATHER", "tokens embedding", "h"),
        op("layer", "MATMUL", "h", "hidden"),
        op("settle", "COPY", "hidden", "h_again"),
        op("project", "MATMUL", "h_again projection", "logits"),
    ]
    return graph("alias_group", tensors, nodes, ["tokens"], ["logits"])


def training_step() -> Graph:
    """Return a training step of a two-layer network: forward, backward, and an optimizer that writes weights in place.

    A weight and its next value are one alias group, so that they are one storage also in modes without the optimizer.
    """
    saved: dict[str, Any] = {"saved_for_backward": True}
    tensors = [
        Tensor(id="x", shape=(32, 256), role="input", **saved),
        Tensor(id="target", shape=(32, 10), role="input", **saved),
        Tensor(id="z1", shape=(32, 512)),
        Tensor(id="h1", shape=(32, 512), **saved),
        Tensor(id="z2", shape=(32, 10)),
        Tensor(id="prob", shape=(32, 10), **saved),
        Tensor(id="loss", shape=(), role="output"),
        Tensor(id="d_z2", shape=(32, 10), role="gradient"),
        Tensor(id="d_h1", shape=(32, 512), role="gradient"),
        Tensor(id="d_z1", shape=(32, 512), role="gradient"),
    ]
    for name, shape in (("w1", (256, 512)), ("w2", (512, 10))):
        tensors += [
            Tensor(id=name, shape=shape, role="parameter", alias_group_id=name),
            Tensor(id=f"{name}_next", shape=shape, role="parameter", alias_group_id=name),
            Tensor(id=f"d_{name}", shape=shape, role="gradient"),
            Tensor(id=f"m_{name}", shape=shape, role="optimizer_state", alias_group_id=f"m_{name}"),
            Tensor(id=f"m_{name}_next", shape=shape, role="optimizer_state", alias_group_id=f"m_{name}"),
        ]
    back: dict[str, Any] = {"phase": "backward"}
    nodes = [
        op("linear1", "MATMUL", "x w1", "z1"),
        op("relu1", "RELU", "z1", "h1", ELEMENTWISE),
        op("linear2", "MATMUL", "h1 w2", "z2"),
        op("softmax", "SOFTMAX", "z2", "prob"),
        op("loss", "CROSS_ENTROPY", "prob target", "loss"),
        op("loss_back", "CROSS_ENTROPY_BACK", "prob target", "d_z2", ((0, 0),), **back),
        op("linear2_back_weight", "MATMUL", "h1 d_z2", "d_w2", **back),
        op("linear2_back", "MATMUL", "d_z2 w2", "d_h1", **back),
        op("relu1_back", "RELU_BACK", "d_h1 h1", "d_z1", ((0, 0), (1, 0)), **back),
        op("linear1_back_weight", "MATMUL", "x d_z1", "d_w1", **back),
    ]
    nodes += [
        op(
            f"momentum_{name}",
            "SGD_MOMENTUM",
            f"{name} m_{name} d_{name}",
            f"{name}_next m_{name}_next",
            phase="optimizer",
            in_place_write=((0, 0), (1, 1)),
        )
        for name in ("w1", "w2")
    ]
    return graph(
        "training_step",
        tensors,
        nodes,
        ["x", "target"],
        ["loss"],
        execution_order=tuple(node.node_id for node in nodes),
    )


def remat() -> Graph:
    """Return a training step in which every second hidden tensor may be recomputed instead of kept."""
    length = 6
    tensors = [Tensor(id="h0", shape=(64, 512), role="input", saved_for_backward=True)]
    nodes = []
    for i in range(1, length + 1):
        tensors.append(Tensor(id=f"w{i}", shape=(512, 512), role="parameter"))
        last = i == length
        tensors.append(
            Tensor(
                id=f"h{i}",
                shape=(64, 512),
                role="output" if last else "activation",
                saved_for_backward=not last,
                remat=i % 2 == 1 and not last,
            )
        )
        nodes.append(op(f"layer{i}", "GELU_MATMUL", f"h{i - 1} w{i}", f"h{i}"))
    return graph("remat", tensors, nodes, ["h0"], [f"h{length}"])


def loop() -> Graph:
    """Return a loop. Its body is in the order once; tensors that each iteration reads are live to the end of the loop.

    The final state is written into the bytes of the carried state (``in_place_write``). Only the input is saved for a
    backward pass, because iterations overwrite the other tensors.
    """
    tensors = [
        kib("x", 16, role="input", saved_for_backward=True),
        kib("scale", 16),
        kib("start", 16),
        kib("loop/state", 16),
        kib("loop/scaled", 16),
        kib("loop/wide", 64),
        kib("loop/next", 16),
        kib("state", 16),
        kib("y", 16, role="output"),
    ]
    inside = {"scope": "loop"}
    nodes = [
        op("prepare", "SIGMOID", "x", "scale"),
        op("begin", "NEG", "x", "start", ELEMENTWISE),
        op("loop/open", "LOOP.OPEN", "start", "loop/state", **inside),
        op("loop/scale", "MUL", "loop/state scale", "loop/scaled", ((0, 0), (1, 0)), **inside),
        op("loop/widen", "CONV", "loop/scaled", "loop/wide", **inside),
        op("loop/narrow", "CONV", "loop/wide", "loop/next", **inside),
        op("loop/close", "LOOP.CLOSE", "loop/state loop/next scale", "state", in_place_write=((0, 0),), **inside),
        op("finish", "RELU", "state", "y", ELEMENTWISE),
    ]
    # The order is given because "prepare" would run inside the loop if nodes were sorted by id.
    return graph("loop", tensors, nodes, ["x"], ["y"], execution_order=tuple(node.node_id for node in nodes))


def dynamic_batch() -> Graph:
    """Return a graph with a batch size B from 1 to 32. Plans are computed for B = 32, or for a smaller size."""
    tensors = [
        Tensor(id="x", shape=("B", 784), role="input"),
        Tensor(id="w1", shape=(784, 512), role="parameter", shard=Shard(axis=1, mesh="tp")),
        Tensor(id="w2", shape=(512, 10), role="parameter", shard=Shard(axis=0, mesh="tp")),
        Tensor(id="z1", shape=("B", 512)),
        Tensor(id="h1", shape=("B", 512)),
        Tensor(id="z2", shape=("B", 10)),
        Tensor(id="y", shape=("B", 10), role="output"),
    ]
    nodes = [
        op("linear1", "MATMUL", "x w1", "z1"),
        op("gelu", "GELU", "z1", "h1", ELEMENTWISE),
        op("linear2", "MATMUL", "h1 w2", "z2"),
        op("softmax", "SOFTMAX", "z2", "y"),
    ]
    return graph(
        "dynamic_batch",
        tensors,
        nodes,
        ["x"],
        ["y"],
        dims={"B": Dim(1, 32)},
        replan_policy="REPLAN_AT_SAFEPOINT",
        safepoints=("softmax",),
    )


NODE_CENTRIC = """{"ir_schema_hash": "uml_model_ir", "name": "node_centric",
 "nodes": [
  {"node_id": "x", "instr": "INPUT", "shape_out": [32, 256], "dtype": "float32", "role": "input"},
  {"node_id": "w", "instr": "PARAMETER", "shape_out": [256, 256], "dtype": "float32", "role": "parameter"},
  {"node_id": "linear", "instr": "MATMUL", "shape_out": [32, 256], "dtype": "float32", "inplace": "none",
   "inputs": [{"node_id": "x", "output_idx": 0}, {"node_id": "w", "output_idx": 0}]},
  {"node_id": "split", "instr": "SPLIT", "shape_out": [[32, 128], [32, 128]], "dtype": "float32", "inplace": "none",
   "inputs": [{"node_id": "linear", "output_idx": 0}]},
  {"node_id": "gate", "instr": "SIGMOID", "shape_out": [32, 128], "dtype": "float32", "inplace": [[0, 0]],
   "inputs": [{"node_id": "split", "output_idx": 1}]},
  {"node_id": "y", "instr": "MUL", "shape_out": [32, 128], "dtype": "float32", "role": "output",
   "inplace": [[0, 0], [1, 0]],
   "inputs": [{"node_id": "split", "output_idx": 0}, {"node_id": "gate", "output_idx": 0}]}],
 "outputs": [{"node_id": "y", "output_idx": 0}]}
"""
