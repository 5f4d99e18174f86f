"""Trace a module under fake tensors to AOTAutograd's joint graph."""

import contextlib
import inspect
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorConverter
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_flatten_with_path, tree_leaves, tree_map_only

import tmmu_core
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.pytorch.joint_graph import fx_fake_tensors, fx_origins, fx_state
from tmmu_core.formats.pytorch.joint_graph.fx_fake_tensors import objects_as_containers
from tmmu_core.graph.model import Graph

TRACING = threading.RLock()  # held during a trace, which changes global state of PyTorch and the module's tensors


@dataclass
class Observed:
    """Facts about a forward pass that the joint graph does not contain."""

    changed: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """Path of a changed attribute → its values before and after the pass (``state_restored``)."""
    result_bytes: tuple[int, ...] = ()  # bytes of the gradient of each result, 0 if it needs none
    outside: Sequence[torch.Tensor] = ()  # tensors that get a gradient and are not in the trace


class Call(NamedTuple):
    """Example arguments for the module's forward pass."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    input_names: Sequence[str]  # names of the flattened arguments

    @classmethod
    def of(cls, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> "Call":
        """Return a call of ``module``. Arguments are positional where possible; default values are omitted."""
        parameters: Mapping[str, inspect.Parameter] = {}
        with contextlib.suppress(TypeError, ValueError):  # without a signature, or with missing arguments
            signature = inspect.signature(module.forward)
            parameters = signature.parameters
            bound = signature.bind(*args, **kwargs)
            has_more = inspect.Parameter.VAR_POSITIONAL in {parameters[name].kind for name in bound.arguments}
            for name, each in parameters.items() if not has_more else ():
                if name in bound.arguments and bound.arguments[name] is each.default:
                    del bound.arguments[name]
            args, kwargs = bound.args, bound.kwargs
        names: list[str] = []  # ``x``, or ``x.0`` with a position or key in a container; each once
        for (side, *path), _ in tree_flatten_with_path((args, kwargs))[0]:
            keys = [str(getattr(key, "idx", getattr(key, "key", getattr(key, "name", "?")))) for key in path]
            if side.idx == 0:
                k = int(keys[0])
                keys[0] = list(parameters)[k] if k < len(parameters) else f"input_{k}"
            names.append(".".join(keys) if ".".join(keys) not in names else f"{'.'.join(keys)}_{len(names)}")
        return cls(args, kwargs, names)


def new_leaves(arguments: Any) -> Any:
    """Return ``arguments`` with new leaves for all tensors but parameters: the same storage, without ``grad``."""
    leaves: dict[int, Any] = {}

    def new_leaf(value: torch.Tensor) -> Any:
        if not isinstance(value, torch.nn.Parameter):
            leaves.setdefault(id(value), value.detach().requires_grad_(value.requires_grad))
        return leaves.get(id(value), value)

    return tree_map_only(torch.Tensor, new_leaf, arguments)


def with_loss(module: Any, loss: Callable[[Any], Any] | None) -> Any:
    """Return a module that runs ``module``, then returns ``loss(output)``, or ``output.loss``, or the output itself."""

    class WithLoss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module, self.loss = module, loss

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            output = self.module(*args, **kwargs)
            if self.loss is None:
                own_loss = getattr(output, "loss", None)
                return _each_once(objects_as_containers(output)) if own_loss is None else own_loss
            try:
                result = self.loss(output)
            except TypeError as error:
                if callable(loss) and "required positional argument" not in str(error):
                    raise
                hint = "Give a function of the module's output. "
                hint += "For labels, give a module that takes them and returns the loss."
                raise UnreadableInput(f"loss: {error}.", hint=hint) from error
            if torch.is_grad_enabled() and _has_gradient(objects_as_containers(output)) and not _has_gradient(result):
                hint = "Return a floating-point tensor that is computed from the module's output and is not detached."
                raise UnreadableInput("loss: the result has no gradient.", hint=hint)
            return result

    return WithLoss()


def _each_once(results: Any) -> Any:
    """Return ``results`` with a view for each repetition of a tensor, for which AOTAutograd would allocate zeros."""
    seen: set[int] = set()

    def once(value: torch.Tensor) -> torch.Tensor:
        is_new = id(value) not in seen
        seen.add(id(value))
        return value if is_new else value.view_as(value)

    return tree_map_only(torch.Tensor, once, results)


def _has_gradient(values: Any) -> bool:
    return any(isinstance(each, torch.Tensor) and each.requires_grad for each in tree_leaves(values))


def joint_of(module: Any, call: Call, train: bool, name: str) -> Graph:
    """Return the graph of a step (``train``), or a forward pass in evaluation mode; ``module``: :func:`with_loss`."""
    modes = [(part, part.training) for part in module.modules()]
    for part in module.module.modules():
        part.training = train
    try:
        with torch.set_grad_enabled(train), exported_joint(module, call, name, eager=False) as (joint, mode, _):
            from tmmu_core.formats.pytorch.joint_graph.fx_joint import JointReader  # an older PyTorch cannot import it

            reader = JointReader(joint.graph_module, call.input_names)
            reader.run_on_placeholders(mode)
            return reader.native(name)
    finally:
        for part, training in modes:
            part.training = training


@contextlib.contextmanager
def exported_joint(
    module: Any, call: Call, name: str, *, stand_in: bool = True, eager: bool = True
) -> Iterator[tuple[Any, Any, Observed]]:
    """Yield AOTAutograd's joint graph of ``module`` with descriptors, its fake mode, and an ``Observed``.

    ``stand_in``: tensors on devices that this machine does not have are traced as if they were on the CPU. In a
    training step, dropout is one operator with a byte mask. With ``eager``, if all tensors are real and on the CPU, it
    is three operators with a float mask, as in eager mode. The joint graph can be compiled in the ``with`` block.
    Raises ``UnreadableInput`` if the module cannot be traced.
    """
    try:
        from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
    except ImportError as error:
        what = f"PyTorch {torch.__version__} cannot trace a joint graph with descriptors."
        raise UnreadableInput(what, source=name, hint="Use a newer PyTorch, such as 2.13.") from error
    tensors = [*module.parameters(), *module.buffers(), *tree_leaves((call.args, call.kwargs))]
    refuse_inputs(module, call, name)
    mode = fx_fake_tensors.mode_of(tensors)
    with contextlib.ExitStack() as stack:
        stack.enter_context(TRACING)
        stack.enter_context(fx_state.random_state_kept(module))
        mode.fake_tensor_converter = FakeTensorConverter()  # the old one caches ``requires_grad``, which may change
        values = [each for each in tensors if isinstance(each, torch.Tensor)]
        real = [each for each in values if not hasattr(each, "fake_mode")]
        # A tensor that is a part of its storage would get too small a fake storage: convert whole storages first.
        parts = [each for each in real if each.untyped_storage().nbytes() > each.nbytes]
        wholes = [torch.empty(0, dtype=torch.uint8, device=each.device).set_(each.untyped_storage()) for each in parts]
        fake_wholes = list(map(mode.from_tensor, wholes))
        stack.callback(fake_wholes.clear)
        stack.enter_context(fx_state.state_restored(module))  # PyTorch does not restore shared submodules
        stack.enter_context(fx_fake_tensors.uncompiled(module))
        observed = _watch_forward(module, stack)
        stack.enter_context(mode)
        if torch.is_grad_enabled():  # oneDNN's LSTM saves no tensors for a traced backward pass
            stack.callback(torch._C._set_mkldnn_enabled, torch._C._get_mkldnn_enabled())
            torch._C._set_mkldnn_enabled(False)
        runs_as_eager = eager and len(real) == len(values) and all(each.device.type == "cpu" for each in real)
        stack.enter_context(fx_fake_tensors.while_traced(fused_dropout=torch.is_grad_enabled() and not runs_as_eager))
        stack.enter_context(fx_fake_tensors.cudnn_disabled(module))
        stack.enter_context(fx_origins.origins_in_meta(module.module))
        args, kwargs = call.args, call.kwargs
        if stand_in:
            stand_ins = fx_fake_tensors.StandIns(mode)
            stack.enter_context(stand_ins.in_module(module))
            args, kwargs = tree_map_only(torch.Tensor, stand_ins.of, (args, kwargs))
        try:
            joint = aot_export_joint_with_descriptors(stack, module, args, kwargs)
        except Exception as error:  # whatever the model's own code raises under fake tensors
            raise trace_error(error, name, module) from error
        nodes = joint.graph_module.graph.nodes
        read = {id(getattr(joint.graph_module, node.target, None)) for node in nodes if node.op == "get_attr"}
        replaced = [path for path, (old, _) in observed.changed.items() if any(id(t) in read for t in tree_leaves(old))]
        if replaced:  # the joint graph reads the old values, but the next step would read the new ones
            raise state_error(replaced, name)
        _draw_in_memory_order(joint.graph_module, mode)
        yield joint, mode, observed


def refuse_inputs(module: Any, call: Call, name: str) -> None:
    """Raise ``UnreadableInput`` for inputs, or tensors or parts of the module, that cannot be traced."""
    inputs = [*zip(call.input_names, tree_leaves((call.args, call.kwargs)), strict=True)]
    sizes = {path: value.numel() for path, value in inputs if isinstance(value, torch.Tensor)}
    if sizes and not any(sizes.values()):
        hint = "Give inputs with at least one row."
        raise UnreadableInput(f"the input {next(iter(sizes))!r} has no elements.", source=name, hint=hint)
    for path, value in inputs:
        if not isinstance(value, torch.Tensor | int | float | complex | str | None | torch.ScriptObject):
            kind, is_array = type(value).__name__, hasattr(value, "__array__")
            hint = "Pass torch.as_tensor of it." if is_array else _REGISTER.format(kind)
            raise UnreadableInput(f"the input {path!r} is a {kind}, not a tensor.", source=name, hint=hint)
    for path, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            hint = "Give the module from which torch.jit.script or torch.jit.trace made it."
            place = f"layer {path.removeprefix('module.')!r}"
            raise UnreadableInput("a module of TorchScript cannot be traced.", source=name, place=place, hint=hint)
    for path, value in (*module.named_parameters(), *module.named_buffers(), *inputs):
        if is_lazy(value):
            what = f"the tensor {path.removeprefix('module.')!r} is not initialized."
            raise UnreadableInput(what, source=name, hint=CALL_ONCE)
        if isinstance(value, torch.Tensor) and value.layout is not torch.strided:
            layout = str(value.layout).removeprefix("torch.")
            what = f"the tensor {path.removeprefix('module.')!r} has the layout {layout}."
            raise UnreadableInput(what, source=name, hint=_GIVE_DENSE)


def _watch_forward(module: Any, stack: contextlib.ExitStack) -> Observed:
    """Replace ``module.forward`` until ``stack`` closes; return an ``Observed`` that each forward pass updates.

    If a pass assigns a buffer (``self.mean = new``), it ends with ``mean.copy_(new)``. Other attributes are restored.
    """
    observed = Observed()
    run = module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        with fx_state.state_restored(module) as changed, fx_state.ForwardMode():
            before = [(part, name, old) for part in module.modules() for name, old in part._buffers.items()]
            result = run(*args, **kwargs)
            for part, name, old in before:
                new = part._buffers[name]
                if isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor) and new is not old:
                    if new.shape != old.shape:
                        raise ValueError(f"the forward pass changes the shape of the buffer {name!r}")
                    with torch.no_grad():
                        old.copy_(new)
        observed.changed.update(changed)
        observed.outside = _tensors_outside(result)
        leaves = [(leaf, _has_gradient(leaf)) for leaf in tree_leaves(result)]
        observed.result_bytes = tuple(leaf.numel() * leaf.element_size() if needs else 0 for leaf, needs in leaves)
        return result

    module.forward = forward
    stack.callback(delattr, module, "forward")
    return observed


def _tensors_outside(result: Any) -> list[torch.Tensor]:
    """Return the leaves of the autograd graph of ``result`` that are not tensors of the trace."""
    new = reached = {leaf.grad_fn for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)}
    while new := {following for node in new - {None} for following, _ in node.next_functions} - reached:
        reached = reached | new
    leaves = [node.variable for node in reached - {None} if node.name().endswith("AccumulateGrad")]
    return [leaf for leaf in leaves if not isinstance(leaf, FakeTensor | FunctionalTensor)]


def state_error(paths: Iterable[str], name: str) -> UnreadableInput:
    """Return the error of a module whose step reads attributes that it sets for the next step."""
    names = ", ".join(repr(path.removeprefix(fx_origins.WRAPPER)) for path in paths)
    what = f"the forward pass reads values that it sets for the next step: attribute {names}."
    return UnreadableInput(what, "Make it a tensor in a buffer: register_buffer in __init__.", source=name)


def _draw_in_memory_order(module: Any, mode: Any) -> None:
    """Replace ``bernoulli(x)`` of a transposed ``x`` by ``bernoulli(x.T).T``: dropout then has the mask of eager mode.

    Eager mode calls ``bernoulli_``, which draws in the order of the elements in memory. The traced operator
    ``bernoulli.p`` draws in the order of the axes.
    """
    is_changed, permute = False, torch.ops.aten.permute.default
    for node in [each for each in module.graph.nodes if each.target is torch.ops.aten.bernoulli.p]:
        source = node.args[0]
        value = source.meta["val"]
        order = sorted(range(value.dim()), key=lambda axis: -value.stride(axis))
        if value.is_contiguous() or not value.permute(order).is_contiguous():
            continue
        is_changed = True
        with module.graph.inserting_before(node):
            contiguous = module.graph.call_function(permute, (source, order))
        with module.graph.inserting_after(node):
            mask = module.graph.call_function(permute, (node, [order.index(axis) for axis in range(len(order))]))
        node.replace_all_uses_with(mask, delete_user_cb=lambda user, mask=mask: user is not mask)
        node.replace_input_with(source, contiguous)
        contiguous.meta, mask.meta = dict(node.meta), dict(node.meta)
    if is_changed:
        module.recompile()
        inputs = [each.meta["val"] for each in module.graph.nodes if each.op == "placeholder"]
        FakeTensorProp(module, mode).propagate_dont_convert_inputs(*inputs)


def trace_error(error: Exception, name: str, module: Any = None) -> UnreadableInput:
    """Return the error of a module whose own code raises ``error`` under fake tensors."""
    # The place is the innermost submodule that ran when the error was raised.
    parts = () if module is None else module.named_modules()
    paths = {id(part): path.removeprefix(fx_origins.WRAPPER) for path, part in parts}
    running = [frame.f_locals.get("self") for frame, _ in traceback.walk_tb(error.__traceback__)]
    layers = [paths[id(part)] for part in running if id(part) in paths]
    layer = f"layer {layers[-1]!r}" if layers and layers[-1] not in ("", "module") else ""
    if isinstance(error, UnreadableInput):
        error.place = error.place or layer
        return error
    line = next(iter(str(error).strip().splitlines()), "").rstrip(".")
    frames = [(PurePath(each.filename), each.lineno) for each in traceback.extract_tb(error.__traceback__)]
    # The message has the innermost line of the model, else of PyTorch's layers.
    own_folder, torch_folder = PurePath(tmmu_core.__file__).parent, PurePath(torch.__file__).parent
    model = [each for each in frames if not {own_folder, torch_folder} & {*each[0].parents}]
    builtin = [each for each in frames if torch_folder / "nn" in each[0].parents and each[0].stem != "module"]
    location = "".join(f", {path.name}:{number}" for path, number in (model or builtin)[-1:])
    message = f"{type(error).__name__}{': ' if line else ''}{line}{location}"
    files = {path.name for path, _ in frames}
    hint = next((hint for mark, hint in _HINTS.items() if mark in message or mark in files), "")
    reason = " without data" if hint else ""
    hint = hint or (_GIVE_INPUTS if "required positional argument" in message else _CHECK_INPUTS)
    return UnreadableInput(f"the module cannot be traced{reason}: {message}.", source=name, place=layer, hint=hint)


_VALUES = "A shape or branch must not depend on the values in tensors: remove such code, or make its result an input."
_EXPERTS = 'For a mixture of experts of transformers, use bfloat16, or experts_implementation="batched_mm".'
_KERNELS = "Call functions without torch.compile. Register code outside of PyTorch with torch.library.custom_op."
_GIVE_DENSE = "Give dense tensors: padded rows and a mask, or indices and values for index_select, index_add."
_CACHE = "A cache such as lru_cache keeps a tensor of the trace. In a new process, call module and loss before the fit."
CALL_ONCE = "Call the module once with example inputs before the fit."
_HINTS = {  # part of the error's type or message, or a file in its trace → hint; the first match applies
    "to resize a view": CALL_ONCE,
    "Sparse": _GIVE_DENSE,
    "ignore_fresh_unbacked_symbols": "Unroll the while_loop, or open the program saved with torch.export.save.",
    "mirrored meta": "The module calls backward in forward. Return the loss, or the mean of several losses.",
    "batchnorm.py": "Give the layer a momentum, such as 0.1: with momentum=None it reads num_batches_tracked.",
    "NestedTensor": "Create nn.TransformerEncoder with enable_nested_tensor=False.",
    **dict.fromkeys(("nested_tensor.py", "_nested_tensor_"), "Pad the rows to one length, and mask them."),
    **dict.fromkeys(("Unexpected fake buffer", "FunctionalTensor on its own"), _CACHE),
    "classes.quantized": "Fit the module before quantization: a quantized module is not trained.",
    "_pack_padded_sequence": "Give the padded sequences to the recurrent layer, and mask its results.",
    "nonzero": f"{_VALUES} {_EXPERTS}",
    "mat_a.dtype": _EXPERTS,
    "_ctc_loss": "Give ctc_loss padded targets: one row per sample.",
    "distributed.py": "Give model.module of the DistributedDataParallel. Reduce its gradients after the step.",
    "its data is not allocated": "Give lists of numbers to operators as tensors, such as the lengths of ctc_loss.",
    "DataDependent": _VALUES,
    "DynamicOutputShape": _VALUES,
    "non-functional tensor": "The forward pass writes to a tensor that is no buffer: call register_buffer in __init__. "
    "Or a hook writes to a buffer in the backward pass: write to it after the step instead.",
    "requires_grad flags of leaf": "Set requires_grad before the fit, not in forward. Fit a GAN's losses one by one.",
    "dynamo-optimized": _KERNELS,
    "data pointer": _KERNELS,
    ".numpy()": _KERNELS,
    "unbacked": "How often a loop runs must not depend on the values in its tensors: give it a fixed count.",
}
_CHECK_INPUTS = "Check that the module runs on these example inputs: tensors, numbers, containers of them."
_REGISTER = "Give a dict of its tensors, or call torch.utils._pytree.register_dataclass({}) for a dataclass."
_GIVE_INPUTS = "Give the module's inputs: example_inputs=x, or example_inputs=(x, y) for two."
