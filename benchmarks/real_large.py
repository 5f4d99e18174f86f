"""Large training steps of ``benchmarks.real``: the largest batch on fake tensors, and measured rows on a GPU.

``python -m benchmarks.real_large`` finds the largest batch of GPT-2 medium that fits 24 GB with AdamW. It prints what
binds the peak, the bytes of each kind of module, the cost and the CPU seconds, and writes them to
``docs/measured/real.md``. It needs no GPU. ``python -m benchmarks.real --device cuda`` runs :func:`on_gpu`.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._functorch import config
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import tmmu_core as tmmu
from benchmarks.real import record
from benchmarks.real_steps import Decoder, Encoder, LanguageModel
from tmmu_core.fitting.layers import grouped_layers
from tmmu_core.fitting.pytorch.fx_optimizer import make_optimizer
from tmmu_core.formats.pytorch.torch_module import fake_tensors
from tmmu_core.library.torch_fit import TorchFit

COLUMNS = ("parameters", "optimizer_state", "activations", "kept", "recomputed", "offloaded", "at_peak")
REPEATS = 5
"""Steps whose median time is a row's."""


class Gpt2(nn.Module):
    """GPT-2 with tied embeddings: embedding, causal blocks with dropout, head and cross entropy."""

    def __init__(self, layers: int, width: int, heads: int, words: int = 50_257, length: int = 1024) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Encoder(width, heads, 0.1) for _ in range(layers))
        for block in self.blocks:
            block.attention.causal = True
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the loss of predicting the next token."""
        x = self.embed(tokens) + self.place.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


class Vit(nn.Module):
    """A vision transformer with the cross entropy of its first class as its loss."""

    def __init__(self, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.blocks, self.head = nn.Sequential(*(Encoder(width, heads) for _ in range(layers))), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """Return the loss."""
        scores = self.head(self.blocks(self.patches(x).flatten(2).transpose(1, 2)).mean(1))
        return functional.cross_entropy(scores, scores.new_zeros(len(scores), dtype=torch.long))


def _words(batch: int, count: int) -> Callable[[], Tensor]:
    return lambda: torch.randint(count, (batch, 1024))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "GPT-2 medium": (lambda: Gpt2(24, 1024, 16), _words(8, 50_257)),
    "Llama 1B": (
        lambda: LanguageModel(nn.Sequential(*(Decoder(2048, 16) for _ in range(20))), 2048, 32_000),
        _words(8, 32_000),
    ),
    "ViT-L": (lambda: Vit(24, 1024, 16), lambda: torch.randn(64, 3, 224, 224)),
}
"""Name → a module that returns its loss, and its input."""


def question(name: str, capacity: str, sizes: tuple[int, int]) -> str:
    """Return the largest batch of a model of fake tensors that fits ``capacity`` with AdamW, and what to change."""
    begun = time.process_time()
    make, example = MODELS[name]
    with fake_tensors():
        module, inputs = make(), example()
    fit = tmmu.fit(
        module.train(), capacity, example_inputs=inputs, optimizer="adamw", dims={"batch": sizes}, largest="batch"
    )
    assert isinstance(fit, TorchFit)
    peak, groups = fit.peak(), grouped_layers(fit.layers())
    lines = [
        f"{name}, {capacity}, AdamW: {fit.answer} at batch {fit.sizes['batch']}",
        f"eager mode needs {fit.eager_peak_bytes:,} B at this batch, the fit {fit.extent_bytes:,} B",
        f"cost: {100 * fit.cost.extra_flops / fit.fitted.flops:.2f} % more FLOPs, {fit.cost.moved_bytes:,} B offloaded",
        f"peak: {peak['node']} in {peak['module'] or 'the model'}. {peak['suggestion']}".rstrip(),
        f"{'bytes by module':42}" + "".join(f"{column:>17}" for column in COLUMNS),
        *(
            f"{f'{path} × {count}' if count > 1 else path:42}" + "".join(f"{row[each]:17,}" for each in COLUMNS)
            for path, (count, row) in groups.items()
        ),
        f"{time.process_time() - begun:.1f} CPU seconds",
    ]
    return "\n".join(lines)


@dataclass(frozen=True)
class Way:
    """One way to run a large step on a GPU; bytes, 0 where there is no plan."""

    name: str
    step: Any
    capacity: int = 0
    planned: int = 0
    modelled: int = 0
    """Reserved bytes by the model of the allocator."""


HEADER = "| step | way | capacity | planned | allocated | reserved by the model | reserved | ms per step |"


def on_gpu(device: str, percents: tuple[int, ...], budgets: tuple[float, ...]) -> list[str]:
    """Measure all large steps in bf16 with AdamW; return the lines of the page.

    Each runs as it is, with checkpoints by hand, at AOTAutograd's budgets, and fitted. A fitted step runs under
    ``set_per_process_memory_fraction``: over its capacity it runs out of memory.
    """
    lines = ["", f"## Large steps on {torch.cuda.get_device_name(device)}", "", HEADER, "|---|---|" + "---:|" * 6]
    for name in MODELS:
        for prepare in ways(name, device, percents, budgets):
            try:
                way, module, inputs = prepare()
                allocated, reserved, took = measured(way, module, inputs)
            except (RuntimeError, tmmu.TmmuError) as error:  # also out of memory
                lines.append(f"| {name} | {str(error).splitlines()[0]} |")
                continue
            numbers = (way.capacity, way.planned, allocated, way.modelled, reserved)
            lines.append(f"| {name} | {way.name} | {' | '.join(f'{each:,}' for each in numbers)} | {took:.1f} |")
    return lines


def ways(
    name: str, device: str, percents: tuple[int, ...], budgets: tuple[float, ...]
) -> Iterator[Callable[[], tuple[Way, nn.Module, Tensor]]]:
    """Yield a function for each way to run a model; each builds the model itself."""

    def made() -> tuple[nn.Module, Tensor, TorchFit]:
        torch.manual_seed(0)
        module, inputs = MODELS[name][0]().to(device, torch.bfloat16).train(), MODELS[name][1]().to(device)
        inputs = inputs.to(torch.bfloat16) if inputs.is_floating_point() else inputs
        start = tmmu.fit(module, "1PiB", example_inputs=inputs, optimizer="adamw")
        assert isinstance(start, TorchFit)
        return module, inputs, start

    def eager() -> tuple[Way, nn.Module, Tensor]:
        module, inputs, start = made()
        return Way("eager", module, planned=start.eager_peak_bytes), module, inputs

    def by_hand() -> tuple[Way, nn.Module, Tensor]:
        module, inputs, _ = made()
        for block in module.get_submodule("blocks").children():
            block.forward = partial(checkpoint, block.forward, use_reentrant=False)
        return Way("checkpoint of each block", module), module, inputs

    def aot(budget: float) -> tuple[Way, nn.Module, Tensor]:
        module, inputs, start = made()
        with config.patch(activation_memory_budget=budget):
            step = start.step.compiled(min_cut_rematerialization_partition)
        return Way(f"AOTAutograd {budget}", step), module, inputs

    def fitted(percent: int) -> tuple[Way, nn.Module, Tensor]:
        module, inputs, start = made()
        capacity = start.eager_peak_bytes * percent // 100
        fit = tmmu.fit(module, capacity, example_inputs=inputs, optimizer="adamw")
        assert isinstance(fit, TorchFit)
        way = Way(f"fit {percent} %: {fit.answer}", fit.compile(), capacity, fit.extent_bytes, fit.reserved_bytes)
        return way, module, inputs

    yield from (eager, by_hand)
    yield from (partial(aot, budget) for budget in budgets)
    yield from (partial(fitted, percent) for percent in percents)


def measured(way: Way, module: nn.Module, inputs: Tensor) -> tuple[int, int, float]:
    """Run the step and the optimizer; return peak allocated and reserved bytes and the median milliseconds."""
    optimizer = make_optimizer("adamw", list(module.parameters()))
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    if way.capacity:  # the model's reserved bytes of slack: a limit on the reserved bytes is what PyTorch enforces
        limit = max(way.capacity, way.modelled)
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit / torch.cuda.mem_get_info()[1]))
    times = []
    try:
        for _ in range(REPEATS):
            begun = time.perf_counter()
            way.step(inputs).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            torch.cuda.synchronize()
            times.append(1000 * (time.perf_counter() - begun))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    return torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), sorted(times)[REPEATS // 2]


def main() -> None:
    """Print the largest batch of a model, and write it to ``docs/measured/real.md``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS, default="GPT-2 medium")
    parser.add_argument("--capacity", default="24GB")
    parser.add_argument("--batch", type=int, nargs=2, default=(1, 64), metavar=("MIN", "MAX"))
    given = parser.parse_args()
    text = question(given.model, given.capacity, tuple(given.batch))
    print(text)
    record(f"{given.model} on {given.capacity}", lines=tuple(text.splitlines()))


if __name__ == "__main__":
    main()
