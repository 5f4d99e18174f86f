"""Graphs small enough to check by eye, written in a line each."""

from typing import Any

from tmmu_core.graph.model import Graph, Inplace, Node, Tensor, View


def tensor(name: str, floats: int = 4, role: str = "activation", **rest: Any) -> Tensor:
    """Return a float32 tensor of ``floats`` elements, 4 bytes each."""
    return Tensor(id=name, shape=(floats,), role=role, **rest)  # type: ignore[arg-type]


def view(name: str, base: str, floats: int = 4, offset: int = 0, **rest: Any) -> Tensor:
    """Return a float32 view of ``floats`` elements, ``offset`` bytes into ``base``."""
    return Tensor(id=name, shape=(floats,), view=View(base, offset, floats * 4), **rest)


def node(name: str, reads: str, writes: str, **rest: Any) -> Node:
    """Return a node that reads and writes the named tensors; names are separated by spaces."""
    return Node(node_id=name, inputs=tuple(reads.split()), outputs=tuple(writes.split()), **rest)


def graph(tensors: list[Tensor], nodes: list[Node], reads: str = "", gives: str = "", **rest: Any) -> Graph:
    """Return a graph with the named inputs and outputs; names are separated by spaces."""
    return Graph(
        tensors=tuple(tensors), nodes=tuple(nodes), inputs=tuple(reads.split()), outputs=tuple(gives.split()), **rest
    )


def chain(length: int, inplace: Inplace | None = None, floats: int = 4) -> Graph:
    """Return ``t0 → n000 → t1 → … → t<length>``: test vector VII.B."""
    tensors = [tensor("t0", floats, role="input"), *(tensor(f"t{i + 1}", floats) for i in range(length))]
    nodes = [node(f"n{i:03}", f"t{i}", f"t{i + 1}", instr="RELU", inplace=inplace) for i in range(length)]
    return graph(tensors, nodes, "t0", f"t{length}")


def residual(inplace: Inplace | None = "none") -> Graph:
    """Return ``x → conv → relu → conv → add(x)``: the skip connection keeps x live."""
    tensors = [tensor("x", role="input"), tensor("a"), tensor("b"), tensor("c"), tensor("y")]
    nodes = [
        node("n0", "x", "a", instr="CONV", inplace="none"),
        node("n1", "a", "b", instr="RELU", inplace=inplace),
        node("n2", "b", "c", instr="CONV", inplace="none"),
        node("n3", "c x", "y", instr="ADD", inplace=inplace),
    ]
    return graph(tensors, nodes, "x", "y")
