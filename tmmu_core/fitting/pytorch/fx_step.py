"""One training step of a module: traced, compiled in a fitted order, run and measured."""

import random
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import permutations, zip_longest
from operator import attrgetter
from typing import Any, NamedTuple

import numpy
import torch
from torch.nn.modules import module as nn_module
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only, tree_structure, tree_unflatten

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.fitting.pytorch import fx_memory
from tmmu_core.fitting.pytorch.fx_eager import backward_from, eager_step, gradients_of_zeros, parameters_with_gradients
from tmmu_core.fitting.pytorch.fx_engine import with_engine
from tmmu_core.fitting.pytorch.fx_executed import Executed, attributes_of, merge_equal_nodes, read_executed
from tmmu_core.fitting.pytorch.fx_rebuild import generator_of, split
from tmmu_core.formats.pytorch.joint_graph import fx_state
from tmmu_core.formats.pytorch.joint_graph.fx_fake_tensors import tensors_in, uncompiled
from tmmu_core.formats.pytorch.joint_graph.fx_origins import WRAPPER
from tmmu_core.formats.pytorch.joint_graph.fx_patterns import signature_of
from tmmu_core.formats.pytorch.joint_graph.fx_trace import Call, exported_joint, new_leaves, state_error
from tmmu_core.graph.model import Graph

_DEVICES = ("cpu", "cuda")  # kinds of devices of ``torch.autocast``
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


class Measured(NamedTuple):
    """Results of one real step."""

    peak_bytes: int
    gradients: list[Any]  # a tensor or ``None`` for each parameter
    buffers: list[Any]


@dataclass(frozen=True)
class TorchStep:
    """A module with its loss, example inputs and traced joint graph."""

    module: Any  # the module with its loss (``fx_trace.with_loss``)
    call: Call
    name: str
    optimizer: fx_memory.Optimizer | None
    executed: Executed
    code: str  # Python code of the joint graph, before equal operators are merged
    result_bytes: tuple[int, ...]  # bytes of the gradient of each result, 0 if it needs none
    accumulated: frozenset[str]  # names of the parameters whose ``grad`` exists before the step
    tensors: Mapping[str, str]  # name of a parameter, buffer, argument or mode → its identity (``_identities``)
    autocast: Mapping[str, torch.dtype]  # kind of device → dtype of ``torch.autocast`` in which the step was traced
    step_cache: dict[Any, Any] = field(default_factory=dict)  # cache of ``with_optimizer``

    @cached_property
    def graph(self) -> Graph:
        """The step as AOTAutograd runs it, with tensors of engine, caller and optimizer, and scratch memory."""
        return fx_memory.with_scratch(self.graph_without_scratch, self.executed.scratch)

    @cached_property
    def graph_without_scratch(self) -> Graph:
        """The graph without the scratch memory of kernels."""
        return self._with_engine_and_optimizer(self.executed)

    def _with_engine_and_optimizer(self, executed: Executed) -> Graph:
        results = [(executed.results[k], size) for k, size in enumerate(self.result_bytes) if k in executed.results]
        accumulated = [name.removeprefix(WRAPPER) for name in sorted(self.accumulated)]
        graph, final = with_engine(
            executed.graph, results, executed.leaf_gradients, accumulated, self.optimizer is not None
        )
        parameters = {tensor.id for tensor in graph.tensors if tensor.role == "parameter"}
        gradients = {leaf: gradient for leaf, gradient in final.items() if leaf in parameters}
        return fx_memory.with_optimizer(graph, self.module, gradients, self.optimizer, self.step_cache)

    @property
    def eager_graph(self) -> Graph:
        """The step as eager PyTorch runs it, with the optimizer's tensors."""
        with self._autocast_as_traced():
            return eager_step(self.module, self.call, self.name, self.optimizer, self.accumulated, self.step_cache)

    @contextmanager
    def _autocast_as_traced(self) -> Iterator[None]:
        """Context manager: enter the trace's autocast if it is not active. If nested, it would keep its casts alive."""
        with ExitStack() as stack:
            for kind in _DEVICES if _autocast_now() != self.autocast else ():
                stack.enter_context(torch.autocast(kind, self.autocast.get(kind), enabled=kind in self.autocast))
            yield

    @property
    def device(self) -> str:
        """The device of the first parameter, else of the first input, else ``cpu``."""
        tensors = [*self.module.parameters(), *tree_leaves((self.call.args, self.call.kwargs))]
        return next((str(tensor.device) for tensor in tensors if isinstance(tensor, torch.Tensor)), "cpu")

    @property
    def batch(self) -> int:
        """The largest first dimension of an input; 1 if no input has one."""
        inputs = tree_leaves((self.call.args, self.call.kwargs))
        return max((leaf.shape[0] for leaf in inputs if isinstance(leaf, torch.Tensor) and leaf.ndim), default=1)

    def partition(self, fitted: Graph, refit: Callable[[Graph], Graph]) -> Callable[..., Any]:
        """Return a ``partition_fn`` for AOTAutograd.

        The function splits the joint graph of this step in the order of ``fitted``. For another joint graph, it calls
        ``refit``, and splits in the order of the returned graph.
        """

        def partition_fn(joint: Any, _inputs: Any, *, num_fwd_outputs: int, **_: Any) -> tuple[Any, Any]:
            merge_equal_nodes(joint)
            values = [node.meta.get("val") for node in joint.graph.nodes if node.op == "placeholder"]
            mode = next((value.fake_mode for value in values if hasattr(value, "fake_mode")), nullcontext())
            executed = read_executed(joint, mode, self.name, self.call.input_names)
            is_this_step = executed.graph == self.executed.graph
            if not is_this_step:
                graph = fx_memory.with_scratch(self._with_engine_and_optimizer(executed), executed.scratch)
            return split(joint, executed, fitted if is_this_step else refit(graph), num_fwd_outputs)

        return partition_fn

    def compiled(self, partition_fn: Callable[..., Any], backend: Any = "eager") -> Callable[..., Any]:
        """Return a function with the module's signature that runs the step as ``partition_fn`` splits it.

        Raises ``UnreadableInput`` for a backend that cannot run it, for tensors without data, and for another joint
        graph than in the fit. The function raises ``ValueError`` if inputs, memory they share, or module parts differ.
        """
        from torch._dynamo.backends.debugging import boxed_nop
        from torch._functorch.aot_autograd import aot_compile_joint_with_descriptors

        is_inductor = str(getattr(backend, "__module__", "")).startswith("torch._inductor")  # it decomposes operators
        if backend != "eager" and (is_inductor or not callable(backend)):
            hint = 'Use backend="eager", or a compiler of fx graphs other than Inductor: (module, inputs) → function.'
            raise UnreadableInput(f"a fitted step has no backend {getattr(backend, '__name__', backend)!r}.", hint)
        module = self.module
        if _has_no_data(module, self.call):
            hint = "Build the module with real tensors, fit it again, and compile the new fit."
            raise UnreadableInput("the module's tensors have no data, so the step cannot run.", hint, source=self.name)
        compiler = boxed_nop if backend == "eager" else backend
        trace = exported_joint(module, self.call, self.name, stand_in=False)
        attributes = fx_state.attributes_read(module)
        with self._autocast_as_traced(), torch.enable_grad(), attributes as read, trace as (joint, _, observed):
            self._refuse_other_trace(joint.graph_module)
            run = aot_compile_joint_with_descriptors(
                joint, partition_fn=partition_fn, fw_compiler=compiler, bw_compiler=compiler
            )
            names = [*joint.params_spec, *joint.buffers_spec]
            mutated = [node.meta["desc"] for node in signature_of(joint.graph_module).mutations.values()]
        written = {desc.target if hasattr(desc, "target") else self.call.input_names[desc.idx] for desc in mutated}
        shared = _pairs_in_one_storage(_values_by_name(module, self.call), written)
        constants = {constant.untyped_storage()._cdata for constant in self.executed.constants}
        parts_now = partial(_parts, module, read, constants, observed.changed)
        has_warned, parts, form = False, parts_now(), tree_structure(self.call[:2])

        def step(*args: Any, **kwargs: Any) -> Any:
            nonlocal has_warned
            call = Call.of(module.module, args, kwargs)
            given = dict(zip(call.input_names, tree_leaves(call[:2]), strict=True))
            named = _values_by_name(module, call)
            self._refuse_other_call(named, parts, parts_now())
            for one, other in sorted(_pairs_in_one_storage(named, written) - shared):
                raise ValueError(
                    f"{one} and {other.removeprefix(WRAPPER)} share memory that the step writes, and in the fit they "
                    "did not. Pass a copy of one of them (clone()), or call tmmu.fit again with these tensors."
                )
            has_warned = has_warned or self._warn_of_gradients(named)
            state = [named[name] if name in named else attrgetter(name)(module) for name in names]
            args, kwargs = tree_unflatten([given[name] for name in self.call.input_names], form)
            with torch._C._DisableAutocast():  # the step has the casts as operators
                result = run(*state, *args, **kwargs)
            return result if torch.is_grad_enabled() else tree_map_only(torch.Tensor, torch.Tensor.detach, result)

        return step

    def _refuse_other_trace(self, joint: Any) -> None:
        """Raise ``UnreadableInput`` if a new trace has other operators, or constants with other values."""
        if not _is_same_trace(joint, self.code, self.executed.constants):
            traces = (self.code, *self.executed.constants), (joint.code, *attributes_of(joint, torch.Tensor))
            lines = ("\n".join(map(str, each)).splitlines() for each in traces)
            rows = ([line for line in each if "torch.ops" in line or "tensor(" in line] for each in lines)
            one, other = next((pair for pair in zip_longest(*rows) if pair[0] != pair[1]), ("", ""))
            raise UnreadableInput(
                f"two traces of the module differ: {str(one).strip()!r} in the fit, {str(other).strip()!r} now.",
                source=self.name,
                hint="Fit the module again after a change. Its forward pass must not depend on values of Python that "
                "change, such as random.random() or a counter: pass them as inputs.",
            )

    def _warn_of_gradients(self, named: Mapping[str, Any]) -> bool:
        """Warn of gradients that exist before the step and are not in the plan; return whether there are any."""
        tensors = [t for name, t in named.items() if isinstance(t, torch.Tensor) and name not in self.accumulated]
        unplanned = sum(t.grad.nbytes for t in tensors if t.is_leaf and t.grad is not None)
        if unplanned:
            warnings.warn(
                f"The step needs {unplanned:,} bytes more than planned, because gradients exist before it. Set them to "
                "None (optimizer.zero_grad()), or fit the module while its parameters have gradients.",
                stacklevel=3,
            )
        return unplanned > 0

    def _refuse_other_call(self, named: Mapping[str, Any], before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        """Raise ``ValueError`` if the tensors ``named`` or the parts ``now`` differ from the fit (``before``)."""
        # A call without autocast is valid after a fit with autocast: the casts are operators of the step.
        expected, actual = {**self.tensors, **before}, {**_identities(named, _autocast_now() or self.autocast), **now}
        for name in [*expected, *actual] if actual != expected else ():
            fitted, given = expected.get(name), actual.get(name)
            if fitted not in (given, f"{given} with a gradient"):  # the gradient of a parameter that is frozen now
                raise ValueError(
                    f"The step is fitted for {name.removeprefix(WRAPPER)} = {fitted}, not {given}. "
                    "Call tmmu.fit again with it, or convert it. Register a number that changes often as a buffer."
                )

    def measured(self, step: Callable[..., Any]) -> Measured:
        """Run one real step and return its peak, its gradients and its buffers; the module's state is restored.

        On a GPU, the peak is measured by PyTorch's allocator, with the scratch memory of kernels. Two runs of the
        same operators give the same bits only if both are compiled and run in ``deterministic``.
        """
        accumulated = self.accumulated | parameters_with_gradients(self.module)
        with self._state_restored():
            torch.manual_seed(0)
            parameters = list(self.module.parameters())
            optimizer = None
            if self.optimizer is not None:
                leaves = {gradient.leaf for gradient in self.executed.leaf_gradients}
                names = accumulated | leaves | {WRAPPER + leaf for leaf in leaves}
                with gradients_of_zeros(self.module, names):
                    updated = {p: p for p in fx_memory.parameters_of(self.optimizer, parameters)}
                    optimizer = fx_memory.make_optimizer(self.optimizer, updated)
            args, kwargs = new_leaves((self.call.args, self.call.kwargs))
            inputs = [*self.executed.constants, *tree_leaves((args, kwargs))]
            before = (*parameters, *self.module.buffers(), *tensors_in(optimizer, set()), *inputs)
            with (
                gradients_of_zeros(self.module, accumulated),
                fx_memory.LiveBytes(filter(torch.is_tensor, (*before, *(p.grad for p in parameters)))) as storages,
            ):
                if is_on_gpu := self.device.startswith("cuda"):
                    torch.cuda.reset_peak_memory_stats(self.device)
                    other_bytes = fx_memory.gpu_bytes(self.device, "current") - storages.held_bytes
                result = step(*args, **kwargs)
                backward_from(result)
                gradients = [parameter.grad for parameter in parameters]
                if optimizer is not None:
                    optimizer.step()
            peak = fx_memory.gpu_bytes(self.device, "peak") - other_bytes if is_on_gpu else storages.peak_bytes
            return Measured(peak, gradients, [buffer.detach().clone() for buffer in self.module.buffers()])

    @contextmanager
    def _state_restored(self) -> Iterator[None]:
        """Context manager: restore the module's tensors and attributes, the inputs and random generators on exit."""
        inputs = [leaf for leaf in tree_leaves((self.call.args, self.call.kwargs)) if isinstance(leaf, torch.Tensor)]
        tensors = (*self.module.parameters(), *self.module.buffers(), *inputs)
        storages = {storage._cdata: storage for storage in (tensor.untyped_storage() for tensor in tensors)}.values()
        state = [(storage, storage.clone()) for storage in storages]
        generators = {generator_of(generator) for generator in ("cpu", self.device, *self.executed.generators)}
        generator_states = [(generator, generator.get_state()) for generator in generators]
        try:
            with fx_state.state_restored(self.module), uncompiled(self.module), gradients_of_zeros(self.module, ()):
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


def trace_step(module: Any, call: Call, name: str, optimizer: fx_memory.Optimizer | None) -> TorchStep:
    """Trace the training step of ``module`` (``fx_trace.with_loss``).

    Raises ``UnreadableInput`` if it cannot be traced, has no backward pass, or depends on state that is not in tensors.
    """
    accumulated = parameters_with_gradients(module)
    trace = partial(exported_joint, module, call, name, stand_in=_has_no_data(module, call))
    host_state = random.getstate(), str(numpy.random.get_state())
    with torch.enable_grad(), trace() as (joint, mode, observed):
        if (random.getstate(), str(numpy.random.get_state())) != host_state:
            what = "the forward pass draws random numbers of Python or NumPy, and a compiled step repeats them."
            raise UnreadableInput(what, "Draw them with PyTorch, or pass them as inputs.", source=name)
        for path, parameter in module.named_parameters():
            if getattr(parameter, "_post_accumulate_grad_hooks", None):
                what = f"the parameter {path.removeprefix(WRAPPER)!r} has a hook that runs after its gradient is added."
                raise UnreadableInput(what, "Remove it, and call the optimizer after the backward pass.", source=name)
        if observed.outside:
            shapes = ", ".join({str(tuple(each.shape)): None for each in observed.outside})
            what = f"tensors of the shapes {shapes} get gradients and are no parameters of the module."
            hint = "Register them (nn.ParameterList, nn.ModuleList), and give a loss with parameters as a module."
            raise UnreadableInput(what, hint, source=name)
        code, dependent = joint.graph_module.code, _input_dependent(joint.graph_module)
        merge_equal_nodes(joint.graph_module)
        executed = read_executed(joint.graph_module, mode, name, call.input_names)
    plain = {path: values for path, values in observed.changed.items() if not fx_state.has_tensors(values[1])}
    if plain:  # the next step starts with the attributes that this step set, and must have the same graph
        is_same, next_state = True, fx_state.state_set(module, plain)
        with suppress(UnreadableInput), next_state, torch.enable_grad(), trace() as (joint, *_):
            is_same = _is_same_trace(joint.graph_module, code, executed.constants)
        if not is_same:
            raise state_error(plain, name)
    reached = {path: pair for path, pair in observed.changed.items() if not fx_state.has_tensors(pair[0])}
    if len(reached) > len(plain) and not _has_no_data(module, call):  # attributes that get tensors in the first step
        with fx_state.state_set(module, reached), torch.enable_grad(), trace() as (joint, *_):
            if _input_dependent(joint.graph_module) != dependent:  # a result of the first step replaces operators
                raise state_error(reached.keys() - plain.keys(), name)
    if executed.generators and _sets_generators(trace, executed.generators):
        what = "the forward pass creates or seeds a torch.Generator, and a compiled step does not repeat this call."
        hint = "Create the generator in __init__, and seed it before each step, outside of the module."
        raise UnreadableInput(what, hint, source=name)
    results, autocast = observed.result_bytes, _autocast_now()
    tensors = _identities(_values_by_name(module, call), autocast)
    return TorchStep(module, call, name, optimizer, executed, code, results, accumulated, tensors, autocast)


def _is_same_trace(joint: Any, code: str, constants: Any) -> bool:
    """Return whether a trace has the operators ``code``, and constants with the bits of ``constants``."""
    with _disable_current_modes():
        return joint.code == code and equal_bits(attributes_of(joint, torch.Tensor), constants)


def _input_dependent(module: torch.fx.GraphModule) -> int:
    """Return the number of nodes of a traced step whose values depend on its inputs or parameters."""
    dependent: set[torch.fx.Node] = set()
    for node in module.graph.nodes:
        if node.op == "placeholder" or not dependent.isdisjoint(node.all_input_nodes):
            dependent.add(node)
    return len(dependent)


def _sets_generators(trace: Callable[[], Any], generators: tuple[torch.Generator, ...]) -> bool:
    """Return whether a second trace, from another state of the generators, seeds them or has other generators.

    A trace draws no numbers, so a changed seed means that the module has set it.
    """
    states = [generator.get_state() for generator in generators]
    for generator in generators:
        generator.manual_seed(fx_state.FIRST_SEED)
    try:
        with torch.enable_grad(), trace() as (joint, *_):
            others = attributes_of(joint.graph_module, torch.Generator)
            is_seeded = any(generator.initial_seed() != fx_state.FIRST_SEED for generator in generators)
        return is_seeded or not all(generator is other for generator, other in zip(generators, others, strict=True))
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)


def _parts(
    module: Any, read: Mapping[str, Collection[str]], constants: Collection[int], own: Collection[str]
) -> dict[str, str]:
    """Return path → class and hooks of each part, and path → mode, forward pass, and each attribute in ``read``.

    ``module``: result of ``fx_trace.with_loss``. ``read``: path of a part → attributes that the forward pass reads.
    ``constants``: see ``fx_state.text_of``. ``own``: paths to omit: attributes that the forward pass sets.
    """
    found = {"torch.nn": f"hooks {[k for name in _HOOKS for k in getattr(nn_module, f'_global{name}')]}"}
    for path, part in module.named_modules():
        hooks = [k for name in _HOOKS for k in getattr(part, name)]
        found[path] = type(part).__name__ + f" with the hooks {hooks}" * bool(hooks)
        names = {"training", "forward", *read.get(path, ())}.difference(["forward"] * ("_orig_mod" in part._modules))
        texts = {name: fx_state.text_of(part.__dict__.get(name), constants) for name in sorted(names)}
        found |= {f"{path}.{name}".strip("."): text or "another tensor" for name, text in texts.items()}
    return {path: text for path, text in found.items() if path not in own}


def _has_no_data(module: Any, call: Call) -> bool:
    tensors = [*module.parameters(), *module.buffers(), *tree_leaves((call.args, call.kwargs))]
    return any(isinstance(t, torch.Tensor) and (t.is_meta or hasattr(t, "fake_mode")) for t in tensors)


def _autocast_now() -> dict[str, torch.dtype]:
    return {kind: torch.get_autocast_dtype(kind) for kind in _DEVICES if torch.is_autocast_enabled(kind)}


def _values_by_name(module: Any, call: Call) -> dict[str, Any]:
    leaves = zip(call.input_names, tree_leaves(call[:2]), strict=True)
    return dict((*leaves, *module.named_parameters(), *module.named_buffers()))


def _pairs_in_one_storage(named: Mapping[str, Any], written: Collection[str]) -> set[tuple[str, str]]:
    """Return the pairs of tensors that share a storage, where the step writes the second tensor of the pair."""
    owners: dict[int, list[str]] = {}
    for name, value in named.items() if written else ():
        if isinstance(value, torch.Tensor) and value.layout == torch.strided and value.nbytes:
            owners.setdefault(value.untyped_storage().data_ptr(), []).append(name)
    return {(one, other) for names in owners.values() for one, other in permutations(names, 2) if other in written}


def _identities(named: Mapping[str, Any], autocast: Mapping[str, torch.dtype]) -> dict[str, str]:
    """Return name → identity of a tensor (without its values) or of another argument; also PyTorch's modes."""
    modes = {"torch.autocast": f"{autocast}", "torch.inference_mode": f"{torch.is_inference_mode_enabled()}"}
    found = {}
    for name, value in named.items():
        if isinstance(value, torch.Tensor):
            sizes = () if value.is_contiguous() else zip(value.stride(), value.shape, strict=True)
            strides = [stride for stride, size in sizes if size > 1]
            found[name] = f"{value.dtype} {tuple(value.shape)}{f' with strides {strides}' * bool(strides)} on "
            found[name] += f"{value.device}{' with a gradient' * value.requires_grad}"
        else:
            is_plain = isinstance(value, bool | int | float | complex | str | None)
            found[name] = repr(value) if is_plain else f"a {type(value).__name__}"
    return found | modes


def equal_bits(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Return whether two lists of tensors or ``None`` are equal bit by bit; NaNs with equal bits are equal."""

    def bits(value: torch.Tensor) -> torch.Tensor:
        return value.detach().contiguous().flatten().view(torch.uint8)

    pairs = zip(first, second, strict=True)
    return all(a is b if a is None or b is None else torch.equal(bits(a), bits(b)) for a, b in pairs)
