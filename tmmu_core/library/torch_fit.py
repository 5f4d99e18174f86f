"""``tmmu.fit(module, …)``: a training step of PyTorch that fits a capacity and runs as planned; imports PyTorch."""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from numbers import Integral
from typing import Any

import numpy as np

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.fitting.move import Kind
from tmmu_core.fitting.problem.answer import Allowed, Capacity, Fitted, fitted_layers, fitted_peak
from tmmu_core.fitting.problem.planner_calls import initial_candidate
from tmmu_core.fitting.pytorch import fx_step
from tmmu_core.fitting.pytorch.fx_eager import eager_step, parameters_with_gradients
from tmmu_core.fitting.pytorch.fx_rebuild import state_bytes
from tmmu_core.fitting.search.candidates import FittedSize, bisect_size
from tmmu_core.fitting.search.fit_search import fit
from tmmu_core.fitting.search.size_search import search_sizes
from tmmu_core.formats.pytorch.caching_allocator import OutOfMemory, reserved_peak
from tmmu_core.formats.pytorch.joint_graph.fx_trace import Call, new_leaves, with_loss
from tmmu_core.graph.model import ONE_MEMORY, Dim, Graph
from tmmu_core.library.arguments import Amount, Capacities, Share, allowed_moves, amount_of_bytes, ratio
from tmmu_core.library.fit_result import Fit
from tmmu_core.library.plan_result import Plan
from tmmu_core.planners.problem import Progress
from tmmu_core.plans.figures.live_bytes import storages_of
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.request import PlanRequest

KINDS: tuple[Kind, ...] = ("order", "recompute", "offload")  # moves that a step of PyTorch can run
DEFAULT_KINDS = KINDS[:2]  # without offload: a copy to host memory is slow, and on the CPU it saves nothing
ALIGNMENT, DEVICE_ALIGNMENT = 1, 512  # on the CPU, live bytes are not rounded; PyTorch's allocator on a GPU rounds them
NODES, NODES_OF_ALL = 20_000, 10_000_000
"""Limits of the search for a packing: search nodes, and search nodes × graph nodes. With only 1,000 search nodes, some
packings exceed a capacity that the live bytes fit, and the fit recomputes up to twice as many FLOPs."""
LOWER_PERCENT = 96  # if a GPU's allocator cannot run a plan, the next capacity is this percentage of the plan's extent
REQUEST = PlanRequest(planner="auto", one_memory=True, options={"max_nodes": NODES})
GIVE_DIMS = 'Write dims={"batch": (1, 256), "seq": 512}, and largest="batch" for the largest size that fits.'


@dataclass(frozen=True, eq=False, repr=False)
class TorchFit(Fit[Plan]):
    """A fit that runs in PyTorch."""

    step: Any  # the traced step (``fitting/pytorch/fx_step.TorchStep``)
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Size of each dimension in ``dims``. For ``largest``: the largest size that fits, or the smallest if none fits."""
    reserve: Amount = 0  # part of the capacity that the step must not use

    def __reduce__(self) -> Any:
        raise TypeError("A PyTorch fit cannot be pickled: it holds the traced module. Pickle fit.plan, or fit again.")

    def __deepcopy__(self, memo: dict[int, Any]) -> TorchFit:
        return TorchFit(*(deepcopy(getattr(self, f.name), memo) for f in fields(self)))

    @property
    def partition_fn(self) -> Callable[..., Any]:
        """The ``partition_fn`` for AOTAutograd: forward and backward in the fitted order.

        If you call AOTAutograd yourself, the function fits AOTAutograd's graph, which also copies the gradients of
        non-contiguous results. It raises ``UnreadableInput`` if this graph does not fit although the step does.
        Compile forward and backward with the boxed calling convention, so that they free their arguments.
        """

        def refit(graph: Graph) -> Graph:
            result = _fitted(graph, self.fitted.capacity, self.fitted.allowed, None, self.step.device)
            if self.answer == "fits" and result.answer != "fits":
                what = f"AOTAutograd's graph of the step needs {result.best.extent_bytes:,} bytes, "
                what += f"{result.over_bytes:,} more than the capacity. It copies gradients of non-contiguous results."
                raise UnreadableInput(what, hint="Use fit.compile(), or return such results with .contiguous().")
            return result.best.plan_input.graph

        return self.step.partition(self.graph, refit)

    def compile(self, backend: Any = "eager") -> Callable[..., Any]:
        """Return a function with the module's signature that runs the fitted step.

        ``backend`` is ``"eager"`` (operator by operator, as planned) or a compiler of fx graphs. With a loss, the
        function returns the loss. It accepts only inputs with the shapes and dtypes of the example inputs. The plan
        contains the gradients that exist when the step is fitted (accumulation). Other gradients cause a warning.
        """
        return self.step.compiled(self.partition_fn, backend)

    def check(self) -> dict[str, Any]:
        """Run one real step and compare it with the plan, and with the same compiled step without moves.

        Returns the planned and the measured peak of live bytes, with the scratch memory of kernels on a GPU, and
        whether gradients and buffers are equal bit by bit. The module's state and the random generator are unchanged.
        """
        step = self.step
        with fx_step.deterministic():
            with warnings.catch_warnings(action="ignore"):  # the fitted step gives the same warnings
                plain = step.measured(step.compiled(step.partition(step.graph, lambda graph: graph)))
            measured = step.measured(self.compile())
        peak = measured.peak_bytes
        if step.device.startswith("cuda"):  # deterministic kernels have other scratch memory
            peak = step.measured(self.compile()).peak_bytes
        planned = self.fitted.best.plan.arena_of[ONE_MEMORY].peak_live_bytes
        names = ("gradients", "buffers")
        equal = {f"{name}_equal": fx_step.equal_bits(getattr(measured, name), getattr(plain, name)) for name in names}
        return {"planned_peak_bytes": planned, "measured_peak_bytes": peak, **equal}

    @property
    def next_steps(self) -> tuple[str, ...]:
        """Suggested changes of the request, with only moves that a PyTorch step can run; empty if it fits."""
        if self.answer == "fits":
            return ()
        capacity, *others = [text for text in self.fitted.next_steps if not text.startswith("allow ")]
        capacity += " plus the reserve" * bool(self.reserve)
        if not self.fitted.over_bytes:  # the allocator of a GPU cannot run the plan within the capacity
            capacity = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True or a larger capacity"
        if self.answer == "open" and self.lower_bound_bytes > self.fitted.capacity.limit_bytes:
            others = ["eager mode, which writes in place where the fitted step copies", *others]
        kinds = [kind for kind in KINDS if kind not in self.fitted.allowed.kinds]
        others += [f"allow {', '.join(kinds)}"] if kinds else []
        others += ['a smaller batch: dims={"batch": (1, 256)}, largest="batch"'] if self.step.batch > 1 else []
        return (capacity, *others)

    @cached_property
    def eager_peak_bytes(self) -> int:
        """Peak of the live bytes of the step in eager PyTorch."""
        plan = make_plan(self.step.eager_graph, REQUEST.but(planner="greedy", options={})).plan
        return plan.arena_of[ONE_MEMORY].peak_live_bytes

    @cached_property
    def least_bytes(self) -> int:
        """The smallest extent that the search finds at any cost. For less, use a smaller batch."""
        any_cost = replace(self.fitted.allowed, max_cost=None)
        if self.fitted.over_bytes and self.fitted.allowed == any_cost:
            return self.extent_bytes
        return _fitted(self.step.graph, Capacity(0), any_cost, None, self.step.device).best.extent_bytes

    @cached_property
    def reserved_bytes(self) -> int:
        """Bytes that PyTorch's caching allocator reserves on a GPU for the storages, by a model of the allocator.

        The model has 512-byte blocks in segments of 2 MiB, 20 MiB or a multiple of 2 MiB. Segments are never released,
        because the model has no memory limit. Memory that libraries allocate directly is not included.
        """
        return _reserved_peak(self.fitted.best.plan)

    def peak(self) -> dict[str, Any]:
        """Return the node and module at the peak, the live tensors, their bytes by module, and a suggestion."""
        return fitted_peak(self.fitted)

    def layers(self) -> dict[str, dict[str, int]]:
        """Return module path → column (such as ``parameters``) → bytes.

        ``at_peak``: live at the peak, not persistent. ``activations``: ``kept`` + ``recomputed`` + ``offloaded``.
        """
        return fitted_layers(self.fitted, {gradient.leaf for gradient in self.step.executed.leaf_gradients})


@dataclass(frozen=True)
class TorchModel:
    """A module and how it is trained."""

    module: Any
    example_inputs: Any
    loss: Callable[[Any], Any] | None = None
    optimizer: Any = None

    def at_size(self, size: int, axis: int) -> TorchModel:
        """Return the model with inputs of ``size`` rows along ``axis``. Rows are repeated, so that a step can run.

        The first input with this axis sets a number of rows. Only inputs with this number of rows are resized. Raises
        ``UnreadableInput`` if no input has the axis, or for lack of memory.
        """
        import torch
        from torch.utils._pytree import tree_leaves, tree_map_only

        leaves = [tensor for tensor in tree_leaves(self.example_inputs) if isinstance(tensor, torch.Tensor)]
        rows = next((tensor.shape[axis] for tensor in leaves if tensor.dim() > axis and tensor.shape[axis]), None)
        if rows is None:
            raise UnreadableInput(f"dims: no tensor of the inputs has an axis {axis}.", hint="Omit this dimension.")

        @cache  # a tensor that is passed twice stays one tensor
        def resized(value: Any) -> Any:
            if value.dim() <= axis or value.shape[axis] != rows or rows == size:
                return value
            order = sorted(range(value.dim()), key=lambda k: -value.stride(k))  # axes, greatest stride first
            try:
                selected_rows = torch.arange(size, device=value.device) % rows
                result = value.permute(order).index_select(order.index(axis), selected_rows).detach()
                return result.permute([order.index(k) for k in range(value.dim())]).requires_grad_(value.requires_grad)
            except RuntimeError as error:
                what = f"dims: inputs of {size:,} rows along axis {axis} cannot be allocated."
                raise UnreadableInput(what, hint='Give a smaller size, or inputs with device="meta".') from error

        return replace(self, example_inputs=tree_map_only(torch.Tensor, resized, self.example_inputs))


def _at_sizes(model: TorchModel, sizes: Mapping[str, int]) -> TorchModel:
    """Return the model with its inputs at ``sizes``. Raises ``UnreadableInput`` for two names of one axis.

    The axis of a name is the number after its last dot, else 1 for "seq…" and "len…", else 0.
    """
    axes: dict[int, str] = {}
    for name in sizes:
        _, dot, number = name.rpartition(".")
        axes[int(number) if dot and number.isdecimal() else int(name.lower().startswith(("seq", "len")))] = name
    if len(axes) < len(sizes):
        hint = 'Names that begin with "seq" or "len" are axis 1, other names are axis 0; "x.2" is axis 2.'
        raise UnreadableInput(f"dims: two of {', '.join(map(repr, sizes))} name the same axis.", hint=hint)
    for axis, name in axes.items():
        model = model.at_size(sizes[name], axis)
    return model


def largest_size(
    model: TorchModel, fit_step: Callable[..., Fitted], dims: Mapping[str, Any], largest: str | None
) -> TorchFit:
    """Return the fit at the largest size of the dimension ``largest`` that fits, or at its smallest size if none fits.

    ``dims``: name → number, pair (least, greatest) or ``Dim`` of PyTorch. All but ``largest`` have their greatest size.
    ``fit_step(graph, device)`` returns the fit of a step's graph; a third argument is called with the progress.
    The search computes graphs from traces at two sizes, with linear tensor sizes. If the trace at the best size differs
    from its computed graph, it uses a third trace (quadratic sizes). If they differ again, it traces every tried size.
    The search omits the scratch memory of GPU kernels. If the step has any, a second search includes it.
    Raises ``UnreadableInput`` if ``dims`` lacks ``largest`` or has a size that is not valid.
    """
    if largest is not None and largest not in list(dims):
        raise UnreadableInput(f"largest: {largest!r} is not in dims.", hint=GIVE_DIMS)
    ends = {dim: _ends(dim, size) for dim, size in dims.items()}
    upper = {dim: high for dim, (_, high) in ends.items()}
    name = largest if largest is not None else next(iter(ends))
    low, high = ends[name] if largest is not None else (upper[name], upper[name])
    step_cache: dict[Any, Any] = {}

    @cache
    def step_at(size: int) -> Any:
        return replace(trace_step(_at_sizes(model, {**upper, name: size})), step_cache=step_cache)

    def search(graph_at: Callable[[int], Graph], high: int = high) -> FittedSize:
        def is_excluded(size: int) -> bool:  # end the search at once: the lower bound alone proves that no plan fits
            return fit_step(graph_at(size), device, lambda *_: False).answer == "cannot"

        return bisect_size(Dim(low, high), lambda size: fit_step(graph_at(size), device), is_excluded)

    first = min(max(2, low), high)  # not 1: PyTorch broadcasts an axis of one row
    device = step_at(first).device
    best = search_sizes(lambda size: step_at(size).graph_without_scratch, Dim(low, high), first, (2, 3), search)
    step = step_at(best.size or low)
    if step.graph != step.graph_without_scratch:
        best = search(lambda size: step_at(size).graph, best.size or low)
    size = best.size or low
    return TorchFit(best.fitted, Plan.of_candidate(best.fitted.best), step_at(size), {**upper, name: size})


def _ends(name: str, size: Any) -> tuple[int, int]:
    """Return the bounds of a size: a number, a pair, or a ``Dim`` of ``torch.export``. Raises ``UnreadableInput``."""
    is_dim = hasattr(size, "min") and not isinstance(size, Integral)  # numbers of NumPy have a method ``min``
    ends = (size.min, size.max) if is_dim else size if isinstance(size, tuple) else (size, size)
    is_pair = len(ends) == 2 and all(isinstance(end, Integral) for end in ends)
    if not isinstance(name, str) or not is_pair or not 1 <= ends[0] <= ends[1] < 2**31:
        hint = "Names are texts. A size is a number from 1 to 2**31 - 1, a pair (least, greatest), or a bounded Dim."
        raise UnreadableInput(f"dims: {name!r}: {size!r} is not a valid size.", hint=hint)
    return int(ends[0]), int(ends[1])


def fit_sized(
    model: TorchModel,
    capacity: Capacities,
    reserve: Amount,
    allow: str | Iterable[str] | None,
    max_cost: Share | None,
    dims: Mapping[str, Any] | str | None,
    largest: str | None,
    progress: Progress | None,
) -> TorchFit:
    """Fit a module's training step to ``capacity`` minus ``reserve``. Raises ``UnreadableInput``."""
    allowed = allowed_moves(DEFAULT_KINDS if allow is None else allow, max_cost, keep_phases=True)
    if wrong := sorted(allowed.kinds - set(KINDS)):
        hint = f"Moves that it can run: {', '.join(KINDS)}. Fit the graph of the module for other moves."
        raise UnreadableInput(f"allow: a step of PyTorch cannot run the move {wrong[0]!r}.", hint=hint)
    if isinstance(capacity, Mapping):
        raise UnreadableInput("a step of PyTorch has one memory.", hint='Give its capacity, such as "24GiB".')
    total = amount_of_bytes("capacity", capacity)
    is_share = isinstance(reserve, str) and reserve.strip().endswith("%")
    reserved = math.ceil(ratio("reserve", reserve) * total) if is_share else amount_of_bytes("reserve", reserve)
    if reserved > total:
        raise UnreadableInput(f"the reserve of {reserved:,} B exceeds the capacity.", hint="Reduce the reserve.")
    limit = Capacity(total - reserved)
    if dims is not None and not isinstance(dims, Mapping):
        raise UnreadableInput(f"dims: {dims!r} is not a dict from dimension to size.", hint=GIVE_DIMS)

    def fit_step(graph: Graph, device: str, report: Progress | None = progress) -> Fitted:
        return _fitted(graph, limit, allowed, report, device)

    if dims or largest is not None:
        found = replace(largest_size(model, fit_step, dims or {}, largest), reserve=reserve)
    else:
        step = trace_step(model)
        fitted = fit_step(step.graph, step.device)
        found = TorchFit(fitted, Plan.of_candidate(fitted.best), step, reserve=reserve)
    with suppress(UnreadableInput):  # eager mode cannot always run without data
        is_open = found.answer == "cannot" and found.eager_peak_bytes <= limit.limit_bytes
        return replace(found, fitted=replace(found.fitted, answer="open")) if is_open else found
    return found


def eager_graph(model: TorchModel) -> Graph:
    """Return the training step of a module as eager PyTorch runs it. Raises ``UnreadableInput``."""
    module, call, name = _arguments(model)
    return eager_step(module, call, name, model.optimizer, parameters_with_gradients(module))


def trace_step(model: TorchModel) -> Any:
    """Return the traced training step of a module (``fx_step.TorchStep``). Raises ``UnreadableInput``."""
    return fx_step.trace_step(*_arguments(model), model.optimizer)


def _arguments(model: TorchModel) -> tuple[Any, Any, str]:
    module, inputs = getattr(model.module, "_orig_mod", model.module), model.example_inputs
    kwargs = dict(inputs) if isinstance(inputs, Mapping) else {}
    args = () if isinstance(inputs, Mapping) else tuple(inputs) if isinstance(inputs, Sequence) else (inputs,)
    return with_loss(module, model.loss), Call.of(module, *new_leaves((args, kwargs))), module._get_name()


def _reserved_peak(plan: Any, limit: int = sys.maxsize) -> int:
    storages = storages_of(plan)
    on_device = np.array([arena.name == ONE_MEMORY for arena in plan.arenas])
    is_counted = (storages.size > 0) & on_device[storages.arena]
    return reserved_peak(storages.birth[is_counted], storages.death[is_counted], storages.size[is_counted], limit)


def _runs_on_gpu(plan: Any, limit: int) -> bool:
    """Return whether a model of PyTorch's caching allocator can run the plan within ``limit`` bytes."""
    settings = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "") + os.environ.get("PYTORCH_ALLOC_CONF", "")
    try:  # with expandable segments, free memory is never too fragmented
        return "expandable_segments:True" in settings or _reserved_peak(plan, limit) <= limit
    except OutOfMemory:
        return False


def _fitted(graph: Graph, capacity: Capacity, allowed: Allowed, progress: Progress | None, device: str) -> Fitted:
    """Fit a step in one memory. If no plan fits, search for the smallest plan.

    On a GPU, smaller plans are tried until the allocator's model can run one. If it runs none, the answer is ``open``.
    """
    request = REQUEST.but(alignment=ALIGNMENT if device == "cpu" else DEVICE_ALIGNMENT)
    request = request.but(options={"max_nodes": min(NODES, NODES_OF_ALL // len(graph.nodes))})
    start = initial_candidate(graph, request, progress)
    start = replace(start, plan_input=replace(start.plan_input, state_bytes=state_bytes(device)))
    first = smaller = fit(start, capacity, allowed, progress, smallest=True)
    while device != "cpu" and smaller.answer == "fits" and not _runs_on_gpu(smaller.best.plan, capacity.limit_bytes):
        smaller = fit(start, Capacity(smaller.best.extent_bytes * LOWER_PERCENT // 100), allowed, progress)
    if smaller.answer == "fits":
        return replace(smaller, capacity=capacity)
    return replace(first, answer="open") if first.answer == "fits" else first
