"""A graph is collapsed by its modules, or shown around one tensor; every node is counted."""

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.graph.test_modules import two_blocks
from tests.support.build import chain, graph, node, tensor, view
from tmmu_core.graph.index import GraphIndex, index_graph
from tmmu_core.graph.model import Graph, Node
from tmmu_core.graph.modules.collapsed_graph import (
    MAX_NEIGHBOURHOOD_VERTICES,
    MAX_VERTICES,
    Collapsed,
    Tree,
    ViewRequest,
    collapse,
    tree_of,
    visible_part,
    writer_of,
)
from tmmu_core.graph.modules.module_paths import modules_of


def grown(which: Graph) -> tuple[GraphIndex, Tree]:
    index = index_graph(which)
    order = range(len(index.node_ids))
    return index, tree_of(index, modules_of(index, order), order)


def names(index: GraphIndex, tree: Tree, found: Collapsed) -> list[str]:
    shown_text = {"node": lambda i: index.node_ids[i], "level": tree.label, "inputs": lambda _: "@", "tensor": str}
    return [shown_text[v.kind](v.item) for v in found.vertices]


def arrows(index: GraphIndex, tree: Tree, found: Collapsed) -> set[str]:
    called = names(index, tree, found)
    return {f"{called[e.source]}→{called[e.target]}" for e in found.edges}


def test_closed_module_is_a_vertex_that_counts_its_nodes() -> None:
    index, tree = grown(two_blocks())
    levels = [(tree.label(k), int(tree.members[k])) for k in range(1, len(tree.paths)) if not tree.parent[k]]
    assert levels == [("h.0", 4), ("h.1", 4)]
    found = collapse(index, tree, ())
    assert names(index, tree, found) == ["@", "h.0", "h.1"]
    assert arrows(index, tree, found) == {"@→h.0", "h.0→h.1"}
    assert [(v.members, v.internal) for v in found.vertices] == [(0, 0), (4, 3), (4, 3)]
    assert [index.tensor_ids[t] for t in found.edges[1].tensors] == ["s0"]


@pytest.mark.parametrize(("family", "label"), [("model/h/", "model.h."), ("b.", "b.")])
def test_ranges_of_a_large_block_are_no_blocks(family: str, label: str) -> None:
    ids = [f"{family}{block}/relu{k:02}" for block in range(3) for k in range(50)]
    tensors = [tensor("x", role="input"), *(tensor(f"{name}.out") for name in ids)]
    nodes = [node(name, tensors[k].id, f"{name}.out") for k, name in enumerate(ids)]
    _, tree = grown(graph(tensors, nodes, "x", tensors[-1].id))
    blocks = [(tree.label(k), int(tree.blocks[k])) for k in range(4)]
    assert blocks == [("", 3), (f"{label}0", 0), (f"{label}1", 0), (f"{label}2", 0)]


def test_open_module_shows_its_nodes_in_a_frame() -> None:
    index, tree = grown(two_blocks())
    found = collapse(index, tree, [("h", "1")])
    assert names(index, tree, found) == ["@", "h.0", "mm_a1", "gelu1", "mm_d1", "add1"]
    assert [tree.paths[k] for k in found.levels] == [("h", "1")]
    assert "h.0→add1" in arrows(index, tree, found)
    assert tree.above(index.node_of["gelu1"]) == (("h", "1"),)


def test_selected_parameter_is_a_vertex() -> None:
    index, tree = grown(two_blocks())
    weight = index.tensor_of["h.1.up.weight"]
    found = collapse(index, tree, tree.paths, ViewRequest(tensor=weight, radius=1))
    assert [v.kind for v in found.vertices] == ["tensor", "node"]
    assert (found.middle, found.edges[0].tensors) == (0, (weight,))
    assert found.vertices[1].hidden == 2  # the other input and the reader of the node


def test_unwritten_view_leads_to_the_writer_of_its_base() -> None:
    tensors = [tensor("x", role="input"), tensor("b"), view("v", "b", 2), tensor("y")]
    which = graph(tensors, [node("n", "x", "b"), node("m", "v", "y")], "x", "y")
    index, tree = grown(which)
    assert writer_of(index, index.tensor_of["v"]) == 0
    assert arrows(index, tree, collapse(index, tree, ())) == {"@→n", "n→m"}


def test_neighbourhood_shows_nodes_and_no_groups() -> None:
    index, tree = grown(chain(200))
    found = visible_part(index, tree, ViewRequest(tensor=index.tensor_of["t100"], radius=3))
    assert names(index, tree, found.collapsed) == [f"n{k:03}" for k in range(96, 103)]
    assert (found.by_level, found.rejected_vertices, found.collapsed.levels) == (False, 0, ())
    assert [v.hidden for v in found.collapsed.vertices] == [1, 0, 0, 0, 0, 0, 1]


def test_number_of_hidden_nodes_is_reported() -> None:
    fan = [tensor("x", role="input"), tensor("t"), tensor("z"), *(tensor(f"y{k}") for k in range(MAX_VERTICES))]
    nodes = [node("n", "x", "t"), node("p", "y0", "z"), *(node(f"m{k}", "t", f"y{k}") for k in range(MAX_VERTICES))]
    index, tree = grown(graph(fan, nodes, "x", "y0"))
    near = visible_part(index, tree, ViewRequest(tensor=index.tensor_of["t"], radius=2))  # radius 1 is too large, too
    assert (near.radius, near.rejected_vertices, len(near.collapsed.vertices)) == (0, MAX_VERTICES + 2, 1)
    all_ = visible_part(index, tree, ViewRequest(opened=tree.paths))
    assert all_.rejected_vertices == MAX_VERTICES + 3
    assert len(all_.collapsed.vertices) <= MAX_NEIGHBOURHOOD_VERTICES


@st.composite
def scoped(draw: st.DrawFn) -> Graph:
    """Draw a graph with scopes in the names of nodes; some scopes are repeated blocks."""
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
def test_collapsing_keeps_every_node_and_reachability(which: Graph, data: st.DataObject) -> None:
    index, tree = grown(which)
    opened = data.draw(st.sets(st.sampled_from(tree.paths)))
    found = collapse(index, tree, opened)
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
    # each tensor of an edge is written by a node of its source and read by a node of its target
    for e in found.edges:
        for t in e.tensors:
            maker = int(index.producer[t])
            assert maker < 0 or of[maker] == e.source
            assert e.target in {of[r] for r in index.readers_of(t).tolist()}
    outer = {t for e in found.edges for t in e.tensors}
    inside = {t for t in range(len(index.tensor_ids)) if index.producer[t] >= 0 and len(index.readers_of(t))} - outer
    assert sum(v.internal for v in found.vertices) == len(inside)


@given(scoped() | st.just(Graph(nodes=(Node("n"),))), st.data())
def test_neighbourhood_holds_exactly_the_nodes_within_its_radius(which: Graph, data: st.DataObject) -> None:
    index, tree = grown(which)
    opened = data.draw(st.sets(st.sampled_from(tree.paths)))
    opened |= tree.ranges
    middle, radius = data.draw(st.integers(0, len(index.node_ids) - 1)), data.draw(st.integers(0, 3))
    whole = collapse(index, tree, opened)
    part = collapse(index, tree, opened, ViewRequest(node=middle, radius=radius))
    both = nx.Graph()
    both.add_nodes_from(range(len(whole.vertices)))
    both.add_edges_from((e.source, e.target) for e in whole.edges)
    near = nx.single_source_shortest_path_length(both, int(whole.of_node[middle]), cutoff=radius)
    kept = [(whole.vertices[k].kind, whole.vertices[k].item) for k in sorted(near)]
    assert [(v.kind, v.item) for v in part.vertices] == kept
    assert [v.hidden for v in part.vertices] == [len(set(both[k]) - set(near)) for k in sorted(near)]


@pytest.mark.parametrize("most", [1, 3, 12, 100])
def test_initially_open_modules_are_limited(most: int) -> None:
    index, tree = grown(two_blocks())
    found = collapse(index, tree, tree.levels_to_open(most))
    assert len(found.vertices) - 1 <= max(most, 2)
