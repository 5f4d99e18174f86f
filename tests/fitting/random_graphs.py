"""Random small graphs and all their orders, for exhaustive comparison."""

import random
from collections.abc import Iterator

import numpy as np

from tests.support.build import graph, node, tensor
from tmmu_core.fitting.order.order_memory import measure
from tmmu_core.fitting.order.order_model import I64, OrderModel, order_model
from tmmu_core.graph.model import Graph
from tmmu_core.liveness.analyse import analyse
from tmmu_core.liveness.timeline import build_timeline


def drawn(rng: random.Random, nodes: int) -> Graph:
    """Return a graph whose nodes read one to three earlier tensors, with sizes of 4 to 64 bytes and two arenas."""
    tensors, made, names = [tensor("x", rng.choice([1, 2, 4, 8]), role="input")], [], ["x"]
    for k in range(nodes):
        reads = rng.sample(names, min(len(names), rng.choice([1, 1, 2, 2, 3])))
        writes = [f"t{k}_{i}" for i in range(rng.choice([1, 1, 1, 2]))]
        role = rng.choice(["activation", "activation", "activation", "gradient"])
        tensors += [tensor(name, rng.choice([1, 2, 4, 8, 16]), role=role) for name in writes]
        permission = rng.choice(["none", "any", ((0, 0),)])
        made.append(node(f"n{k:02}", " ".join(reads), " ".join(writes), inplace=permission))
        names += writes
    gives = rng.sample(names[1:], min(len(names) - 1, rng.choice([1, 1, 2])))
    return graph(tensors, made, "x", " ".join(gives))


def tree(rng: random.Random, nodes: int) -> Graph:
    """Return a graph in which at most one node reads each tensor: one or more in-trees."""
    tensors, made, unread = [], [], []
    for k in range(nodes):
        reads = [unread.pop(rng.randrange(len(unread))) for _ in range(min(len(unread), rng.choice([0, 0, 1, 2, 3])))]
        tensors.append(tensor(f"t{k}", rng.choice([1, 2, 3, 5, 8, 13])))
        made.append(node(f"n{k:02}", " ".join(reads), f"t{k}", inplace="none"))
        unread.append(f"t{k}")
    return graph(tensors, made, "", " ".join(unread))


def model_of(ir: Graph) -> OrderModel:
    """Return the order problem of a graph, with exact bytes."""
    model = order_model(analyse(build_timeline(ir, "inference", "inference")))
    assert model is not None
    return model


def trained(ir: Graph) -> OrderModel:
    """Return the order problem of a graph with all its phases."""
    model = order_model(analyse(build_timeline(ir, "backward", "train_full")))
    assert model is not None
    return model


def all_orders(model: OrderModel) -> Iterator[I64]:
    """Yield every valid order of the units."""
    waits = list(map(len, model.predecessors))
    sequence: list[int] = []

    def longer() -> Iterator[I64]:
        if len(sequence) == len(waits):
            yield np.array(sequence, np.int64)
            return
        for unit in range(len(waits)):
            if waits[unit] == 0 and unit not in sequence:
                later = model.successors[unit]
                sequence.append(unit)
                for other in later:
                    waits[other] -= 1
                yield from longer()
                for other in later:
                    waits[other] += 1
                sequence.pop()

    yield from longer()


def least_peak(model: OrderModel, most: int = 20_000) -> int | None:
    """Return the least sum of peaks over all orders; ``None`` if there are more than ``most``."""
    least = None
    for count, order in enumerate(all_orders(model)):
        if count >= most:
            return None
        total = measure(model, order).sum()
        least = total if least is None else min(least, total)
    return least
