"""PyTorch: a module, or an exported program, to the graph of its forward pass or of a whole training step.

::

    module + example inputs ─► AOTAutograd under fake tensors ─► joint graph ─► fx_joint ─► Graph ─► adamw

Nothing is computed and no weight is needed: tensors have a shape, a dtype and a storage, but no bytes. The joint graph
is what the eager framework runs, operator by operator, with no decompositions and no fusion. This module is the only
one that starts PyTorch; the package's extra ``torch`` brings it.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Literal, NamedTuple

from tmmu_core.errors import InvalidIrShapes, MissingExtra, UnreadableInput
from tmmu_core.extras import install
from tmmu_core.graph.importers import fx_child
from tmmu_core.graph.importers.adamw import add_adamw
from tmmu_core.graph.importers.pt2_graph import as_saved
from tmmu_core.graph.importers.pt2_names import asked_for, with_dims
from tmmu_core.graph.importers.pt2_program import read_program, refuses
from tmmu_core.graph.model import Dim, Graph

__all__ = ["fake_tensors", "import_torch", "read", "refuses"]

ADD_THE_EXTRA = install("torch")


def import_torch(
    module: Any,
    example_inputs: Sequence[Any] | Mapping[str, Any] = (),
    *,
    train: bool = True,
    optimizer: Literal["adamw"] | None = None,
    loss: Callable[[Any], Any] | None = None,
    name: str = "",
) -> Graph:
    """The graph of ``module``, an ``nn.Module`` or a ``torch.export.ExportedProgram``, on ``example_inputs``.

    ``example_inputs`` are its positional arguments (a sequence) or its keyword arguments (a mapping); for an exported
    program they may be left out when it was saved with its own. Parameters and inputs may be real, on the ``meta``
    device, or made under :func:`fake_tensors`, which is how a model larger than this machine is built.

    ``train`` gives forward and backward, tensors that the backward pass reads marked ``saved_for_backward``, parameter
    gradients as outputs; without it the forward pass alone, under ``no_grad``. ``loss`` picks what is differentiated
    from what the module returns (its ``loss`` attribute where it has one, else all of it). ``optimizer="adamw"`` adds
    one step per parameter, with states in float32 and float32 masters for narrower parameters.

    Raises ``UnreadableInput`` when PyTorch is not installed or the module cannot be traced, ``InvalidIrShapes`` for
    options that mean nothing together.
    """
    if optimizer not in (None, "adamw"):
        raise InvalidIrShapes(
            f"there is no optimizer {optimizer!r}.", reason="unknown_optimizer", node_id="", hint="Choose: adamw."
        )
    if optimizer and not train:
        raise InvalidIrShapes(
            "an optimizer step needs gradients, and train is off.",
            reason="optimizer_without_gradients",
            node_id="",
            hint="Leave train on, or leave the optimizer out.",
        )
    torch = _torch("a PyTorch model")
    module = getattr(module, "_orig_mod", module)  # what torch.compile wraps
    exported = module if isinstance(module, torch.export.ExportedProgram) else None
    name = name or (exported.graph_module if exported else module)._get_name()
    args, kwargs = _arguments(exported, example_inputs)
    module = exported.module(check_guards=False) if exported else module
    call = _Call(args, kwargs, _input_names(module, args, kwargs))
    joint = _trace(_Chosen.around(module, loss), call, train, name)
    return add_adamw(joint.graph, joint.gradients) if optimizer == "adamw" else joint.graph


def import_rebuilt(module: Any, name: str) -> Graph:
    """The graph of ``module``, a saved program built anew (``fx_program.Rebuilt``): a training step of a loss."""
    call = _Call(tuple(module.example), {}, module.input_names)
    graph: Graph = _trace(_Chosen.around(module, None), call, module.is_loss, name).graph
    return graph


@contextlib.contextmanager
def fake_tensors(dtype: str = "float32") -> Iterator[None]:
    """Inside, every new tensor is a fake one (no memory), ``dtype`` where none is asked for.

    ``module.to(dtype)`` works inside, too, and nowhere else: fake parameters refuse it.
    """
    torch = _torch("a model of fake tensors")
    from tmmu_core.graph.importers.fx_fakes import convertible
    from tmmu_core.graph.importers.fx_values import while_built

    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        with _fake_mode(), while_built(), convertible():
            yield
    finally:
        torch.set_default_dtype(before)


def read(data: bytes, name: str = "", envelopes: Mapping[str, Dim] | None = None) -> Graph:
    """A saved exported program, of which nothing is run (``pt2_program``).

    With PyTorch, its joint graph: a training step when its only output is a scalar and it has a parameter to learn.
    Without, and where PyTorch cannot trace it, its forward pass as it is saved; the graph's name says so. Open sizes
    stand at the example's, or at the upper ends of ``envelopes``.
    """
    envelopes = envelopes or {}
    program = read_program(data, name)
    point = asked_for(program, envelopes)
    program = program.at(point)
    stem = PurePath(name).name.removesuffix(".pt2") or "exported program"
    saved = with_dims(as_saved(program, f"{stem} (as saved)"), program, envelopes)
    if not fx_child.installed():
        return saved
    found = fx_child.traced(data, stem, point)
    return saved if isinstance(found, str) else with_dims(found, program, envelopes)


def _torch(what: str) -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingExtra(f"{what} needs PyTorch, which is not installed.", hint=f"Add it: {ADD_THE_EXTRA}") from error
    return torch


def _arguments(exported: Any, given: Sequence[Any] | Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(given, Mapping):
        return (), dict(given)
    if not given and exported is not None and exported.example_inputs is not None:
        args, kwargs = exported.example_inputs
        return tuple(args), dict(kwargs)
    return tuple(given), {}


def _fake_mode() -> Any:
    from tmmu_core.graph.importers.fx_fakes import shared_mode

    return shared_mode()


class _Chosen:
    """A module that returns of another one only what is differentiated. A class made late: PyTorch is optional."""

    @staticmethod
    def around(module: Any, loss: Callable[[Any], Any] | None) -> Any:
        import torch

        from tmmu_core.graph.importers.fx_fakes import opened

        class Chosen(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.module = module

            def forward(self, *args: Any, **kwargs: Any) -> Any:
                output = self.module(*args, **kwargs)
                if loss is not None:
                    return loss(output)
                found = getattr(output, "loss", None)
                return opened(output) if found is None else found

        return Chosen()


def _input_names(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """What the module itself calls its arguments; parts of a nested argument are told by their place in it."""
    import torch

    try:
        named = list(inspect.signature(module.forward).parameters)
    except (TypeError, ValueError):
        named = []
    names = []
    for (side, *rest), _ in torch.utils._pytree.tree_flatten_with_path((args, kwargs))[0]:
        keys = [str(getattr(key, "idx", getattr(key, "key", getattr(key, "name", "?")))) for key in rest]
        if side.idx == 0:
            at = int(keys[0])
            keys[0] = named[at] if at < len(named) else f"input_{at}"
        names.append(".".join(keys))
    return names


class _Call(NamedTuple):
    """What a module is called with."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    input_names: Sequence[str]
    """What its arguments are called, one by one, nested ones opened."""


def _trace(module: Any, call: _Call, train: bool, name: str) -> Any:
    """The joint graph (``fx_joint.Joint``), the module left in the mode it was in."""
    import torch

    try:
        from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
    except ImportError as error:
        raise UnreadableInput(
            f"PyTorch {torch.__version__} cannot give a joint graph with descriptors.",
            source=name,
            hint="Use a newer PyTorch; 2.13 is known to do.",
        ) from error

    from tmmu_core.graph.importers import fx_origins
    from tmmu_core.graph.importers.fx_fakes import StandIns
    from tmmu_core.graph.importers.fx_joint import read_joint
    from tmmu_core.graph.importers.fx_values import while_traced

    tensors = [*module.parameters(), *module.buffers(), *torch.utils._pytree.tree_leaves((call.args, call.kwargs))]
    mode = next((t.fake_mode for t in tensors if hasattr(t, "fake_mode")), None) or _fake_mode()
    stand_ins = StandIns(mode)
    was_training = {part: part.training for part in module.modules()}
    for part in module.module.modules():
        with contextlib.suppress(NotImplementedError):  # an exported program keeps the mode it was exported in
            part.training = train
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(mode)
            stack.enter_context(torch.set_grad_enabled(train))
            stack.enter_context(while_traced(train))
            stack.enter_context(stand_ins.inside(module))
            stack.enter_context(fx_origins.kept(module.module))
            args, kwargs = stand_ins.among((call.args, call.kwargs))
            try:
                joint = aot_export_joint_with_descriptors(stack, module, args, kwargs)
            except Exception as error:  # whatever the model's own code raises under fake tensors
                raise _not_traceable(error, name) from error
            return read_joint(joint.graph_module, mode, name, call.input_names)
    finally:
        for part, training in was_training.items():
            with contextlib.suppress(NotImplementedError):
                part.training = training


def _not_traceable(error: Exception, name: str) -> UnreadableInput:
    line = next(iter(str(error).strip().splitlines()), "")
    words = f"{type(error).__name__}{': ' if line else ''}{line}"
    for mark, hint in _WAYS_OUT:
        if mark in words:
            return UnreadableInput(f"the module cannot be traced without data: {words}.", source=name, hint=hint)
    return UnreadableInput(f"the module cannot be traced: {words}.", source=name, hint=_RUN_IT)


_VALUES = (
    "Its shapes and branches must not depend on the values in its tensors: switch such a branch off in the model's "
    "configuration, or give its result as an input."
)
_EXPERTS = (
    "A mixture of experts of transformers is traced in bfloat16 as it is, or with "
    'experts_implementation="batched_mm" in its configuration.'
)
_WAYS_OUT = (
    ("nonzero", f"{_VALUES} {_EXPERTS}"),
    ("mat_a.dtype", _EXPERTS),
    ("DataDependent", _VALUES),
    ("DynamicOutputShape", _VALUES),
    ("unbacked", "How often a loop runs must not depend on the values in its tensors: give it a fixed count."),
)
"""Part of what PyTorch says → the way out."""
_RUN_IT = (
    "These are the words of PyTorch or of the model itself: see that the module runs on these example inputs, "
    "forward and backward, with nothing but tensors, numbers and containers of them going in."
)
