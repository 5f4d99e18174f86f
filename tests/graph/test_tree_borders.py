"""Levels of the tree, and who stands in which module, by eye: one function at a time, with small limits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.build import graph, node, tensor, view
from tmmu_core.graph import modules as by_module
from tmmu_core.graph import tree as levels
from tmmu_core.graph.index import index_graph
from tmmu_core.graph.model import Graph
from tmmu_core.graph.modules import Modules, families_of, modules_of, modules_told
from tmmu_core.graph.origin import Origin
from tmmu_core.graph.tree import Tree, tree_of

Path = tuple[str, ...]


@pytest.fixture
def by_twos(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two beside one another are enough, and two make a stretch."""
    monkeypatch.setattr(levels, "MOST_BESIDE", 2)
    monkeypatch.setattr(levels, "A_STRETCH", 2)


def paths(*dotted: str) -> list[Path]:
    return [tuple(text.split(".")) if text else () for text in dotted]


def grown(which: Graph) -> Tree:
    index = index_graph(which)
    order = range(len(index.node_ids))
    return tree_of(index, modules_of(index, order), order)


@pytest.mark.usefixtures("by_twos")
def test_the_outermost_stretches_are_as_wide_as_leaves_no_more_than_that_many() -> None:
    assert [levels._width(count) for count in (1, 4, 5, 8, 9)] == [2, 2, 4, 4, 8]


@pytest.mark.usefixtures("by_twos")
def test_nodes_of_one_level_are_cut_into_stretches_as_they_run() -> None:
    of_node = paths("a", "b", "b", "b", "b", "b", "a")
    found = levels._nodes_stretched(of_node, [6, 5, 4, 3, 2, 1, 0])
    first = ("b", "…nodes 1–4")
    assert found == [
        ("a",),
        ("b", "…nodes 5–5", "…nodes 5–5"),
        *[(*first, "…nodes 3–4")] * 2,
        *[(*first, "…nodes 1–2")] * 2,
        ("a",),
    ]


@pytest.mark.usefixtures("by_twos")
def test_levels_beside_one_another_are_cut_into_stretches_as_they_run() -> None:
    of_node = paths("m.z", "m.y.r.y", "m.x.p", "k.l", "k", "q", "")
    kept = {*paths("", "m", "m.x.p", "m.y", "m.y.r.y", "m.z", "k", "k.l", "q")}
    found, after = levels._levels_stretched(of_node, kept, [6, 5, 4, 3, 2, 1, 0])
    q, m = "…q … k", "…m … m"
    xy, z = "…x.p … y", "…z … z"
    assert found == [
        *((m, "m", z, "z"), (m, "m", xy, "y", "r", "y"), (m, "m", xy, "x", "p")),
        *((q, "k", "l"), (q, "k"), (q, "q"), ()),
    ]
    assert after == {*found, (q,), (m,), (m, "m"), (m, "m", xy), (m, "m", xy, "y"), (m, "m", z)}


@pytest.mark.usefixtures("by_twos")
def test_as_many_as_may_stand_beside_one_another_are_no_stretch() -> None:
    of_node, kept = paths("a", "b"), {*paths("", "a", "b")}
    assert levels._levels_stretched(of_node, kept, [0, 1]) == (of_node, kept)
    assert levels._nodes_stretched(paths("a", "a"), [0, 1]) == paths("a", "a")


def test_a_parent_of_one_family_alone_stands_for_it_and_the_root_for_none() -> None:
    for names, lonely in (
        (("h.0", "h.1"), {("h",)}),
        (("h.0.q", "h.1"), {("h",)}),
        (("h.0", "h.1", "h.n"), set()),
        (("h0", "h1"), set()),
        (("h.0", "g.0"), set()),
    ):
        found = paths(*names)
        assert levels._lonely(found, families_of(found)) == lonely, names


def test_a_family_beside_others_gets_a_level() -> None:
    families = families_of(paths("a.h0", "a.h1"))
    assert levels._levels(("a", "h0", "q"), families, set()) == ("a", "×h*", "h0", "q")
    assert levels._levels(("a", "h0", "q"), families, {("a",)}) == ("a", "h0", "q")
    assert levels._levels(("a", "n", "q"), families, set()) == ("a", "n", "q")
    assert levels._levels((), families, set()) == ()
    deep = families_of(paths("a.b.h0", "a.b.h1"))
    assert levels._levels(("a", "b", "h0"), deep, {("a",)}) == ("a", "b", "×h*", "h0")
    assert levels._levels(("a", "b", "h0"), deep, {("a", "b")}) == ("a", "b", "h0")


@pytest.mark.parametrize(
    ("wanted", "kept"),
    [
        (("a", "a", "b"), {"a"}),
        (("a", "a"), set()),
        (("a", "b"), set()),
        (("a.b", "a.b", "c"), {"a"}),
        (("a.b", "a.b", "a.c", "d"), {"a", "a.b"}),
        (("a.b.c", "a.b.c", "a", "d"), {"a", "a.b"}),
        ((), set()),
    ],
)
def test_a_level_that_tells_holds_several_nodes_and_not_all_that_the_next_above_holds(
    wanted: Sequence[str], kept: set[str]
) -> None:
    assert levels._telling(paths(*wanted)) == {(), *paths(*kept)}


def test_the_innermost_that_is_kept_is_the_longest() -> None:
    kept = {(), ("a",), ("a", "b", "c")}
    found = [levels._innermost(path, kept) for path in paths("a.b.c.d", "a.b", "a", "b", "")]
    assert found == paths("a.b.c", "a", "a", "", "")


def test_blocks_are_counted_where_they_stand_below_whatever_stretches_are_between() -> None:
    of = [(), ("h",), ("h", "…0 … 1"), ("h", "…0 … 1", "0"), ("h", "…0 … 1", "1"), ("h", "2"), ("×b*",), ("×b*", "b1")]
    families = frozenset({(("h",), "*"), ((), "b*")})
    parent = [0, 0, 1, 2, 2, 1, 0, 6]
    assert levels._blocks(of, parent, families, False).tolist() == [0, 3, 0, 0, 0, 0, 1, 0]
    phased = [(), *(("forward", *path) for path in of)]
    below = [0, 0, *(at + 1 for at in parent[1:])]
    assert levels._blocks(phased, below, families, True).tolist() == [0, 0, 3, 0, 0, 0, 0, 1, 0]


def test_what_a_level_is_called_below_the_one_above_it() -> None:
    of = ((), ("2",), ("h",), ("…a … b",), ("h", "0", "q"), ("h", "k", "1"), ("…a … b", "×a"), ("h", "…0 … 1"))
    tree = Tree(of, np.array([0, 0, 0, 0, 2, 2, 3, 2]), np.zeros(8), np.zeros(8), np.array([4, 7, 0]))
    assert [tree.label(k) for k in range(8)] == ["", "2", "h", "a … b", "h.0.q", "k.1", "a", "0 … 1"]
    assert [tree.above(k) for k in range(3)] == [(of[2], of[4]), (of[2], of[7]), ()]
    assert tree.stretches == {of[3], of[7]}
    with pytest.raises(IndexError):
        tree.above(3)


def test_levels_open_one_depth_after_the_other_as_long_as_few_enough_are_seen() -> None:
    of = ((), ("a",), ("b",), ("e",), ("a", "c"), ("a", "d"))
    # Five right below the root: a, b, e and two nodes. With these open c, d and four nodes; with all open nine nodes.
    tree = Tree(of, np.array([0, 0, 0, 0, 1, 1]), np.zeros(6), np.zeros(6), np.array([0, 0, 1, 2, 2, 3, 4, 4, 5]))
    assert [len(tree.opened(most)) for most in (0, 7, 8, 9, 10)] == [0, 0, 3, 5, 5]


def test_a_graph_of_no_nodes_is_a_root_with_nothing_below() -> None:
    tree = grown(graph([tensor("x", role="input")], [], "x", "x"))
    assert (tree.paths, tree.parent.tolist(), tree.members.tolist(), tree.blocks.tolist()) == (((),), [0], [0], [0])


def test_members_are_the_nodes_at_a_level_and_below() -> None:
    names = ("a/n0", "b/n1", "a/n2", "b/c/n3", "b/c/n4", "n5")
    tensors = [tensor("x", role="input"), *(tensor(f"t{k}") for k in range(6))]
    nodes = [node(name, "x", f"t{k}") for k, name in enumerate(names)]
    tree = grown(graph(tensors, nodes, "x", "t0"))
    assert dict(zip(tree.paths, tree.members.tolist(), strict=True)) == {(): 6, ("a",): 2, ("b",): 3, ("b", "c"): 2}
    assert tree.parent.tolist() == [0, 0, 0, 2]
    assert tree.of_node.tolist() == [1, 2, 1, 3, 3, 0]


@pytest.mark.usefixtures("by_twos")
@pytest.mark.parametrize("phases", [1, 2])
def test_stretches_of_levels_and_of_nodes_are_levels_of_the_tree(phases: int) -> None:
    names = ("a/n0", "b/n1", "c/n2", "a/n3", "b/n4", "c/n5", "a/n6", "a/n7", "a/n8")
    tensors = [tensor("x", role="input"), *(tensor(f"t{k}") for k in range(9))]
    nodes = [
        node(name, "x", f"t{k}", phase="backward" if phases > 1 and k == 8 else "forward")
        for k, name in enumerate(names)
    ]
    tree = grown(graph(tensors, nodes, "x", "t0"))
    found = dict(zip(tree.paths, tree.members.tolist(), strict=True))
    if phases == 1:
        in_a = ("…a … b", "a", "…nodes 1–4")
        assert found == {
            (): 9,
            in_a[:1]: 7,
            ("…c … c",): 2,
            in_a[:2]: 5,
            ("…a … b", "b"): 2,
            ("…c … c", "c"): 2,
            in_a: 4,
            (*in_a[:2], "…nodes 5–5"): 1,
            (*in_a, "…nodes 1–2"): 2,
            (*in_a, "…nodes 3–4"): 2,
            (*in_a[:2], "…nodes 5–5", "…nodes 5–5"): 1,
        }
    else:  # and the one node of the other phase stands at the root
        in_a = ("forward", "…a … b", "a")
        assert found == {
            (): 9,
            in_a[:1]: 8,
            in_a[:2]: 6,
            ("forward", "…c … c"): 2,
            in_a: 4,
            (*in_a[:2], "b"): 2,
            ("forward", "…c … c", "c"): 2,
            (*in_a, "…nodes 1–2"): 2,
            (*in_a, "…nodes 3–4"): 2,
        }


# -- modules -----------------------------------------------------------------------------------------------------------


def layers_of(*dotted: str) -> dict[str, str]:
    found = modules_told(paths(*dotted))
    return dict(zip([".".join(path) for path in found.paths], found.layers, strict=True))


def test_layers_are_told_as_deep_as_their_number_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("a.b.c", "a.b.d", "a.e", "f.g")
    for most, expected in (
        (9, {"a.b.c": "a.b.c", "a.b.d": "a.b.d", "a.e": "a.e", "f.g": "f.g", "": ""}),
        (5, {"a.b.c": "a.b.c", "a.b.d": "a.b.d", "a.e": "a.e", "f.g": "f.g", "": ""}),
        (4, {"a.b.c": "a.b", "a.b.d": "a.b", "a.e": "a.e", "f.g": "f.g", "": ""}),
        (3, {"a.b.c": "a", "a.b.d": "a", "a.e": "a", "f.g": "f", "": ""}),
        (0, {"a.b.c": "a", "a.b.d": "a", "a.e": "a", "f.g": "f", "": ""}),
    ):
        monkeypatch.setattr(by_module, "MOST_LAYERS", most)
        assert layers_of(*names) == expected, most
    assert layers_of() == {"": ""}


def test_beside_blocks_a_layer_goes_to_where_it_leaves_the_way_to_them() -> None:
    found = layers_of("m.t.h.0.q", "m.t.h.1", "m.t.n.w", "m.o.p", "e.f", "m.t")
    assert found == {
        "": "",
        "m.t.h.0.q": "m.t.h.0",
        "m.t.h.1": "m.t.h.1",
        "m.t.n.w": "m.t.n",
        "m.o.p": "m.o",
        "e.f": "e",
        "m.t": "m.t",
    }


def test_modules_that_are_told_are_known_where_one_is() -> None:
    assert [modules_told(paths(*names)).known_by for names in ((), ("",), ("a",))] == ["", "", "origins"]


def known_by(names: Sequence[str], weights: Sequence[str] = (), **more: object) -> tuple[str, list[str]]:
    """Where nodes of these names stand, each with a weight of its own where one is named."""
    tensors = [tensor("x", role="input"), *(tensor(w, role="parameter") for w in weights if w)]
    nodes = []
    for k, name in enumerate(names):
        own = weights[k] if k < len(weights) else ""
        tensors.append(tensor(f"t{k}"))
        nodes.append(node(name, f"x {own}".strip(), f"t{k}"))
    index = index_graph(graph(tensors, nodes, "x", "", **more))
    found = modules_of(index, [-1, *range(len(names))])
    return found.known_by, [".".join(found.paths[k]) for k in found.of_node.tolist()]


def test_names_are_believed_where_half_of_them_tell() -> None:
    assert known_by(["a/n", "m"]) == ("names", ["a", ""])
    assert known_by(["a/n", "m", "o"]) == ("", ["", "", ""])
    assert known_by(["a/n", "b/m", "o", "p"]) == ("names", ["a", "b", "", ""])
    assert known_by([]) == ("", [])
    assert known_by(["a/n", "m", "o"], ["b.w.weight"]) == ("parameters", ["b.w", "", ""])
    assert known_by(["a/n"], origins={"a/n": Origin(("z",))}) == ("origins", ["z"])
    assert known_by(["a/n"], origins={"a/n": Origin(source="z.py:1")}) == ("names", ["a"])


def test_a_view_stands_where_what_it_shows_does_in_whatever_order_they_are_listed() -> None:
    tensors = [
        *(view("of a view", "loose"), view("loose", "t"), view("of x", "in/x"), view("of w", "a/b/w")),
        *(tensor("t"), tensor("a/b/w", role="parameter"), tensor("in/x", role="input"), view("written", "t")),
    ]
    nodes = [node("m/k/n", "in/x", "t"), node("m/l/o", "t", "written")]
    index = index_graph(graph(tensors, nodes, "in/x", "t"))
    found = modules_of(index, range(2))
    assert [".".join(found.paths[k]) for k in found.of_tensor.tolist()] == [
        *("m.k", "m.k", "", "a.b"),
        *("m.k", "a.b", "", "m.l"),
    ]
    assert [index.tensor_ids[k] for k in index.root.tolist()] == [
        *("t", "t", "in/x", "a/b/w", "t", "a/b/w", "in/x", "written"),
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("h.0.up.weight", "h.0.up"),
        ("res2_0_branch2a_w_0", "res2_0.branch2a"),
        ("res2_0_branch2a_bn_riv_1", "res2_0.branch2a"),
        ("a/conv_bias", "a.conv"),
        ("a/b/c@grad", "a.b"),
        ("w", ""),
        ("@x", ""),
        ("pred_w", "pred"),
    ],
)
def test_a_parameter_names_its_module(name: str, expected: str) -> None:
    assert ".".join(by_module._owner(name)) == expected


def test_scopes_are_of_a_node_or_else_of_the_first_that_it_writes() -> None:
    tensors = [tensor("x", role="input"), *(tensor(t) for t in ("a/b/t", "c/u", "v", "d/w;e/f/g", "y", "h/z@grad/q"))]
    nodes = [
        *(node("n", "x", "a/b/t c/u"), node("k/m", "x", "v"), node("o", "x", "d/w;e/f/g")),
        *(node("p", "x", ""), node("/q/", "x", "y"), node("r", "x", "h/z@grad/q")),
    ]
    index = index_graph(graph(tensors, nodes, "x", "y"))
    assert [".".join(by_module._scope(index, k)) for k in range(6)] == ["a.b", "k", "d", "", "", "h"]


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (("h.0.q", "h.0.k"), "h.0"),
        (("h.0.q", ""), "h.0.q"),
        ((), ""),
        (("", ""), ""),
        (("h.2.q", "h.10.k"), "h.10"),
        (("h.2.q", "h.10.k", "z"), "h.10"),
        (("y.a", "z"), ""),
        (("h.1", "n.k"), "h.1"),
        (("h.1", "g.h.1"), "g.h.1"),  # of one number the deeper one
    ],
)
def test_writers_meet_in_what_they_share_or_in_the_last_of_their_blocks(of: Sequence[str], expected: str) -> None:
    families = families_of(paths("h.1", "h.2", "h.0", "h.10", "g.h.1", "g.h.2"))
    assert ".".join(by_module._met(paths(*of), families)) == expected


def test_what_paths_share_is_where_they_part() -> None:
    shared = [
        by_module._common(paths(*of)) for of in (("a.b", "a.b.c"), ("a.c", "a.b"), ("a", "b"), ("a.b",), ("", "a"))
    ]
    assert shared == paths("a.b", "a", "", "a.b", "")


def test_who_reads_no_parameter_stands_where_those_around_it_agree() -> None:
    """Between two of one block in that block; at the border of two blocks with the later one; alone with nobody."""
    weights = ("h.0.a.weight", "h.0.b.weight", "h.1.a.weight")
    tensors = [tensor("x", role="input"), *(tensor(w, role="parameter") for w in weights), *map(tensor, "abcdefg")]
    nodes = [
        node("before", "x", "a"),
        node("first", "a h.0.a.weight", "b"),
        node("between", "b", "c"),
        node("second", "c h.0.b.weight", "d"),
        node("border", "d", "e"),
        node("third", "e h.1.a.weight", "f"),
        node("join", "f b", "g"),
    ]
    index = index_graph(graph(tensors, nodes, "x", "g"))
    found = modules_of(index, [*range(7)])
    assert found.known_by == "parameters"
    assert [".".join(found.paths[k]) for k in found.of_node.tolist()] == [
        *("", "h.0.a", "h.0", "h.0.b"),
        *("h.0.b", "h.1.a", "h.1"),
    ]


def test_what_the_file_says_of_a_node_stands_before_what_its_parameters_say() -> None:
    weights = ("h.0.a.weight", "h.1.a.weight")
    tensors = [tensor("x", role="input"), *(tensor(w, role="parameter") for w in weights), *map(tensor, "abcd")]
    nodes = [
        *(node("n", "x h.0.a.weight", "a"), node("m", "a h.1.a.weight", "b")),
        *(node("o", "b", "c"), node("p", "a", "d")),
    ]
    origins = {"n": Origin(("z", "k")), "p": Origin(("z", "l")), "q": Origin(("y",))}
    index = index_graph(graph(tensors, nodes, "x", "c", origins=origins))
    found: Modules = modules_of(index, [0, 1, 2, 3])
    assert (found.known_by, [".".join(found.paths[k]) for k in found.of_node.tolist()]) == (
        "origins",
        ["z.k", "h.1.a", "h.1.a", "z.l"],
    )


def test_who_stands_behind_the_first_node_stays_there_though_others_read_it() -> None:
    weights = ("a.b.weight", "c.d.weight")
    tensors = [tensor("x", role="input"), *(tensor(w, role="parameter") for w in weights), *map(tensor, "abc")]
    nodes = [node("n", "x a.b.weight", "a"), node("m", "a", "b"), node("o", "b c.d.weight", "c")]
    index = index_graph(graph(tensors, nodes, "x", "c"))
    found = modules_of(index, [0, 1, 2])
    assert [".".join(found.paths[k]) for k in found.of_node.tolist()] == ["a.b", "a.b", "c.d"]


def test_blocks_of_one_name_are_counted_whatever_stands_below_them() -> None:
    found = modules_told(paths("m.h.0.q", "m.h.0.k", "m.h.1", "m.n", "b1", "b2.c.d", "b10"))
    assert found.repeated == (("b*", 3), ("m.h.*", 2))


def test_a_block_of_a_number_past_all_numbers_is_the_last() -> None:
    longest = "h" + "1" * 5000
    families = families_of([("h2",), (longest,)])
    assert by_module._met([("h2", "a"), (longest, "a")], families) == (longest,)
    assert by_module._met([(longest, "a"), ("h2", "a")], families) == (longest,)
