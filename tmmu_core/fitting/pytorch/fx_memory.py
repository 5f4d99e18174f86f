"""The memory of a step that its operators do not show: scratch memory of kernels on a GPU, and the optimizer's part.

Scratch memory is memory that an operator allocates besides its results, and frees when it returns. A trace with fake
tensors does not show these bytes. They can exceed the result, as in a cuDNN convolution. So each operator runs on the
GPU, with tensors of the shapes and strides of the step, and PyTorch's allocator counts the bytes. Memory that a library
keeps after its first call, such as the workspace of cuBLAS, is not counted. The optimizer's states, and the additional
memory of its step, are measured on fake tensors.
"""

import inspect
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._foreach_utils import _get_foreach_kernels_supported_devices
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

from tmmu_core.base import strict
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.pytorch.joint_graph.fx_fake_tensors import StandIns, mode_of, tensors_in
from tmmu_core.formats.pytorch.joint_graph.fx_origins import WRAPPER
from tmmu_core.graph.model import Graph, Node, Tensor

_ROWS_ARGUMENT = {torch.ops.aten.embedding_dense_backward.default: 2}
"""Operator whose scratch memory depends on the values of its indices → position of the argument with the row count."""
_measured: dict[str, int] = {}  # operator, layouts of its arguments and settings of PyTorch, as text → scratch bytes
OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
STEP = "optimizer.step"
PLANNED_STEP = 1000.0  # number of the planned step; it is high, because ``RAdam`` allocates more from step 6 on
Optimizer: TypeAlias = str | torch.optim.Optimizer | Callable[..., torch.optim.Optimizer]
"""A name in ``OPTIMIZERS``, an optimizer, or a function from the parameters to an optimizer. Of a given optimizer, the
class, the options and the choice of parameters are used."""


def gpu_bytes(device: Any, which: str) -> int:
    """Return the bytes requested from PyTorch's allocator on a GPU: ``"current"``, or ``"peak"`` since last reset."""
    return int(torch.cuda.memory_stats(device).get(f"requested_bytes.all.{which}", 0))


class LiveBytes(TorchDispatchMode):
    """Mode that counts the bytes of ``tensors``, and of each storage that an operator returns, until they are freed.

    Scratch memory inside a kernel is not counted, because it is not the storage of a tensor.
    """

    supports_higher_order_operators = True

    def __init__(self, tensors: Iterable[Any] = ()) -> None:
        super().__init__()
        self.live: dict[int, tuple[Any, int]] = {}  # address of a storage → weak reference to it, and its bytes
        self.held_bytes = self.peak_bytes = 0
        """``held_bytes``: bytes in ``live``, also freed storages. ``peak_bytes``: maximum of live bytes so far."""
        self.sizes_at_peak: dict[int, int] = {}  # address of a storage → its bytes
        for tensor in tensors:
            self._add(tensor)
        self._measure()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._add(leaf)
        self._measure()
        return result

    def _add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        known = self.live.get(storage._cdata)
        if known is not None and not known[0].expired():
            return
        if known is not None:
            self.held_bytes -= known[1]
        size = storage.nbytes()
        self.live[storage._cdata] = StorageWeakRef(storage), size
        self.held_bytes += size

    def _measure(self) -> None:
        """Update the peak. Freed storages, which are slow to find, are removed only if the peak could rise."""
        if self.held_bytes > self.peak_bytes:
            self.remove_freed()
            if self.held_bytes > self.peak_bytes:
                self.peak_bytes = self.held_bytes
                self.sizes_at_peak = {address: size for address, (_, size) in self.live.items()}

    def remove_freed(self) -> None:
        """Remove the freed storages from ``live`` and ``held_bytes``."""
        for address, (storage, size) in list(self.live.items()):
            if storage.expired():
                del self.live[address]
                self.held_bytes -= size


@dataclass(frozen=True)
class _Layout:
    """A tensor without its values."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, value: torch.Tensor) -> "_Layout":
        return cls(tuple(map(int, value.shape)), tuple(map(int, value.stride())), value.dtype, value.device)

    def tensor(self, rows: int) -> torch.Tensor:
        """Return a tensor that kernels accept: probabilities of 0.5, ``True``, or indices below ``rows``."""
        last_index = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        count = 0 if 0 in self.shape else last_index + 1
        if self.dtype.is_floating_point or self.dtype.is_complex or self.dtype == torch.bool:
            flat = torch.full((count,), 0.5, device=self.device).to(self.dtype)
        else:
            flat = torch.arange(count, dtype=self.dtype, device=self.device) % rows
        return flat.as_strided(self.shape, self.strides)


def scratch_bytes(operator: Any, args: Any, kwargs: Any) -> int:
    """Return the bytes of scratch memory of an operator of PyTorch for these (fake) arguments.

    Measure the operator on the GPU once for each combination of arguments in a process; this resets the allocator's
    peak statistics. Return 0 without an argument on a GPU, for views, if the operator raises an error, and for custom
    operators, which could have side effects. Warn and return 0 if the operator needs more memory than is free.
    """
    is_known = isinstance(operator, torch._ops.OpOverload) and operator.namespace in ("aten", "prims")
    leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    device = next((leaf.device for leaf in leaves if leaf.is_cuda), None)
    is_measurable = is_known and not operator.is_view and operator._schema.returns
    if device is None or not is_measurable or not torch.cuda.is_available():
        return 0
    layouts = tree_map_only(torch.Tensor, _Layout.of, (tuple(args), dict(kwargs)))
    layouts = tree_map_only(torch.Generator, lambda _: None, layouts)
    settings = (
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
        *(getattr(torch.backends.cudnn, name) for name in ("enabled", "benchmark", "deterministic", "allow_tf32")),
    )
    key = repr((operator, layouts, settings))
    if key not in _measured:
        rows = args[_ROWS_ARGUMENT[operator]] if operator in _ROWS_ARGUMENT else 1
        no_autocast = torch.autocast("cuda", enabled=False)
        with _disable_current_modes(), torch.no_grad(), no_autocast, torch.random.fork_rng([device]):
            _measured[key] = _measure(operator, layouts, rows, device)
    return _measured[key]


def _measure(operator: Any, layouts: Any, rows: int, device: torch.device) -> int:
    try:
        args, kwargs = tree_map_only(_Layout, lambda layout: layout.tensor(rows), layouts)
        operator(*args, **kwargs)  # a first call also loads kernels and creates handles of libraries
        torch.cuda.reset_peak_memory_stats(device)
        result = operator(*args, **kwargs)
        bytes_after = gpu_bytes(device, "current")
        del result
        return gpu_bytes(device, "peak") - bytes_after
    except torch.OutOfMemoryError:
        warnings.warn(
            f"The plan does not contain the scratch memory of {operator}, because the GPU has too little free memory "
            "to run this operator alone.",
            stacklevel=2,
        )
    except Exception:  # kernels raise many errors for values that they do not accept
        pass
    return 0


def with_scratch(graph: Graph, scratch: Mapping[str, int]) -> Graph:
    """Return ``graph`` with an output for the scratch memory of each node; ``scratch``: id of a node → bytes."""
    added = {name: (f"{name}.scratch",) for name, size in scratch.items() if size}
    tensors = [Tensor(*outputs, (scratch[name],), "uint8", "workspace") for name, outputs in added.items()]
    nodes = [msgspec.structs.replace(node, outputs=node.outputs + added.get(node.node_id, ())) for node in graph.nodes]
    return msgspec.structs.replace(graph, tensors=(*graph.tensors, *tensors), nodes=tuple(nodes))


def parameters_of(given: Optimizer, parameters: list[Any]) -> list[Any]:
    """Return the module's parameters that the optimizer updates: those in its groups, or all for a name or a function.

    Raises ``UnreadableInput`` for an optimizer without a parameter of the module.
    """
    if not isinstance(given, torch.optim.Optimizer):
        return parameters
    in_groups = {id(parameter) for group in given.param_groups for parameter in group["params"]}
    updated = [parameter for parameter in parameters if id(parameter) in in_groups]
    if not updated:
        name = type(given).__name__
        hint = f"Create it with parameters of this module: {name}(module.parameters())."
        raise UnreadableInput(f"the optimizer {name} holds no parameter of the module.", hint)
    return updated


def make_optimizer(given: Optimizer, parameters: Mapping[Any, Any]) -> Any:
    """Return a new optimizer that has run a step with the existing gradients; its step count is ``PLANNED_STEP``.

    ``parameters``: parameter of the module → itself, or a fake tensor. Raises ``UnreadableInput`` for other ``given``.
    """
    if not (callable(given) or isinstance(given, torch.optim.Optimizer) or str(given) in OPTIMIZERS):
        name = given if isinstance(given, str) else type(given).__name__
        raise UnreadableInput(
            f"there is no optimizer {name!r}.",
            hint=f"{strict.closest_hint(name, tuple(OPTIMIZERS))} Or give one optimizer of torch.optim. For several, "
            "write a class whose step runs them.",
        )
    with _disable_current_modes():  # a constructor checks the value of a learning rate that is a tensor
        if isinstance(given, str):
            optimizer: Any = OPTIMIZERS[given]([*parameters.values()], lr=1e-3)
        elif isinstance(given, torch.optim.Optimizer):
            options = inspect.signature(type(given)).parameters
            groups = [
                {**group, "params": [parameters[p] for p in group["params"] if p in parameters]}
                for group in given.param_groups
            ]
            optimizer = type(given)(groups, **{key: value for key, value in given.defaults.items() if key in options})
        else:
            optimizer = given([*parameters.values()])
    optimizer.step()
    for state in optimizer.state.values():
        if isinstance(state.get("step"), torch.Tensor):
            state["step"].fill_(PLANNED_STEP)
    return optimizer


class _ConstantValues(TorchDispatchMode):
    """Mode that returns ``PLANNED_STEP`` or 1 if the optimizer reads a value of a fake tensor, such as its step."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return func(*args, **(kwargs or {}))
        except DataDependentOutputException:
            return PLANNED_STEP if args[0].is_floating_point() else 1


def with_optimizer(
    graph: Graph, module: Any, gradients: Mapping[str, str], given: Optimizer | None, cache: Any = None
) -> Graph:
    """Return ``graph`` with one node for the optimizer's step, which reads gradients, parameters and states.

    ``gradients``: parameter → its gradient. ``cache``: a dict for the steps of one module and optimizer. Without
    an optimizer, return ``graph``. Raises ``UnreadableInput`` if the optimizer's step cannot be traced.
    """
    if given is None:
        return graph
    cache, names = {} if cache is None else cache, frozenset(gradients)
    if names not in cache:
        cache[names] = _tensors_of_step(module, names, given)
    states, workspaces = cache[names]
    declared = {tensor.id for tensor in graph.tensors}  # a parameter in another one's storage has no tensor
    written = {node.inputs[i]: node.outputs[k] for node in graph.nodes for i, k in node.in_place_write}
    updated = [written.get(parameter, parameter) for parameter in gradients if parameter in declared]
    reads = dict.fromkeys([*gradients.values(), *updated, *(state.id for state in states)])
    node = Node(STEP, "optimizer_step", tuple(reads), tuple(w.id for w in workspaces), "optimizer", "none")
    tensors, order = (*graph.tensors, *states, *workspaces), (*(graph.execution_order or ()), STEP)
    return msgspec.structs.replace(graph, tensors=tensors, nodes=(*graph.nodes, node), execution_order=order)


def _tensors_of_step(module: Any, gradients: Collection[str], given: Optimizer) -> tuple[list[Tensor], list[Tensor]]:
    """Return the states of an optimizer, and the storages that its step has allocated at its peak, on fake tensors.

    ``gradients``: names of the parameters that have one. ``foreach`` variants hold temporaries of all parameters at
    once. Raises ``UnreadableInput`` if the step cannot be traced.
    """
    stand_ins = StandIns(mode_of(module.parameters()), real=True)
    names = {id(parameter): name.removeprefix(WRAPPER) for name, parameter in module.named_parameters()}
    with stand_ins.mode, _ConstantValues(), torch.enable_grad():
        fakes = {
            parameter: stand_ins.of(parameter).detach().requires_grad_(parameter.requires_grad)
            for parameter in parameters_of(given, list(module.parameters()))
        }
        for parameter, fake in fakes.items():  # an optimizer skips parameters without a gradient
            if names[id(parameter)] in gradients:
                fake.grad = torch.zeros_like(fake)
        try:
            optimizer, values = make_optimizer(given, fakes), fakes.values()
            for group in optimizer.param_groups:
                if group.get("foreach", False) is None and not group.get("fused"):  # PyTorch's default for real tensors
                    devices = {value.device.type for value in values}
                    group["foreach"] = devices.issubset(_get_foreach_kernels_supported_devices())
            gradient_tensors = [value.grad for value in values if value.grad is not None]
            with LiveBytes([*values, *tensors_in(optimizer, set()), *gradient_tensors]) as storages:
                before = set(storages.live)
                optimizer.step()
        except UnreadableInput:
            raise
        except Exception as error:  # any error of the optimizer's own code, such as one for missing values
            raise UnreadableInput(
                f"the optimizer's step cannot be traced: {type(error).__name__}: {error}.",
                hint="Give a function from the parameters to the optimizer. Or omit it, and give the bytes of its "
                "states and step as reserve.",
            ) from error
        states = {
            f"{names[id(original)]}.{key}{f'_{k}' * (k > 0)}": value
            for original, fake in fakes.items()
            for key, state in optimizer.state.get(fake, {}).items()
            for k, value in enumerate(tensors_in(state, set()))
        }
        known = {id(tensor) for tensor in (*fakes.values(), *states.values())}
        others = [tensor for tensor in tensors_in(optimizer, set()) if id(tensor) not in known]
        states |= {f"optimizer.state_{k}": tensor for k, tensor in enumerate(others)}
    sizes = [size for address, size in storages.sizes_at_peak.items() if address not in before]
    workspaces = [Tensor(f"{STEP}.{k}" if k else STEP, (n,), "uint8", "workspace") for k, n in enumerate(sizes or [0])]
    state_tensors = [
        Tensor(name, tuple(value.shape), str(value.dtype).removeprefix("torch."), "optimizer_state")
        for name, value in states.items()
    ]
    return state_tensors, workspaces
