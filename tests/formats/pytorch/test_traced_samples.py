"""Samples traced from PyTorch: full-size models with their known figures."""

import math
import sys

import pytest

from sample_graphs import make
from tests.support import step_checks
from tests.support.paths import DATA, read_graph_file
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.pytorch.torch_module import import_torch
from tmmu_core.graph.model import Graph
from tmmu_core.liveness.analyse import analyse
from tmmu_core.liveness.timeline import build_timeline

SAVED_PROGRAM = DATA / "torch" / "two_layers.pt2"
TRACED = [sample.file for sample in make.CATALOGUE if "make_torch" in sample.source]
MEBI = 1 << 20

COUNTS = {
    # file: (nodes, tensors, parameters)
    "resnet50_train_b32_224": (517, 1_211, 25_557_032),
    "gpt2_small_train_b1_s1024": (1_676, 1_988, 124_439_808),
    "gpt2_small_inference_b1_s1024": (434, 669, 124_439_808),
    "bert_base_train_b8_s512": (1_980, 2_328, 109_514_298),
    "llama3_8b_train_b1_s2048": (8_405, 8_701, 8_030_261_248),
    "llama3_405b_inference_b1_s2048": (9_351, 10_617, 405_853_388_800),
    "llama3_405b_train_b1_s2048": (32_845, 33_987, 405_853_388_800),
}
"""Parameter counts are the published ones: each model is whole."""


def sample(name: str) -> Graph:
    return read_graph_file(make.HERE / f"{name}.tmmu.cbor.gz")


def test_every_traced_sample_has_figures() -> None:
    assert [f"{name}.tmmu.cbor.gz" for name in COUNTS] == TRACED


@pytest.mark.parametrize("name", COUNTS)
def test_traced_sample_is_the_whole_model(name: str) -> None:
    graph = sample(name)
    parameters = sum(math.prod(map(int, tensor.shape)) for tensor in graph.tensors if tensor.role == "parameter")
    assert (len(graph.nodes), len(graph.tensors), parameters) == COUNTS[name]


@pytest.mark.parametrize("name", COUNTS)
def test_traced_sample_reads_nothing_before_it_is_written(name: str) -> None:
    step_checks.check_step(sample(name))


@pytest.mark.parametrize("file", TRACED)
def test_traced_sample_is_below_a_megabyte(file: str) -> None:
    assert (make.HERE / file).stat().st_size < 1_000_000


def test_gpt2_saves_its_known_bytes() -> None:
    assert step_checks.saved_bytes(sample("gpt2_small_train_b1_s1024")) // MEBI == 2_525


def test_tied_embedding_of_gpt2_is_one_storage() -> None:
    graph = sample("gpt2_small_train_b1_s1024")
    assert sum(tensor.shape == (50_257, 768) and tensor.role == "parameter" for tensor in graph.tensors) == 1


def test_saved_tensor_lives_until_backward_has_read_it() -> None:
    graph = sample("gpt2_small_train_b1_s1024")
    liveness = analyse(build_timeline(graph, "backward", "train_full"))
    first = next(k for k, node in enumerate(graph.nodes) if node.phase == "backward") + 1  # step 0 loads
    row = {tensor.id: i for i, tensor in enumerate(graph.tensors)}
    death = liveness.storages.death[liveness.storage_of]
    assert all(death[row[tensor.id]] > first for tensor in graph.tensors if tensor.saved_for_backward)


def test_module_without_pytorch_is_rejected_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UnreadableInput) as caught:
        import_torch(object())
    assert "pip install 'tmmu-plan-explorer[torch]'" in caught.value.hint
