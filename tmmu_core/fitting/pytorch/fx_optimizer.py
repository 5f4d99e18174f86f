"""The optimizer's part of a training step: its states, and the additional memory of a step."""

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

import msgspec
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.utils._foreach_utils import _get_foreach_kernels_supported_devices
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from tmmu_core.base import strict
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.fitting.pytorch.fx_memory import LiveBytes
from tmmu_core.formats.pytorch.joint_graph.fx_fake_tensors import StandIns, mode_of, tensors_in
from tmmu_core.formats.pytorch.joint_graph.fx_origins import WRAPPER
from tmmu_core.graph.model import Graph, Node, Tensor

OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
STEP = "optimizer.step"
PLANNED_STEP = 1000.0  # number of the planned step; it is high, because ``RAdam`` allocates more from step 6 on

Optimizer: TypeAlias = str | torch.optim.Optimizer | Callable[..., torch.optim.Optimizer]
"""A name in ``OPTIMIZERS``, an optimizer, or a function from the parameters to an optimizer. Of a given optimizer, the
class, the options and the choice of parameters are used."""


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
        raise UnreadableInput(
            f"the optimizer {name} holds no parameter of the module.",
            hint=f"Create it with parameters of this module: {name}(module.parameters()).",
        )
    return updated


def make_optimizer(given: Optimizer, parameters: Mapping[Any, Any]) -> Any:
    """Return a new optimizer after a step with the existing gradients: with states, at step ``PLANNED_STEP``.

    ``parameters``: parameter of the module → itself, or a fake tensor. Raises ``UnreadableInput`` for unknown names.
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


class _PeakSizes(LiveBytes):
    """Mode that also records ``sizes`` at the peak: address of a storage → its bytes."""

    def _measure(self) -> None:
        before = self.peak_bytes
        super()._measure()
        if self.peak_bytes > before:
            self.sizes = {storage: size for storage, (_, size) in self.live.items()}


def _first_steps(given: Optimizer, parameters: Mapping[Any, Any]) -> tuple[Any, list[int]]:
    """Return the optimizer after two steps, and the sizes of the second step's new storages at its peak."""
    optimizer, values = make_optimizer(given, parameters), parameters.values()
    for group in optimizer.param_groups:
        if group.get("foreach", False) is None and not group.get("fused"):  # PyTorch's default for real tensors
            group["foreach"] = all(value.device.type in _get_foreach_kernels_supported_devices() for value in values)
    gradients = [value.grad for value in values if value.grad is not None]
    with _PeakSizes([*values, *tensors_in(optimizer, set()), *gradients]) as storages:
        before = set(storages.live)
        optimizer.step()
    return optimizer, [size for address, size in storages.sizes.items() if address not in before]


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
    declared = {tensor.id for tensor in graph.tensors}  # without parameters in the storage of another one
    updated = [parameter for parameter in gradients if parameter in declared]
    reads = dict.fromkeys([*gradients.values(), *updated, *(state.id for state in states)])
    node = Node(STEP, "optimizer_step", tuple(reads), tuple(w.id for w in workspaces), "optimizer", "none")
    return msgspec.structs.replace(
        graph,
        tensors=(*graph.tensors, *states, *workspaces),
        nodes=(*graph.nodes, node),
        execution_order=(*(graph.execution_order or ()), STEP),
    )


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
            optimizer, sizes = _first_steps(given, fakes)
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
    workspaces = [Tensor(f"{STEP}.{k}" if k else STEP, (n,), "uint8", "workspace") for k, n in enumerate(sizes or [0])]
    state_tensors = [
        Tensor(name, tuple(value.shape), str(value.dtype).removeprefix("torch."), "optimizer_state")
        for name, value in states.items()
    ]
    return state_tensors, workspaces
