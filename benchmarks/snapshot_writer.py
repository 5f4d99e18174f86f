"""Write snapshots of PyTorch's allocator whose reserved peak and categories are known.

:class:`SnapshotWriter` has the calls of an allocator and returns a document like
``torch.cuda.memory._snapshot()``. :func:`transformer_steps` writes training steps of a transformer without PyTorch,
with the stacks, sizes and categories of real steps (AdamW, with and without checkpointing).
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tmmu_core.formats.pytorch.caching_allocator import Block, CachingAllocator

Frames = list[dict[str, Any]]
Document = dict[str, Any]


def frame(filename: str, line: int, name: str) -> dict[str, Any]:
    """Return one frame as PyTorch writes it."""
    return {"filename": filename, "line": line, "name": name}


@dataclass(eq=False)
class Held:
    """A live allocation."""

    block: Block
    size: int
    frames: Frames
    lane: tuple[int, tuple[int, int]]  # (stream, pool)
    category: str
    number: int = -1
    """Index into ``truth``; −1: allocated before the trace."""


@dataclass(eq=False)
class SnapshotWriter:
    """An allocator that records its calls. ``truth`` has the category of each allocation in the document."""

    frees_have_own_stack: bool = True
    is_recording: bool = True

    def __post_init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.held: dict[Hashable, Held] = {}
        self.mapped: dict[int, tuple[int, tuple[int, tuple[int, int]]]] = {}  # address of a segment → (bytes, lane)
        self.truth: list[tuple[str, int]] = []
        """``(category, bytes)`` per allocation event."""
        self.before: dict[int, tuple[str, int]] = {}
        """Address → ``(category, bytes)`` of allocations before the trace."""
        self.reserved_peak = 0
        """Peak of the reserved bytes during the recording."""
        self._lane: tuple[int, tuple[int, int]] = (0, (0, 0))
        self._clock = count()
        self.allocator = CachingAllocator(self._segment)

    def start(self) -> None:
        """Begin to record. Current allocations become allocations before the trace, without stacks."""
        self.is_recording, self.reserved_peak = True, self.allocator.reserved
        self.before = {one.block.addr: (one.category, one.size) for one in self.held.values()}
        for one in self.held.values():
            one.frames = []

    def alloc(
        self, key: Hashable, size: int, frames: Frames, category: str, stream: int = 0, pool: tuple[int, int] = (0, 0)
    ) -> None:
        """Allocate under a new key."""
        self._lane = stream, pool
        block = self.allocator.alloc(size, self._lane)
        number = len(self.truth) if self.is_recording else -1
        self.held[key] = Held(block, size, frames if self.is_recording else [], self._lane, category, number)
        if self.is_recording:
            self.truth.append((category, size))
        self._write("alloc", block.addr, size, frames)

    def free(self, key: Hashable, frames: Frames) -> None:
        """Free the allocation of a key."""
        one = self.held.pop(key)
        self._lane = one.lane
        shown = frames if self.frees_have_own_stack else one.frames
        self._write("free_requested", one.block.addr, one.size, shown)
        self._write("free_completed", one.block.addr, one.size, shown)
        self.allocator.free(one.block)

    def rename(self, key: Hashable, category: str) -> None:
        """Set the category of a live allocation."""
        one = self.held[key]
        one.category = category
        if one.number >= 0:
            self.truth[one.number] = category, one.size
        elif one.block.addr in self.before:
            self.before[one.block.addr] = category, one.size

    def _segment(self, action: str, addr: int, size: int) -> None:
        caller = self._lane
        if action == "segment_alloc":
            self.mapped[addr] = size, self._lane
        else:  # a segment of any stream and pool is freed
            _, self._lane = self.mapped.pop(addr)
        self.reserved_peak = max(self.reserved_peak, self.allocator.reserved)
        self._write(action, addr, size, [])
        self._lane = caller

    def _write(self, action: str, addr: int, size: int, frames: Frames) -> None:
        if self.is_recording:
            stream, pool = self._lane
            head = {"action": action, "addr": addr, "size": size, "stream": stream, "time_us": next(self._clock)}
            self.events.append(head | {"frames": frames, "pool_id": pool})

    def document(self, last: int | None = None) -> Document:
        """Return the snapshot; ``last``: number of events in the ring buffer of the recorder."""
        segments: list[dict[str, Any]] = []
        for addr, (size, (stream, pool)) in sorted(self.mapped.items()):
            segments.append(
                {
                    "device": 0,
                    "address": addr,
                    "total_size": size,
                    "stream": stream,
                    "segment_pool_id": pool,
                    "blocks": [],
                }
            )
        live = sorted(self.held.values(), key=lambda one: one.block.addr)
        at = 0
        for segment in segments:
            end = position = segment["address"]
            end += segment["total_size"]
            while at < len(live) and live[at].block.addr < end:
                one = live[at]
                _gap(segment, position, one.block.addr)
                state = {"address": one.block.addr, "size": one.block.size, "requested_size": one.size}
                segment["blocks"].append({**state, "state": "active_allocated", "frames": one.frames})
                position, at = one.block.addr + one.block.size, at + 1
            _gap(segment, position, end)
        return {"segments": segments, "device_traces": [self.events if last is None else self.events[-last:]]}


def _gap(segment: dict[str, Any], start: int, end: int) -> None:
    if start < end:
        free = {"address": start, "size": end - start, "requested_size": 0, "state": "inactive", "frames": []}
        segment["blocks"].append(free)


# --- a transformer, without PyTorch -----------------------------------------------------------------------------

_TORCH = "/opt/conda/lib/python3.11/site-packages/torch"
_MAIN = frame("/work/train.py", 88, "<module>")
_CALL = frame(f"{_TORCH}/nn/modules/module.py", 1776, "Module._call_impl")
_UNWIND = [
    frame("??", 0, "torch::unwind::unwind()"),
    frame("??", 0, "torch::CapturedTraceback::gather(bool, bool, bool)"),
    frame("??", 0, "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(int, unsigned long)"),
    frame("??", 0, "at::detail::empty_generic(c10::ArrayRef<long>, c10::Allocator*)"),
]


def engine_frames(node: str) -> Frames:
    """Return the frames of the thread that executes a backward node."""
    return [
        frame("??", 0, f"torch::autograd::generated::{node}::apply(std::vector<at::Tensor>&&)"),
        frame("??", 0, "torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&)"),
    ]


def allocation_frames(op: str) -> Frames:
    """Return the frames of an allocation in an ATen operator, as PyTorch reports them."""
    return [*_UNWIND, *([frame("??", 0, f"at::_ops::{op}::call(at::Tensor const&)")] if op else [])]


@dataclass(frozen=True)
class Transformer:
    """Sizes of a training run in elements, and settings of its recording."""

    layers: int = 12
    width: int = 768
    tokens: int = 4096
    vocabulary: int = 50_304
    steps: int = 2
    itemsize: int = 2
    is_checkpointed: bool = False
    has_cpp_frames: bool = True
    writer: SnapshotWriter = field(default_factory=SnapshotWriter)
    start_at_step: int = 0

    def stack(self, *inner: tuple[str, int, str], op: str = "", is_threaded: bool = False, node: str = "") -> Frames:
        """Return a stack: the unwinder, an ATen operator, Python frames, an autograd node."""
        cpp = allocation_frames(op)
        engine = engine_frames(node) if node else []
        python = [frame(*one) for one in inner]
        outer = [] if is_threaded else [_MAIN]
        return cpp + python + engine + outer if self.has_cpp_frames else python + outer

    def module(self, *inner: tuple[str, int, str], **how: Any) -> Frames:
        """Return the stack of a layer's forward."""
        block = [("/work/model.py", 40, "Block.forward"), (_CALL["filename"], _CALL["line"], _CALL["name"])]
        return self.stack(*inner, *block, ("/work/model.py", 71, "GPT.forward"), **how)


def transformer_steps(run: Transformer) -> SnapshotWriter:
    """Run training steps of a transformer; return their snapshot writer."""
    w, e, keys = run.writer, run.itemsize, count()
    w.is_recording = not run.start_at_step
    weights = {("embedding", 0): run.vocabulary * run.width}
    for layer in range(run.layers):
        for name, size in (("attention", 4), ("up", 4), ("down", 4)):
            weights[name, layer] = size * run.width**2
    made = run.stack(
        (f"{_TORCH}/nn/modules/linear.py", 106, "Linear.__init__"), ("/work/model.py", 20, "Block.__init__")
    )
    for key, size in weights.items():
        w.alloc(("weight", *key), size * e, made, "parameter")
    for step in range(run.steps):
        if run.start_at_step and step == run.start_at_step:
            w.start()
        w.alloc(("batch", step), run.tokens * 8, run.stack(("/work/data.py", 9, "next_batch")), "other")
        if step:
            w.free(("batch", step - 1), run.stack())
        _forward(run, w)
        _backward(run, w, weights, keys)
        _optimizer(run, w, weights, is_first=not step)
    return w


_INNER = (
    ("norm", 1, ("torch/nn/functional.py", 2900, "layer_norm"), "native_layer_norm"),
    ("qkv", 3, ("torch/nn/modules/linear.py", 125, "Linear.forward"), "addmm"),
    ("attention", 1, ("/work/model.py", 31, "Attention.forward"), "_scaled_dot_product_flash_attention"),
    ("up", 4, ("torch/nn/modules/linear.py", 125, "Linear.forward"), "addmm"),
    ("gelu", 4, ("/work/model.py", 44, "Block.forward"), "gelu"),
)


def _activations(run: Transformer, w: SnapshotWriter, layer: int, *, is_recomputed: bool = False) -> None:
    unit = run.tokens * run.width * run.itemsize
    for name, parts, (file, line, function), op in _INNER:
        inner = (file.replace("torch/", f"{_TORCH}/", 1), line, function)
        node = "AddmmBackward0" if is_recomputed else ""
        stack = run.module(inner, op=op, is_threaded=is_recomputed, node=node)
        w.alloc((name, layer), parts * unit, stack, "activation")


def _forward(run: Transformer, w: SnapshotWriter) -> None:
    unit = run.tokens * run.width * run.itemsize
    for layer in range(run.layers):
        _activations(run, w, layer)
        w.alloc(("out", layer), unit, run.module(op="add"), "activation")
        if run.is_checkpointed:
            for name, *_ in _INNER:
                w.free((name, layer), run.module())
    loss = run.stack((f"{_TORCH}/nn/functional.py", 3400, "cross_entropy"), op="_log_softmax")
    w.alloc(
        "logits",
        run.tokens * run.vocabulary * run.itemsize,
        run.stack(("/work/model.py", 75, "GPT.forward")),
        "activation",
    )
    w.alloc("softmax", run.tokens * run.vocabulary * 4, loss, "activation")


def _backward(run: Transformer, w: SnapshotWriter, weights: dict[Any, int], keys: Any) -> None:
    unit = run.tokens * run.width * run.itemsize

    def gradient(node: str) -> Frames:
        return run.stack(op="mm", node=node, is_threaded=True)

    freed = gradient("AddmmBackward0")
    w.alloc("d logits", run.tokens * run.vocabulary * run.itemsize, gradient("LogSoftmaxBackward0"), "gradient")
    for key in ("softmax", "logits"):
        w.free(key, freed)
    w.alloc(("grad", "embedding", 0), weights["embedding", 0] * run.itemsize, gradient("AddmmBackward0"), "gradient")
    flow = next(keys)
    w.alloc(flow, unit, gradient("AddmmBackward0"), "gradient")
    w.free("d logits", freed)
    for layer in reversed(range(run.layers)):
        if run.is_checkpointed:
            _activations(run, w, layer, is_recomputed=True)
        for name, parts in (("down", 4), ("gelu", 4), ("up", 1), ("attention", 3)):
            into = next(keys)
            w.alloc(into, parts * unit, gradient("GeluBackward0" if name == "gelu" else "AddmmBackward0"), "gradient")
            if (name, layer) in weights:
                size = weights[name, layer] * run.itemsize
                w.alloc(("grad", name, layer), size, gradient("AddmmBackward0"), "gradient")
            w.free(flow, freed)
            flow = into
        for name, *_ in (*_INNER, ("out",)):
            w.free((name, layer), freed)
        into = next(keys)
        w.alloc(into, unit, gradient("NativeLayerNormBackward0"), "gradient")
        w.free(flow, freed)
        flow = into
    w.free(flow, freed)


def _optimizer(run: Transformer, w: SnapshotWriter, weights: dict[Any, int], *, is_first: bool) -> None:
    adam, optimizer = f"{_TORCH}/optim/adam.py", f"{_TORCH}/optim/optimizer.py"
    outer = ((adam, 243, "Adam.step"), (optimizer, 515, "Optimizer.profile_hook_step.<locals>.wrapper"))
    state = run.stack((adam, 177, "Adam._init_group"), *outer, op="zeros_like")
    temporary = run.stack((adam, 640, "_multi_tensor_adam"), *outer, op="_foreach_sqrt")
    for name, size in weights.items() if is_first else ():
        for which in range(2):
            w.alloc(("state", which, *name), size * run.itemsize, state, "optimizer_state")
    for name, size in weights.items():
        w.alloc(("sqrt", *name), size * run.itemsize, temporary, "other")
    for name in weights:
        w.free(("sqrt", *name), temporary)
    zero = run.stack((optimizer, 1020, "Optimizer.zero_grad"))
    for name in weights:
        w.free(("grad", *name), zero)
