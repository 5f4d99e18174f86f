"""``python -m tests.several [N] [--from K]``: several things wrong with a graph; planner and judge name the same one.

Two kinds, half of each. *Twisted* ones are those of ``tests/odd.py`` with up to six things that may not be: what is
told of is the first, by question, then by place in the file. *Crowded* ones are whole, and full of what may be refused
of a whole graph: views of what nobody writes, several in-place writes of a node, pairs apart within a storage, arenas
that are not declared, cycles, orders. Of those the same is told whichever way round the file lists them. Exit code 1
where something differs. The suite has a share (``tests/laws/test_several.py``).
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

import msgspec

from tests.odd import drawn, twisted
from tests.strategies import Case
from tmmu_core.errors import ContractError
from tmmu_core.graph.dtypes import tensor_bytes
from tmmu_core.graph.model import MODES, PRESETS, Graph, Node, Tensor, View
from tmmu_core.judge.equivalence import differences
from tmmu_core.judge.simulator import Asked, simulate
from tmmu_core.judge.verifier import verify_plan
from tmmu_core.plan.making.engine import plan_graph

T = TypeVar("T")
ARENAS: tuple[dict[str, Any] | None, ...] = (
    None,
    {"activations": {}, "parameters": {}, "gradients": {}},
    {
        "activations": {"capacity_bytes": 64},
        "parameters": {"capacity_bytes": 4},
        "gradients": {},
        "sram": {"alignment_bytes": 1},
        "flash": {},
    },
    {"sram": {}},
)


def several_wrong(k: int) -> Case:
    """The twisted case of a number."""
    random = Random(f"several/{k}")
    case = drawn(k)
    for _ in range(random.choice((0, 1, 2, 2, 3, 4, 6))):
        case = twisted(case, random)
    return case


def crowded(k: int) -> Case:
    """The crowded case of a number."""
    return _Crowd(Random(f"crowded/{k}")).case()


class _Crowd:
    """A whole graph while it is drawn; ``heat`` says how much of it may be refused."""

    def __init__(self, random: Random) -> None:
        self.random, self.heat = random, random.choice((0, 1, 2, 4, 8)) / 8
        self.tensors: list[Tensor] = []
        self.numbers = random.sample(range(60), 60)

    def hot(self, share: float) -> bool:
        return self.random.random() < share * self.heat

    def tensor(self, role: str) -> str:
        pick = self.random.choice
        tensor = Tensor(
            id=f"{pick('tTzéA')}{self.numbers.pop()}",
            shape=(pick((1, 2, 4, 4, 4, 8)),),
            dtype=pick(("float32", "float32", "int8", "float16")),
            role=role,  # type: ignore[arg-type]
            alias_group_id=pick(("g", "h")) if self.hot(0.25) else None,
            saved_for_backward=self.hot(0.3),
            remat=self.hot(0.3),
            arena=pick(("sram", "flash", "activations")) if self.hot(0.12) else None,
            alignment=pick((2, 4, 16)) if self.hot(0.2) else None,
        )
        self.tensors.append(tensor)
        return tensor.id

    def view(self) -> str:
        """Inside what it looks at, and perhaps off its storage's grid, or a view of what nobody writes."""
        random, base = self.random, self.random.choice(self.tensors)
        room = tensor_bytes(base.shape, base.dtype)  # type: ignore[arg-type]
        length = random.randint(0, room)
        offset = random.randint(0, room - length)
        dtype, marks = "int8", {"saved_for_backward": self.hot(0.2), "remat": self.hot(0.2)}
        if random.randrange(3) == 0:
            dtype, offset = "float16", offset - offset % 2
            length = (room - offset) // 2
        alignment = random.choice((1, 2, 4)) if self.hot(0.2) else None
        name = f"{random.choice('vV')}{self.numbers.pop()}"
        self.tensors.append(
            Tensor(name, (length,), dtype, view=View(base.id, offset), alignment=alignment, **marks)  # type: ignore[arg-type]
        )
        return name

    def node(self, k: int, late: bool) -> Node:
        random, pick = self.random, self.random.choice
        names = [tensor.id for tensor in self.tensors]
        reads = tuple(pick(names[-4:] if random.random() < 0.5 else names) for _ in range(random.randint(1, 3)))
        role = "gradient" if late else "activation"
        count = pick((1, 1, 2, 3))
        writes = tuple(self.view() if random.randrange(7) == 0 else self.tensor(role) for _ in range(count))

        def pairs(most: int) -> tuple[tuple[int, int], ...]:
            either = range(random.randint(1, most))
            return tuple((random.randrange(len(reads)), random.randrange(len(writes))) for _ in either)

        return Node(
            node_id=f"{pick('nNé')}{k}{pick('ab')}",
            instr="A",
            inputs=reads,
            outputs=writes,
            phase=pick(("backward", "optimizer")) if late else "forward",
            inplace=pick((None, "any", "none", pairs(3))),
            in_place_write=pairs(2) if self.hot(0.5) else (),
            grad_edges=pairs(2) if random.randrange(5) == 0 else (),
        )

    def case(self) -> Case:
        random, pick = self.random, self.random.choice
        inputs = [self.tensor("input") for _ in range(random.randrange(4))]
        for _ in range(random.randint(1, 2)):
            self.tensor(pick(("parameter", "constant", "buffer", "optimizer_state")))
        if random.randrange(2):
            self.tensor("activation")  # that nobody writes
        count, own_backward = random.randrange(2, 7), random.random() < 0.3
        nodes = []
        for k in range(count):
            nodes.append(self.node(k, own_backward and k >= count // 2))
            if random.randrange(5) == 0:
                self.view()
        for _ in range(random.randint(1, 3) if self.hot(0.3) else 0):  # cycles
            j = random.randrange(len(nodes))
            nodes[j] = msgspec.structs.replace(nodes[j], inputs=(*nodes[j].inputs, pick(nodes).outputs[0]))
        for _ in range(pick((0, 0, 1, 2, 4)) if self.heat else 0):
            j, other = random.randrange(len(self.tensors)), pick(self.tensors).id
            tensor = self.tensors[j]
            if other != tensor.id:
                self.tensors[j] = msgspec.structs.replace(tensor, must_not_alias=(*tensor.must_not_alias, other))
        outputs = tuple(dict.fromkeys(pick(self.tensors).id for _ in range(random.randrange(4))))
        graph = Graph(tuple(self.tensors), tuple(nodes), self.inputs(inputs, nodes, outputs), outputs)
        order = tuple(random.sample([node.node_id for node in nodes], count)) if random.randrange(7) == 0 else None
        return shuffled(Case(graph, pick(MODES), pick(PRESETS), pick(ARENAS), order, None, 0), random)

    def inputs(self, inputs: list[str], nodes: list[Node], outputs: Sequence[str]) -> tuple[str, ...]:
        """Whatever is needed and made by nobody comes from outside."""
        made = {*inputs, *(name for node in nodes for name in node.outputs)}
        needed = {*outputs, *(name for node in nodes for name in node.inputs)}
        lacking = [t.id for t in self.tensors if t.id in needed - made and not t.persistent and t.view is None]
        return (*inputs, *lacking)


def shuffled(case: Case, random: Random) -> Case:
    """The same with its lists in another order, those that say nothing by it."""

    def mixed(items: Sequence[T]) -> tuple[T, ...]:
        return tuple(random.sample(items, len(items)))

    graph = case.graph
    tensors = [msgspec.structs.replace(t, must_not_alias=mixed(t.must_not_alias)) for t in graph.tensors]
    return replace(
        case,
        graph=msgspec.structs.replace(
            graph,
            tensors=mixed(tensors),
            nodes=mixed(graph.nodes),
            inputs=mixed(graph.inputs),
            outputs=mixed(graph.outputs),
        ),
    )


def named(play: Callable[[], Any]) -> Any:
    """What is played; or the refusal: its code, reason and condition, the node and the tensor that it names."""
    try:
        return play()
    except ContractError as error:
        said = error.diagnostics
        arena = said["arena"] if error.code_id == "ARENA_TOO_SMALL" else ""
        about = (said.get("node_id") or "", said.get("tensor") or "" if not said.get("capacity") else "", arena)
        return (error.code_id, said.get("reason"), said.get("condition"), *about)


def planned(case: Case) -> Any:
    """The plan of the ``slots`` planner, or what the planner names."""
    return named(lambda: plan_graph(case.graph, **case.arguments()).plan)


def disagreement(case: Case) -> str | None:
    """What planner and judge say differently of ``case``, in words; ``None`` where nothing is."""
    mine, theirs = planned(case), named(lambda: simulate(case.graph, Asked(**case.arguments())))
    if isinstance(mine, tuple) or isinstance(theirs, tuple):
        return None if isinstance(mine, tuple) and mine == theirs else f"the planner says {mine}, the judge {theirs}"
    found = next(differences(mine, theirs), None)
    if found is not None:
        return found
    verdict = verify_plan(mine, case.graph, arenas=case.arenas)
    return None if verdict.ok else f"refused by the verifier: {verdict.errors[0]}"


def turned(case: Case, random: Random) -> str | None:
    """What hangs on the order of the lists in the file, in words; ``None`` where nothing does."""
    said = [planned(each) for each in (case, shuffled(case, random))]
    one, other = (each if isinstance(each, tuple) else each.layout_hash.hex() for each in said)
    return None if one == other else f"one way round {one}, another way round {other}"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="?", type=int, default=5_000)
    parser.add_argument("--from", dest="first", type=int, default=0)
    asked = parser.parse_args()
    different: list[str] = []
    kinds: Counter[str] = Counter()
    for k in range(asked.first, asked.first + asked.graphs // 2):
        whole = crowded(k)
        said = planned(whole)
        kinds[" ".join(filter(None, said[:3])) if isinstance(said, tuple) else "plans"] += 1
        for what, found in (
            ("twisted", disagreement(several_wrong(k))),
            ("crowded", disagreement(whole)),
            ("crowded", turned(whole, Random(k))),
        ):
            different += [f"{what} {k}: {found}"] if found else []
    for line in different:
        print(line, file=sys.stderr)
    print("; ".join(f"{count:,} {kind}" for kind, count in kinds.most_common()))
    print(f"{asked.graphs:,} graphs, {len(different)} differences")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
