# what needs PyTorch is imported behind the question whether it is there
"""Traced operators are those of eager mode, family by family: each module runs on real tensors and is recorded."""

import io
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from tmmu_core.formats.open_file import read_graph
from tmmu_core.formats.pytorch.torch_module import import_torch
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans.making.engine import plan_graph

pytestmark = pytest.mark.torch

BOOKKEEPING = frozenset({"alias", "detach", "empty", "lift_fresh"})
"""Operators that move no byte; ``empty`` is what batch norm returns for statistics without readers."""
SAME = {
    "_native_batch_norm_legit": "native_batch_norm",
    "_native_batch_norm_legit_functional": "native_batch_norm",
    "_native_batch_norm_legit_no_training": "native_batch_norm",
    "_unsafe_view": "view",
    "rrelu_with_noise_functional": "rrelu_with_noise",
    "unfold": "as_strided",
}
"""What is traced → what eager mode calls the same kernel, or the same view."""


class Watched(TorchDispatchMode):
    """Mode that records every operator that runs."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.ran.append(str(func).removeprefix("aten."))
        return func(*args, **(kwargs or {}))


class Of(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: Any) -> Any:
        return self.function(*given)


def plain(operators: list[str]) -> list[str]:
    """Return the operators without overloads, and without the underscore of operators that overwrite their argument."""
    names = [name.partition(".")[0].rstrip("_") for name in operators]
    return [SAME.get(name, name) for name in names if name not in BOOKKEEPING]


def resized(size: Any, mode: str, **options: Any) -> nn.Module:
    return Of(lambda x: functional.interpolate(x, size=size, mode=mode, **options))


def attention(**options: Any) -> nn.Module:
    return Of(lambda q: functional.scaled_dot_product_attention(q, q, q, **options))


IMAGE, LINE, VOLUME, HEADS = (2, 4, 8, 8), (2, 4, 8), (1, 2, 4, 4, 4), (2, 2, 16, 8)
Family = dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]]
FAMILIES: dict[str, Family] = {
    "upsample": {
        "nearest": (lambda: resized((5, 9), "nearest"), IMAGE),
        "nearest-exact": (lambda: resized((5, 9), "nearest-exact"), IMAGE),
        "bilinear": (lambda: resized((5, 9), "bilinear"), IMAGE),
        "bilinear, corners": (lambda: resized((5, 9), "bilinear", align_corners=True), IMAGE),
        "bilinear, antialias": (lambda: resized((5, 3), "bilinear", antialias=True), IMAGE),
        "bicubic": (lambda: resized((5, 9), "bicubic"), IMAGE),
        "linear": (lambda: resized(11, "linear"), LINE),
        "trilinear": (lambda: resized((3, 5, 7), "trilinear"), VOLUME),
        "pixel shuffle": (lambda: nn.PixelShuffle(2), IMAGE),
        "grid": (lambda: Of(lambda x: functional.grid_sample(x, torch.zeros(2, 3, 3, 2), align_corners=False)), IMAGE),
    },
    "attention": {
        "plain": (attention, HEADS),
        "causal": (lambda: attention(is_causal=True), HEADS),
        "masked": (lambda: attention(attn_mask=torch.zeros(16, 16)), HEADS),
    },
    "norm": {
        "batch": (lambda: nn.BatchNorm2d(4), IMAGE),
        "layer": (lambda: nn.LayerNorm(8), IMAGE),
        "group": (lambda: nn.GroupNorm(2, 4), IMAGE),
        "instance": (lambda: nn.InstanceNorm2d(4), IMAGE),
        "root mean square": (lambda: nn.RMSNorm(8), IMAGE),
    },
    "activation": {
        name: ((lambda kind=name: getattr(nn, kind)()), IMAGE)  # type: ignore[misc]
        for name in (
            *("ReLU", "ReLU6", "GELU", "SiLU", "Mish", "ELU", "SELU", "CELU", "LeakyReLU", "PReLU", "RReLU", "Sigmoid"),
            *("Tanh", "Hardswish", "Hardsigmoid", "Hardtanh", "Hardshrink", "Softshrink", "Softplus", "Softsign"),
            *("Tanhshrink", "LogSigmoid", "GLU"),
        )
    }
    | {"softmax": (lambda: nn.Softmax(-1), IMAGE), "log softmax": (lambda: nn.LogSoftmax(-1), IMAGE)},
    "pooling": {
        "max": (lambda: nn.MaxPool2d(2), IMAGE),
        "average": (lambda: nn.AvgPool2d(2), IMAGE),
        "adaptive": (lambda: nn.AdaptiveAvgPool2d(3), IMAGE),
        "global": (lambda: nn.AdaptiveAvgPool2d(1), IMAGE),
        "adaptive max": (lambda: nn.AdaptiveMaxPool2d(3), IMAGE),
        "p-norm": (lambda: nn.LPPool2d(2, 2), IMAGE),
    },
    "convolution": {
        "plain": (lambda: nn.Conv2d(4, 6, 3), IMAGE),
        "depthwise": (lambda: nn.Conv2d(4, 4, 3, groups=4), IMAGE),
        "dilated": (lambda: nn.Conv2d(4, 4, 3, dilation=2), IMAGE),
        "transposed": (lambda: nn.ConvTranspose2d(4, 4, 2, 2), IMAGE),
        "of a line": (lambda: nn.Conv1d(4, 3, 3), LINE),
        "of a volume": (lambda: nn.Conv3d(2, 3, 3), VOLUME),
    },
    "recurrent": {
        "LSTM": (lambda: nn.LSTM(8, 6, batch_first=True), LINE),
        "GRU": (lambda: nn.GRU(8, 6, batch_first=True), LINE),
        "RNN": (lambda: nn.RNN(8, 6, batch_first=True), LINE),
    },
    "product": {
        "linear": (lambda: nn.Linear(8, 5), IMAGE),
        "matrices": (lambda: Of(lambda x: x @ x), IMAGE),
        "einsum": (lambda: Of(lambda x: torch.einsum("nchw,ndhw->ncd", x, x)), IMAGE),
    },
    "reduction": {
        "mean": (lambda: Of(lambda x: x.mean((2, 3))), IMAGE),
        "variance": (lambda: Of(lambda x: x.var(1)), IMAGE),
        "normalize": (lambda: Of(lambda x: functional.normalize(x)), IMAGE),
        "log of sum": (lambda: Of(lambda x: x.logsumexp(1)), IMAGE),
        "top": (lambda: Of(lambda x: x.topk(2)[0]), IMAGE),
    },
    "padding": {
        "zeros": (lambda: nn.ZeroPad2d(1), IMAGE),
        "reflection": (lambda: nn.ReflectionPad2d(1), IMAGE),
        "replication": (lambda: nn.ReplicationPad2d(1), IMAGE),
    },
    "spectrum": {
        "short-time": (lambda: Of(lambda x: torch.stft(x, 4, window=torch.ones(4), return_complex=True).abs()), (2, 16))
    },
    "switched off": {"dropout": (lambda: nn.Sequential(nn.ReLU(), nn.Dropout()), IMAGE)},
}
CASES = [(family, case) for family, cases in FAMILIES.items() for case in cases]


def eager(module: nn.Module, x: Any) -> list[str]:
    with Watched() as watched:
        module(x)
    return plain(watched.ran)


@pytest.mark.parametrize(("family", "case"), CASES, ids=[" ".join(case) for case in CASES])
def test_inference_traces_the_operators_of_eager_mode(family: str, case: str) -> None:
    make, shape = FAMILIES[family][case]
    module, x = make().eval(), torch.randn(shape)
    with torch.no_grad():
        ran = eager(module, x)
    assert ran
    assert plain([node.instr for node in import_torch(module, (x,), train=False).nodes]) == ran


TRAINED = [case for case in CASES if case[0] not in ("switched off", "recurrent")]


@pytest.mark.parametrize(("family", "case"), TRAINED, ids=[" ".join(case) for case in TRAINED])
def test_forward_pass_of_a_training_step_traces_the_operators_of_eager_mode(family: str, case: str) -> None:
    make, shape = FAMILIES[family][case]
    module, x = make().train(), torch.randn(shape, requires_grad=True)
    ran = eager(module, x)
    if case == "batch":
        ran.remove("add")  # the count of batches, for which the parameters' arena has a place
    graph = import_torch(module, (x,), loss=lambda y: y.sum())
    forward = plain([node.instr for node in graph.nodes if node.phase == "forward"])
    if case == "batch":
        forward.remove("add")
    assert forward == [*ran, "sum"]


def assigned(x: Any) -> Any:
    y = x.clone()
    y[:, 2:4] = x[:, 0:2] * 2
    return y


def filled(x: Any) -> Any:
    y = x * 2
    y[1:3].fill_(0.0)
    y.diagonal().fill_(1.0)
    return y


def added(x: Any) -> Any:
    y = x * 2
    y[:, :2] += x[:, :2]
    y[3].mul_(y[3])
    return y


def indexed(x: Any) -> Any:
    y = x * 2
    y.index_put_((torch.arange(2),), x[2:4])
    return y.index_fill_(0, torch.arange(3), 1.0)


def cached(x: Any) -> Any:
    y = torch.zeros(8, 8)
    y[0:4].copy_(x[0:4])
    y[4:8].copy_(x[4:8])
    return y.relu()


VIEWS = frozenset({"slice", "select", "diagonal", "alias", "detach", "as_strided"})
WRITTEN = {
    "assigned": (assigned, ["clone", "mul", "copy"], 2 * 256 + 64),
    "filled": (filled, ["mul", "fill", "fill"], 256),
    "added": (added, ["mul", "add", "mul"], 2 * 256),
    "indexed": (indexed, ["mul", "arange", "index_put", "arange", "index_fill"], 2 * 256 + 16),
    "cached": (cached, ["zeros", "copy", "copy", "relu"], 2 * 256),
}
"""Function of an 8 × 8 tensor → the operators that move bytes in eager mode, and what it holds at its peak."""


@pytest.mark.parametrize("case", WRITTEN)
def test_write_to_a_slice_makes_no_copy(case: str) -> None:
    function, operators, peak = WRITTEN[case]
    ran = [name for name in eager(Of(function), torch.randn(8, 8)) if name not in VIEWS]
    onto_itself = ["copy"] * (case == "added")  # of ``y[:, :2] += x`` the assignment, which finds nothing to do
    assert sorted(ran) == sorted(operators + onto_itself)
    graph = import_torch(Of(function), (torch.randn(8, 8),), train=False)
    assert [name for name in plain([node.instr for node in graph.nodes]) if name not in VIEWS] == operators
    plan = plan_graph(graph).plan
    assert verify_plan(plan).ok
    assert plan.arena_of["activations"].peak_live_bytes == peak


@pytest.mark.parametrize("place", [(0, 2), (2, 4)], ids=["slice is read elsewhere", "another slice is written"])
def test_slice_is_copied_if_it_cannot_be_overwritten(place: tuple[int, int]) -> None:
    def written(x: Any) -> Any:
        y = x * 2
        part = y[:, :2] + 1
        return torch.slice_scatter(y, part, 1, *place), part if place == (0, 2) else x

    graph = import_torch(Of(written), (torch.randn(8, 8),), train=False)
    assert [node.instr for node in graph.nodes] == ["mul.Tensor", "slice.Tensor", "add.Tensor", "slice_scatter"]


def test_saved_program_keeps_its_interpolation() -> None:
    out = io.BytesIO()
    x = torch.zeros(1, 3, 8, 8)
    torch.export.save(torch.export.export(resized((16, 16), "bilinear"), (x,)), out)
    graph = read_graph(out.getvalue(), "upsampled.pt2")
    assert [node.instr for node in graph.nodes] == ["upsample_bilinear2d"]
    assert plan_graph(graph).plan.arena_of["activations"].peak_live_bytes == 4 * 3 * (64 + 256)


def test_operators_of_pytorch_are_restored_after_tracing() -> None:
    key = torch._C.DispatchKey.Autograd
    import_torch(resized((5, 9), "bilinear"), (torch.zeros(IMAGE),), train=False)
    assert key in torch.ops.aten.upsample_bilinear2d.vec.py_kernels


def test_one_hot_with_assertions_is_traced() -> None:
    graph = import_torch(Of(lambda x: functional.one_hot(x, 5)), (torch.zeros(3, dtype=torch.long),), train=False)
    (out,) = graph.outputs
    assert next(each for each in graph.tensors if each.id == out).shape == (3, 5)
