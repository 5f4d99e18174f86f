"""One training step of a module: traced, compiled in a fitted order, run and measured."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import zip_longest
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.fitting.pytorch.fx_eager import eager_step, gradients_of_zeros, parameters_with_gradients
from tmmu_core.fitting.pytorch.fx_engine import with_engine
from tmmu_core.fitting.pytorch.fx_equal_nodes import merge_equal_nodes
from tmmu_core.fitting.pytorch.fx_executed import Executed, attributes_of, read_executed
from tmmu_core.fitting.pytorch.fx_live_bytes import LiveBytes, gpu_bytes
from tmmu_core.fitting.pytorch.fx_optimizer import Optimizer, make_optimizer, parameters_of, with_optimizer
from tmmu_core.fitting.pytorch.fx_rebuild import split
from tmmu_core.fitting.pytorch.fx_runtime import generator_of
from tmmu_core.fitting.pytorch.fx_scratch import with_scratch
from tmmu_core.formats.pytorch.joint_graph.fx_fake_tensors import state_restored, state_set, uncompiled
from tmmu_core.formats.pytorch.joint_graph.fx_origins import WRAPPER
from tmmu_core.formats.pytorch.joint_graph.fx_random_state import FIRST_SEED
from tmmu_core.formats.pytorch.joint_graph.fx_trace import Call, exported, new_leaves, reads_state
from tmmu_core.graph.model import Graph

_DEVICES = ("cpu", "cuda")
"""Kinds of devices of ``torch.autocast``."""
_LEARNED = " with a gradient"


@dataclass(frozen=True)
class TorchStep:
    """A module with its loss, example inputs and traced joint graph."""

    module: Any
    """The module with its loss (``fx_trace.with_loss``)."""
    call: Call
    name: str
    optimizer: Optimizer | None
    executed: Executed
    code: str
    """Python code of the joint graph, before equal operators are merged."""
    result_bytes: tuple[int, ...]
    """Bytes of the gradient of each result, 0 if it needs none."""
    accumulated: frozenset[str]
    """Names of the parameters whose ``grad`` exists before the step."""
    tensors: Mapping[str, str]
    """Parameter, buffer or argument → what identifies it (``_described``)."""
    autocast: Mapping[str, torch.dtype]
    """Kind of device → dtype of ``torch.autocast`` in which the step was traced."""

    @cached_property
    def graph(self) -> Graph:
        """The step as AOTAutograd runs it, with the autograd engine's, the caller's and the optimizer's tensors."""
        return with_scratch(self.graph_without_scratch, self.executed.scratch)

    @cached_property
    def graph_without_scratch(self) -> Graph:
        """The graph without the scratch memory of kernels."""
        return self._with_engine_and_optimizer(self.executed)

    def _with_engine_and_optimizer(self, executed: Executed) -> Graph:
        results = [(executed.results[k], size) for k, size in enumerate(self.result_bytes) if k in executed.results]
        accumulated = [each.removeprefix(WRAPPER) for each in sorted(self.accumulated)]
        graph, final = with_engine(
            executed.graph, results, executed.leaf_gradients, accumulated, self.optimizer is not None
        )
        parameters = {tensor.id for tensor in graph.tensors if tensor.role == "parameter"}
        gradients = {leaf: gradient for leaf, gradient in final.items() if leaf in parameters}
        return with_optimizer(graph, self.module, gradients, self.optimizer)

    @property
    def eager(self) -> Graph:
        """The step as eager PyTorch runs it, with the optimizer's tensors."""
        with self._autocast_as_traced():
            return eager_step(self.module, self.call, self.name, self.optimizer)

    @contextmanager
    def _autocast_as_traced(self) -> Iterator[None]:
        """Context manager: the autocast of the trace. A context for no change would keep casts of parameters alive."""
        with ExitStack() as stack:
            for kind in _DEVICES if _autocast_now() != self.autocast else ():
                stack.enter_context(torch.autocast(kind, self.autocast.get(kind), enabled=kind in self.autocast))
            yield

    @property
    def device(self) -> str:
        """The device of the first parameter, else of the first input."""
        tensors = [*self.module.parameters(), *tree_leaves((self.call.args, self.call.kwargs))]
        return next((str(each.device) for each in tensors if isinstance(each, torch.Tensor)), "cpu")

    @property
    def is_on_gpu(self) -> bool:
        """Whether the step's device is a GPU of CUDA."""
        return self.device.startswith("cuda")

    @property
    def batch(self) -> int:
        """The largest first dimension of an input; 1 if no input has one."""
        inputs = tree_leaves((self.call.args, self.call.kwargs))
        return max((each.shape[0] for each in inputs if isinstance(each, torch.Tensor) and each.ndim), default=1)

    def partition(self, fitted: Graph, refit: Callable[[Graph], Graph]) -> Callable[..., Any]:
        """Return a ``partition_fn`` for AOTAutograd.

        It splits the joint graph of this step in the order of ``fitted``, and another joint graph in the order that
        ``refit`` returns for it.
        """

        def partition_fn(joint: Any, _inputs: Any, *, num_fwd_outputs: int, **_: Any) -> tuple[Any, Any]:
            merge_equal_nodes(joint)
            values = [node.meta.get("val") for node in joint.graph.nodes if node.op == "placeholder"]
            mode = next((each.fake_mode for each in values if hasattr(each, "fake_mode")), nullcontext())
            executed = read_executed(joint, mode, self.name, self.call.input_names)
            is_this_step = executed.graph == self.executed.graph
            if not is_this_step:
                graph = with_scratch(self._with_engine_and_optimizer(executed), executed.scratch)
            return split(joint, executed, fitted if is_this_step else refit(graph), num_fwd_outputs)

        return partition_fn

    def compiled(self, partition_fn: Callable[..., Any], backend: Any = "eager") -> Callable[..., Any]:
        """Return a function with the module's signature that runs the step as ``partition_fn`` splits it.

        Raises ``UnreadableInput`` for a backend that cannot run it, for tensors without data, and if the module's joint
        graph has changed since the fit. The function raises ``ValueError`` for other inputs and in eval mode.
        """
        from torch._dynamo.backends.debugging import boxed_nop
        from torch._functorch.aot_autograd import aot_compile_joint_with_descriptors

        _refuse_backend(backend)
        if _has_no_data(self.module, self.call):
            raise UnreadableInput(
                "the module's tensors have no data, so the step cannot run.",
                source=self.name,
                hint="Build the module with real tensors, fit it again, and compile the new fit.",
            )
        compiler = boxed_nop if backend == "eager" else backend
        trace = exported(self.module, self.call, self.name, stand_in=False)
        with self._autocast_as_traced(), torch.enable_grad(), trace as (joint, _, _):
            self._refuse_other_graph(joint.graph_module.code)
            run = aot_compile_joint_with_descriptors(
                joint, partition_fn=partition_fn, fw_compiler=compiler, bw_compiler=compiler
            )
            parameters, buffers = list(joint.params_spec), list(joint.buffers_spec)
        module = self.module
        has_warned, modes = False, _modes(module)

        def step(*args: Any, **kwargs: Any) -> Any:
            nonlocal has_warned
            call = Call.of(module.module, args, kwargs)
            self._refuse_other_tensors(call)
            if _modes(module) != modes:
                raise ValueError(
                    "The step is fitted for the module in training mode. Call module.train() before it, and the module "
                    "itself in eval mode."
                )
            has_warned = has_warned or self._warn_of_gradients(call)
            state = [module.get_parameter(name) for name in parameters] + [module.get_buffer(name) for name in buffers]
            with torch._C._DisableAutocast():  # the step has the casts as operators
                return run(*state, *call.args, **call.kwargs)

        return step

    def _refuse_other_graph(self, code: str) -> None:
        if code != self.code:
            pairs = zip_longest(self.code.splitlines(), code.splitlines())
            one, other = next(pair for pair in pairs if pair[0] != pair[1])
            raise UnreadableInput(
                f"two traces of the module differ: {str(one).strip()!r} in the fit, {str(other).strip()!r} now.",
                source=self.name,
                hint="Fit the module again after a change. Its forward pass must not depend on values of Python that "
                "change, such as random.random() or a counter: pass them as tensors.",
            )

    def _warn_of_gradients(self, call: Call) -> bool:
        """Warn of gradients that exist before the step and are not in the plan; return whether there are any."""
        leaves = [each for name, each in self.module.named_parameters() if name not in self.accumulated]
        leaves += [each for each in tree_leaves(call) if isinstance(each, torch.Tensor) and each.is_leaf]
        unplanned = sum(each.grad.nbytes for each in leaves if each.grad is not None)
        if unplanned:
            warnings.warn(
                f"The step needs {unplanned:,} bytes more than planned, because gradients exist before it. Set them to "
                "None (optimizer.zero_grad()), or fit the module while its parameters have gradients.",
                stacklevel=3,
            )
        return unplanned > 0

    def _refuse_other_tensors(self, call: Call) -> None:
        # Without autocast, the step runs with that of the fit, whose casts are operators of the step.
        actual = _described(self.module, call, _autocast_now() or self.autocast)
        for name in [*self.tensors, *actual]:
            before, now = self.tensors.get(name), actual.get(name)
            if before not in (now, f"{now}{_LEARNED}"):  # a frozen parameter has no gradient
                raise ValueError(
                    f"The step is fitted for {name.removeprefix(WRAPPER)} = {before}, not {now}. "
                    "Call tmmu.fit again with it, or convert it."
                )

    def measured(self, step: Callable[..., Any]) -> Measured:
        """Run one real step and return its peak, its gradients and its buffers; the module's state is restored.

        The peak on a GPU is that of PyTorch's allocator, which holds the scratch memory of kernels too. Two runs of the
        same operators give the same bits only if both are compiled and run in ``deterministic``.
        """
        accumulated = self.accumulated | parameters_with_gradients(self.module)
        with self._state_restored():
            torch.manual_seed(0)
            parameters = list(self.module.parameters())
            optimizer = None
            if self.optimizer is not None:
                names = accumulated | {WRAPPER + each for each in self.executed.gradients}
                with gradients_of_zeros(self.module, names):
                    updated = {each: each for each in parameters_of(self.optimizer, parameters)}
                    optimizer = make_optimizer(self.optimizer, updated)
            states = tree_leaves([list(each.values()) for each in optimizer.state.values()]) if optimizer else []
            args, kwargs = new_leaves((self.call.args, self.call.kwargs))
            inputs = [*self.executed.constants, *tree_leaves((args, kwargs))]
            before = (*parameters, *self.module.buffers(), *states, *inputs)
            with (
                gradients_of_zeros(self.module, accumulated),
                LiveBytes(filter(torch.is_tensor, (*before, *(each.grad for each in parameters)))) as storages,
            ):
                if self.is_on_gpu:
                    torch.cuda.reset_peak_memory_stats(self.device)
                    other_bytes = gpu_bytes(self.device, "current") - storages.held_bytes
                result = step(*args, **kwargs)
                outputs = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
                torch.autograd.backward(outputs, [torch.ones_like(each) for each in outputs])
                del outputs
                gradients = [each.grad for each in parameters]
                if optimizer is not None:
                    optimizer.step()
            buffers = [buffer.detach().clone() for buffer in self.module.buffers()]
            peak = gpu_bytes(self.device, "peak") - other_bytes if self.is_on_gpu else storages.peak_bytes
            return Measured(peak, gradients, buffers)

    @contextmanager
    def _state_restored(self) -> Iterator[None]:
        """Context manager: restore parameters, gradients, buffers, inputs and random generators on exit."""
        inputs = [each for each in tree_leaves((self.call.args, self.call.kwargs)) if isinstance(each, torch.Tensor)]
        tensors = (*self.module.parameters(), *self.module.buffers(), *inputs)
        storages = {storage._cdata: storage for storage in (tensor.untyped_storage() for tensor in tensors)}.values()
        state = [(storage, storage.clone()) for storage in storages]
        generators = {generator_of(each) for each in ("cpu", self.device, *self.executed.generators)}
        generator_states = [(each, each.get_state()) for each in generators]
        try:
            with state_restored(self.module), uncompiled(self.module), gradients_of_zeros(self.module, ()):
                yield
        finally:
            for storage, data in state:
                storage.copy_(data)
            for generator, before in generator_states:
                generator.set_state(before)


@contextmanager
def deterministic() -> Iterator[None]:
    """Context manager: PyTorch uses deterministic kernels, and warns of an operator that has none."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


class Measured(NamedTuple):
    """Results of one real step."""

    peak_bytes: int
    gradients: list[Any]
    """A tensor or ``None`` for each parameter."""
    buffers: list[Any]


def traced(module: Any, call: Call, name: str, optimizer: Optimizer | None) -> TorchStep:
    """Trace the training step of ``module`` (``fx_trace.with_loss``).

    Raises ``UnreadableInput`` if it cannot be traced, has no backward pass, or depends on state that is not in tensors.
    """
    accumulated = parameters_with_gradients(module)
    trace = partial(exported, module, call, name, stand_in=_has_no_data(module, call))
    with torch.enable_grad(), trace() as (joint, mode, observed):
        code = joint.graph_module.code
        merge_equal_nodes(joint.graph_module)
        executed = read_executed(joint.graph_module, mode, name, call.input_names)
    if observed.changed and _code_of_next_step(trace, module.module, observed.changed) not in (code, None):
        raise reads_state(observed.changed, name)
    if executed.generators and _sets_generators(trace, executed.generators):
        raise UnreadableInput(
            "the forward pass creates or seeds a torch.Generator, and a compiled step does not repeat this call.",
            source=name,
            hint="Create the generator in __init__, and seed it before each step, outside of the module.",
        )
    results, autocast = observed.result_bytes, _autocast_now()
    tensors = _described(module, call, autocast)
    return TorchStep(module, call, name, optimizer, executed, code, results, accumulated, tensors, autocast)


def _code_of_next_step(trace: Callable[[], Any], module: Any, changed: dict[str, Any]) -> str | None:
    """Return the code of the joint graph of the second step; ``None`` if the step cannot be traced.

    ``changed``: the plain attributes that the first step sets. Those with tensors are not set for the second step.
    """
    with suppress(UnreadableInput), state_set(module, changed), torch.enable_grad(), trace() as (joint, *_):
        code: str = joint.graph_module.code
        return code
    return None


def _sets_generators(trace: Callable[[], Any], generators: tuple[torch.Generator, ...]) -> bool:
    """Return whether a second trace, from another state of the generators, seeds them or has other generators.

    A trace draws no numbers, so it changes a seed only by setting it.
    """
    states = [each.get_state() for each in generators]
    for each in generators:
        each.manual_seed(FIRST_SEED)
    try:
        with torch.enable_grad(), trace() as (joint, *_):
            others = attributes_of(joint.graph_module, torch.Generator)
            is_seeded = any(each.initial_seed() != FIRST_SEED for each in generators)
        return is_seeded or not all(each is other for each, other in zip(generators, others, strict=True))
    finally:
        for each, state in zip(generators, states, strict=True):
            each.set_state(state)


def _modes(module: Any) -> list[bool]:
    """Return whether each part of a module of ``fx_trace.with_loss`` is in training mode."""
    return [part.training for part in module.module.modules()]


def _has_no_data(module: Any, call: Call) -> bool:
    tensors = [*module.parameters(), *module.buffers(), *tree_leaves((call.args, call.kwargs))]
    return any(isinstance(t, torch.Tensor) and (t.is_meta or hasattr(t, "fake_mode")) for t in tensors)


def _refuse_backend(backend: Any) -> None:
    is_inductor = str(getattr(backend, "__module__", "")).startswith("torch._inductor")  # it has other operators
    if backend != "eager" and (is_inductor or not callable(backend)):
        raise UnreadableInput(
            f"a fitted step has no backend {getattr(backend, '__name__', backend)!r}.",
            hint='Use backend="eager", or a compiler of fx graphs other than Inductor: (module, inputs) → function.',
        )


def _autocast_now() -> dict[str, torch.dtype]:
    return {kind: torch.get_autocast_dtype(kind) for kind in _DEVICES if torch.is_autocast_enabled(kind)}


def _described(module: Any, call: Call, autocast: Mapping[str, torch.dtype]) -> dict[str, str]:
    """Return the name of each parameter, buffer and argument → what identifies it; and autocast."""
    leaves = zip(call.input_names, tree_leaves(call[:2]), strict=True)
    named = (*module.named_parameters(), *module.named_buffers(), *leaves)
    return {name: _text(each) for name, each in named} | {"torch.autocast": f"{autocast}"}


def _text(value: Any) -> str:
    """Return what identifies a tensor, without its values, or the value of a number or a text."""
    if isinstance(value, torch.Tensor):
        sizes = zip(value.stride(), value.shape, strict=True)
        strides = "" if value.is_contiguous() else f" with strides {[k for k, size in sizes if size > 1]}"
        return f"{value.dtype} {tuple(value.shape)}{strides} on {value.device}{_LEARNED * value.requires_grad}"
    return repr(value) if isinstance(value, bool | int | float | complex | str | None) else f"a {type(value).__name__}"


def equal_bits(first: list[Any], second: list[Any]) -> bool:
    """Return whether two lists of tensors or ``None`` are equal bit by bit; the bits of two NaNs can be equal."""

    def bits(value: torch.Tensor) -> torch.Tensor:
        return value.detach().contiguous().flatten().view(torch.uint8)

    pairs = zip(first, second, strict=True)
    return all(a is b if a is None or b is None else torch.equal(bits(a), bits(b)) for a, b in pairs)
