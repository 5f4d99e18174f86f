"""Generate graphs of any size in memory. Equal arguments give equal graphs."""

import random

from tmmu_core.graph.model import Graph, Node, Tensor


def layered(tensors: int, seed: int = 0, reach: int = 200) -> Graph:
    """Return a chain of ``tensors`` activations in which every third node also reads one of ``reach`` earlier nodes.

    Half of the nodes permit in-place reuse. Sizes are 4 to 16,384 bytes.
    """
    rng = random.Random(seed)
    shapes = [(rng.randrange(1, 4096),) for _ in range(997)]
    ids = [f"t{i}" for i in range(tensors)]
    nodes = []
    for i in range(1, tensors):
        reads = [ids[i - 1]]
        if i % 3 == 0:
            reads.append(ids[max(0, i - rng.randrange(2, reach))])
        nodes.append(
            Node(
                node_id=f"n{i:07}",
                instr="ADD",
                inputs=tuple(dict.fromkeys(reads)),
                outputs=(ids[i],),
                inplace="any" if i % 2 else "none",
            )
        )
    return Graph(
        name=f"layered_{tensors}",
        tensors=(
            Tensor(id=ids[0], shape=(64,), role="input"),
            *(Tensor(id=ids[i], shape=shapes[i % len(shapes)]) for i in range(1, tensors)),
        ),
        nodes=tuple(nodes),
        inputs=(ids[0],),
        outputs=(ids[-1],),
    )
