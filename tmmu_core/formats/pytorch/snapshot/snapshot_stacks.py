"""Compute the label, path and phase of the recorded stack of an allocation.

Label and phase read a stack from its innermost frame outwards. The label skips frames of the unwinder, the allocator
and the interpreter. The first frame that matches a rule determines the phase code. The rules are those of Mosaic
(facebookresearch/mosaic, ``data_utils.py``), except that an inner frame takes precedence: a ``forward`` inside of the
backward pass is a recomputed activation, and an optimizer step inside of the backward pass is an optimizer step.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from tmmu_core.base.strict import register_types

CODE_COUNT = 10
NO_STACK, NO_PHASE, FORWARD, BACKWARD, OPTIMIZER, STATE, PARAMETER, INIT, ZERO_GRAD, WORKSPACE = range(CODE_COUNT)
"""Phase codes, in order: no frames; no frame that matches a rule; module or function call; autograd engine; optimizer
step; creation of optimizer state; creation, load or move of parameters; an ``__init__`` of any class; ``zero_grad``;
buffers of libraries and communication."""

UNKNOWN = "unknown line"
DEEPEST = 24  # maximum number of user frames in a path
_SKIPPED = re.compile(
    r"unwind::unwind|CapturedTraceback|gather_with_cpp|CachingAllocator|PyEval_|PyObject_|PyFunction_|_start$"
    r"|__libc_start|^c10::|^at::detail::empty|^at::(native::)?empty|cuda_malloc|GatheredContext"
)
_EMPTY = re.compile(r"empty|resize_|new_empty|as_strided")
_BACKWARD_NODE = re.compile(r"(\w*Backward\d*)\b")
_OPTIM = r"torch/optim/|apex/optimizers|deepspeed/ops/adam|bitsandbytes/optim"
_FSDP = r"/fsdp/|/_fsdp/|fully_shard"
_CPP = (
    (r"orkspace|CUDABlasHandle", WORKSPACE),
    (r"c10d::Reducer", BACKWARD),
    (r"^c10d::|ncclComm", WORKSPACE),
    (r"Backward\d*(::|\b.*apply)|torch::autograd::(Engine|AccumulateGrad|PyNode|CppNode|GraphTask)", BACKWARD),
)
_PYTHON = (
    (_OPTIM, r"zero_grad", ZERO_GRAD),
    (_OPTIM, r"_?init_(group|state)|load_state_dict", STATE),
    (_OPTIM, r"", OPTIMIZER),
    (_FSDP, r".*(all_gather|unshard|init_flat|init_sharded)", PARAMETER),
    (_FSDP, r".*(reduce|post_backward|grad)", BACKWARD),
    (r"torch/nn/utils/clip_grad|torch/amp/grad_scaler", r"", WORKSPACE),
    (r"torch/distributed/(distributed_c10d|algorithms/ddp)", r"", WORKSPACE),
    (r"torch/nn/modules/module\.py", r"(_wrapped)?_call_impl$", FORWARD),
    (r"torch/nn/modules/module\.py", r"_apply|to$|cuda$|half$|float$|to_empty|_?load", PARAMETER),
    (r"torch/nn/(parameter|init)\.py", r"", PARAMETER),
    (r"torch/nn/modules/", r"__init__$", PARAMETER),
    (r"torch/nn/functional\.py", r"", FORWARD),
    (r"torch/(autograd/(__init__|graph)|_tensor)\.py", r".*(backward|_make_grads|grad$)", BACKWARD),
    (r"", r"\w*backward(_impl|_step)?$", BACKWARD),
    (r"", r"\w*forward(_impl|_step)?$", FORWARD),
    (r"", r"reset_parameters|load_state_dict|from_pretrained|set_module_tensor", PARAMETER),
    (r"", r"__init__$", INIT),
)
"""``(file, function, phase)``: the first row with matching patterns applies. ``function`` matches from the start."""


class Frame(msgspec.Struct, gc=False, frozen=True):
    """One line of a stack."""

    filename: str = ""
    line: int = 0
    name: str = ""


register_types(Frame)


class Stacks:
    """Label, path and phase of each distinct stack, one row each; row 0 is for events without frames."""

    def __init__(self) -> None:
        self.lines = [UNKNOWN]  # ``model.py:12 Block.forward``: see :func:`label`
        self.paths: list[tuple[str, ...]] = [()]  # user frames from the outermost inwards: ``("train/main", …)``
        self.phases = [NO_STACK]
        self._row_of: dict[Any, int] = {}

    def row(self, frames: Any) -> int:
        """Return a stack's row. ``frames``: ``None``, ``msgspec.Raw``, or dicts in a list that the caller keeps."""
        if frames is None:
            return 0
        is_json = isinstance(frames, msgspec.Raw)
        key: Any = bytes(frames) if is_json else tuple(map(id, frames)) if isinstance(frames, list | tuple) else None
        row = self._row_of.get(key)
        if row is None:
            frames_type = list[Frame] | None
            decoded = msgspec.json.decode(key, type=frames_type) if is_json else msgspec.convert(frames, frames_type)
            row = self._row_of[key] = len(self.lines) if decoded else 0
            if decoded:
                self.lines.append(label(decoded))
                self.paths.append(path(decoded))
                self.phases.append(phase(decoded))
        return row


def label(frames: Sequence[Frame]) -> str:
    """Return the innermost Python line outside of PyTorch, else the backward node, the operator or another frame."""
    shown = [frame for frame in frames if not _SKIPPED.search(frame.name)]
    python = [frame for frame in shown if frame.filename.endswith(".py")]
    for frame in python:
        if not _is_torch(frame):
            return _line(frame)
    for frame in shown:
        node = None if frame.filename.endswith(".py") else _BACKWARD_NODE.search(frame.name)
        if node:
            return node[1]
    for frame in shown:
        if frame.name.startswith("at::_ops::") and not _EMPTY.match(frame.name, len("at::_ops::")):
            return frame.name.partition("(")[0].removesuffix("::call").removesuffix("::redispatch")[:80]
    return _line(python[0]) if python else (shown or frames)[0].name[:80] or UNKNOWN


def path(frames: Sequence[Frame]) -> tuple[str, ...]:
    """Return the active functions outside of PyTorch, at most :data:`DEEPEST`, from the outermost inwards."""
    functions: list[str] = []
    for frame in reversed(frames):
        if frame.filename.endswith(".py") and not _is_torch(frame):
            stem = _posix(frame.filename).rpartition("/")[2].removesuffix(".py")
            parts = [part for part in frame.name.split(".") if part not in ("<locals>", "<module>")]
            part = "/".join((stem, *parts)).replace(".", "_")
            if not functions or functions[-1] != part:
                functions.append(part)
    return tuple(functions[:DEEPEST])


def phase(frames: Sequence[Frame]) -> int:
    """Return the phase code of a stack with frames; ``FORWARD`` if no rule matches and a frame is compiled code."""
    is_compiled = False
    for frame in frames:
        if (code := _phase_of(frame.filename, frame.name)) is not None:
            return code
        is_compiled = is_compiled or "torchinductor_" in frame.filename
    return FORWARD if is_compiled else NO_PHASE


@lru_cache(1 << 14)
def _phase_of(file: str, name: str) -> int | None:
    if not file.endswith(".py"):
        return next((code for names, code in _CPP if re.search(names, name)), None)
    file, function = _posix(file), name.rpartition(".")[2]
    codes = (code for files, functions, code in _PYTHON if re.search(files, file) and re.match(functions, function))
    return next(codes, None)


def _posix(file: str) -> str:
    return file.replace("\\", "/")


def _is_torch(frame: Frame) -> bool:
    return "/torch/" in _posix(frame.filename) or "torchinductor_" in frame.filename


def _line(frame: Frame) -> str:
    return f"{_posix(frame.filename).rpartition('/')[2]}:{frame.line} {frame.name}"
