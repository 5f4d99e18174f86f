# what needs PyTorch is imported behind the question whether it is there
"""``tmmu.fit(module, …)``: the step runs within its capacity at the planned peak with the same gradients."""

import pickle
import warnings
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

import torch
from torch import nn
from torch._inductor.compile_fx import compile_fx_inner
from torch.nn import functional
from torch.utils._pytree import tree_leaves

import tmmu_core as tmmu
from benchmarks.real_steps import STEPS as REAL_STEPS
from benchmarks.real_steps import Loss, Recurrent
from tmmu_core.fitting.pytorch import fx_eager, fx_executed, fx_memory, fx_step
from tmmu_core.fitting.pytorch.fx_memory import LiveBytes
from tmmu_core.library.torch_fit import TorchFit

pytestmark = pytest.mark.torch


class Convolutions(nn.Module):
    """BatchNorm, ReLU in place, and a residual sum in place."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(nn.Conv2d(3 if not k else 16, 16, 3, padding=1) for k in range(4))
        self.norms = nn.ModuleList(nn.BatchNorm2d(16) for _ in range(4))
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for k, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            made = norm(convolution(x))
            x = functional.relu(made.add_(x) if k else made, inplace=True)
        return self.head(x.mean((2, 3)))


class Attention(nn.Module):
    """One pre-norm block with attention as plain operators, so that its matrix of weights is an activation."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        weights = functional.dropout((q @ k.transpose(-1, -2)).softmax(-1), 0.1, self.training)
        return x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


def perceptron() -> nn.Module:
    def layer() -> nn.Module:
        return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Dropout(0.1), nn.Linear(256, 64), nn.LayerNorm(64))

    return nn.Sequential(*(layer() for _ in range(4)))


STEPS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "perceptron with dropout": (perceptron, (512, 64)),
    "convolutions with batch norm": (Convolutions, (4, 3, 32, 32)),
    "attention": (lambda: nn.Sequential(Attention(), Attention()), (2, 128, 32)),
}


def squared(output: torch.Tensor) -> torch.Tensor:
    return output.square().mean()


def step(name: str) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    made, shape = STEPS[name]
    return made().train(), torch.randn(shape)


def fitted(module: nn.Module, x: torch.Tensor, percent: int, **how: Any) -> TorchFit:
    """Fit to ``percent`` of what the step needs without moves."""
    whole = tmmu.fit(module, "1TiB", example_inputs=(x,), loss=squared)
    found = tmmu.fit(module, whole.extent_bytes * percent // 100, example_inputs=(x,), loss=squared, **how)
    assert isinstance(found, TorchFit)
    return found


@pytest.mark.parametrize("name", STEPS)
def test_fitted_step_runs_at_its_planned_peak_with_equal_gradients_and_buffers(name: str) -> None:
    module, x = step(name)
    fit = fitted(module, x, 85)
    found = fit.check()
    assert fit.answer == "fits"
    assert any(move.kind == "recompute" for move in fit.moves)
    assert found["measured_peak_bytes"] <= fit.fitted.capacity.limit_bytes
    assert abs(found["measured_peak_bytes"] - found["planned_peak_bytes"]) <= 0.03 * found["planned_peak_bytes"]
    assert found["gradients_equal"]
    assert found["buffers_equal"]


EAGER = ("LSTM", "mixture of experts", "T5-like", "graph network with index_add", "U-Net with dropout", "ConvNeXt-like")


@pytest.mark.parametrize("name", EAGER)
def test_plan_of_a_module_in_training_mode_has_the_peak_of_eager_mode(name: str) -> None:
    torch.manual_seed(0)
    module, inputs = REAL_STEPS[name]()
    with LiveBytes([*module.parameters(), *module.buffers(), *inputs]) as live:
        module(*inputs).backward()
    module.zero_grad(set_to_none=True)
    planned = tmmu.plan(module.train(), example_inputs=inputs)
    assert abs(planned.peak_live_bytes - live.peak_bytes) <= 0.001 * live.peak_bytes
    assert all(each.grad is None for each in module.parameters())


class Variable(nn.Module):
    """The caller's variable keeps the first product until the module returns, though nothing reads it again."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = x + 1
        second = first + 1
        third = second.detach() + 1
        return (third + x).sum()


def test_value_of_a_variable_lives_until_the_function_returns() -> None:
    x = torch.zeros(100, requires_grad=True)
    graph = tmmu.plan(Variable().train(), example_inputs=(x,)).graph
    assert "add" in next(each for each in graph.nodes if each.instr == "sum").inputs


def test_in_place_operator_writes_its_argument() -> None:
    module, x = step("convolutions with batch norm")
    graph = tmmu.plan(module, example_inputs=(x,)).graph
    written = {each.instr for each in graph.nodes if each.in_place_write}
    assert {"relu_", "add_.Tensor"} <= written
    assert next(each for each in graph.nodes if each.instr == "convolution").node_id == "convolution"
    assert graph.origins["convolution"].module == ("convolutions", "0")


def test_bodies_of_control_flow_are_planned_one_module_after_another() -> None:
    class Branch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.large, self.small = nn.Linear(64, 64), nn.Linear(64, 256), nn.Linear(64, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made = torch.cond(
                x.sum() > 0, lambda x: self.large(x).sigmoid().sum(1), lambda x: self.small(x).sum(1), (self.first(x),)
            )
            return made.sum()

    x = torch.rand(32, 64)
    trained = tmmu.plan(Branch().train(), example_inputs=(x,)).graph
    evaluated = tmmu.plan(Branch().eval(), example_inputs=(x,)).graph
    for graph in (trained, evaluated):
        assert "sigmoid" in {each.instr for each in graph.nodes}
    assert {f"{part}.weight.grad" for part in ("first", "large", "small")} <= {each.id for each in trained.tensors}

    class Wave(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

    later = tmmu.plan(Wave().eval(), example_inputs=(torch.rand(4, 4),)).graph
    assert {each.instr for each in later.nodes} >= {"sin", "cos"}


class Swish(torch.autograd.Function):
    """Keeps its operand only, and computes the sigmoid again in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x.sigmoid()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        sigmoid = x.sigmoid()
        return gradient * sigmoid * (1 + x * (1 - sigmoid))


class TwoReaders(nn.Module):
    """Two layers that normalize the same input, and an activation that is computed again for its gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.first, self.second = nn.LayerNorm(64), nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Swish.apply(self.first(self.norm(x)) + self.second(self.norm(x))).mean()


def test_equal_operators_run_once_if_the_first_result_is_live() -> None:
    fit = tmmu.fit(TwoReaders().train(), "1GiB", example_inputs=torch.randn(512, 64))
    operators = [node.instr for node in fit.graph.nodes]
    assert (operators.count("native_layer_norm"), operators.count("sigmoid")) == (1, 2)


def test_buffers_are_updated_once_per_step() -> None:
    module, x = step("convolutions with batch norm")
    run = fitted(module, x, 85).compile()
    run(x).backward()
    assert {int(value) for name, value in module.named_buffers() if name.endswith("num_batches_tracked")} == {1}


def test_check_leaves_the_module_and_the_generator_as_they_are() -> None:
    module, x = step("perceptron with dropout")
    fit = fitted(module, x, 85, optimizer="adamw", allow="recompute")
    before = [each.clone() for each in module.parameters()], torch.get_rng_state()
    fit.check()
    assert all(torch.equal(one, other) for one, other in zip(before[0], module.parameters(), strict=True))
    assert torch.equal(before[1], torch.get_rng_state())
    assert all(each.grad is None for each in module.parameters())


@pytest.mark.parametrize(
    "optimizer",
    [
        "sgd",
        "adam",
        partial(torch.optim.AdamW, foreach=True),
        partial(torch.optim.AdamW, amsgrad=True),
        partial(torch.optim.AdamW, fused=True),
        partial(torch.optim.SGD, lr=torch.tensor(0.1)),
        torch.optim.Adafactor,
        torch.optim.NAdam,
        torch.optim.RAdam,
        partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    ],
    ids=str,
)
def test_optimizer_counts_in_plan_and_measurement(optimizer: Any) -> None:
    module, x = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)).train(), torch.randn(8, 256)
    fit = tmmu.fit(module, "1TiB", example_inputs=x, loss=squared, optimizer=optimizer)
    found = fit.check()
    assert found["planned_peak_bytes"] == found["measured_peak_bytes"]
    assert abs(fit.eager_peak_bytes - found["measured_peak_bytes"]) <= 0.01 * found["measured_peak_bytes"]
    assert found["gradients_equal"]
    trained = fx_memory.OPTIMIZERS.get(optimizer, optimizer)(module.parameters())
    for _ in range(7):
        trained.zero_grad()
        with LiveBytes([x, *module.parameters(), *tree_leaves([*trained.state.values()])]) as live:
            loss = squared(module(x))
            loss.backward()
            trained.step()
    assert abs(fit.eager_peak_bytes - live.peak_bytes) <= 0.01 * live.peak_bytes


@pytest.mark.parametrize("is_accumulated", [False, True])
def test_gradient_of_a_result_is_live_until_backward_ends(is_accumulated: bool) -> None:
    module, x = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 64), nn.Tanh()).train(), torch.randn(256, 16)
    for each in module.parameters() if is_accumulated else ():
        each.grad = torch.ones_like(each)
    found = tmmu.fit(module, "64KiB", example_inputs=x, optimizer="sgd").check()
    assert found["planned_peak_bytes"] == found["measured_peak_bytes"]


class Composed(torch.optim.SGD):
    """Keeps a list of sums for each parameter, and runs another optimizer."""

    def __init__(self, groups: Any) -> None:
        super().__init__(groups)
        self.inner = torch.optim.Adagrad(self.param_groups[1]["params"])

    def step(self, closure: Any = None) -> None:
        for each in self.inner.param_groups[0]["params"]:
            self.state[each].setdefault("sums", [torch.zeros_like(each), torch.zeros(7)])[0].add_(each.grad)
        self.inner.step()
        super().step()


def test_optimizer_has_the_states_of_its_groups_for_parameters_with_gradients() -> None:
    module, x = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 16)).train(), torch.randn(8, 256)
    module.unused, flat = nn.Parameter(torch.ones(4096)), torch.randn(256 * 257)
    module[0].weight, module[0].bias = nn.Parameter(flat[256:].view(256, 256)), nn.Parameter(flat[:256])
    groups = [{"params": [*module[2].parameters(), module.unused], "momentum": 0.9}, {"params": module[0].parameters()}]
    fit = tmmu.fit(module, "1TiB", example_inputs=x, loss=squared, optimizer=Composed(groups))
    states = {each.id for each in fit.graph.tensors if each.role == "optimizer_state"}
    of_parameters = {"2.weight.momentum_buffer", "2.bias.momentum_buffer"}
    of_parameters |= {f"0.{name}.sums{number}" for name in ("weight", "bias") for number in ("", "_1")}
    assert states == of_parameters | {f"optimizer.state_{k}" for k in range(4)}  # Adagrad's sums and step numbers
    found = fit.check()
    assert found["planned_peak_bytes"] == found["measured_peak_bytes"]
    assert fit.eager_peak_bytes == fit.step.measured(fit.step.module).peak_bytes


def test_gradients_that_exist_before_a_step_are_planned_or_the_step_warns_once() -> None:
    module, x = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)).train(), torch.randn(16, 64)
    without = tmmu.fit(module, "1TiB", example_inputs=x, loss=squared)
    for each in module.parameters():
        each.grad = torch.ones_like(each)
    accumulated = sum(each.nbytes for each in module.parameters())
    planned = tmmu.fit(module, "1TiB", example_inputs=x, loss=squared)
    assert isinstance(planned, TorchFit)
    found = planned.check()
    assert found["planned_peak_bytes"] == found["measured_peak_bytes"]
    eager = planned.step.measured(planned.step.module).peak_bytes
    assert without.eager_peak_bytes < planned.eager_peak_bytes == eager
    run, warning = without.compile(), f"needs {accumulated:,} bytes more than planned"
    with pytest.warns(UserWarning, match=warning):
        run(x)
    with warnings.catch_warnings(action="error"):
        run(x)
    with pytest.warns(UserWarning, match=warning):
        found = without.check()
    assert found["measured_peak_bytes"] == found["planned_peak_bytes"] + accumulated
    assert all(torch.equal(each.grad, torch.ones_like(each)) for each in module.parameters())


def test_layers_add_up_to_parameters_and_activations() -> None:
    module, x = step("perceptron with dropout")
    fit = fitted(module, x, 85)
    rows = fit.layers()
    assert sum(row["parameters"] for row in rows.values()) == sum(each.nbytes for each in module.parameters())
    assert rows["0.0"]["parameters"] == 4 * (64 * 256 + 256)
    assert sum(row["recomputed"] for row in rows.values()) > 0
    for row in rows.values():
        assert row["activations"] == row["kept"] + row["recomputed"] + row["offloaded"]
    base = {each.id: each.view.base_tensor_uid if each.view else each.id for each in fit.graph.tensors}
    later = [node for node in fit.graph.nodes if node.phase == "backward" and node.instr != "tangent"]
    made = {name for node in fit.graph.nodes if node.phase == "forward" for name in node.outputs}
    read = made & {base[name] for node in later for name in node.inputs}
    sizes = [np.prod(each.shape) * np.dtype(each.dtype).itemsize for each in fit.graph.tensors if each.id in read]
    assert sum(row["kept"] for row in rows.values()) == sum(sizes)


def test_layers_and_peak_count_every_live_byte_at_the_peak_once() -> None:
    module, x = step("attention")
    fit = tmmu.fit(module, "1GiB", example_inputs=(x,), loss=squared)
    held = sum(each.nbytes for each in module.parameters())
    peak = fit.peak()
    live = sum(size for _, size, _ in peak["tensors"])
    assert held + live == pytest.approx(fit.plan.peak_live_bytes, abs=64)  # sizes are rounded to the alignment
    assert sum(peak["modules"].values()) == live
    assert {path: row["at_peak"] for path, row in fit.layers().items() if row["at_peak"]} == peak["modules"]
    assert max(peak["modules"], key=peak["modules"].get) in ("0", "1")


def test_live_bytes_within_the_capacity_are_packed_within_it() -> None:
    """At this capacity greedy placements of the cheapest choice leave gaps; the packing that fits is searched."""
    torch.manual_seed(0)
    module, x = Loss(Recurrent(16)).train(), torch.randn(16, 8, 16)
    whole = tmmu.fit(module, "1TiB", example_inputs=x)
    assert isinstance(whole, TorchFit)
    fixed = x.nbytes + sum(each.nbytes for each in module.parameters())
    capacity = fixed + (whole.eager_peak_bytes - fixed) * 40 // 100
    fit = tmmu.fit(module, capacity, example_inputs=x)
    assert fit
    assert fit.extent_bytes <= capacity


@pytest.mark.parametrize(
    ("step", "capacity", "cost"), [("LSTM", 1_400_016, 35), ("mixture of experts", 8_709_580, 100)]
)
def test_step_fits_40_percent_of_its_activations(step: str, capacity: int, cost: int) -> None:
    torch.manual_seed(0)
    module, inputs = REAL_STEPS[step]()
    fit = tmmu.fit(module.train(), capacity, example_inputs=inputs)
    assert fit
    assert 100 * fit.cost.extra_flops <= cost * fit.fitted.flops


def test_moves_that_save_nothing_are_left_out() -> None:
    torch.manual_seed(0)
    module, inputs = REAL_STEPS["U-Net with dropout"]()
    fit = tmmu.fit(module.train(), 5_291_748, example_inputs=inputs)
    assert fit
    assert min(move.bytes for move in fit.moves) > 0


def test_peak_names_the_module_and_suggests_a_chunked_loss() -> None:
    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 512)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return functional.cross_entropy(self.head(self.body(x).relu()), torch.zeros(256, dtype=torch.long))

    fit = tmmu.fit(Head().train(), "1GiB", example_inputs=torch.randn(256, 8))
    peak = fit.peak()
    assert {size for _, size, _ in peak["tensors"][:2]} == {256 * 512 * 4}
    assert "chunks of tokens" in peak["suggestion"]
    assert tmmu.fit(nn.Linear(8, 8).train(), "1GiB", example_inputs=torch.randn(256, 8)).peak()["suggestion"] == ""


def test_least_bytes_are_within_reach_of_the_capacity_that_cannot_be_met() -> None:
    layers = [nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(3)]
    module, x = nn.Sequential(*layers).train(), torch.randn(64, 8)
    impossible = fitted(module, x, 10)
    assert impossible.answer == "cannot"
    least = impossible.least_bytes
    assert impossible.lower_bound_bytes <= least == impossible.extent_bytes < impossible.fitted.start.extent_bytes
    assert least == min(fitted(module, x, percent).least_bytes for percent in (90, 50))
    capacity, offload, batch = impossible.next_steps
    assert capacity == f"a capacity of {least:,} bytes (lower bound: {impossible.lower_bound_bytes:,})"
    close = (impossible.lower_bound_bytes + least) // 2
    assert tmmu.fit(module, close, example_inputs=(x,), loss=squared).extent_bytes == least
    assert (offload, batch[:15]) == ("allow offload", "a smaller batch")
    assert not any("batch" in step for step in fitted(module, x[:1], 10).next_steps)
    assert tmmu.fit(module, least, example_inputs=(x,), loss=squared)
    assert tmmu.fit(module, least, example_inputs=(x,), loss=squared, reserve=1).next_steps[0].endswith("reserve")


def test_step_that_needs_more_than_eager_mode_is_no_proof() -> None:
    fit: Any = tmmu.fit(nn.Embedding(20, 8, max_norm=0.5), 1_712, example_inputs=torch.arange(6))
    assert (fit.answer, fit.eager_peak_bytes, fit.next_steps[1][:10]) == ("open", 1_712, "eager mode")


class Centered(nn.Module):
    """Layers that subtract a running mean, which the step overwrites, so that some operators cannot run again."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(width, width) for _ in range(8))
        for k in range(8):
            self.register_buffer(f"mean_{k}", torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for k, linear in enumerate(self.linears):
            mean = getattr(self, f"mean_{k}")
            y = linear(x) - mean
            with torch.no_grad():
                mean.lerp_(y.mean(0), 0.1)
            x = x + functional.gelu(y)
        return x.square().mean()


def test_least_bytes_do_not_depend_on_the_capacity() -> None:
    fits = [tmmu.fit(Centered(8), capacity, example_inputs=torch.ones(32, 8)) for capacity in (5_000, 8_809, 13_214)]
    assert [fit.answer for fit in fits] == ["cannot", "open", "open"]
    assert {fit.extent_bytes for fit in fits} == {15_880}


def test_moves_that_are_possible_only_together_have_the_cost_of_all() -> None:
    fit = tmmu.fit(Centered(32), 138_448, example_inputs=torch.ones(128, 32))
    assert fit.answer == "open"
    assert 0 < fit.cost.extra_flops < fit.fitted.flops


def test_parameter_that_is_frozen_after_a_compile_has_no_gradient() -> None:
    module, x = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).train(), torch.randn(4, 8)
    run = tmmu.fit(module, "1GiB", example_inputs=x).compile()
    module[0].requires_grad_(False)
    frozen = tmmu.fit(module, "1GiB", example_inputs=x)
    layers, of_frozen = frozen.layers(), frozen.compile()
    assert (layers["0"]["gradients"], layers["2"]["gradients"]) == (0, 4 * (8 * 8 + 8))
    with torch.no_grad():
        assert not run(x).requires_grad
    run(x).sum().backward()
    module[0].requires_grad_(True)
    with pytest.raises(ValueError, match=r"0.weight = torch.float32 \(8, 8\) on cpu, not .* with a gradient"):
        of_frozen(x)


def test_written_input_that_shares_memory_only_in_a_call_is_refused() -> None:
    class Counting(nn.Linear):
        def forward(self, x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
            counts.add_(1)
            return super().forward(x).sum()

    module, x = Counting(8, 8).train(), torch.randn(4, 8)
    run = tmmu.fit(module, "1GiB", example_inputs=(x, torch.zeros(4, 8))).compile()
    with pytest.raises(ValueError, match="x and counts share memory"):
        run(x, x)


def test_scratch_memory_of_kernels_on_a_gpu_is_planned_with_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU: the measuring function is replaced, and returns 1 MB for each matrix product."""
    scratch = 1_000_000
    torch.manual_seed(0)
    module = nn.Sequential(*[each for _ in range(4) for each in (nn.Linear(32, 32), nn.GELU())])
    x = torch.randn(128, 32)
    capacity: dict[str, Any] = {"capacity": scratch + 135_000, "example_inputs": x}
    without: Any = tmmu.fit(module, **capacity)
    for user in (fx_executed, fx_eager):
        monkeypatch.setattr(user, "scratch_bytes", lambda operator, *_: scratch if "mm" in str(operator) else 0)
    found: Any = tmmu.fit(module, **capacity)
    assert (found.answer, found.moves[-1].kind) == ("fits", "recompute")
    assert found.check()["gradients_equal"]
    assert found.eager_peak_bytes > scratch + without.extent_bytes - 10_000
    sized: Any = tmmu.fit(module, **capacity, dims={"batch": (1, 400)}, largest="batch")
    assert sized.answer == "fits"
    larger = tmmu.fit(module, capacity["capacity"], example_inputs=torch.randn(sized.sizes["batch"] + 1, 32))
    assert larger.answer != "fits"


def test_reserved_bytes_are_segments_of_the_caching_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    small = tmmu.fit(nn.Linear(8, 8).train(), "1GiB", example_inputs=torch.randn(64, 8))
    large = tmmu.fit(nn.Linear(8, 8).train(), "1GiB", example_inputs=torch.randn(2**17, 8))
    assert small.reserved_bytes == 2 * 2**20
    assert large.plan.peak_live_bytes == 3 * 2**22 + 2 * (8 * 8 + 8) * 4  # input, result, gradient
    assert large.reserved_bytes == 20 * 2**20 + 2 * 2**20
    monkeypatch.setattr(fx_step.TorchStep, "device", "cuda")
    for capacity, answer in (("22MiB", "fits"), ("21MiB", "open")):
        assert tmmu.fit(nn.Linear(8, 8).train(), capacity, example_inputs=torch.randn(2**17, 8)).answer == answer
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    assert tmmu.fit(nn.Linear(8, 8).train(), "21MiB", example_inputs=torch.randn(2**17, 8)).answer == "fits"


def test_reserved_bytes_leave_out_what_is_offloaded() -> None:
    module, x = nn.Sequential(*(nn.Linear(512, 512) for _ in range(4))).train(), torch.randn(4096, 512)
    before = tmmu.fit(module, "1GiB", example_inputs=x)
    after = tmmu.fit(module, before.extent_bytes - 2**23, example_inputs=x, allow="offload")
    assert after.cost.moved_bytes
    assert after.reserved_bytes < before.reserved_bytes


@pytest.mark.parametrize("backend", ["inductor", compile_fx_inner], ids=["name", "function"])
def test_inductor_is_rejected_by_name(backend: Any) -> None:
    module, x = step("attention")
    found = tmmu.fit(module, "1GiB", example_inputs=x, loss=squared)
    with pytest.raises(tmmu.TmmuError, match=r"has no backend '(inductor|compile_fx_inner)'"):
        found.compile(backend=backend)


@pytest.mark.parametrize("reserve", ["256KiB", "25 %"])
def test_reserve_lowers_the_capacity(reserve: str) -> None:
    module, x = step("attention")
    found = tmmu.fit(module, "1MiB", example_inputs=x, loss=squared, reserve=reserve)
    assert found.fitted.capacity.limit_bytes == 768 * 1024


@pytest.mark.parametrize("sizes", [(100, 164), torch.export.Dim("batch", min=100, max=164)], ids=["pair", "Dim"])
def test_largest_batch_fits_and_the_next_does_not(sizes: Any) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16)).train()

    def fit(capacity: int, dims: Any, largest: str | None) -> Any:
        how = {"dims": {"batch": dims}, "largest": largest, "loss": squared}
        return tmmu.fit(module, capacity, example_inputs=torch.randn(16, 8).t(), **how)

    capacity = fit(2**40, (120, 120), None).extent_bytes
    found = fit(capacity, sizes, "batch")
    size = found.sizes["batch"]
    assert found
    assert size >= 120  # without moves 120 rows fit
    assert found.step.call.args[0].stride() == (1, size)
    assert found.check()["measured_peak_bytes"] <= capacity
    assert not fit(capacity, (size + 1, size + 1), None)


def test_largest_sequence_length_of_attention_fits_beside_a_batch() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(Attention(), Attention()).train()

    def fit(seq: Any, largest: str | None = None) -> Any:
        dims = {"batch": torch.export.Dim("batch", min=1, max=3), "seq": seq}
        how = {"dims": dims, "largest": largest, "loss": squared, "allow": "order"}
        return tmmu.fit(module, "2MiB", example_inputs=torch.randn(2, 8, 32), **how)

    found = fit((16, 256), "seq")
    size = found.sizes["seq"]
    assert found.sizes == {"batch": 3, "seq": size}
    assert [tuple(each.shape) for each in found.step.call.args] == [(3, size, 32)]
    assert found.check()["measured_peak_bytes"] <= 2**21
    assert found.graph == fit(size).graph
    assert not fit(size + 1)


def test_largest_batch_of_a_step_that_grows_with_the_square_fits_and_the_next_does_not() -> None:
    def fit(**how: Any) -> Any:
        return tmmu.fit(module, 2**15, example_inputs=torch.randn(8, 4), loss=similarity, **how)

    def similarity(made: torch.Tensor) -> torch.Tensor:
        return (made @ made.t()).flatten().square().mean()

    module = nn.Linear(4, 4).train()
    found = fit(dims={"batch": (2, 64)}, largest="batch")
    assert found
    assert found.graph == fit(dims={"batch": found.sizes["batch"]}).graph
    assert not fit(dims={"batch": found.sizes["batch"] + 1})


@pytest.mark.parametrize(
    ("dims", "words"),
    [
        ({}, "'length' is not in dims"),
        ({"length": 4, "seq": 8}, "'length', 'seq' name the same axis"),
        ({"length": 4, "x.3": 8}, "has an axis 3"),
        ("length=8", "'length=8' is not a dict(.|\n)*dims={"),
        ({"length": (64, 1)}, r"'length': \(64, 1\) is not(.|\n)*least, greatest"),
        ({"length": (0, 4)}, "not a valid size"),
        ({"length": (1, 2, 3)}, "not a valid size"),
        ({"length": "8"}, "'length': '8' is not a valid size"),
        ({"length": torch.export.Dim("length")}, "not a valid size(.|\n)*a bounded Dim"),
        ({"length": (1, 10**12)}, "not a valid size(.|\n)*from 1 to"),
    ],
)
def test_dims_without_an_axis_or_a_valid_size_are_rejected(dims: Any, words: str) -> None:
    module, x = step("attention")
    with pytest.raises(tmmu.TmmuError, match=words):
        tmmu.fit(module, "1GiB", example_inputs=x, loss=squared, largest="length", dims=dims)


def test_pickle_of_a_fit_names_what_can_be_pickled() -> None:
    fit = tmmu.fit(nn.Linear(8, 8).train(), "1GiB", example_inputs=torch.randn(4, 8))
    with pytest.raises(TypeError, match=r"cannot be pickled(.|\n)*fit.plan"):
        pickle.dumps(fit)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"allow": "alignment"}, "cannot run the move 'alignment'"),
        ({"allow": 3}, "unknown move '3'"),
        ({"optimizer": "lion"}, "no optimizer 'lion'"),
        ({"optimizer": ("sgd", "adamw")}, "no optimizer 'tuple'(.|\n)*whose step runs them"),
        ({"optimizer": torch.optim.SGD([torch.zeros(1)])}, "SGD holds no parameter of the module"),
        (
            {"optimizer": torch.optim.LBFGS},
            r"optimizer's step cannot be traced(.|\n)*closure(.|\n)*function from the parameters(.|\n)*as reserve",
        ),
        ({"capacity": {"activations": 1}}, "one memory"),
        ({"reserve": "2GiB"}, "exceeds the capacity"),
    ],
)
def test_option_that_a_step_cannot_run_is_rejected(how: dict[str, Any], words: str) -> None:
    module, x = step("attention")
    with pytest.raises(tmmu.TmmuError, match=words):
        tmmu.fit(module, how.pop("capacity", "1GiB"), example_inputs=(x,), loss=squared, **how)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (nn.MSELoss(), "loss: (.|\n)*'target'(.|\n)*module's output"),
        (lambda output: None, "loss: the result has no gradient"),
        (lambda output: output.detach().sum(), "loss: the result has no gradient"),
        ("mse", "loss: 'str' object is not callable(.|\n)*module's output"),
    ],
    ids=["two arguments", "None", "detached", "text"],
)
def test_loss_without_a_gradient_is_rejected(loss: Any, words: str) -> None:
    module, x = step("attention")
    with pytest.raises(tmmu.TmmuError, match=words):
        tmmu.fit(module, "1GiB", example_inputs=(x,), loss=loss)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda x: x.numpy(), "the input 'x' is a ndarray, not a tensor"),
        (lambda x: slice(x), r"the input 'x' is a slice, not a tensor(.|\n)*register_dataclass\(slice\)"),
        (lambda x: x[:0], "the input 'x' has no elements"),
        (lambda x: (), "Give the module's inputs: example_inputs=x"),
        (lambda x: x.to_sparse(), "'x' has the layout sparse_coo"),
        (lambda x: x.double(), "addmm.default has operands of different dtypes: torch.float32, torch.float64"),
    ],
    ids=["array", "object", "no rows", "none", "sparse", "dtype"],
)
def test_inputs_that_the_step_cannot_read_are_rejected(given: Callable[[torch.Tensor], Any], words: str) -> None:
    module, x = step("attention")
    for make in (tmmu.plan, lambda *given: tmmu.fit(given[0], "1GiB", given[1])):
        with pytest.raises(tmmu.TmmuError, match=words):
            make(module[0], given(x))


class Scaled(nn.Linear):
    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.factor = 2.0

    def forward(self, x: torch.Tensor, scale: torch.Tensor, power: int = 2) -> torch.Tensor:
        return (super().forward(x) * scale * self.factor).pow(power).mean()


@pytest.mark.parametrize("example", [lambda x, y: (x, y), lambda x, y: {"scale": y, "x": x}], ids=["tuple", "dict"])
def test_compiled_step_accepts_every_call_of_the_signature(example: Callable[..., Any]) -> None:
    module, (x, y) = Scaled(8, 8).train(), torch.randn(2, 4, 8)
    run = tmmu.fit(module, "1GiB", example_inputs=example(x, y)).compile()
    for loss in (run(x, y), run(x, scale=y), run(scale=y, x=x), run(x, y, power=2)):
        assert torch.equal(loss, module(x, y))
    for given, words in (
        ((x, y[:1]), r"scale = torch.float32 \(4, 8\) on cpu, not"),
        ((x, y.to("meta")), r"on cpu, not torch.float32 \(4, 8\) on meta"),
        ((x, y.clone().requires_grad_()), "on cpu, not .* with a gradient"),
        ((x.T.contiguous().T, y), r"x = torch.float32 \(4, 8\) on cpu, not .* with strides \[1, 4\] on cpu"),
        ((x, y, 3), "power = None, not 3"),
    ):
        with pytest.raises(ValueError, match=words):
            run(*given)
    with torch.autocast("cpu"), pytest.raises(ValueError, match=r"torch.autocast = {}, not {'cpu': torch.bfloat16}"):
        run(x, y)
    with torch.inference_mode(), pytest.raises(ValueError, match=r"torch.inference_mode = False, not True"):
        run(x, y)
    module.factor = 3.0
    with pytest.raises(ValueError, match=r"factor = 2.0, not 3.0"):
        run(x, y)


class Changing(nn.Linear):
    """A layer whose forward pass reads attributes of many kinds."""

    def __init__(self) -> None:
        super().__init__(8, 8)
        self.limits, self.table, self.settings = (2.0,), {"power": 2}, SimpleNamespace(scale=1.0)
        self.shift, self.function = torch.ones(8), torch.sin

    def forward(self, x: torch.Tensor, mask: None = None, *gates: torch.Tensor) -> torch.Tensor:
        made = self.function(super().forward(x) * getattr(self, "late", 1.0) + self.shift).clamp(max=self.limits[0])
        made = made.pow(self.table["power"]) * self.settings.scale
        self.part.eval()
        return (made + self.part(x) * sum(gates)).mean()


CHANGES: dict[str, Callable[[Any], Any]] = {
    r"limits = \(0=2.0\), not \(0=3.0\)": lambda module: setattr(module, "limits", (3.0,)),
    r"table = \(power=2\), not \(power=3\)": lambda module: module.table.update(power=3),
    r"settings = .*\(scale=1.0\), not .*\(scale=2.0\)": lambda module: setattr(module.settings, "scale", 2.0),
    r"shift = the tensor of the fit, not another tensor": lambda module: setattr(module, "shift", torch.zeros(8)),
    r"function = builtin_function_or_method at": lambda module: setattr(module, "function", torch.cos),
    r"late = None, not 2.0": lambda module: setattr(module, "late", 2.0),
    r"more = None, not ReLU": lambda module: module.add_module("more", nn.ReLU()),
    r"forward = None, not function": lambda module: setattr(module, "forward", lambda x, mask, *gates: x),
    r"module = Changing, not Changing with the hooks": lambda module: module.register_forward_hook(lambda *_: None),
    r"training = True, not False": lambda module: module.eval(),
}


@pytest.mark.parametrize("words", CHANGES)
def test_compiled_step_refuses_changes_of_what_its_forward_pass_reads(words: str) -> None:
    module, (x, y) = Changing(), torch.randn(2, 4, 8)
    module.part = nn.Dropout()
    run = tmmu.fit(module.train(), "1GiB", example_inputs=(x, None, y, x)).compile()
    module.train()  # the forward pass itself sets the mode of a part
    module.shift.mul_(2)
    assert torch.equal(run(x, None, x, y), module(x, None, x, y))
    CHANGES[words](module)
    module.part.train()
    with pytest.raises(ValueError, match=words):
        run(x, None, x, y)


def test_compiled_step_refuses_another_tensor_that_its_loss_captures() -> None:
    module, (x, y) = nn.Linear(8, 8).train(), torch.randn(2, 4, 8)
    run = tmmu.fit(module, "1GiB", example_inputs=x, loss=lambda made: (made - y).square().mean()).compile()
    y.add_(1)
    assert torch.equal(run(x), (module(x) - y).square().mean())
    y = torch.randn(4, 8)
    with pytest.raises(ValueError, match=r"loss = .*y=the tensor of the fit"):
        run(x)


@torch.library.custom_op("tmmu_tests::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@doubled.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


doubled.register_autograd(lambda context, gradient: gradient * 2)


def test_custom_operator_is_kept_and_listed_as_unknown() -> None:
    class Doubled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = nn.functional.mish(doubled(layer(x).sigmoid()))
            return x

    torch.manual_seed(0)
    fit = fitted(Doubled().train(), torch.randn(512, 64), 88, optimizer=torch.optim.Adagrad)
    assert [each.name for each in fit.unknown_operators] == ["tmmu_tests.doubled"]
    assert not any("doubled" in node for move in fit.moves for node in move.nodes)
    assert fit.check()["gradients_equal"]
