"""A graph is collapsed by its levels, or seen around one tensor; nothing that is not seen is lost."""

from __future__ import annotations

from random import Random

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.graph.test_modules import two_blocks
from tests.support.build import chain, graph, node, tensor, view
from tmmu_core.graph.index import GraphIndex, index_graph
from tmmu_core.graph.model import Graph
from tmmu_core.graph.modules import graph_view as walking
from tmmu_core.graph.modules.collapsed_graph import Collapsed, CollapseRequest, Edge, Vertex, collapse, writer_of
from tmmu_core.graph.modules.graph_view import MOST_DRAWN, MOST_NEAR, Wish, walk
from tmmu_core.graph.modules.module_paths import modules_of
from tmmu_core.graph.modules.module_tree import A_STRETCH, MOST_BESIDE, Tree, tree_of


def grown(which: Graph) -> tuple[GraphIndex, Tree]:
    index = index_graph(which)
    order = range(len(index.node_ids))
    return index, tree_of(index, modules_of(index, order), order)


def names(index: GraphIndex, tree: Tree, found: Collapsed) -> list[str]:
    said = {"node": lambda i: index.node_ids[i], "level": tree.label, "inputs": lambda _: "@", "tensor": str}
    return [said[v.kind](v.item) for v in found.vertices]


def arrows(index: GraphIndex, tree: Tree, found: Collapsed) -> set[str]:
    called = names(index, tree, found)
    return {f"{called[e.source]}→{called[e.target]}" for e in found.edges}


def test_blocks_are_levels_and_a_closed_one_is_a_vertex_that_counts_what_it_holds() -> None:
    index, tree = grown(two_blocks())
    levels = [(tree.label(k), int(tree.members[k])) for k in range(1, len(tree.paths)) if not tree.parent[k]]
    assert levels == [("h.0", 4), ("h.1", 4)]
    found = collapse(index, tree, CollapseRequest())
    assert names(index, tree, found) == ["@", "h.0", "h.1"]
    assert arrows(index, tree, found) == {"@→h.0", "h.0→h.1"}
    assert [(v.members, v.inside) for v in found.vertices] == [(0, 0), (4, 3), (4, 3)]
    assert [index.tensor_ids[t] for t in found.edges[1].tensors] == ["s0"]
    assert found.edges[1].nbytes == 16


def test_an_open_level_shows_its_nodes_and_is_a_frame() -> None:
    index, tree = grown(two_blocks())
    found = collapse(index, tree, CollapseRequest([("h", "1")]))
    assert names(index, tree, found) == ["@", "h.0", "mm_a1", "gelu1", "mm_d1", "add1"]
    assert [tree.paths[k] for k in found.levels] == [("h", "1")]
    assert "h.0→add1" in arrows(index, tree, found)
    assert tree.above(index.node_of["gelu1"]) == (("h", "1"),)


def test_levels_that_feed_each_other_stay_a_circle() -> None:
    tensors = [tensor("x", role="input"), *(tensor(f"{m}/{k}/t") for m in "ab" for k in (0, 1))]
    nodes = [
        node("a/0/n", "x", "a/0/t"),
        node("b/0/n", "a/0/t", "b/0/t"),
        node("a/1/n", "b/0/t", "a/1/t"),
        node("b/1/n", "a/1/t", "b/1/t"),
    ]
    index, tree = grown(graph(tensors, nodes, "x", "b/1/t"))
    found = collapse(index, tree, CollapseRequest())
    assert {"a→b", "b→a"} <= arrows(index, tree, found)


def test_phases_stand_apart() -> None:
    tensors = [tensor("x", role="input"), tensor("m/a/t"), tensor("m/b/t"), tensor("m/b/g"), tensor("m/a/g")]
    nodes = [
        node("m/a/f", "x", "m/a/t"),
        node("m/b/f", "m/a/t", "m/b/t"),
        node("m/b/r", "m/b/t", "m/b/g", phase="backward"),
        node("m/a/r", "m/b/g", "m/a/g", phase="backward"),
    ]
    index, tree = grown(graph(tensors, nodes, "x", "m/a/g"))
    assert arrows(index, tree, collapse(index, tree, CollapseRequest())) == {"@→forward", "forward→backward"}


def test_a_tensor_that_nobody_writes_is_seen_when_it_is_asked_for() -> None:
    index, tree = grown(two_blocks())
    weight = index.tensor_of["h.1.up.weight"]
    found = collapse(index, tree, CollapseRequest(tree.paths, tensor=weight, radius=1))
    assert [v.kind for v in found.vertices] == ["tensor", "node"]
    assert (found.middle, found.carrying(weight)) == (0, (0,))
    assert found.vertices[1].hidden == 2  # what else reads or is read there


def test_what_nobody_writes_or_reads_stands_alone_in_its_neighbourhood() -> None:
    tensors = [tensor("x"), tensor("y"), tensor("spare", role="parameter")]
    for inputs, source, asked, kind in (("x", "x", "spare", "tensor"), ("x", "spare", "x", "inputs")):
        index, tree = grown(graph(tensors, [node("n", source, "y")], inputs, "y"))
        found = collapse(index, tree, CollapseRequest(tensor=index.tensor_of[asked], radius=2))
        assert ([v.kind for v in found.vertices], found.edges) == ([kind], ())
        assert (found.middle, found.of_node.tolist()) == (0, [-1])


def test_views_that_nobody_writes_lead_to_who_writes_their_base() -> None:
    which = graph(
        [tensor("x", role="input"), tensor("b"), view("v", "b", 2), tensor("y")],
        [node("n", "x", "b"), node("m", "v", "y")],
        "x",
        "y",
    )
    index, tree = grown(which)
    assert writer_of(index, index.tensor_of["v"]) == 0
    assert arrows(index, tree, collapse(index, tree, CollapseRequest())) == {"@→n", "n→m"}


def test_too_many_nodes_side_by_side_are_gathered_in_the_order_they_run() -> None:
    count = A_STRETCH * A_STRETCH + 1
    index, tree = grown(chain(count))
    assert len(collapse(index, tree, CollapseRequest()).vertices) == 3  # inputs and two stretches of stretches
    whole = collapse(index, tree, CollapseRequest(tree.paths))
    assert len(whole.vertices) == count + 1
    below = np.bincount(tree.parent[1:]) + np.bincount(tree.of_node, minlength=len(tree.paths))[: max(tree.parent) + 1]
    assert below.max() <= MOST_BESIDE
    assert tree.label(1) == f"nodes 1–{A_STRETCH * A_STRETCH:,}"


def test_a_neighbourhood_shows_nodes_and_no_stretches() -> None:
    index, tree = grown(chain(200))
    found = walk(index, tree, Wish(tensor=index.tensor_of["t100"], radius=3))
    assert names(index, tree, found.collapsed) == [f"n{k:03}" for k in range(96, 103)]
    assert (found.by_level, found.too_many, found.collapsed.levels) == (False, 0, ())
    assert [v.hidden for v in found.collapsed.vertices] == [1, 0, 0, 0, 0, 0, 1]


def test_what_is_too_much_to_be_seen_is_said() -> None:
    fan = [tensor("x", role="input"), tensor("t"), *(tensor(f"y{k}") for k in range(MOST_DRAWN))]
    nodes = [node("n", "x", "t"), *(node(f"m{k}", "t", f"y{k}") for k in range(MOST_DRAWN))]
    index, tree = grown(graph(fan, nodes, "x", "y0"))
    near = walk(index, tree, Wish(tensor=index.tensor_of["t"], radius=1))
    assert (near.radius, near.too_many, len(near.collapsed.vertices)) == (0, MOST_DRAWN + 2, 1)
    all_ = walk(index, tree, Wish(opened=tree.paths))
    assert all_.too_many == MOST_DRAWN + 2
    assert len(all_.collapsed.vertices) <= MOST_NEAR


@st.composite
def scoped(draw: st.DrawFn) -> Graph:
    """Random graphs whose node names tell where they stand, some of them in families of blocks."""
    parts = st.sampled_from(["a", "b", "h0", "h1", "h2", "mlp"])
    count = draw(st.integers(1, 30))
    tensors, nodes = [tensor("x", role="input")], []
    for k in range(count):
        scope = "/".join(draw(st.lists(parts, max_size=3)))
        reads = draw(st.lists(st.sampled_from([t.id for t in tensors]), min_size=1, max_size=3, unique=True))
        tensors.append(tensor(f"t{k}"))
        phase = draw(st.sampled_from(["forward", "backward"]))
        nodes.append(node(f"{scope}/n{k}" if scope else f"n{k}", " ".join(reads), f"t{k}", phase=phase))
    return graph(tensors, nodes, "x", f"t{count - 1}")


@given(scoped(), st.data())
def test_collapsing_loses_nobody_and_keeps_who_reaches_whom(which: Graph, data: st.DataObject) -> None:
    index, tree = grown(which)
    opened = data.draw(st.sets(st.sampled_from(tree.paths)))
    found = collapse(index, tree, CollapseRequest(opened))
    assert sum(v.members for v in found.vertices) == len(index.node_ids)
    assert int(tree.members[0]) == len(index.node_ids)
    for k, v in enumerate(found.vertices):
        assert v.members == int((found.of_node == k).sum())
        assert v.kind != "level" or v.members == int(tree.members[v.item])
    plain = nx.DiGraph()
    plain.add_nodes_from(range(len(index.node_ids)))
    for reader in range(len(index.node_ids)):
        for t in index.inputs_of(reader).tolist():
            if index.producer[t] >= 0:
                plain.add_edge(int(index.producer[t]), reader)
    quotient = nx.DiGraph()
    quotient.add_nodes_from(range(len(found.vertices)))
    quotient.add_edges_from((e.source, e.target) for e in found.edges)
    of = found.of_node.tolist()
    for a, below in nx.all_pairs_shortest_path_length(plain):
        reached = nx.descendants(quotient, of[a]) | {of[a]}
        assert {of[b] for b in below} <= reached
    # and no edge is invented: each tensor of an edge goes from one of its source's nodes to one of its target's
    for e in found.edges:
        for t in e.tensors:
            maker = int(index.producer[t])
            assert maker < 0 or of[maker] == e.source
            assert e.target in {of[r] for r in index.readers_of(t).tolist()}
    outer = {t for e in found.edges for t in e.tensors}
    inside = {t for t in range(len(index.tensor_ids)) if index.producer[t] >= 0 and len(index.readers_of(t))} - outer
    assert sum(v.inside for v in found.vertices) == len(inside)


@given(scoped(), st.data())
def test_a_neighbourhood_is_all_that_is_so_near_and_nothing_else(which: Graph, data: st.DataObject) -> None:
    index, tree = grown(which)
    opened = data.draw(st.sets(st.sampled_from(tree.paths)))
    opened |= tree.stretches
    middle, radius = data.draw(st.integers(0, len(index.node_ids) - 1)), data.draw(st.integers(0, 3))
    whole = collapse(index, tree, CollapseRequest(opened))
    part = collapse(index, tree, CollapseRequest(opened, node=middle, radius=radius))
    both = nx.Graph()
    both.add_nodes_from(range(len(whole.vertices)))
    both.add_edges_from((e.source, e.target) for e in whole.edges)
    near = nx.single_source_shortest_path_length(both, int(whole.of_node[middle]), cutoff=radius)
    kept = [(whole.vertices[k].kind, whole.vertices[k].item) for k in sorted(near)]
    assert [(v.kind, v.item) for v in part.vertices] == kept
    assert [v.hidden for v in part.vertices] == [len(set(both[k]) - set(near)) for k in sorted(near)]


@pytest.mark.parametrize("most", [1, 3, 12, 100])
def test_what_is_open_at_first_is_no_more_than_wished(most: int) -> None:
    index, tree = grown(two_blocks())
    found = collapse(index, tree, CollapseRequest(tree.opened(most)))
    assert len(found.vertices) - 1 <= max(most, 2)


def test_the_inputs_are_a_vertex_of_no_number_and_of_no_level() -> None:
    index, tree = grown(chain(3))
    found = collapse(index, tree, CollapseRequest())
    (inputs,) = [vertex for vertex in found.vertices if vertex.kind == "inputs"]
    assert (inputs.item, inputs.level) == (-1, 0)
    assert [vertex.item >= 0 for vertex in found.vertices if vertex.kind != "inputs"] != []


def drawn(seed: int) -> Graph:
    """A small graph whose tensors stand anywhere in their list: weights, views of views, what nobody reads."""
    rng = Random(seed)
    tensors = [tensor("x", role="input"), tensor("w", role="parameter"), tensor("u", 2, role="parameter")]
    nodes = []
    for k in range(rng.randint(1, 6)):
        reads = rng.sample([t.id for t in tensors], min(len(tensors), rng.randint(1, 3)))
        scope = rng.choice(["", "a/", "b/", "a/c/", "h.0/", "h.1/"])
        written = view(f"t{k}", rng.choice(reads), 2) if rng.random() < 0.3 else tensor(f"t{k}", rng.randint(2, 4))
        tensors.append(written)
        nodes.append(node(f"{scope}n{k}", " ".join(reads), f"t{k}"))
        if rng.random() < 0.5:
            tensors.append(view(f"v{k}", rng.choice(tensors).id, 2))
    rng.shuffle(tensors)
    return graph(tensors, nodes, "x", nodes[-1].outputs[0])


def plainly(index: GraphIndex, tree: Tree, asked: CollapseRequest) -> dict[str, object]:
    """What is to be seen, one thing at a time. Vertices are pairs: kind and item."""
    closed = [k for k, path in enumerate(tree.paths) if k and path not in asked.opened]

    def vertex_of(node_: int) -> tuple[str, int]:
        above, level = [], int(tree.of_node[node_])
        while level:
            above.append(level)
            level = int(tree.parent[level])
        outermost = [level for level in above if level in closed][-1:]
        return ("level", outermost[0]) if outermost else ("node", node_)

    def root_of(t: int) -> int:
        return t if index.producer[t] >= 0 or index.base[t] < 0 else root_of(int(index.base[t]))

    def source_of(t: int) -> tuple[str, int] | None:
        root = root_of(t)
        if index.producer[root] >= 0:
            return vertex_of(int(index.producer[root]))
        return ("inputs", -1) if index.is_input[root] else ("tensor", t) if t == asked.tensor else None

    nodes = range(len(index.node_ids))
    read = {(source_of(t), vertex_of(n), t) for n in nodes for t in index.inputs_of(n).tolist()}
    passages = {(a, b, t) for a, b, t in read if a is not None}
    middle = source_of(asked.tensor) if asked.tensor >= 0 else vertex_of(asked.node) if asked.node >= 0 else None
    everyone = {vertex_of(n) for n in nodes} | {a for a, _, _ in passages} | ({middle} - {None})
    beside = {v: {b for a, b, _ in passages if a == v} | {a for a, b, _ in passages if b == v} for v in everyone}
    near = asked.radius is not None and middle is not None
    seen = {middle} if near else everyone
    for _ in range((asked.radius or 0) if near else 0):
        seen = seen | {other for v in seen for other in beside[v]}
    first = {v: min([n for n in nodes if vertex_of(n) == v], default=-1) for v in seen}
    order = sorted(seen, key=lambda v: (first[v], v[0] != "inputs", v))
    leaving = {t for a, b, t in passages if a != b}

    def level_of(kind: str, item: int) -> int:
        if kind not in ("node", "level"):
            return 0
        level = int(tree.parent[item]) if kind == "level" else int(tree.of_node[item])
        while asked.radius is not None and tree.paths[level] in tree.stretches:
            level = int(tree.parent[level])
        return level

    found: dict[tuple[int, int], list[int]] = {}
    for a, b, t in sorted(passages, key=lambda each: each[2]):
        if a != b and a in seen and b in seen:
            found.setdefault((order.index(a), order.index(b)), []).append(t)
    size = index.nbytes.tolist()
    levels = set()
    for kind, item in order:
        level = level_of(kind, item)
        while level:
            levels.add(level)
            level = int(tree.parent[level])
    return {
        "vertices": [
            Vertex(
                *v,
                level_of(*v),
                sum(vertex_of(n) == v for n in nodes),
                len({t for a, b, t in passages if a == b == v} - leaving),
                len(beside[v] - seen - {v}) if near else 0,
            )
            for v in order
        ],
        "edges": [
            Edge(*ends, tuple(ts), sum(size[t] for t in ts), sorted(ts, key=lambda t: (-size[t], t))[0])
            for ends, ts in sorted(found.items())
        ],
        "levels": sorted(levels),
        "of_node": [order.index(vertex_of(n)) if vertex_of(n) in seen else -1 for n in nodes],
        "middle": order.index(middle) if middle in seen else -1,
    }


@pytest.mark.parametrize("seed", range(40))
def test_what_is_seen_is_what_the_plainest_walk_sees(seed: int) -> None:
    index, tree = grown(drawn(seed))
    rng = Random(seed)
    for opened in ((), tree.paths, rng.sample(tree.paths, len(tree.paths) // 2)):
        whole = [CollapseRequest(opened), CollapseRequest(opened, node=rng.randrange(len(index.node_ids)))]
        tensors = rng.sample(range(len(index.tensor_ids)), 3)
        around = [CollapseRequest(opened, tensor=t, radius=r) for t, r in zip(tensors, (0, 1, 2), strict=True)]
        for asked in (
            *whole,
            *around,
            CollapseRequest(opened, node=0, radius=1),
            CollapseRequest(opened, tensor=0),
            CollapseRequest(opened, radius=1),
        ):
            found, plain = collapse(index, tree, asked), plainly(index, tree, asked)
            assert {
                "vertices": list(found.vertices),
                "edges": list(found.edges),
                "levels": list(found.levels),
                "of_node": found.of_node.tolist(),
                "middle": found.middle,
            } == plain, (opened, asked)
            per_node = np.arange(1, 1 + len(index.node_ids))
            sums = [int(per_node[found.of_node == k].sum()) for k in range(len(found.vertices))]
            assert list(found.total(per_node)) == sums
            for t in range(len(index.tensor_ids)):
                assert found.carrying(t) == tuple(k for k, edge in enumerate(found.edges) if t in edge.tensors)


@pytest.mark.parametrize("seed", range(0, 40, 4))
def test_the_writer_of_a_tensor_is_found_through_its_bases(seed: int) -> None:
    index, _ = grown(drawn(seed))
    for t in range(len(index.tensor_ids)):
        root = t
        while index.tensor_ids[root].startswith("v"):
            root = int(index.base[root])
        name = index.tensor_ids[root]
        assert writer_of(index, t) == (int(name[1:]) if name[0] == "t" else -1)


def test_around_a_node_that_is_the_first_of_all_its_own_levels_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walking, "MOST_NEAR", 3)
    tensors = [tensor(f"t{k}") for k in range(6)]
    scopes = ("a", "a", "b", "b", "b", "b")
    nodes = [node(f"{scope}/n{k}", f"t{k - 1}" if k else "", f"t{k}") for k, scope in enumerate(scopes)]
    index, tree = grown(graph(tensors, nodes, "", "t5"))
    found = walk(index, tree, Wish(node=0, radius=4))
    assert (found.collapsed.middle, found.by_level) == (0, True)
    assert names(index, tree, found.collapsed) == ["a/n0", "a/n1", "b"]


@pytest.mark.parametrize(
    ("most", "radius", "wanted"), [(6, 4, 0), (5, 4, 0), (4, 3, 5), (2, 1, 5), (1, 0, 5), (0, 0, 5)]
)
def test_a_neighbourhood_shrinks_until_it_can_be_seen(
    most: int, radius: int, wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walking, "MOST_NEAR", 4)
    monkeypatch.setattr(walking, "MOST_DRAWN", most)
    index, tree = grown(
        graph(
            [tensor(f"t{k}") for k in range(7)],
            [node(f"n{k}", f"t{k - 1}" if k else "", f"t{k}") for k in range(7)],
            "",
            "t6",
        )
    )
    found = walk(index, tree, Wish(node=0, radius=4))
    assert (found.radius, found.too_many, len(found.collapsed.vertices)) == (radius, wanted, radius + 1)
