"""``python -m tests.requests``: write anew what requests come to: their texts, plans, limits, sessions, curves, ranks.

``golden/requests.json`` has a line for each of some hundred requests drawn by number: how it is written, and what
``make_plan`` makes of it, or in which words it is refused; what is over its limits where it is planned anyway; what a
session of changing shapes replans; what ranks share. And for each text of an option, what it is read as.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import msgspec
import numpy as np

from tests.fuzz.targets import SPEC, sharded
from tests.odd import digest, drawn, spelled
from tests.others import lines, single, values
from tests.verdicts import GOLDEN, written
from tmmu_core.errors import TmmuError
from tmmu_core.graph.model import MODES, PRESETS, Graph
from tmmu_core.judge.verifier import verify_plan
from tmmu_core.plan.formats import trace
from tmmu_core.plan.making import configured, over, ranks, replan, wording
from tmmu_core.plan.making.make import Made, make_plan
from tmmu_core.plan.making.request import PlanRequest
from tmmu_core.planners.problem import Packing, PlainInstance, Problem

REQUESTS = GOLDEN / "requests.json"
PLANNERS = (None, None, "slots", "greedy", "naive", "ffd", "helia", "portfolio", "nobody")
COUNT = 90


def request(random: Random, graph: Graph) -> PlanRequest:
    """One with two or three things said, some of which contradict each other or the graph."""
    names = [node.node_id for node in graph.nodes]
    spec = {"mesh": [{"name": "tp", "size": 2}], "rules": [{"match": "*", "axis": 0, "mesh": "tp"}]}
    said: dict[str, Callable[[], Any]] = {
        "mode": lambda: random.choice((*MODES, "else")),
        "preset": lambda: random.choice((*PRESETS, "else")),
        "planner": lambda: random.choice(PLANNERS),
        "options": lambda: random.choice(({"fit": "tightest"}, {"memories": [{"name": "A"}]}, {"nothing": 1})),
        "arenas": lambda: random.choice(({"activations": {"page_size": 256}, "parameters": {}, "gradients": {}}, {})),
        "alignment": lambda: random.choice((1, 32, 3, 4096)),
        "capacities": lambda: random.choice(({"activations": 600}, {"": 900}, {"none": 5}, {"parameters": 10**6})),
        "page_size": lambda: random.choice((0, 64, 1000)),
        "order": lambda: tuple(random.sample(names, len(names))),
        "token": lambda: random.choice((bytes(32), bytes(64), bytes(31))),
        "seed": lambda: random.choice((0, 7, 2**64 - 1)),
        "rank": lambda: random.choice((1, 3)),
        "world_size": lambda: random.choice((0, 1, 2, 4)),
        "shard_spec": lambda: spec,
        "dims": lambda: random.choice(({"B": 2}, {"S": 0, "B": 4}, {"B": 9}, {"X": 1}, {"a,b": 1})),
        "budget": lambda: random.choice((100, 2000, 10**7)),
        "addressing": lambda: "blake3_sparse",
    }
    chosen = random.sample(sorted(said), random.choice((1, 2, 2, 3)))
    return PlanRequest(**{name: said[name]() for name in chosen})


def answered(ask: Callable[[], Any]) -> str:
    """The digest of an answer, or a refusal's kind and the digest of its words."""
    try:
        return digest(ask())
    except TmmuError as error:
        return f"{type(error).__name__} {digest(error.record())}"  # type: ignore[attr-defined]


def _made(made: Made, graph: Graph | None) -> Any:
    plan = made.plan
    whole = graph if made.solution is None or made.solution.graph is graph else None
    invalid = [finding.rule for finding in verify_plan(plan, whole).errors]
    return [plan, made.request, invalid, over.over_limits(plan, 2000), over.packing_may_do(plan)]


def of_a_graph(k: int) -> str:
    """A request of a graph: its texts, its plan, its plan in spite of its limits."""
    random = Random(f"requests/{k}")
    graph = drawn(3000 + k % 40).graph
    asked = request(random, graph)
    texts = wording.written(asked)
    back = [wording.SAID[name].read(text) for name, text in texts.items() if name != "token" or len(text) != 62]
    said = ", ".join(f"{name} {text[:40]}" for name, text in texts.items() if name not in ("shard_spec", "order"))
    found = [
        answered(lambda: _made(make_plan(graph, asked), graph)),
        answered(lambda: _made(over.make_plan_anyway(graph, asked), graph)),
        answered(lambda: [configured.arenas_in_use(graph, asked), configured.arena_config(graph, asked)]),
    ]
    rest = [back, wording.key_of(asked), wording.contradiction(asked), wording.idle_for_instance(asked)]
    return f"{said}: {' · '.join(found)} · {digest([*rest, asked.is_plain_about_arenas, asked.replay_token])}"


def problem(random: Random) -> Problem:
    """One arena: lives with gaps, offsets given, pairs apart, hand-offs, none of them or some; a capacity or none."""
    count, floor = random.randrange(1, 9), random.choice((1, 16))
    birth = sorted(random.randrange(10) for _ in range(count))
    death = [b + random.randrange(1, 7) for b in birth]
    size = [random.choice((0, 1, 8, 24, 100)) for _ in range(count)]
    grid = [max(floor, random.choice((1, 1, 8, 64))) for _ in range(count)]
    kind = random.randrange(4)
    more: dict[str, Any] = {}
    if kind == 1:
        more["gaps"] = tuple(((b + 1, d - 1),) if d - b > 3 else () for b, d in zip(birth, death, strict=True))
    if kind == 2:
        more["fixed"] = np.array([random.choice((-1, -1, 64 * k)) for k in range(count)], np.int64)
    if kind == 3 and count > 1:
        more["must_not_alias"] = np.array([sorted(random.sample(range(count), 2)) for _ in range(2)], np.int64)
    if random.randrange(3) == 0:
        more["capacity"] = random.choice((100, 300, 1000))
    return Problem(
        arena="arena",
        ids=tuple(f"{random.choice('béZ')}{i}" for i in range(count)),
        birth=np.array(birth, np.int64),
        death=np.array(death, np.int64),
        size=np.array(size, np.uint64),
        alignment=np.array(grid, np.uint64),
        arena_alignment=floor,
        **more,
    )


def of_an_instance(k: int) -> str:
    """A request of an instance, with a finished packing or without."""
    random = Random(f"instances/{k}")
    asked = problem(random)
    top = np.cumsum([0, *(-(-int(s) // 64) * 64 for s in asked.size)])[:-1].astype(np.uint64)
    packing = Packing(top) if random.randrange(4) == 0 and asked.fixed is None else None
    instance = PlainInstance(random.choice(("", "odd")), asked, packing)
    how = PlanRequest(
        planner=random.choice((None, None, "slots", "greedy", "naive", "ffd", "portfolio", "helia")),
        alignment=random.choice((None, None, None, 32)),
        capacities=random.choice(({}, {}, {}, {"": 200}, {"arena": 600}, {"else": 1})),
        seed=random.choice((None, 3)),
    )
    makers = (make_plan, over.make_plan_anyway)
    found = [answered(lambda make=make: _made(make(instance, how), None)) for make in makers]  # type: ignore[misc]
    return f"{len(asked)} storages, {how.planner}: {' · '.join(found)}"


def session(k: int) -> str:
    """A graph run through shapes, inside its envelopes and out of them."""
    random = Random(f"sessions/{k}")
    case = drawn(3100 + 3 * k)
    names = [node.node_id for node in case.graph.nodes]
    policy = random.choice(("ABORT", "REPLAN_AT_SAFEPOINT", "REPLAN_AT_SAFEPOINT", "REPLAN_AT_SAFEPOINT"))
    safepoints = tuple(random.sample(names, min(len(names), random.choice((0, 1, 2, 2)))))
    graph = msgspec.structs.replace(case.graph, replan_policy=policy, safepoints=safepoints)
    shapes = [
        {name: random.choice((0, 1, 2, 3, 4, 5, 9)) for name in random.sample(("B", "S"), random.randrange(3))}
        for _ in range(6)
    ]
    shapes += [{"X": 1}] if random.randrange(8) == 0 else [{"B": -1}] if random.randrange(8) == 0 else []
    rule = replan.Rule(random.choice(("upper", "point")), random.choice((None, None, None, "ABORT", "what")))

    def run_through() -> Any:
        log = replan.replan_session(graph, shapes, rule)
        for iteration in log.iterations:
            assert verify_plan(iteration.solution.plan).ok
        runs = [
            [i.number, i.point, i.planned_at, i.key, i.solution.plan.tmmu_plan_hash, i.replanned, i.cached]
            for i in log.iterations
        ]
        last = log.iterations[-1].solution.plan
        lines_ = trace.to_json_lines(replace(last, metrics={}), replans=log.replans)
        return [runs, log.replans, log.plans, log.aborted and spelled(log.aborted.record()), lines_]

    return answered(run_through)


def curve(k: int) -> str:
    """What a graph takes along a dimension."""
    graph = drawn(3200 + 3 * k).graph
    chosen = (None, [1, 3], [2, 2, 9], [0])[k % 4]
    name = ("B", "S", "B", "X")[k // 4 % 4]

    def along() -> Any:
        found = replan.peak_over_dim(graph, name, values=chosen, request=PlanRequest(dims={"B": 2} if k % 3 else {}))
        refused = [[value, error.record()] for value, error in found.refused]
        return [found.values, found.arena_names, found.peak_live_bytes, found.extent_bytes, refused]

    return f"{answered(along)} {digest([replan.sample_points(dim) for dim in graph.dims.values()])}"


def shared(k: int) -> str:
    """What ranks share, by a shard spec with one value changed."""
    spec = list(values(SPEC))[k * 5]
    asked = PlanRequest(shard_spec=spec, rank=k % 3, world_size=(None, 8, 4)[k % 3])

    def all_ranks() -> Any:
        found = ranks.plan_ranks(sharded(), asked.but(rank=0))
        one = [found.plan(found.world_size - 1), found.solution(0).graph, found.plan_hashes, found.extents]
        return [one, found.class_of, [c.ranks for c in found.classes], found.figures("slots"), found.arena_names]

    try:
        return f"{answered(all_ranks)} · {answered(lambda: ranks.plan_rank(sharded(), asked).plan)}"
    except (AttributeError, TypeError, ValueError) as error:  # of what no reader lets through
        return type(error).__name__


TEXTS: dict[str, tuple[str, ...]] = {
    "options": ('{"fit": "tightest", "n": 1}', '{"a": 1, "a": 2}'),
    "arenas": ('{"x": {"capacity_bytes": 4096, "page_size": 1}, "y": {}}', '{"x": 1}'),
    "capacities": ('a=1MiB,"b,c"=2,3', "1 KiB", "x=,y=1", "a=1,a=2"),
    "alignment": ("64", "1KiB", "0x10", "1.5k"),
    "order": ('["n0", "n1"]', "n0\n n1 \n\nn2", "[1]"),
    "token": ("00" * 32, "ab" * 64),
    "seed": ("7", "18446744073709551615", " 3 ", "9" * 20, "9" * 21, "-5"),
    "dims": ('B=8,T=512,"a,b"=1', "B=x", "8"),
    "addressing": ("offsets", "blake3_sparse"),
}


def texts(field: str) -> Iterator[str]:
    """What the texts of one option are read as, ten in a line: each as it stands, and with one thing changed."""
    read = wording.SAID[field].read
    every = [
        changed
        for text in TEXTS[field]
        for changed in (text.encode(), *lines(text.encode()), *list(single(text.encode()))[::2])
    ]
    for first in range(0, len(every), 20):
        here = [_read(read, each.decode("utf-8", "replace")) for each in every[first : first + 20]]
        yield f"{sum(not isinstance(each, tuple) for each in here)} of {len(here)} read · {digest(here)}"


def _read(read: Callable[[str], Any], text: str) -> Any:
    try:
        return [read(text)]
    except TmmuError as error:
        return ("refused", error.record()["place"] if "JSON: " in str(error) else str(error))  # type: ignore[attr-defined]
    except ValueError as error:
        return ("refused", str(error))


@cache
def questions() -> dict[str, Callable[[], list[str]]]:
    """Name → its lines."""
    drawn_by: dict[str, tuple[Callable[[int], str], int]] = {
        "graphs": (of_a_graph, COUNT),
        "instances": (of_an_instance, 80),
        "sessions": (session, 24),
        "curves": (curve, 16),
        "ranks": (shared, 24),
    }
    asked: dict[str, Callable[[], list[str]]] = {}
    for name, (ask, count) in drawn_by.items():
        for first in range(0, count, 10):
            numbers = range(first, min(first + 10, count))
            asked[f"{name} {first}"] = lambda ask=ask, numbers=numbers: [ask(k) for k in numbers]  # type: ignore[misc]
    for field in TEXTS:
        asked[f"texts of {field}"] = lambda field=field: list(texts(field))  # type: ignore[misc]
    return asked


def main() -> None:
    """Write the file."""
    written(REQUESTS, ((name, ask()) for name, ask in questions().items()))


if __name__ == "__main__":
    main()
