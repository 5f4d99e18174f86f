"""The module of each node, from names in the file."""

import pytest

from app.session.opening import samples
from tests.support.build import graph, node, tensor, view
from tmmu_core.formats.open_file import read_any
from tmmu_core.graph.index import index_graph
from tmmu_core.graph.model import Graph, Origin
from tmmu_core.graph.modules.module_paths import MAX_DEPTH, Modules, block_of, families_of, modules_of, modules_of_rows


def modules_in(which: Graph) -> Modules:
    index = index_graph(which)
    return modules_of(index, range(len(index.node_ids)))


def where(modules: Modules, which: Graph) -> dict[str, str]:
    return {n.node_id: ".".join(modules.paths[modules.of_node[k]]) for k, n in enumerate(which.nodes)}


def two_blocks() -> Graph:
    tensors = [
        tensor("x", role="input"),
        *(tensor(f"h.{k}.{m}.weight", role="parameter") for k in (0, 1) for m in ("up", "down")),
    ]
    nodes, last = [], "x"
    for k in (0, 1):
        tensors += [tensor(f"{name}{k}") for name in ("a", "g", "d", "s")]
        nodes += [
            node(f"mm_a{k}", f"{last} h.{k}.up.weight", f"a{k}"),
            node(f"gelu{k}", f"a{k}", f"g{k}"),
            node(f"mm_d{k}", f"g{k} h.{k}.down.weight", f"d{k}"),
            node(f"add{k}", f"d{k} {last}", f"s{k}"),
        ]
        last = f"s{k}"
    return graph(tensors, nodes, "x", last)


def test_reader_of_a_parameter_is_in_its_module_and_others_follow_their_neighbours() -> None:
    which = two_blocks()
    modules = modules_in(which)
    assert modules.known_by == "parameters"
    found = where(modules, which)
    assert (found["mm_a0"], found["mm_d1"]) == ("h.0.up", "h.1.down")
    assert (found["gelu0"], found["gelu1"]) == ("h.0", "h.1")
    assert found["add1"] == "h.1"
    assert modules.repeated == (("h.*", 2),)
    assert {layer for layer in modules.layers if layer} == {"h.0", "h.1"}


def test_scoped_names_win_over_parameters() -> None:
    tensors = [tensor("x", role="input"), tensor("model/block1/conv/out"), tensor("model/block2/conv/out")]
    nodes = [
        node("CONV_0", "x", "model/block1/conv/out"),
        node("CONV_1", "model/block1/conv/out", "model/block2/conv/out"),
    ]
    which = graph(tensors, nodes, "x", "model/block2/conv/out")
    modules = modules_in(which)
    assert modules.known_by == "names"
    assert where(modules, which) == {"CONV_0": "model.block1.conv", "CONV_1": "model.block2.conv"}
    assert modules.repeated == (("model.block*", 2),)


def test_block_is_the_path_to_the_first_repeated_name() -> None:
    paths = [("gpu_0", "h", "0", "mlp"), ("gpu_0", "h", "1", "mlp"), ("gpu_0", "norm_1")]
    families = families_of(paths)
    assert [block_of(path, families) for path in paths] == [("gpu_0", "h", "0"), ("gpu_0", "h", "1"), ()]


@pytest.mark.parametrize(
    ("sample", "repeated"),
    [
        ("gpt2_small_train_b1_s1024", ("transformer.h.*", 12)),
        ("bert_base_train_b8_s512", ("bert.encoder.layer.*", 12)),
        ("mobilenet_v2", ("block*", 17)),
        ("resnet50", ("gpu_0.res4_*", 6)),
    ],
)
def test_layers_of_samples_are_recognised(sample: str, repeated: tuple[str, int]) -> None:
    path = next(s.path for s in samples() if s.name == sample)
    which = read_any(path.read_bytes(), path.name)
    assert isinstance(which, Graph)
    assert repeated in modules_in(which).repeated


def test_tensor_is_in_the_module_of_its_writer_and_a_parameter_in_that_of_its_name() -> None:
    which = two_blocks()
    modules = modules_in(which)
    path = {t.id: ".".join(modules.paths[at]) for t, at in zip(which.tensors, modules.of_tensor.tolist(), strict=True)}
    assert (path["s1"], path["x"]) == ("h.1", "")
    assert path["h.0.up.weight"] == "h.0.up"


def test_reader_of_several_modules_is_in_their_common_parent_or_the_deepest() -> None:
    """A node that reads only parameters of one module belongs to it."""
    names = ("h.0.q.weight", "h.0.k.weight", "b.w.weight", "c.d.e.weight")
    tensors = [*(tensor(name, role="parameter") for name in names), tensor("x", role="input"), *map(tensor, "atyzu")]
    nodes = [
        node("meet", "x h.0.q.weight h.0.k.weight", "a"),
        node("apart", "a b.w.weight c.d.e.weight", "y"),
        node("turned", "b.w.weight", "t"),
        node("by_turned", "y t", "z"),
        node("none", "z a", "u"),
    ]
    which = graph(tensors, nodes, "x", "u")
    found = where(modules_in(which), which)
    assert found == {"meet": "h.0", "apart": "c.d.e", "turned": "b.w", "by_turned": "b.w", "none": ""}


def test_path_of_a_module_is_cut_at_the_greatest_depth() -> None:
    assert max(map(len, modules_of_rows([("a",) * 2000]).paths)) == MAX_DEPTH


def test_view_is_in_the_module_of_its_writer_or_of_its_base() -> None:
    tensors = [
        *(tensor("x", role="input"), tensor("a/b/w", role="parameter"), tensor("t"), tensor("u")),
        *(view("written", "t"), view("loose", "t"), view("of a view", "loose")),
    ]
    nodes = [node("m/k/n", "x", "t"), node("m/l/o", "t", "written"), node("m/k/p", "loose", "u")]
    index = index_graph(graph(tensors, nodes, "x", "u"))
    found = modules_of(index, range(3))
    stands = {name: found.paths[found.of_tensor[number]] for name, number in index.tensor_of.items()}
    assert stands["t"] == stands["loose"] == stands["of a view"] == ("m", "k")
    assert (stands["written"], stands["a/b/w"], stands["x"]) == (("m", "l"), ("a", "b"), ())


def test_derived_node_is_in_the_module_of_its_source_unless_stated() -> None:
    origins = {"n": Origin(("a",)), "n@grad": Origin(("b",))}
    tensors = [tensor("x", role="input"), *(tensor(f"t{k}") for k in range(4))]
    names = ("n", "n@grad", "n@other", "m@grad")
    nodes = [node(name, "x", f"t{k}") for k, name in enumerate(names)]
    index = index_graph(graph(tensors, nodes, "x", "t0", origins=origins))
    found = modules_of(index, range(4))
    assert [found.paths[number] for number in found.of_node.tolist()[:3]] == [("a",), ("b",), ("a",)]
