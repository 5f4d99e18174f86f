"""Record training steps of real PyTorch modules on the CPU as snapshots of a CUDA allocator.

Allocations, frees and Python stacks are those of PyTorch: a dispatch mode reports each new storage and its end. A model
of the allocator computes addresses and segments. Categories are derived from the tensors (parameters and buffers of
the module, ``grad`` of a parameter, storages in ``optimizer.state``) and from the running call (forward, backward,
step), never from stacks. Needs PyTorch.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from benchmarks.snapshot_writer import Frames, SnapshotWriter, allocation_frames, engine_frames, frame

SCALE = 64
"""Factor between the bytes in the snapshot and the bytes on the CPU."""
_HIDDEN = ("_dynamo/eval_frame.py", "torch/_compile.py", "_python_dispatch.py", __file__)
"""Source files whose frames exist only because of the recording."""


@dataclass(frozen=True)
class Scenario:
    """Settings of a training run and of its recording."""

    name: str
    build: Callable[[], nn.Module]
    batch: Callable[[], torch.Tensor]
    optimizer: Callable[[Any], torch.optim.Optimizer] = torch.optim.AdamW
    steps: int = 2
    start_at_step: int = 0
    has_cpp_frames: bool = True
    autocast: bool = False
    writer: Callable[[], SnapshotWriter] = field(default=SnapshotWriter)


class Recorder(TorchDispatchMode):
    """Report each storage that PyTorch allocates and frees."""

    def __init__(self, writer: SnapshotWriter, has_cpp_frames: bool) -> None:
        super().__init__()
        self.writer, self.has_cpp_frames = writer, has_cpp_frames
        self.live: dict[int, tuple[StorageWeakRef, int]] = {}
        self.count = self.depth = 0
        self.phase = "other"
        self.number_of: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator and report its new storages."""
        self.sweep()
        out = func(*args, **(kwargs or {}))
        node = torch._C._current_autograd_node()
        frames = self._frames(func.name().removeprefix("aten::").partition(".")[0], node.name() if node else "")
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "cpu":
                storage = tensor.untyped_storage()
                if storage._cdata not in self.live and storage.nbytes():
                    self.live[storage._cdata] = StorageWeakRef(storage), self.count
                    self.writer.alloc(self.count, storage.nbytes() * SCALE, frames, self._category())
                    self.count += 1
        return out

    def _category(self) -> str:
        if self.phase == "backward" and self.depth:
            return "activation"  # recomputed
        return {"forward": "activation", "backward": "gradient"}.get(self.phase, "other")

    def sweep(self) -> None:
        """Report the storages that died."""
        gone = [key for key, (storage, _) in self.live.items() if storage.expired()]
        frames = self._frames("", "") if gone else []
        for key in gone:
            self.writer.free(self.live.pop(key)[1], frames)

    def name(self, tensors: Iterator[torch.Tensor], category: str) -> None:
        """Set the category of live storages."""
        for tensor in tensors:
            number = self.live.get(tensor.untyped_storage()._cdata, (None, -1))[1]
            if number in self.writer.held:
                self.writer.rename(number, category)

    def _frames(self, op: str, node: str) -> Frames:
        python: Frames = []
        is_threaded = False
        running: FrameType | None = sys._getframe(2)
        while running is not None:
            code = running.f_code
            if code.co_name == "_engine_run_backward":  # on a GPU the engine runs in a separate thread
                is_threaded = True
                break
            if not code.co_filename.endswith(_HIDDEN):
                python.append(frame(code.co_filename, running.f_lineno, code.co_qualname))
            running = running.f_back
        engine = engine_frames(node or "GraphRoot") if is_threaded else []
        return [*allocation_frames(op), *python, *engine] if self.has_cpp_frames else python

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Set the phase of the operators that run in the block."""
        self.phase, before = phase, self.phase
        yield
        self.phase = before

    def watch(self, module: nn.Module) -> None:
        """Count the active calls of modules."""

        def enter(*_: Any) -> None:
            self.depth += 1

        def leave(*_: Any) -> None:
            self.depth -= 1

        for each in module.modules():
            each.register_forward_pre_hook(enter)
            each.register_forward_hook(leave, always_call=True)


def record(scenario: Scenario) -> SnapshotWriter:
    """Run a scenario; return its snapshot and the true values."""
    torch.manual_seed(0)
    writer = scenario.writer()
    writer.is_recording = not scenario.start_at_step
    recorder = Recorder(writer, scenario.has_cpp_frames)
    with recorder:
        module = scenario.build()
        recorder.watch(module)
        optimizer = scenario.optimizer(module.parameters())
        for step in range(scenario.steps):
            if scenario.start_at_step and step == scenario.start_at_step:
                recorder.sweep()
                writer.start()
            batch = scenario.batch()
            train_step(recorder, module, optimizer, batch, autocast=scenario.autocast)
            for group, category in (
                ([*module.parameters(), *module.buffers()], "parameter"),
                ([v for s in optimizer.state.values() for v in s.values() if torch.is_tensor(v)], "optimizer_state"),
            ):
                recorder.name(iter(group), category)
        recorder.sweep()
    return writer


def train_step(
    recorder: Recorder, module: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor, *, autocast: bool
) -> None:
    """Run one training step."""
    with recorder.during("forward"), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        out = module(batch)
        loss = out.float().pow(2).mean()
    del out
    with recorder.during("backward"):
        loss.backward()
    with recorder.during("optimizer"):
        optimizer.step()
        optimizer.zero_grad()


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return attended tokens."""
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    """A transformer block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.attention, self.norm2 = nn.LayerNorm(width), Attention(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        x = x + self.attention(self.norm(x))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """A small GPT; ``is_checkpointed`` recomputes every block."""

    def __init__(self, width: int = 64, layers: int = 4, *, is_checkpointed: bool = False) -> None:
        super().__init__()
        self.embedding, self.is_checkpointed = nn.Embedding(1000, width), is_checkpointed
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.head = nn.Linear(width, 1000)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.is_checkpointed else block(x)
        return self.head(x)


def conv_net() -> nn.Module:
    """Return a small convolutional network with batch norm."""
    layers: list[nn.Module] = []
    for inner, outer in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(inner, outer, 3, padding=1), nn.BatchNorm2d(outer), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 16, 10))


def tokens() -> torch.Tensor:
    """Return a batch of token ids."""
    return torch.randint(0, 1000, (4, 64))


def images() -> torch.Tensor:
    """Return a batch of images."""
    return torch.randn(8, 3, 32, 32)


def _sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def _adam_foreach(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, foreach=True)


def _frees_as_allocs() -> SnapshotWriter:
    return SnapshotWriter(frees_have_own_stack=False)


SCENARIOS = (
    Scenario("GPT, AdamW, C++ frames", Gpt, tokens),
    Scenario("GPT, AdamW, Python frames", Gpt, tokens, has_cpp_frames=False),
    Scenario("GPT, checkpointed", lambda: Gpt(is_checkpointed=True), tokens, steps=3),
    Scenario("GPT, checkpointed, Python frames", lambda: Gpt(is_checkpointed=True), tokens, has_cpp_frames=False),
    Scenario("GPT, bfloat16 autocast, Adam foreach", Gpt, tokens, _adam_foreach, autocast=True),
    Scenario("GPT, recorded from the second step", Gpt, tokens, steps=3, start_at_step=1),
    Scenario(
        "GPT, second step, Python frames, frees without stack",
        Gpt,
        tokens,
        steps=3,
        start_at_step=1,
        has_cpp_frames=False,
        writer=_frees_as_allocs,
    ),
    Scenario("CNN, SGD with momentum", conv_net, images, _sgd),
    Scenario("CNN, SGD, Python frames, second step", conv_net, images, _sgd, 3, 1, has_cpp_frames=False),
)
