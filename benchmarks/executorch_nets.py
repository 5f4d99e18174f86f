"""PyTorch modules for ExecuTorch: MobileNetV3 small, a vision transformer, and examples of ExecuTorch."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Example = tuple[nn.Module, tuple[Any, ...]]

BLOCKS = (
    *((3, 16, 16, True, nn.ReLU, 2), (3, 72, 24, False, nn.ReLU, 2), (3, 88, 24, False, nn.ReLU, 1)),
    *((5, 96, 40, True, nn.Hardswish, 2), (5, 240, 40, True, nn.Hardswish, 1), (5, 240, 40, True, nn.Hardswish, 1)),
    *((5, 120, 48, True, nn.Hardswish, 1), (5, 144, 48, True, nn.Hardswish, 1), (5, 288, 96, True, nn.Hardswish, 2)),
    *((5, 576, 96, True, nn.Hardswish, 1), (5, 576, 96, True, nn.Hardswish, 1)),
)
"""Kernel, expanded channels, channels, squeeze-and-excitation, activation, stride (Howard et al. 2019, table 2)."""


def conv(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """A convolution with batch normalisation."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(outputs)
    )


class Gate(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, channels // 4, 1), nn.Conv2d(channels // 4, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Weight the channels."""
        pooled = torch.relu(self.down(x.mean((2, 3), keepdim=True)))
        return x * nn.functional.hardsigmoid(self.up(pooled))


class Block(nn.Module):
    """An inverted residual block."""

    def __init__(self, inputs: int, row: tuple[Any, ...]) -> None:
        super().__init__()
        kernel, inner, outputs, has_gate, act, stride = row
        self.is_residual = stride == 1 and inputs == outputs
        self.body = nn.Sequential(
            *((conv(inputs, inner, 1), act()) if inner != inputs else ()),
            *(conv(inner, inner, kernel, stride, inner), act(), Gate(inner) if has_gate else nn.Identity()),
            conv(inner, outputs, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run the block."""
        return x + self.body(x) if self.is_residual else self.body(x)


def mobilenet_v3() -> Example:
    """MobileNetV3 small on 224 × 224 pixels."""
    widths = [16, *(row[2] for row in BLOCKS)]
    blocks = [Block(inputs, row) for inputs, row in zip(widths, BLOCKS, strict=False)]
    head = (conv(96, 576, 1), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    top = (nn.Linear(576, 1024), nn.Hardswish(), nn.Linear(1024, 1000))
    return nn.Sequential(conv(3, 16, 3, 2), nn.Hardswish(), *blocks, *head, *top), (torch.randn(1, 3, 224, 224),)


class VisionTransformer(nn.Module):
    """Patches of 16 × 16 pixels, a class token, and four layers of width 192."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 192, 16, 16)
        self.token, self.places = nn.Parameter(torch.randn(1, 1, 192)), nn.Parameter(torch.randn(1, 197, 192))
        layer = nn.TransformerEncoderLayer(192, 3, 768, activation="gelu", batch_first=True, norm_first=True)
        self.layers = nn.ModuleList([layer for _ in range(4)])
        self.head = nn.Linear(192, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Classify an image."""
        rows = self.patches(x).flatten(2).transpose(1, 2)
        rows = torch.cat([self.token, rows], 1) + self.places
        for layer in self.layers:
            rows = layer(rows)
        return self.head(rows[:, 0])


def vit() -> Example:
    """A vision transformer on 224 × 224 pixels."""
    return VisionTransformer(), (torch.randn(1, 3, 224, 224),)


def llama() -> Example:
    """ExecuTorch's Llama with two layers of width 128 on 64 tokens."""
    from executorch.examples.models.llama.llama_transformer import construct_transformer
    from executorch.examples.models.llama.model_args import ModelArgs

    arguments = ModelArgs(dim=128, n_layers=2, n_heads=4, vocab_size=512, max_seq_len=64, max_context_len=64)
    return construct_transformer(arguments), (torch.randint(0, 512, (1, 64)),)


def _tiny(name: str) -> Callable[[], Example]:
    def example() -> Example:
        from executorch.examples.models import mlperf_tiny

        made = getattr(mlperf_tiny, name)()
        return made.get_eager_model(), made.get_example_inputs()

    return example


NETS: dict[str, Callable[[], Example]] = {
    "mobilenet_v3": mobilenet_v3,
    "vit": vit,
    "llama": llama,
    "resnet8": _tiny("ResNet8Model"),
    "mobilenet_v1": _tiny("MobileNetV1025Model"),
}
