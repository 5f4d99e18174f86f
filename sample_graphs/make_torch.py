"""Write the samples from PyTorch: ``python -m sample_graphs.make_torch [NAME …]``. Every run writes the same bytes.

It needs ``pip install 'tmmu-plan-explorer[torch]' transformers``. Models are built from published dimensions under
fake tensors: no weights exist, so that 405 billion parameters take no memory.

In training, attention is computed with plain operators (``eager``), which keep the same tensors as a framework without
fused kernels. In inference it is one fused operator (``sdpa``). ``python -m sample_graphs.make_torch settings`` prints
the figures of other settings and writes no file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tmmu_core.formats.pytorch.torch_module import fake_tensors, import_torch
from tmmu_core.graph.model import Graph
from tmmu_core.graph.native import native_file

HERE = Path(__file__).parent
IN_TRAINING, IN_INFERENCE = "eager", "sdpa"


def tokens(batch: int, length: int, *, labels: bool) -> dict[str, Any]:
    """Return token ids and, for a training step, the target tokens."""
    words = torch.zeros(batch, length, dtype=torch.long)
    return {"input_ids": words, "labels": torch.zeros_like(words)} if labels else {"input_ids": words}


def _settings(train: bool, attention: str) -> dict[str, Any]:
    """Arguments of all language models."""
    return {"attn_implementation": attention or (IN_TRAINING if train else IN_INFERENCE), "use_cache": False}


def gpt2(*, train: bool, batch: int, length: int, attention: str = "", dropout: float = 0.1, loss: Any = None) -> Graph:
    """Return GPT-2 small: 12 layers of 768, tied embedding, dropout 0.1."""
    from transformers import GPT2Config, GPT2LMHeadModel

    off = {"resid_pdrop": dropout, "embd_pdrop": dropout, "attn_pdrop": dropout}
    with fake_tensors():
        model = GPT2LMHeadModel(GPT2Config(loss_type="ForCausalLM", **off, **_settings(train, attention)))
        given = tokens(batch, length, labels=train and loss is None)
    return import_torch(model, given, train=train, loss=loss or (None if train else _logits))


def bert(*, train: bool, batch: int, length: int, attention: str = "") -> Graph:
    """Return BERT base with masked-language-model head: 12 layers of 768, dropout 0.1."""
    from transformers import BertConfig, BertForMaskedLM

    with fake_tensors():
        model = BertForMaskedLM(BertConfig(loss_type="ForMaskedLM", **_settings(train, attention)))
        given = tokens(batch, length, labels=train)
    return import_torch(model, given, train=train, loss=None if train else _logits)


def llama3(
    *, train: bool, batch: int, length: int, hidden: int, ffn: int, layers: int, heads: int, attention: str = ""
) -> Graph:
    """Return Llama 3 with 8 key-value heads, vocabulary 128,256, bfloat16."""
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
                **_settings(train, attention),
            )
        )
        given = tokens(batch, length, labels=train)
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
    """ResNet-50 (the same paper, table 1); with labels it returns the loss."""

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
"""File name without extension → function that makes the sample."""


SETTINGS: dict[str, Callable[[], Graph]] = {
    "GPT-2 small, plain operators, dropout 0.1": lambda: gpt2(train=True, batch=1, length=1024),
    "GPT-2 small, plain operators, no dropout": lambda: gpt2(train=True, batch=1, length=1024, dropout=0.0),
    "GPT-2 small, plain operators, dropout 0.1, logits summed up for a loss": lambda: gpt2(
        train=True, batch=1, length=1024, loss=_sum_of_logits
    ),
    "GPT-2 small, `sdpa` (plain math, for there is dropout)": lambda: gpt2(
        train=True, batch=1, length=1024, attention="sdpa"
    ),
    "GPT-2 small, `sdpa`, no dropout (one fused operator)": lambda: gpt2(
        train=True, batch=1, length=1024, attention="sdpa", dropout=0.0
    ),
    "BERT base, plain operators": lambda: bert(train=True, batch=8, length=512),
    "BERT base, `sdpa` (plain math, for there is dropout)": lambda: bert(
        train=True, batch=8, length=512, attention="sdpa"
    ),
    "Llama 3 8B, plain operators": lambda: llama3_8b(train=True, batch=1, length=2048),
    "Llama 3 8B, `sdpa` (one fused operator)": lambda: llama3_8b(train=True, batch=1, length=2048, attention="sdpa"),
}
"""Setting on the page ``docs/measured/models.md`` → function that makes the graph."""


def _sum_of_logits(output: Any) -> Any:
    return output.logits.sum()


def settings() -> None:
    """Print a table row for each of :data:`SETTINGS`; views are not counted as storages."""
    from tests.support import step_checks

    for setting, made in SETTINGS.items():
        graph = made()
        own = sum(tensor.view is None for tensor in graph.tensors)
        saved = step_checks.saved_bytes(graph)
        print(f"| {setting} | {len(graph.nodes):,} | {len(graph.tensors):,} | {own:,} | {saved:,} |", flush=True)


def main(names: list[str]) -> None:
    import msgspec

    for name in names or SAMPLES:
        graph = msgspec.structs.replace(SAMPLES[name](), name=name)
        file = HERE / f"{name}.tmmu.cbor.gz"
        file.write_bytes(native_file.encode(graph, file.name))
        print(
            f"{file.stat().st_size:>9,} B  {len(graph.nodes):>6,} nodes  {len(graph.tensors):>6,} tensors  {file.name}"
        )


if __name__ == "__main__":
    settings() if sys.argv[1:] == ["settings"] else main(sys.argv[1:])
