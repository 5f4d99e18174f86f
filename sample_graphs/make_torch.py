"""Write the samples that come from PyTorch: ``python -m sample_graphs.make_torch [NAME …]``. The same bytes each run.

It needs ``pip install 'tmmu-plan-explorer[torch]' transformers``. Models are built from their published dimensions
under fake tensors: no weights are downloaded, none are made, and 405 billion parameters take no memory.

Attention is scaled-dot-product attention as PyTorch dispatches it on a CPU: a fused kernel, or plain math where
dropout is on (GPT-2 and BERT in training).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tmmu_core.graph import native
from tmmu_core.graph.importers.torch import fake_tensors, import_torch
from tmmu_core.graph.model import Graph

HERE = Path(__file__).parent
ATTENTION = "sdpa_without_mask"
"""Attention that is told "causal" or nothing, never given a mask: building masks looks at the values of positions."""


def tokens(batch: int, length: int) -> dict[str, Any]:
    """Token numbers and positions, as language models take them."""
    return {
        "input_ids": torch.zeros(batch, length, dtype=torch.long),
        "position_ids": torch.zeros(batch, length, dtype=torch.long),
    }


def labels(batch: int, length: int) -> dict[str, Any]:
    return {"labels": torch.zeros(batch, length, dtype=torch.long)}


def _settings() -> dict[str, Any]:
    """What all language models here share."""
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    AttentionInterface.register(ATTENTION, sdpa_attention_forward)
    return {"attn_implementation": ATTENTION, "use_cache": False}


def gpt2(*, train: bool, batch: int, length: int) -> Graph:
    """GPT-2 small: 12 layers of 768, tied embedding, dropout 0.1."""
    from transformers import GPT2Config, GPT2LMHeadModel

    with fake_tensors():
        model = GPT2LMHeadModel(GPT2Config(loss_type="ForCausalLM", **_settings()))
        given = tokens(batch, length) | (labels(batch, length) if train else {})
    return import_torch(model, given, train=train, loss=None if train else _logits)


def bert(*, train: bool, batch: int, length: int) -> Graph:
    """BERT base, masked-language-model head: 12 layers of 768, dropout 0.1."""
    from transformers import BertConfig, BertForMaskedLM

    with fake_tensors():
        model = BertForMaskedLM(BertConfig(loss_type="ForMaskedLM", **_settings()))
        given = tokens(batch, length) | {"token_type_ids": torch.zeros(batch, length, dtype=torch.long)}
        given |= labels(batch, length) if train else {}
    return import_torch(model, given, train=train, loss=None if train else _logits)


def llama3(*, train: bool, batch: int, length: int, hidden: int, ffn: int, layers: int, heads: int) -> Graph:
    """Llama 3: 8 key-value heads, vocabulary 128,256, bfloat16 throughout."""
    from transformers import LlamaConfig, LlamaForCausalLM

    with fake_tensors("bfloat16"):
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=128_256,
                hidden_size=hidden,
                intermediate_size=ffn,
                num_hidden_layers=layers,
                num_attention_heads=heads,
                num_key_value_heads=8,
                max_position_embeddings=8192,
                rope_parameters={"rope_type": "default", "rope_theta": 500_000.0},
                tie_word_embeddings=False,
                loss_type="ForCausalLM",
                **_settings(),
            )
        )
        given = tokens(batch, length) | (labels(batch, length) if train else {})
    return import_torch(model, given, train=train, loss=None if train else _logits)


def llama3_8b(**more: Any) -> Graph:
    return llama3(hidden=4096, ffn=14_336, layers=32, heads=32, **more)


def llama3_405b(**more: Any) -> Graph:
    return llama3(hidden=16_384, ffn=53_248, layers=126, heads=128, **more)


def _logits(output: Any) -> Any:
    return output.logits


class Bottleneck(nn.Module):
    """The block of He et al. 2015 (arXiv:1512.03385, figure 5), its stride in the 3×3 convolution."""

    def __init__(self, wide_in: int, narrow: int, stride: int) -> None:
        super().__init__()
        wide = 4 * narrow
        self.conv1, self.bn1 = nn.Conv2d(wide_in, narrow, 1, bias=False), nn.BatchNorm2d(narrow)
        self.conv2 = nn.Conv2d(narrow, narrow, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(narrow)
        self.conv3, self.bn3 = nn.Conv2d(narrow, wide, 1, bias=False), nn.BatchNorm2d(wide)
        self.relu = nn.ReLU()
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or wide_in != wide:
            self.shortcut = nn.Sequential(nn.Conv2d(wide_in, wide, 1, stride, bias=False), nn.BatchNorm2d(wide))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        return self.relu(self.bn3(self.conv3(y)) + self.shortcut(x))


class ResNet50(nn.Module):
    """ResNet-50 (the same paper, table 1) with its loss; returns the loss where labels are given."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        self.blocks = nn.Sequential(*_bottlenecks())
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))

    def forward(self, images: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.blocks(self.stem(images)))
        return logits if labels is None else nn.functional.cross_entropy(logits, labels)


def _bottlenecks() -> Iterator[Bottleneck]:
    wide = 64
    for stage, count in enumerate((3, 4, 6, 3)):
        narrow = 64 << stage
        for k in range(count):
            yield Bottleneck(wide, narrow, 2 if stage and not k else 1)
            wide = 4 * narrow


def resnet50(*, train: bool, batch: int, side: int) -> Graph:
    with fake_tensors():
        model = ResNet50()
        given = {"images": torch.zeros(batch, 3, side, side)}
        if train:
            given["labels"] = torch.zeros(batch, dtype=torch.long)
    return import_torch(model, given, train=train)


SAMPLES: dict[str, Callable[[], Graph]] = {
    "resnet50_train_b32_224": lambda: resnet50(train=True, batch=32, side=224),
    "gpt2_small_train_b1_s1024": lambda: gpt2(train=True, batch=1, length=1024),
    "gpt2_small_inference_b1_s1024": lambda: gpt2(train=False, batch=1, length=1024),
    "bert_base_train_b8_s512": lambda: bert(train=True, batch=8, length=512),
    "llama3_8b_train_b1_s2048": lambda: llama3_8b(train=True, batch=1, length=2048),
    "llama3_405b_inference_b1_s2048": lambda: llama3_405b(train=False, batch=1, length=2048),
    "llama3_405b_train_b1_s2048": lambda: llama3_405b(train=True, batch=1, length=2048),
}
"""File name without its ending → what makes it."""


def main(names: list[str]) -> None:
    import msgspec

    for name in names or SAMPLES:
        graph = msgspec.structs.replace(SAMPLES[name](), name=name)
        file = HERE / f"{name}.tmmu.cbor.gz"
        file.write_bytes(native.encode(graph, file.name))
        print(
            f"{file.stat().st_size:>9,} B  {len(graph.nodes):>6,} nodes  {len(graph.tensors):>6,} tensors  {file.name}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
