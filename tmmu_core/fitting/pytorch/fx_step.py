"""One training step of a module: traced, compiled in a fitted order, run and measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import zip_longest
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.fitting.pytorch.fx_eager import eager_step
from tmmu_core.fitting.pytorch.fx_engine import with_engine
from tmmu_core.fitting.pytorch.fx_equal_nodes import merge_equal_nodes
from tmmu_core.fitting.pytorch.fx_executed import Executed, generators_of, read_executed, with_random_state
from tmmu_core.fitting.pytorch.fx_live_bytes import LiveBytes
from tmmu_core.fitting.pytorch.fx_optimizer import Optimizer, make_optimizer, parameters_of, with_optimizer
from tmmu_core.fitting.pytorch.fx_rebuild import split, state_bytes
from tmmu_core.fitting.pytorch.fx_runtime import generator_state, set_generator_state
from tmmu_core.fitting.recompute.write_graph import STATE
from tmmu_core.formats.pytorch.joint_graph.fx_fake_tensors import as_written, state_kept, state_set
from tmmu_core.formats.pytorch.joint_graph.fx_random_state import FIRST_SEED
from tmmu_core.formats.pytorch.joint_graph.fx_trace import Call, exported, new_leaves, reads_state
from tmmu_core.graph.model import Graph


@dataclass(frozen=True)
class TorchStep:
    """A module with its loss, example inputs and traced joint graph."""

    module: Any
    """Maps the module's output to the differentiated tensors (``fx_trace.chosen``)."""
    call: Call
    name: str
    optimizer: Optimizer | None
    executed: Executed
    code: str
    """Code of the joint graph."""
    result_bytes: tuple[int, ...]
    """Bytes of the gradient of each result, 0 if it needs none."""

    @cached_property
    def graph(self) -> Graph:
        """The step as AOTAutograd runs it, with the caller's and the optimizer's part."""
        return self._whole(self.executed)

    def _whole(self, executed: Executed) -> Graph:
        results = [(executed.results[k], size) for k, size in enumerate(self.result_bytes) if k in executed.results]
        has_optimizer = self.optimizer is not None
        graph, final = with_engine(executed.graph, results, executed.leaf_gradients, has_optimizer)
        learned = {tensor.id for tensor in graph.tensors if tensor.role == "parameter"}
        gradients = {leaf: gradient for leaf, gradient in final.items() if leaf in learned}
        return with_optimizer(graph, self.module, gradients, self.optimizer)

    @property
    def eager(self) -> Graph:
        """The step as eager PyTorch runs it, with the optimizer's part."""
        return eager_step(self.module, self.call, self.name, self.optimizer)

    @property
    def device(self) -> str:
        """The device of the first tensor of the step."""
        tensors = [*self.module.parameters(), *tree_leaves((self.call.args, self.call.kwargs))]
        return next((str(each.device) for each in tensors if isinstance(each, torch.Tensor)), "cpu")

    @property
    def batch(self) -> int:
        """The largest first dimension of an input."""
        inputs = tree_leaves((self.call.args, self.call.kwargs))
        return max((each.shape[0] for each in inputs if isinstance(each, torch.Tensor) and each.ndim), default=1)

    def partition(self, fitted: Graph, refit: Callable[[Graph], Graph]) -> Callable[..., Any]:
        """Return a ``partition_fn`` for AOTAutograd.

        The joint graph of this step is split in the order of ``fitted``; another joint graph is first fitted by
        ``refit``.
        """

        def partition_fn(joint: Any, _inputs: Any, *, num_fwd_outputs: int, **_: Any) -> tuple[Any, Any]:
            merge_equal_nodes(joint)
            values = [node.meta.get("val") for node in joint.graph.nodes if node.op == "placeholder"]
            mode = next((each.fake_mode for each in values if hasattr(each, "fake_mode")), nullcontext())
            executed = read_executed(joint, mode, self.name, self.call.input_names)
            is_this_step = executed.graph == self.executed.graph
            after = fitted if is_this_step else refit(self._whole(executed))
            return split(joint, executed, after, num_fwd_outputs)

        return partition_fn

    def compiled(self, partition_fn: Callable[..., Any], backend: Any = "eager") -> Callable[..., Any]:
        """Return a function with the module's signature that runs the step as ``partition_fn`` splits it."""
        from torch._dynamo.backends.debugging import boxed_nop
        from torch._functorch.aot_autograd import aot_compile_joint_with_descriptors

        _refuse_backend(backend)
        self._refuse_without_data()
        compiler = boxed_nop if backend == "eager" else backend
        with exported(self.module, self.call, self.name, stand_in=False) as (joint, _, _):
            self._refuse_other_graph(joint.graph_module.code)
            run = aot_compile_joint_with_descriptors(
                joint, partition_fn=partition_fn, fw_compiler=compiler, bw_compiler=compiler
            )
            parameters, buffers = list(joint.params_spec), list(joint.buffers_spec)
        module = self.module

        def step(*args: Any, **kwargs: Any) -> Any:
            given = Call.of(module.module, args, kwargs)
            self._refuse_other_inputs(given)
            state = [module.get_parameter(name) for name in parameters] + [module.get_buffer(name) for name in buffers]
            return run(*state, *given.args, **given.kwargs)

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

    def _refuse_other_inputs(self, given: Call) -> None:
        wanted, found = _described(self.call), _described(given)
        if wanted != found:
            name = next(each for each in [*wanted, *found] if wanted.get(each) != found.get(each))
            raise ValueError(
                f"The step is fitted for {name} = {wanted.get(name)}, not {found.get(name)}. "
                "Fit the module again for these inputs."
            )

    def _refuse_without_data(self) -> None:
        if _has_no_data(self.module, self.call):
            raise UnreadableInput(
                "the module's tensors have no data, so the step cannot run.",
                source=self.name,
                hint="Build the module with real tensors, fit it again, and compile the new fit.",
            )

    def measured(self, step: Callable[..., Any]) -> Measured:
        """Run one real step and return its peak, its gradients and its buffers; the module stays as it is.

        Two runs of the same operators give the same bits only if both are compiled and run in ``deterministic``.
        """
        with self._as_it_is():
            torch.manual_seed(0)
            parameters = list(self.module.parameters())
            given = self.optimizer
            optimizer = None if given is None else make_optimizer(given, parameters_of(given, parameters))
            states = tree_leaves([list(each.values()) for each in optimizer.state.values()]) if optimizer else []
            args, kwargs = new_leaves((self.call.args, self.call.kwargs))
            inputs = [*self.executed.constants, *tree_leaves((args, kwargs))]
            held = [t for t in (*parameters, *self.module.buffers(), *states, *inputs) if isinstance(t, torch.Tensor)]
            with LiveBytes(held) as live:
                result = step(*args, **kwargs)
                outputs = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
                torch.autograd.backward(outputs, [torch.ones_like(each) for each in outputs])
                del outputs
                gradients = [None if p.grad is None else p.grad for p in parameters]
                if optimizer is not None:
                    optimizer.step()
            buffers = [buffer.detach().clone() for buffer in self.module.buffers()]
            return Measured(live.peak_bytes, gradients, buffers)

    @contextmanager
    def _as_it_is(self) -> Iterator[None]:
        """Restore parameters, gradients, buffers, inputs and the random generator on exit."""
        inputs = [each for each in tree_leaves((self.call.args, self.call.kwargs)) if isinstance(each, torch.Tensor)]
        kept = (*self.module.parameters(), *self.module.buffers(), *inputs)
        held = {storage._cdata: storage for storage in (tensor.untyped_storage() for tensor in kept)}.values()
        state = [(storage, storage.clone()) for storage in held]
        gradients = [(each, each.grad) for each in self.module.parameters()]
        generators = {each: generator_state(each) for each in {"cpu", self.device, *self.executed.generators}}
        for each, _ in gradients:
            each.grad = None
        try:
            with state_kept(self.module), as_written(self.module):
                yield
        finally:
            for storage, data in state:
                storage.copy_(data)
            for each, gradient in gradients:
                each.grad = gradient
            for generator, before in generators.items():
                set_generator_state(generator, before)


@contextmanager
def deterministic() -> Iterator[None]:
    """Context manager: use deterministic kernels if PyTorch has them."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


@dataclass(frozen=True)
class Measured:
    """Results of one real step."""

    peak_bytes: int
    gradients: list[Any]
    buffers: list[Any]

    def same_gradients(self, other: Measured) -> bool:
        """Return whether all gradients are equal bit by bit."""
        return _equal(self.gradients, other.gradients)

    def same_buffers(self, other: Measured) -> bool:
        """Return whether all buffers are equal bit by bit."""
        return _equal(self.buffers, other.buffers)


def traced(module: Any, call: Call, name: str, optimizer: Optimizer | None) -> TorchStep:
    """Trace the training step of ``module``. Raises ``UnreadableInput`` if it cannot be traced."""
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
    return TorchStep(module, call, name, optimizer, executed, code, observed.result_bytes)


def _code_of_next_step(trace: Callable[[], Any], module: Any, changed: dict[str, Any]) -> str | None:
    """Return the code of the joint graph of the second step; ``None`` if it needs a tensor of the first step."""
    with suppress(UnreadableInput), state_set(module, changed), torch.enable_grad(), trace() as (joint, *_):
        code: str = joint.graph_module.code
        return code
    return None


def _sets_generators(trace: Callable[[], Any], generators: tuple[torch.Generator, ...]) -> bool:
    """Return whether a second trace, from another state of the generators, changes the state or has other generators.

    A trace draws no numbers.
    """
    states = [each.get_state() for each in generators]
    for each in generators:
        each.manual_seed(FIRST_SEED)
    try:
        with torch.enable_grad(), trace() as (joint, *_):
            found = generators_of(joint.graph_module)
            is_set = any(each.initial_seed() != FIRST_SEED for each in generators)
        return is_set or not all(each is other for each, other in zip(generators, found, strict=True))
    finally:
        for each, state in zip(generators, states, strict=True):
            each.set_state(state)


def sized(graph: Graph, device: str) -> Graph:
    """Return ``graph`` with saved generator states of the size they have on ``device``."""
    return with_random_state(graph, state_bytes(device), STATE)


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


def _described(call: Call) -> dict[str, str]:
    """Return the name of each argument → dtype and shape of a tensor, or the value of a number or a text."""
    leaves = zip(call.input_names, tree_leaves((call.args, call.kwargs)), strict=True)
    return {
        name: f"{each.dtype} {tuple(each.shape)}"
        if isinstance(each, torch.Tensor)
        else repr(each)
        if isinstance(each, bool | int | float | complex | str | None)
        else f"a {type(each).__name__}"
        for name, each in leaves
    }


def _equal(one: list[Any], other: list[Any]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(a is b if a is None or b is None else torch.equal(_bits(a), _bits(b)) for a, b in pairs)


def _bits(value: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a tensor: the bytes of two NaNs can be equal, their values cannot."""
    return value.detach().contiguous().flatten().view(torch.uint8)
