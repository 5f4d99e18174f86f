"""Record a training step as eager PyTorch runs it, on fake tensors: a node per operator that allocates or writes bytes.

Python variables and autograd's saved tensors keep storages alive beyond their last reader. So when a storage is freed,
the recorder adds it to the inputs of the node that ran last.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import torch
from torch._higher_order_ops import utils as hops
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from tmmu_core.fitting.pytorch.fx_engine import ACCUMULATED
from tmmu_core.fitting.pytorch.fx_memory import Optimizer, scratch_bytes, with_optimizer, with_scratch
from tmmu_core.formats.pytorch.exported_program.pt2_operators import operator
from tmmu_core.formats.pytorch.joint_graph import fx_fake_tensors, fx_origins
from tmmu_core.formats.pytorch.joint_graph.fx_joint import Draft
from tmmu_core.formats.pytorch.joint_graph.fx_origins import WRAPPER
from tmmu_core.formats.pytorch.joint_graph.fx_state import random_state_kept, state_restored
from tmmu_core.formats.pytorch.joint_graph.fx_trace import TRACING, Call, refuse_inputs, trace_error
from tmmu_core.graph.model import GRAPH_SCHEMA, Graph, Origin, Phase, Role, Tensor


def eager_step(
    module: Any, call: Call, name: str, optimizer: Optimizer | None, accumulated: Collection[str], cache: Any = None
) -> Graph:
    """Return the graph of one training step of ``module`` (``fx_trace.with_loss``) in eager PyTorch.

    ``accumulated``: names of the parameters whose ``grad`` exists before the step. ``cache``: see ``with_optimizer``.

    Raises ``UnreadableInput`` if the step or the optimizer's step cannot run without data.
    """
    refuse_inputs(module, call, name)
    leaves = tree_leaves((call.args, call.kwargs))
    mode = fx_fake_tensors.mode_of([*module.parameters(), *module.buffers(), *leaves])
    stand_ins = fx_fake_tensors.StandIns(mode, real=True)
    with (
        TRACING,
        random_state_kept(module),
        mode,
        fx_fake_tensors.value_checks_disabled(),
        state_restored(module),
        fx_fake_tensors.uncompiled(module),
        fx_fake_tensors.cudnn_disabled(module),
        stand_ins.in_module(module),
        gradients_of_zeros(module, accumulated),
        fx_origins.operator_origins(module.module) as origin_now,
    ):
        recorder = EagerRecorder(origin_now)
        for path, value in module.named_parameters():
            recorder.declare(path.removeprefix(WRAPPER), value, "parameter")
            if value.grad is not None:
                recorder.declare(path.removeprefix(WRAPPER) + ACCUMULATED, value.grad, "buffer")
        for path, value in module.named_buffers():
            recorder.declare(path.removeprefix(WRAPPER), value, "buffer")
        args, kwargs = tree_map_only(torch.Tensor, stand_ins.of, (call.args, call.kwargs))
        named_inputs = zip(call.input_names, tree_leaves((args, kwargs)), strict=True)
        inputs = [recorder.declare(*pair, "input") for pair in named_inputs if isinstance(pair[1], torch.Tensor)]
        try:
            with recorder, torch.enable_grad():
                result = module(*args, **kwargs)
                recorder.phase = "backward"
                backward_from(result)
        except Exception as error:  # any error of the model's code under fake tensors
            raise trace_error(error, name, module) from error
        finally:
            if recorder.has_bodies:
                # PyTorch caches compiled control flow, and with these entries the next trace of a cond fails.
                torch.compiler.reset()
        gradients = {}
        for path, value in module.named_parameters():
            if value.grad is not None:
                parameter = path.removeprefix(WRAPPER)
                gradients[parameter] = recorder.name_gradient(parameter, value.grad)
        graph = recorder.graph(name, tuple(dict.fromkeys(inputs)))
        del result  # kept until here, because its tensors are outputs of the step
    return with_optimizer(graph, module, gradients, optimizer, cache)


def parameters_with_gradients(module: Any) -> frozenset[str]:
    """Return the names of the parameters whose ``grad`` exists."""
    return frozenset(name for name, parameter in module.named_parameters() if parameter.grad is not None)


@contextmanager
def gradients_of_zeros(module: Any, names: Collection[str]) -> Iterator[None]:
    """Context manager: set ``grad`` to zeros for the parameters ``names``, else to ``None``; restore it on exit."""
    before = [(parameter, parameter.grad) for parameter in module.parameters()]
    for name, parameter in module.named_parameters():
        parameter.grad = torch.zeros_like(parameter) if name in names else None
    try:
        yield
    finally:
        for parameter, gradient in before:
            parameter.grad = gradient


def backward_from(result: Any) -> None:
    """Run the backward pass from the tensors in ``result`` that require a gradient, with gradients of ones."""
    outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    torch.autograd.backward(outputs, [torch.ones_like(output) for output in outputs])


class EagerRecorder(TorchDispatchMode):
    """Mode that records operators that allocate or write memory. Each new storage and each write gets a tensor."""

    supports_higher_order_operators = True

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Return whether PyTorch compiles a control-flow body now: then this mode must be an infra mode."""
        return bool(hops._in_hop_compile())

    def __init__(self, origin_now: Callable[[], Origin | None]) -> None:
        super().__init__()
        self.origin_now = origin_now
        self.phase: Phase = "forward"
        self.tensors: dict[str, Tensor] = {}
        self.nodes: list[Draft] = []
        self.origins: dict[str, Origin] = {}
        self.scratch: dict[str, int] = {}
        self.name_of: dict[int, str] = {}  # address of a storage → the tensor of its latest write
        self.alive: dict[int, StorageWeakRef] = {}  # address of a storage → weak reference to it
        self.used: Counter[str] = Counter()  # name of a tensor or operator → number of its uses, for unique node ids
        self.updated: set[str] = set()  # persistent tensors that result from a write
        self.has_bodies = False  # whether a control-flow operator ran

    def declare(self, name: str, value: torch.Tensor, role: Role) -> str:
        """Return the tensor id of the storage of ``value``. A new storage gets ``name``, or ``name_`` if it is used."""
        storage = value.untyped_storage()
        known = self.alive.get(storage._cdata)
        if known is not None and not known.expired():
            return self.name_of[storage._cdata]
        is_whole = storage.nbytes() == value.numel() * value.element_size()
        shape = tuple(map(int, value.shape)) if is_whole else (int(storage.nbytes()),)
        dtype = str(value.dtype).removeprefix("torch.") if is_whole else "uint8"
        self.used[name] += 1
        while name in self.tensors:
            name += "_"
        self.tensors[name] = Tensor(name, shape, dtype, role)
        self.name_of[storage._cdata], self.alive[storage._cdata] = name, StorageWeakRef(storage)
        return name

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._record_freed()
        if isinstance(func, torch._ops.HigherOrderOperator):
            self.has_bodies = True
            result = func(*[self._recorded_body(arg) for arg in args], **(kwargs or {}))
        else:
            result = fx_fake_tensors.with_real_storage(func, args, func(*args, **(kwargs or {})))
        self._record(func, args, kwargs or {}, result)
        return result

    def _recorded_body(self, body: Any) -> Any:
        """Return a function that records what ``body``, an argument of a control-flow operator, runs."""
        if not callable(body) or isinstance(body, torch.Tensor):
            return body

        def run(*operands: Any) -> Any:
            with self:
                return body(*operands)

        return run

    def _record_freed(self) -> None:
        """Add the storages that were freed after the last node to the inputs of that node."""
        for address in [k for k, storage in self.alive.items() if torch.UntypedStorage._expired(storage.cdata)]:
            del self.alive[address]
            name = self.name_of.pop(address)
            if self.nodes and name not in (*self.nodes[-1].inputs, *self.nodes[-1].outputs):
                self.nodes[-1].inputs.append(name)

    def _record(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        read = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        inputs = list(dict.fromkeys(self.declare("constant", tensor, "constant") for tensor in read))
        known, name = set(self.name_of), func.name().partition("::")[2].partition(".")[0] or func.name()
        node_id = f"{name}_{self.used[name]}" if self.used[name] else name
        role: Role = "activation" if self.phase == "forward" else "gradient"
        leaves = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        values = {leaf.untyped_storage()._cdata: leaf for leaf in leaves}
        outputs = [self.declare(node_id, value, role) for address, value in values.items() if address not in known]
        schema, pairs = getattr(func, "_schema", None), []
        arguments = schema.arguments if schema is not None else ()
        is_written = [argument.alias_info is not None and argument.alias_info.is_write for argument in arguments]
        written = [kwargs.get(a.name) if k >= len(args) else args[k] for k, a in enumerate(arguments) if is_written[k]]
        tensors = [leaf for leaf in tree_leaves(written) if isinstance(leaf, torch.Tensor)]
        for address in dict.fromkeys(tensor.untyped_storage()._cdata for tensor in tensors):
            old = self.name_of[address]
            before = self.tensors[old]
            if old in self.updated:
                continue  # a persistent tensor is always live, so only its first write is recorded
            new = f"{old}.{node_id}"
            self.updated |= {new} if before.persistent else set()
            self.tensors[new] = Tensor(new, before.shape, before.dtype, before.role)
            self.name_of[address] = new
            pairs.append((inputs.index(old), len(outputs)))
            outputs.append(new)
        if not outputs:
            return
        self.used[name] += 1
        self.scratch[node_id] = scratch_bytes(func, args, kwargs)
        origin = self.origin_now()
        if origin is not None:
            self.origins[node_id] = origin
        self.nodes.append(Draft(node_id, operator(str(func)).title, inputs, outputs, self.phase, in_place_write=pairs))

    def name_gradient(self, parameter: str, gradient: torch.Tensor) -> str:
        """Name a gradient's storage ``PARAMETER.grad``, unless it has such a name or is persistent; return its name."""
        address, name = gradient.untyped_storage()._cdata, f"{parameter}.grad"
        old = self.name_of[address]
        if old.endswith(".grad") or self.tensors[old].persistent:  # shared by two parameters, or accumulated
            return old
        self.tensors[name] = msgspec.structs.replace(self.tensors.pop(old), id=name)
        self.name_of[address] = name
        for node in self.nodes:
            node.inputs = [name if tensor == old else tensor for tensor in node.inputs]
            node.outputs = [name if tensor == old else tensor for tensor in node.outputs]
        return name

    def graph(self, name: str, inputs: tuple[str, ...]) -> Graph:
        """Return the recorded step; its outputs are the storages that are still alive, except persistent ones."""
        self._record_freed()
        nodes = tuple(draft.node() for draft in self.nodes)
        alive = [self.name_of[address] for address in self.alive]
        graph = Graph(
            ir_schema=GRAPH_SCHEMA,
            tensors=tuple(self.tensors.values()),
            nodes=nodes,
            inputs=inputs,
            outputs=tuple(tensor for tensor in alive if not self.tensors[tensor].persistent),
            name=name,
            execution_order=tuple(node.node_id for node in nodes),
            origins=self.origins,
        )
        return with_scratch(graph, self.scratch)
