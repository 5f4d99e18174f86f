"""The training steps of ``benchmarks.real``: small models of the kinds that people train. Needs PyTorch.

Each returns its loss, so a step is one forward and one backward pass.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional


class Loss(nn.Module):
    """A model with the mean square of its output as its loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the loss."""
        return self.model(*inputs).square().mean()


class Attention(nn.Module):
    """Multi-head attention; ``causal`` and cross attention to ``memory`` on request."""

    def __init__(self, width: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.q, self.kv = nn.Linear(width, width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        """Return the attended values."""
        q, (k, v) = self.q(x), self.kv(x if memory is None else memory).chunk(2, -1)
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in (q, k, v))
        made = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(made.transpose(1, 2).flatten(2))


class Decoder(nn.Module):
    """A llama-like decoder block: RMS norm, causal attention, gated feed-forward."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.attention = Attention(width, heads, causal=True)
        self.gate, self.up = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, 3 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        x = x + self.attention(self.norms[0](x))
        y = self.norms[1](x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class LanguageModel(nn.Module):
    """Embedding, blocks, head and cross entropy."""

    def __init__(self, blocks: nn.Module, width: int, words: int = 512) -> None:
        super().__init__()
        self.embed, self.blocks, self.head = nn.Embedding(words, width), blocks, nn.Linear(width, words, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the loss of predicting the next token."""
        logits = self.head(self.blocks(self.embed(tokens)))
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


class Encoder(nn.Module):
    """A transformer block with GELU and dropout."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attention = Attention(width, heads)
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(dropout), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        x = x + self.attention(self.norms[0](x))
        return x + self.feed(self.norms[1](x))


class VisionTransformer(nn.Module):
    """Patches, blocks, mean pooling."""

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.blocks = nn.Sequential(*(Encoder(width, 4, 0.1) for _ in range(4)))
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return class scores."""
        return self.head(self.blocks(self.patches(x).flatten(2).transpose(1, 2)).mean(1))


class Residual(nn.Module):
    """GroupNorm, SiLU, dropout, convolution, with a shortcut."""

    def __init__(self, inside: int, out: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.GroupNorm(4, inside), nn.SiLU(), nn.Dropout(0.1), nn.Conv2d(inside, out, 3, padding=1)
        )
        self.short = nn.Conv2d(inside, out, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        return self.body(x) + self.short(x)


class UNet(nn.Module):
    """Two levels down and up with concatenated shortcuts and dropout."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.ModuleList([Residual(width, 2 * width), Residual(2 * width, 4 * width)])
        self.up = nn.ModuleList([Residual(6 * width, 2 * width), Residual(3 * width, width)])
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Return an image of the input's size."""
        x, kept = self.first(x), []
        for block in self.down:
            kept.append(x)
            x = block(functional.avg_pool2d(x, 2))
        for block in self.up:
            x = block(torch.cat([functional.interpolate(x, scale_factor=2.0), kept.pop()], 1))
        return self.last(x)


class Experts(nn.Module):
    """A mixture of experts: all experts run, the two best are weighed."""

    def __init__(self, width: int = 64, experts: int = 4) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.first = nn.Parameter(torch.randn(experts, width, 4 * width) * 0.05)
        self.second = nn.Parameter(torch.randn(experts, 4 * width, width) * 0.05)

    def forward(self, x: Tensor) -> Tensor:
        """Return the weighed sum of the experts."""
        scores = self.router(x).softmax(-1)
        best, index = scores.topk(2, -1)
        weights = torch.zeros_like(scores).scatter(-1, index, best)
        hidden = functional.gelu(torch.einsum("td,edh->eth", x, self.first))
        return x + torch.einsum("eth,ehd,te->td", hidden, self.second, weights)


class MessagePassing(nn.Module):
    """A graph network: messages along edges, summed at their targets by ``index_add``."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.message = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(4))
        self.update = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(4))

    def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """Return features of the nodes."""
        for message, update in zip(self.message, self.update, strict=True):
            sent = functional.relu(message(torch.cat([x[source], x[target]], -1)))
            summed = torch.zeros_like(x).index_add(0, target, sent)
            x = x + functional.relu(update(torch.cat([x, summed], -1)))
        return x


class Recurrent(nn.Module):
    """A two-layer LSTM."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.cells = nn.ModuleList(nn.LSTMCell(width, width) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of all steps."""
        states = [(torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0])) for _ in self.cells]
        outputs = []
        for step in x.unbind(1):
            for k, cell in enumerate(self.cells):
                states[k] = cell(step, states[k])
                step = states[k][0]
            outputs.append(step)
        return torch.stack(outputs, 1)


class Bottleneck(nn.Module):
    """A ResNet block with BatchNorm and ReLU in place."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        made = self.norms[1](self.convolutions[1](self.relu(self.norms[0](self.convolutions[0](x)))))
        made += x
        return self.relu(made)


class ConvNeXt(nn.Module):
    """Depthwise convolution, LayerNorm, two linear layers and a learned scale."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm, self.scale = nn.LayerNorm(width), nn.Parameter(torch.full((width,), 0.1))
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        made = self.feed(self.norm(self.depthwise(x).permute(0, 2, 3, 1))) * self.scale
        return x + made.permute(0, 3, 1, 2)


class Accumulated(nn.Module):
    """Gradient accumulation: the mean loss of several micro-batches."""

    def __init__(self, model: nn.Module, parts: int) -> None:
        super().__init__()
        self.model, self.parts = model, parts

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean loss."""
        return torch.stack([self.model(part).square().mean() for part in x.chunk(self.parts)]).mean()


class EncoderDecoder(nn.Module):
    """A T5-like model: encoder blocks, then decoder blocks with cross attention and dropout."""

    def __init__(self, width: int = 96, heads: int = 4) -> None:
        super().__init__()
        self.encoder = nn.Sequential(*(Encoder(width, heads, 0.1) for _ in range(2)))
        self.decoder = nn.ModuleList(Decoder(width, heads) for _ in range(2))
        self.cross = nn.ModuleList(Attention(width, heads) for _ in range(2))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the decoder's output."""
        memory = self.encoder(source)
        for block, cross in zip(self.decoder, self.cross, strict=True):
            target = block(target)
            target = target + functional.dropout(cross(target, memory), 0.1, self.training)
        return target


def _sequential(count: int, make: Callable[[], nn.Module]) -> nn.Sequential:
    return nn.Sequential(*(make() for _ in range(count)))


def _edges() -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(512, 64), torch.randint(512, (4096,)), torch.randint(512, (4096,))


def _resnet() -> nn.Module:
    first = nn.Sequential(nn.Conv2d(3, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(inplace=True))
    return nn.Sequential(first, _sequential(4, lambda: Bottleneck(24)), nn.AdaptiveAvgPool2d(1))


STEPS: dict[str, Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]] = {
    "llama-like decoder": lambda: (
        LanguageModel(_sequential(4, lambda: Decoder(96, 4)), 96),
        (torch.randint(512, (4, 128)),),
    ),
    "ViT with dropout": lambda: (Loss(VisionTransformer()), (torch.randn(8, 3, 32, 32),)),
    "U-Net with dropout": lambda: (Loss(UNet()), (torch.randn(2, 3, 48, 48),)),
    "mixture of experts": lambda: (Loss(_sequential(3, Experts)), (torch.randn(512, 64),)),
    "graph network with index_add": lambda: (Loss(MessagePassing()), _edges()),
    "LSTM": lambda: (Loss(Recurrent()), (torch.randn(64, 8, 64),)),
    "ResNet, BatchNorm, ReLU in place": lambda: (Loss(_resnet()), (torch.randn(4, 3, 32, 32),)),
    "ConvNeXt-like": lambda: (
        Loss(nn.Sequential(nn.Conv2d(3, 32, 4, 4), _sequential(4, lambda: ConvNeXt(32)))),
        (torch.randn(4, 3, 96, 96),),
    ),
    "gradient accumulation": lambda: (
        Accumulated(_sequential(2, lambda: Encoder(64, 4, 0.1)), 3),
        (torch.randn(6, 96, 64),),
    ),
    "T5-like": lambda: (Loss(EncoderDecoder()), (torch.randn(4, 96, 96), torch.randn(4, 96, 96))),
}
"""Name → a module that returns its loss, and its inputs."""
