"""What liveness works out over columns, beside the plainest that says the same: dictionaries of the judge, or loops."""

from __future__ import annotations

from random import Random

import msgspec
import numpy as np
import pytest

from tests.build import graph, node, tensor, view
from tests.odd import drawn
from tmmu_core.errors import ArenaTooSmall, ContractError
from tmmu_core.graph.index import index_graph
from tmmu_core.graph.model import MODES, PRESETS, Arena, Graph
from tmmu_core.judge.lives import lives_of
from tmmu_core.judge.runs import run_of
from tmmu_core.liveness.analyse import analyse
from tmmu_core.liveness.timeline import build_timeline
from tmmu_core.liveness.views import view_roots
from tmmu_core.runtime.shadow_declared import _roots


@pytest.mark.parametrize("seed", range(8))
def test_a_view_of_views_lies_in_its_root_at_the_sum_of_all_offsets(seed: int) -> None:
    random = Random(f"roots/{seed}")
    count = 1 + random.randrange(12)
    names = [f"t{k}" for k in range(count)]
    random.shuffle(names)
    base = {name: random.choice(names[:k]) if k and random.randrange(4) else None for k, name in enumerate(names)}
    tensors = [
        tensor(name, 1000, role="input") if over is None else view(name, over, 1, 4 * random.randrange(3))
        for name, over in base.items()
    ]
    said = {t.id: t.view for t in tensors}
    # Long enough for all that looks into them.
    tensors = [t if t.view is None else msgspec.structs.replace(t, view=said[t.id]) for t in tensors]
    lengths = dict.fromkeys(names, 4)
    for name in reversed(names):
        over = base[name]
        if over is not None:
            lengths[over] = max(lengths[over], lengths[name] + said[name].byte_offset)  # type: ignore[union-attr]
    grown = [
        msgspec.structs.replace(
            t,
            shape=(lengths[t.id] // 4,),
            view=t.view and msgspec.structs.replace(t.view, byte_length=lengths[t.id]),
        )
        for t in tensors
    ]
    random.shuffle(grown)
    g = graph(grown, [node("n", " ".join(names), "")], " ".join(n for n in names if base[n] is None))
    index = index_graph(g)
    roots, offsets = view_roots(index)
    theirs = _roots(build_timeline(g, "inference", "inference"))
    for number, name in enumerate(index.tensor_ids):
        at, bytes_ = name, 0
        while base[at] is not None:
            bytes_, at = bytes_ + said[at].byte_offset, base[at]  # type: ignore[union-attr, assignment]
        assert (index.tensor_ids[roots[number]], int(offsets[number])) == (at, bytes_)
        assert (int(theirs[0][number]), int(theirs[1][number])) == (int(roots[number]), bytes_)
    assert roots.dtype == np.int64


def marked(k: int) -> Graph:
    """An odd graph, with more tensors saved and dropped than it has by itself."""
    g, random = drawn(k).graph, Random(f"marked/{k}")
    tensors = [
        msgspec.structs.replace(
            t,
            remat=t.remat or not random.randrange(3),
            saved_for_backward=t.saved_for_backward or (k % 2 == 0 and not random.randrange(4)),
        )
        for t in g.tensors
    ]
    random.shuffle(tensors)
    return msgspec.structs.replace(g, tensors=tuple(tensors))


@pytest.mark.parametrize("k", range(0, 120, 2))
def test_steps_lives_storages_and_hand_offs_are_the_judges(k: int) -> None:
    g = marked(k)
    for mode in MODES:
        for preset in PRESETS:
            try:
                run = run_of(g, mode, preset)
                lives = lives_of(run, None)
            except ContractError as refused:
                with pytest.raises(type(refused)):
                    analyse(build_timeline(g, mode, preset), {t.arena: Arena() for t in g.tensors if t.arena} | ALL)
                continue
            timeline = build_timeline(g, mode, preset)
            _same_program(timeline.graph, run.graph)
            assert (timeline.order, timeline.steps, timeline.retain) == (run.order, run.steps, run.retain)
            declared = dict.fromkeys([s.arena for s in lives.storages.values()], Arena())
            found = analyse(timeline, declared)
            index = timeline.index
            ids = index.tensor_ids
            planned = [t for t in range(len(ids)) if found.birth[t] >= 0]
            assert {ids[t]: int(found.birth[t]) for t in planned} == lives.birth
            assert {ids[t]: int(found.death[t]) for t in planned} == lives.death
            head = [ids[h] for h in found.storages.head]
            assert {ids[t]: head[found.storage_of[t]] for t in planned} == lives.storage_of
            assert {ids[t]: int(found.offset_in_storage[t]) for t in planned} == lives.offset
            assert [(int(s), ids[x], ids[y]) for s, x, y in found.handoffs] == list(lives.handoffs)
            refusals = [(r.step, r.source, r.target, r.condition) for r in found.refusals]
            assert sorted(refusals) == sorted(lives.refusals)
            s = found.storages
            assert sorted(range(len(s)), key=lambda n: lives.storages[head[n]].sort_key) == list(range(len(s)))
            for n, name in enumerate(head):
                theirs = lives.storages[name]
                assert (int(s.birth[n]), int(s.death[n]), int(s.size[n])) == (theirs.birth, theirs.death, theirs.size)
                assert (int(s.alignment[n]), found.arenas[s.arena[n]]) == (theirs.alignment, theirs.arena)
                persistent = any(run.tensors[member].persistent for member in theirs.members)
                assert bool(s.persistent[n]) == persistent
                giver = [x for _, x, y in lives.handoffs if lives.storage_of[y] == name]
                assert (s.handoff_from[n] >= 0) == bool(giver)
                if giver:
                    assert head[s.handoff_from[n]] == lives.storage_of[giver[0]]
            apart = sorted({tuple(sorted((head.index(a), head.index(b)))) for a, b in lives.apart})
            assert sorted(map(tuple, s.must_not_alias.tolist())) == apart


ALL = dict.fromkeys(("activations", "gradients", "parameters"), Arena())


def _same_program(mine: Graph, theirs: Graph) -> None:
    """The same tensors and outputs, and node for node the same but for how nothing is permitted."""
    assert mine.tensors == theirs.tensors
    assert mine.outputs == theirs.outputs
    assert [n.node_id for n in mine.nodes] == [n.node_id for n in theirs.nodes]
    for one, two in zip(mine.nodes, theirs.nodes, strict=True):
        assert one.inplace == two.inplace or (one.inplace, two.inplace) == ("none", ())
        assert msgspec.structs.replace(one, inplace=None) == msgspec.structs.replace(two, inplace=None)


@pytest.mark.parametrize("names", ["abc", "cba", "bca"])
def test_of_an_arena_that_is_not_declared_the_first_tensor_is_named(names: str) -> None:
    tensors = [tensor(name, role="input", arena="far" if name != "c" else None) for name in names]
    timeline = build_timeline(graph(tensors, [], " ".join(names)), "inference", "inference")
    with pytest.raises(ArenaTooSmall) as caught:
        analyse(timeline, {"activations": Arena()})
    assert caught.value.diagnostics["tensor"] == "a"
    assert analyse(timeline, {"activations": Arena(), "far": Arena()}).arenas == ("activations", "far")


def test_who_is_not_of_the_timeline_asks_for_no_alignment() -> None:
    """``b`` is of the backward pass: its wish is not that of the last storage."""
    tensors = [tensor("x", role="input"), tensor("y"), tensor("b", alignment=4096)]
    nodes = [node("n", "x", "y", inplace="none"), node("m", "y", "b", phase="backward")]
    found = analyse(build_timeline(graph(tensors, nodes, "x", "y"), "inference", "inference"))
    assert found.storages.alignment.tolist() == [1, 1]


def test_what_has_no_gradient_passes_none_on_and_takes_none() -> None:
    """``b`` is a buffer that a node writes, ``v`` a constant that looks at a parameter, ``k`` of whole numbers."""
    tensors = [
        *(tensor("x", role="input"), tensor("w", role="parameter"), view("v", "w", role="constant")),
        *(view("u", "w"), tensor("b", role="buffer"), tensor("k", dtype="int32"), tensor("y"), tensor("z")),
        *(view("p", "k"), tensor("q", role="gradient")),
    ]
    nodes = [
        *(node("n0", "x", "b"), node("n1", "b v", "y"), node("n2", "u x", "z k"), node("n3", "p", "")),
        node("n4", "z y", "q"),
    ]
    g = graph(tensors, nodes, "x", "q")
    timeline = build_timeline(g, "backward", "train_full")
    _same_program(timeline.graph, run_of(g, "backward", "train_full").graph)
    grads = [t.id.removesuffix("@grad") for t in timeline.graph.tensors if t.id.endswith("@grad")]
    assert sorted(grads) == ["q", "u", "x", "z"]
    assert timeline.graph.outputs == ("q",)
