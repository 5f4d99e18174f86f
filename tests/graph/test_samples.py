"""The samples equal the output of ``make samples``, open by content, and have the published figures."""

import pytest

from sample_graphs import lessons, make, mobilenet
from tests.support.paths import read_graph_file
from tmmu_core.formats.open_file import read_any
from tmmu_core.graph.index import index_graph
from tmmu_core.graph.model import Graph
from tmmu_core.planners.problem import PlainInstance
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.model import ArenaSummary

MIB = 1 << 20
MADE_HERE = [sample for sample in make.CATALOGUE if sample.make is not None]


@pytest.mark.parametrize("sample", make.CATALOGUE, ids=lambda sample: sample.file)
def test_sample_opens_and_is_valid(sample: make.Sample) -> None:
    opened = read_graph_file(make.HERE / sample.file)
    assert index_graph(opened).graph is opened
    assert opened.nodes


@pytest.mark.parametrize("sample", MADE_HERE, ids=lambda sample: sample.file)
def test_sample_is_what_its_maker_writes(sample: make.Sample) -> None:
    assert (make.HERE / sample.file).read_bytes() == make.content(sample)


@pytest.mark.parametrize("sample", make.CATALOGUE, ids=lambda sample: sample.file)
def test_every_node_of_a_sample_declares_its_handoffs(sample: make.Sample) -> None:
    nodes = read_graph_file(make.HERE / sample.file).nodes
    assert [node.node_id for node in nodes if node.inplace is None and node.inputs and not node.in_place_write] == []


def test_catalogue_and_page_list_every_sample() -> None:
    assert (make.HERE / "index.json").read_text(encoding="utf-8") == make.index()
    assert (make.HERE / "README.md").read_text(encoding="utf-8") == make.readme()
    listed = {sample.file for sample in make.CATALOGUE} | {"index.json"}
    instances = {f"instances/{path.name}" for path in (make.HERE / "instances").iterdir() if path.suffix != ".md"}
    assert {sample.file for sample in make.INSTANCES} == instances
    assert {path.name for path in make.HERE.iterdir() if path.suffix in (".json", ".cbor", ".gz")} == listed


@pytest.mark.parametrize("sample", make.INSTANCES, ids=lambda sample: sample.file)
def test_instance_opens_and_has_offsets_if_its_group_has(sample: make.Sample) -> None:
    opened = read_any((make.HERE / sample.file).read_bytes(), sample.file)
    assert isinstance(opened, PlainInstance)
    assert (opened.packing is not None) == (sample.group == make.GIVEN)


def activations(sample: Graph, mode: str = "inference", preset: str | None = None) -> ArenaSummary:
    plan = plan_graph(sample, mode=mode, preset=preset).plan  # type: ignore[arg-type]
    return next(arena for arena in plan.arenas if arena.name == "activations")


def intermediate_bytes(sample: Graph) -> int:
    index = index_graph(sample)
    return sum(int(index.nbytes[i]) for i, tensor in enumerate(sample.tensors) if tensor.role == "activation")


@pytest.mark.parametrize(
    ("network", "total", "peak"),
    [(mobilenet.mobilenet_v1, 19.248, 4.594), (mobilenet.mobilenet_v2, 26.313, 5.742)],
    ids=["v1", "v2"],
)
def test_mobilenet_has_its_published_bytes(network: make.Callable[[], Graph], total: float, peak: float) -> None:
    sample = network()
    assert round(intermediate_bytes(sample) / MIB, 3) == total
    assert round(activations(sample).peak_live_bytes / MIB, 3) == peak


@pytest.mark.parametrize(
    ("network", "millions"), [(mobilenet.mobilenet_v1, 4.2), (mobilenet.mobilenet_v2, 3.5)], ids=["v1", "v2"]
)
def test_mobilenet_has_the_published_number_of_weights(network: make.Callable[[], Graph], millions: float) -> None:
    index = index_graph(network())
    assert round(int(index.nbytes[index.is_persistent].sum()) / 4e6, 1) == millions


def test_rematerialisation_lowers_the_peak() -> None:
    kept, dropped = (activations(lessons.remat(), "backward", preset) for preset in ("train_full", "remat_enabled"))
    assert dropped.peak_live_bytes < kept.peak_live_bytes
