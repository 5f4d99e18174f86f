"""One target per parameter of a link. For any text, the link must yield a choice, and a plan or an error."""

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from random import Random
from typing import Any

from app.session import opening
from app.session.planning import baseline_of
from app.session.view_state import NAMES, Choice, compact, from_query, spec_of, to_query
from tests.support.build import graph, node
from tests.tools.fuzz import mutation
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.graph.model import Dim, Graph, Tensor
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.request_options import OPTION_SPECS

SEEDS: dict[str, tuple[str, ...]] = {
    "graph": ("sample:linear_chain", "file:0123", "store:" + "ab" * 32),
    "baseline": ("planner:greedy", "mode:backward", "link:?graph=sample:linear_chain&step=3", "file:x"),
    "mode": ("backward", "inference"),
    "preset": ("train_full", "remat_enabled"),
    "planner": ("slots", "greedy", "helia"),
    "options": ('{"fit":"tightest"}', '{"budget":1000,"seed":1}'),
    "arenas": ('{"activations":{"capacity_bytes":4096,"alignment_bytes":64,"page_size":16}}',),
    "alignment": ("64", "4KiB"),
    "capacity": ("1MiB", "activations=4096,parameters=128"),
    "page": ("4096", "1KiB"),
    "order": ('["n0","n1"]', "n0\nn1"),
    "token": ("00" * 32,),
    "seed": ("7",),
    "rank": ("1",),
    "world": ("8",),
    "shard_spec": ('{"mesh":[{"name":"tp","size":2}],"rules":[{"match":"*","axis":0,"mesh":"tp"}]}',),
    "shard": ('{"mesh":{"tp":8},"rules":[{"match":"*.weight","axis":0,"mesh":"tp"}]}',),
    "dims": ("B=4", "B=4,T=2"),
    "budget": ("1048576", "1MiB"),
    "zoom": ("0~3.5~0~100", "1~2~3~4"),
    "shapes": ("8, 16*3, 40", "B=8; B=16"),
    "marked": ("witness", "layer:encoder"),
}
"""Parameter → its valid texts; a parameter that is not listed has free text."""


def parameters() -> tuple[str, ...]:
    """Return every parameter of a link."""
    return tuple(NAMES.get(field.name, field.name) for field in fields(Choice))


def make_of(key: str) -> Callable[[Random], bytes]:
    """Return a function that makes hostile texts for one parameter."""
    seeds = SEEDS.get(key, ("a", "1"))

    def make(random: Random) -> bytes:
        what = random.randrange(5)
        if what == 0:
            return str(random.choice((*mutation.EDGES, *mutation.WORDS))).encode()
        seed = random.choice(seeds).encode()
        if what < 3:
            return mutation.lines_changed(seed, random, random.choice((b"~", b",", b"=", b":", b"\n")))
        return mutation.damaged(seed, random)

    return make


def use_of(key: str) -> Callable[[bytes], None]:
    """Return a function that reads a link with one parameter, writes the link again, and plans."""

    def use(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        plain = {"graph": "sample:linear_chain"} | ({"planner": "greedy"} if key == "options" else {})
        choice, complaints = from_query(plain | {key: text})
        assert from_query(to_query(choice)) == (choice, ()), "a link is read as it is written"
        _look(key, choice)
        if key in OPTION_SPECS or key in (shown_text.link for shown_text in OPTION_SPECS.values()):
            made = make_plan(_graph(), choice.request, over_limits=True)
            assert made.plan.steps
        if complaints:
            raise UnreadableInput(" ".join(complaints))

    return use


def _look(key: str, choice: Choice) -> None:
    """Read the parameters that only some pages read."""
    baseline: Any = baseline_of(choice)
    if baseline is not None:
        to_query(baseline)
        if baseline.source != choice.source:
            opening.content_of(baseline.source)
    if key == "shard" and choice.shard:
        compact(choice.shard)
        spec_of(choice.shard)
    if key in ("graph", "baseline") and ":" in choice.source:
        opening.content_of(choice.source)


@cache
def _graph() -> Graph:
    """Return the graph ``x → h → y`` with ``B`` rows."""
    roles = {"x": "input", "h": "activation", "y": "activation"}
    tensors = [Tensor(id=name, shape=("B", 4), role=role) for name, role in roles.items()]
    return graph(tensors, [node("n0", "x", "h"), node("n1", "h", "y")], "x", "y", dims={"B": Dim(1, 8)})
