"""Write joint graphs and the choices of AOTAutograd's partitioner: ``python -m benchmarks.joint OUT [STEP …]``.

Needs PyTorch. Each training step is traced once. ``OUT/NAME.tmmu.cbor.gz`` is its graph in one memory,
``OUT/NAME.adamw.tmmu.cbor.gz`` the graph with AdamW, and ``OUT/NAME.json`` lists the tensors that the partitioner
passes from the forward to the backward part at each of its memory budgets.
"""

import copy
import json
import re
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._functorch import config, partitioners
from torch.nn import functional

from benchmarks.real_steps import STEPS, Attention, Decoder, Encoder, LanguageModel, Loss
from tmmu_core.fitting.problem.planner_calls import in_one_memory
from tmmu_core.graph.native import native_file
from tmmu_core.library.torch_fit import TorchModel, trace_step

BUDGETS = tuple(k / 10 for k in range(10, 0, -1))


class WrittenAttention(nn.Module):
    """Pre-norm attention and feed-forward with the matrix of weights as an activation."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).flatten(2))
        return x + self.feed(self.norms[1](x))


class Windows(nn.Module):
    """A Swin block: attention within windows of 8², every second block with shifted windows."""

    def __init__(self, width: int, shift: int) -> None:
        super().__init__()
        self.block, self.shift = WrittenAttention(width, 4), shift

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output; ``x`` is (batch, height, width, channels)."""
        batch, high, wide, channels = x.shape
        x = torch.roll(x, (-self.shift, -self.shift), (1, 2))
        parts = x.view(batch, high // 8, 8, wide // 8, 8, channels).transpose(2, 3).reshape(-1, 64, channels)
        x = self.block(parts).view(batch, high // 8, wide // 8, 8, 8, channels).transpose(2, 3)
        return torch.roll(x.reshape(batch, high, wide, channels), (self.shift, self.shift), (1, 2))


class Merged(nn.Module):
    """Patch merging of Swin: half the resolution, twice the channels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.reduce = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the merged patches."""
        corners = [x[:, i::2, j::2] for j in range(2) for i in range(2)]
        return self.reduce(self.norm(torch.cat(corners, -1)))


class Dense(nn.Module):
    """A dense block: every layer reads the outputs of all layers before it."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(width * (k + 1)), nn.ReLU(), nn.Conv2d(width * (k + 1), width, 3, padding=1))
            for k in range(layers)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return all outputs."""
        made = [x]
        for layer in self.layers:
            made.append(layer(torch.cat(made, 1)))
        return torch.cat(made, 1)


class Excited(nn.Module):
    """An inverted bottleneck with squeeze and excitation."""

    def __init__(self, width: int) -> None:
        super().__init__()
        inner = 4 * width
        self.expand = nn.Sequential(nn.Conv2d(width, inner, 1), nn.BatchNorm2d(inner), nn.SiLU())
        self.depthwise = nn.Sequential(
            nn.Conv2d(inner, inner, 5, padding=2, groups=inner), nn.BatchNorm2d(inner), nn.SiLU()
        )
        self.squeeze = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(inner, width // 2, 1), nn.SiLU())
        self.excite, self.project = nn.Conv2d(width // 2, inner, 1), nn.Conv2d(inner, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        made = self.depthwise(self.expand(x))
        return x + self.project(made * self.excite(self.squeeze(made)).sigmoid())


class Mixer(nn.Module):
    """An MLP-Mixer block: one perceptron over tokens, one over channels."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.tokens = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        self.channels = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        x = x + self.tokens(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norms[1](x))


class Gated(nn.Module):
    """A gated dilated convolution with a skip connection, as in WaveNet."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.filter = nn.Conv1d(width, 2 * width, 3, padding=dilation, dilation=dilation)
        self.residual = nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        signal, gate = self.filter(x).chunk(2, 1)
        return x + self.residual(signal.tanh() * gate.sigmoid())


class GraphAttention(nn.Module):
    """Attention along the edges of a graph, normalised by ``scatter_reduce`` and ``index_add``."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.values = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.scores = nn.ModuleList(nn.Linear(2 * width, 1) for _ in range(3))

    def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """Return features of the nodes."""
        for values, scores in zip(self.values, self.scores, strict=True):
            h = values(x)
            score = functional.leaky_relu(scores(torch.cat([h[source], h[target]], -1))).exp()
            total = torch.zeros_like(x[:, :1]).index_add(0, target, score)
            x = x + functional.elu(torch.zeros_like(x).index_add(0, target, h[source] * (score / total[target])))
        return x


class Autoencoder(nn.Module):
    """A variational autoencoder with a random latent and two losses."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        sizes = (3, width, 2 * width, 4 * width)
        down = [nn.Sequential(nn.Conv2d(a, b, 3, 2, 1), nn.GroupNorm(4, b), nn.SiLU()) for a, b in pairwise(sizes)]
        up = [
            nn.Sequential(nn.ConvTranspose2d(a, b, 4, 2, 1), nn.GroupNorm(1, b), nn.SiLU())
            for a, b in pairwise(sizes[::-1])
        ]
        self.down, self.up = nn.Sequential(*down), nn.Sequential(*up)
        self.moments = nn.Conv2d(4 * width, 8 * width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the loss."""
        mean, scale = self.moments(self.down(x)).chunk(2, 1)
        made = self.up(mean + torch.randn_like(mean) * (scale / 2).exp())
        return (made - x).square().mean() + (mean.square() + scale.exp() - scale).mean() * 1e-3


class Pyramid(nn.Module):
    """A backbone with a feature pyramid: outputs of all levels enter the loss."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        widths = (3, width, 2 * width, 4 * width)
        self.levels = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.ReLU(), nn.Conv2d(b, b, 3, 1, 1), nn.ReLU())
            for a, b in pairwise(widths)
        )
        self.side = nn.ModuleList(nn.Conv2d(each, width, 1) for each in widths[1:])
        self.smooth = nn.ModuleList(nn.Conv2d(width, width, 3, 1, 1) for _ in widths[1:])

    def forward(self, x: Tensor) -> Tensor:
        """Return the loss."""
        made, total = [], torch.zeros(())
        for level in self.levels:
            x = level(x)
            made.append(x)
        above = None
        for features, side, smooth in zip(made[::-1], list(self.side)[::-1], self.smooth, strict=True):
            above = side(features) + (0 if above is None else functional.interpolate(above, scale_factor=2.0))
            total = total + smooth(above).relu().square().mean()
        return total


class CrossAttended(nn.Module):
    """A Perceiver: few latents read many inputs, again and again."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.latents = nn.Parameter(torch.randn(16, width))
        self.read = nn.ModuleList(Attention(width, 4) for _ in range(3))
        self.blocks = nn.ModuleList(Encoder(width, 4) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        """Return the latents."""
        made = self.latents.expand(len(x), -1, -1)
        for read, block in zip(self.read, self.blocks, strict=True):
            made = block(made + read(made, x))
        return made


class Gru(nn.Module):
    """A gated recurrent unit that runs once per element of a sequence."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.cell, self.head = nn.GRUCell(width, width), nn.Linear(width, 256)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores of every step."""
        state, made = torch.zeros_like(x[:, 0]), []
        for each in x.unbind(1):
            state = self.cell(each, state)
            made.append(state)
        return self.head(torch.stack(made, 1)).log_softmax(-1)


class Adapted(nn.Module):
    """A frozen linear layer with a trained product of two small matrices and dropout (LoRA)."""

    def __init__(self, inputs: int, outputs: int, rank: int = 4) -> None:
        super().__init__()
        self.frozen = nn.Linear(inputs, outputs).requires_grad_(False)
        self.down = nn.Sequential(nn.Dropout(0.1), nn.Linear(inputs, rank, bias=False))
        self.up = nn.Linear(rank, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output."""
        return self.frozen(x) + self.up(self.down(x))


def blocks(count: int, make: Callable[[int], nn.Module]) -> nn.Sequential:
    """Return ``count`` modules in sequence."""
    return nn.Sequential(*map(make, range(count)))


def edges() -> tuple[Tensor, Tensor, Tensor]:
    """Return features of 256 nodes and 4,096 edges."""
    return torch.randn(256, 64), torch.randint(256, (4096,)), torch.randint(256, (4096,))


MORE: dict[str, Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]] = {
    "Swin-like": lambda: (
        Loss(
            nn.Sequential(
                blocks(2, lambda k: Windows(32, 4 * k)), Merged(32), blocks(4, lambda k: Windows(64, 4 * (k % 2)))
            )
        ),
        (torch.randn(4, 32, 32, 32),),
    ),
    "GPT with written attention": lambda: (
        LanguageModel(blocks(4, lambda _: WrittenAttention(96, 4)), 96, 1024),
        (torch.randint(1024, (4, 128)),),
    ),
    "BERT-like, long": lambda: (Loss(blocks(3, lambda _: WrittenAttention(64, 4))), (torch.randn(2, 384, 64),)),
    "llama-like, deep": lambda: (
        LanguageModel(blocks(10, lambda _: Decoder(64, 4)), 64),
        (torch.randint(512, (2, 96)),),
    ),
    "DenseNet-like": lambda: (
        Loss(nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), Dense(16, 6))),
        (torch.randn(4, 3, 32, 32),),
    ),
    "EfficientNet-like": lambda: (
        Loss(nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), blocks(4, lambda _: Excited(16)))),
        (torch.randn(4, 3, 48, 48),),
    ),
    "MLP-Mixer": lambda: (Loss(blocks(5, lambda _: Mixer(64, 96))), (torch.randn(8, 64, 96),)),
    "WaveNet-like": lambda: (Loss(blocks(8, lambda k: Gated(32, 2 ** (k % 4)))), (torch.randn(4, 32, 512),)),
    "graph attention": lambda: (Loss(GraphAttention()), edges()),
    "variational autoencoder": lambda: (Autoencoder(), (torch.randn(8, 3, 48, 48),)),
    "feature pyramid": lambda: (Pyramid(), (torch.randn(4, 3, 64, 64),)),
    "Perceiver-like": lambda: (Loss(CrossAttended()), (torch.randn(4, 512, 64),)),
    "GRU": lambda: (Loss(Gru()), (torch.randn(32, 12, 64),)),
    "LoRA": lambda: (
        Loss(blocks(4, lambda _: nn.Sequential(nn.LayerNorm(64), Adapted(64, 256), nn.GELU(), Adapted(256, 64)))),
        (torch.randn(256, 64),),
    ),
    "perceptron": lambda: (
        Loss(
            blocks(8, lambda _: nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 128), nn.LayerNorm(128)))
        ),
        (torch.randn(512, 128),),
    ),
}
"""Training steps in addition to those of ``benchmarks/real_steps.py``."""


def main(out: Path, names: list[str]) -> None:
    """Write the graphs and the partitioner's choices of the named steps (default: all)."""
    out.mkdir(parents=True, exist_ok=True)
    for name, make in {**STEPS, **MORE}.items():
        stem = re.sub(r"\W+", "_", name)
        if (names and name not in names) or (out / f"{stem}.json").exists():
            continue
        torch.manual_seed(0)
        module, inputs = make()
        step = trace_step(TorchModel(module.train(), inputs))
        stepped = trace_step(TorchModel(module, inputs, optimizer="adamw"))
        for file, graph in ((f"{stem}.tmmu.cbor.gz", step.graph), (f"{stem}.adamw.tmmu.cbor.gz", stepped.graph)):
            (out / file).write_bytes(native_file.encode(in_one_memory(graph), file))
        found = {"name": name, "torch": torch.__version__, "saved": {budget: saved(step, budget) for budget in BUDGETS}}
        (out / f"{stem}.json").write_text(json.dumps(found))
        print(name, len(step.graph.nodes), flush=True)


def saved(step: Any, budget: float) -> list[str]:
    """Return the tensors that the partitioner passes to the backward part."""
    found: list[str] = []

    def partition(joint: Any, inputs: Any, *, num_fwd_outputs: int, **options: Any) -> tuple[Any, Any]:
        parts = partitioners.min_cut_rematerialization_partition(
            copy.deepcopy(joint), inputs, num_fwd_outputs=num_fwd_outputs, **options
        )
        returned = next(node for node in parts[0].graph.nodes if node.op == "output").args[0][num_fwd_outputs:]
        found.extend(step.executed.tensor_of[node.name] for node in returned if node.name in step.executed.tensor_of)
        return parts

    with config.patch(activation_memory_budget=budget):
        step.compiled(partition)
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
