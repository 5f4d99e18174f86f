"""The largest batch of large training steps, on fake tensors: ``python -m benchmarks.real_large``.

Finds the largest batch of GPT-2 medium that fits 24 GB with AdamW. Prints the node and the module at the peak, the
bytes of each kind of module, the cost and the CPU seconds, and writes them to ``docs/measured/real.md``. Needs no GPU;
``real_cuda`` runs the same models on one.
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

import tmmu_core as tmmu
from benchmarks.real import record
from benchmarks.real_steps import Decoder, Encoder, LanguageModel, Loss, UNet
from tmmu_core.fitting.problem.answer import grouped_layers
from tmmu_core.formats.pytorch.torch_module import fake_tensors
from tmmu_core.library.torch_fit import TorchFit

COLUMNS = ("parameters", "optimizer_state", "activations", "kept", "recomputed", "offloaded", "at_peak")


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
    "large U-Net": (lambda: Loss(UNet(96)), lambda: torch.randn(8, 3, 384, 384)),
    "ViT-L": (lambda: Vit(24, 1024, 16), lambda: torch.randn(64, 3, 224, 224)),
}
"""Name → a module that returns its loss, and its input."""


def question(name: str, capacity: str, sizes: tuple[int, int]) -> str:
    """Return a text about the largest batch of a model that fits ``capacity`` with AdamW; the tensors are fake.

    ``sizes``: the smallest and the largest batch.
    """
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


def main() -> None:
    """Print the largest batch of a model, and write it to ``docs/measured/real.md``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS, default="GPT-2 medium")
    parser.add_argument("--capacity", default="24GB", help="memory of the device [24GB]")
    parser.add_argument("--batch", type=int, nargs=2, default=(1, 64), metavar=("MIN", "MAX"), help="sizes [1 64]")
    given = parser.parse_args()
    text = question(given.model, given.capacity, tuple(given.batch))
    print(text)
    record(f"{given.model} on {given.capacity}", lines=tuple(text.splitlines()))


if __name__ == "__main__":
    main()
