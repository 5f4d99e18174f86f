"""The functions of ``import tmmu``: read, plan, fit, pack, compare, verify."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Unpack

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.planfile.compare_plans import Comparison
from tmmu_core.formats.planfile.compare_plans import compare as compare_plans
from tmmu_core.formats.planfile.trace import Trace
from tmmu_core.graph.checks import assumed_at, refuse_unused_dims, resolve_dims
from tmmu_core.graph.model import Dim, Graph
from tmmu_core.judge.finding import Verdict
from tmmu_core.judge.verifier.finished_plan import verify_finished
from tmmu_core.library import arguments
from tmmu_core.library.arguments import Capacities, FitOptions, PlanOptions, Share, Source, suggest_options
from tmmu_core.library.fit_result import Fit
from tmmu_core.library.pack import Packed, PackOptions, problem_of, with_constraints
from tmmu_core.library.plan_result import Plan, as_plan, fit_graph
from tmmu_core.planners.problem import PlainInstance, Progress
from tmmu_core.plans import model
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.making.request_options import option_texts


@suggest_options()
def read(source: Source, *, dims: Mapping[str, int] | None = None) -> Graph | Plan | PlainInstance | Trace:
    """Read any supported file: return its graph, packing instance, plan or trace.

    Plans and traces are verified; the arenas of a plan with errors have the status ``invalid``.
    Source: contract §8, §9, §11.

    Parameters
    ----------
    source : path, bytes or dict
        A file name, the bytes of a file, or a native graph as a dict.
    dims : dict, optional
        Sizes of named dimensions of a graph [their bounds in the file].

    Returns
    -------
    Graph, Plan, PlainInstance or Trace
        A ``PlainInstance`` is a packing problem without a graph.

    Raises
    ------
    UnreadableInput
        The file cannot be opened, or no reader accepts its content; the message names the readers.
    InvalidIrShapes
        The graph is inconsistent, or ``dims`` has an unknown dimension, a size out of bounds or an unused size.

    Examples
    --------
    >>> import tmmu
    >>> tmmu.read("sample_graphs/mixed_sizes.tmmu.json").name
    'mixed_sizes'
    """
    opened = arguments.open_source(source, dims)
    if isinstance(opened, Graph) and dims:
        refuse_unused_dims(opened, dims)
        sizes = {name: Dim(size, size) for name, size in resolve_dims(opened, dims).items() if name in dims}
        return msgspec.structs.replace(opened, dims=opened.dims | sizes, assumed=assumed_at(opened, dims))
    if isinstance(opened, Trace):
        return replace(opened, plan=Plan.of(verify_finished(opened.plan, complete=opened.complete).plan))
    return Plan.of(verify_finished(opened).plan) if isinstance(opened, model.Plan) else opened


@suggest_options(PlanOptions)
def plan(
    source: Source,
    example_inputs: Any = (),
    *,
    capacity: Capacities | None = None,
    progress: Progress | None = None,
    **options: Unpack[PlanOptions],
) -> Plan:
    """Plan the memory of a graph: live range, slot, arena and offset of each tensor.

    Options are values or the texts of the command line (``dims={"B": 8}`` or ``"B=8"``). Equal sources and options give
    equal plan files on all systems. Steps count from 0, ranges are half-open, offsets and sizes are bytes.
    Source: UML_OS.TMMU.PrepareMemory_v2, contract §1 to §7.

    Parameters
    ----------
    source : path, bytes, dict, Graph, PlainInstance, torch.nn.Module or torch.export.ExportedProgram
        A file in any supported format or its bytes, a native graph as a dict, or a PyTorch module. A module in
        training mode gives a training step.
    example_inputs : tensor, sequence or dict, optional
        Arguments of a PyTorch module: one tensor, all positional arguments, or keyword arguments.
    planner : str, optional
        ``slots``, ``naive``, ``ffd``, ``helia``, ``greedy``, ``portfolio``, ``search``, ``exact``, ``reuse`` or
        ``auto``, which runs several and returns the smallest plan [depends on the source, usually ``slots``].
    mode : {"forward", "backward", "inference"}, optional
        The part of the graph to plan [``backward`` if the graph has backward nodes, else ``inference``].
    capacity : int, str or dict, optional
        Bytes of one memory for all tensors (``"8GiB"``), or a dict from arena to bytes [unlimited].
    budget : int or str, optional
        Quota of the sum of all arena sizes, in bytes [unlimited].
    arenas : dict, optional
        Arena configuration (contract §4).
    alignment, page_size : int or str, optional
        Alignment [128, unless the source has its own] and page size [none] of all arenas, in bytes.
    one_memory : bool
        Place all tensors in one arena, ``memory`` [False; True with a capacity in bytes].
    dims : dict or str, optional
        Sizes of named dimensions [the sizes that the reader assumes, else the upper bounds].
    order : sequence of str, optional
        Execution order: node ids [that of the graph, else topological].
    options : dict, optional
        Options of the planner.
    preset : {"train_full", "inference", "remat_enabled"}, optional
        Lifetime rules [chosen by the mode].
    seed, token : int; bytes or str, optional
        Seed of the replay token [0], or the token itself: 32 bytes or 64 hexadecimal digits.
    rank, world_size : int, optional
        The rank to plan for [0], and the number of ranks [size of the mesh, else 1].
    shard_spec : dict, optional
        Sharding of the graph; the plan is for the share of ``rank``.
    addressing : {"offsets", "blake3_sparse"}
        Kind of addresses ["offsets"].
    progress : callable, optional
        Called as ``progress(what, done, of)`` during the search. If it returns ``False``, the best plan so far is used.

    Returns
    -------
    Plan

    Raises
    ------
    UnreadableInput
        The source or an option cannot be read.
    InvalidIrShapes
        The graph is inconsistent, or an option names an unknown arena, dimension or node.
    MissingExtra
        A package that reads the source is missing; ``hint`` is the command that installs it.
    ArenaTooSmall
        The plan exceeds the capacity.
    TmmuError
        Another error: the plan exceeds the budget, nodes form a cycle, or the order violates a dependency.

    Examples
    --------
    >>> import tmmu
    >>> plan = tmmu.plan("sample_graphs/mixed_sizes.tmmu.json", planner="auto")
    >>> plan.extent_bytes, plan.lower_bound_bytes
    (270336, 270336)
    """
    request = arguments.request_of({**options, "capacity": capacity})
    if arguments.is_training_module(source):
        from tmmu_core.library.torch_fit import TorchModel, eager_graph

        source = eager_graph(TorchModel(source, example_inputs))
    result = arguments.plan_opened(arguments.open_source(source, request.dims, example_inputs), request, progress)
    return Plan.of(result.plan, result)


@suggest_options(FitOptions)
def fit(
    source: Source,
    capacity: Capacities,
    example_inputs: Any = (),
    *,
    allow: str | Iterable[str] | None = None,
    max_cost: Share | None = None,
    keep_phases: bool = False,
    progress: Progress | None = None,
    **options: Unpack[FitOptions],
) -> Fit[Plan]:
    """Change a graph until it fits a capacity, or prove that it cannot fit.

    Moves are a better plan, another execution order, in-place updates, smaller alignments, recomputation (activation
    checkpointing), offload and smaller sizes. Source: contract §11.

    Parameters
    ----------
    source, example_inputs
        As in :func:`plan`, but not a ``PlainInstance``.
    capacity : int, str or dict
        Bytes of one memory for all tensors (``"8GiB"``), or a dict from arena to bytes.
    allow : str or iterable of str, optional
        Kinds of moves: ``"planner,order,inplace,alignment,recompute,offload,sizes"`` [all but alignment and sizes; for
        a module in training mode order, recompute].
    max_cost : float or str, optional
        Maximum extra compute, in percent of the graph's FLOPs [unlimited].
    keep_phases : bool
        Keep forward, backward and optimizer nodes separate [False]; always true for a module in training mode.
    planner, mode, budget, arenas, alignment, page_size, one_memory, dims, order, options, preset, seed, token, \
rank, world_size, shard_spec, addressing, progress : optional
        As in :func:`plan`. A module in training mode accepts only ``progress`` and ``dims``. Its ``dims`` map an axis
        of the inputs to a number, a pair or a ``Dim`` of ``torch.export`` (``{"batch": (1, 256), "seq": 512}``). A
        name that begins with "seq" or "len" is axis 1, ``"x.2"`` is axis 2, any other name is axis 0.
    loss, optimizer, reserve, largest : optional
        For a module in training mode. ``loss``: a function from the module's output to the tensor to differentiate.
        ``optimizer``: ``"sgd"``, ``"adam"``, ``"adamw"``, an optimizer of ``torch.optim`` or a function of the
        parameters. ``reserve``: bytes of the capacity, or a share (``"5 %"``), that the step must not use.
        ``largest``: the dimension to enlarge to the largest size that fits.

    Returns
    -------
    Fit
        Truthy if the graph fits. ``answer``: ``fits``, ``cannot`` (proven) or ``open``. For a module in training mode,
        a ``TorchFit``, with ``compile``, ``partition_fn``, ``check`` and ``layers``; its step runs as planned.

    Raises
    ------
    UnreadableInput
        The source has no graph, or an option cannot be read. Other errors are those of :func:`plan`.

    Examples
    --------
    >>> import tmmu
    >>> fitted = tmmu.fit("sample_graphs/mixed_sizes.tmmu.json", "300KiB")
    >>> fitted.answer, fitted.extent_bytes
    ('fits', 270336)
    """
    args: dict[str, Any] = {**options, "capacity": capacity}
    arguments.capacity_of(capacity)  # reject it before the module is traced
    loss, optimizer, reserve, largest = (args.pop(name, None) for name in ("loss", "optimizer", "reserve", "largest"))
    is_module = arguments.is_training_module(source)
    dims = args.pop("dims", None) if is_module else None
    request = arguments.request_of(args)
    if is_module:
        from tmmu_core.library.torch_fit import TorchModel, fit_sized

        if given := option_texts(request.but(capacities={})):
            what = f"{', '.join(given)}: options of a plan do not apply to a module in training mode."
            raise UnreadableInput(what, hint="Fit the graph of the module with these options.")
        model = TorchModel(source, example_inputs, loss, optimizer)
        return fit_sized(model, capacity, reserve or 0, allow, max_cost, dims, largest, progress)
    if loss is not None or optimizer is not None or reserve or largest is not None:
        what = "loss, optimizer, reserve and largest need a PyTorch module in training mode."
        raise UnreadableInput(what, hint="Call module.train(), or omit them. For a graph, use tmmu fit --largest.")
    graph = arguments.open_source(source, request.dims, example_inputs)
    if not isinstance(graph, Graph):
        raise UnreadableInput("the source has no graph.", hint="Give the graph, because a fit changes its nodes.")
    return fit_graph(graph, request, capacity, arguments.allowed_moves(allow, max_cost, keep_phases), progress)


@suggest_options(PackOptions)
def pack(lower: ArrayLike, upper: ArrayLike, size: ArrayLike, **options: Unpack[PackOptions]) -> Packed:
    """Pack buffers with known live ranges into one arena: return each buffer's offset (dynamic storage allocation).

    Buffers that are live at the same step do not overlap. Source: MiniMalloc (Moffitt 2023).

    Parameters
    ----------
    lower, upper : array of int, shape (n,)
        Live ranges ``[lower, upper)``, in steps.
    size : array of int, shape (n,)
        Bytes.
    alignment : int or array of int, shape (n,)
        Powers of two [1].
    capacity : int or str, optional
        Bytes (``"1MiB"``) [unlimited].
    planner : str
        Name of the planner ["auto"].
    minimise : bool, optional
        ``True``: search for the least extent, which may take minutes. ``False``: stop at the first packing that fits
        the capacity; without a capacity, make only quick placements. Default: ``False`` with a capacity; else ``True``,
        but end soon after the extent is within one alignment of the bound. With constraints: no effect.
    separations, colocations : array of int, shape (m, 2), optional
        Pairs of buffer indices. Separated buffers share no byte; colocated buffers have the same offset.
    pinned : dict of int to int, optional
        Buffer → its offset in bytes.
    reuse_penalties : array of int, shape (m, 3), optional
        Rows (first, second, cost): the cost is paid once if the two buffers share bytes. The objective is: fit the
        capacity, then the least cost, then the least extent. Source: Böhnlein et al. 2026, DSA with reuse penalties.

    Returns
    -------
    Packed
        An array of offsets, in the order of the buffers.

    Raises
    ------
    ArenaTooSmall
        No packing within the capacity was found.
    UnreadableInput
        The arrays do not match, or a value is out of range.

    Examples
    --------
    >>> import tmmu
    >>> packed = tmmu.pack(lower=[0, 0, 5], upper=[5, 9, 9], size=[4, 8, 4])
    >>> packed.extent_bytes, packed.optimal
    (12, True)
    >>> tmmu.pack([0, 5], [5, 9], [4, 4], capacity=8, reuse_penalties=[[0, 1, 3]]).reuse_cost
    0
    """
    alignment, capacity, minimise = options.get("alignment"), options.get("capacity"), options.get("minimise")
    columns = {"lower": lower, "upper": upper, "size": size, "alignment": 1 if alignment is None else alignment}
    limit = None if capacity is None else arguments.amount_of_bytes("capacity", capacity)
    problem, row_of_buffer = problem_of(columns, limit)
    problem = with_constraints(problem, row_of_buffer, options)
    request = PlanRequest(planner=options.get("planner") or "auto")
    request = request if minimise is None else request.but(options={"minimise": minimise})
    result = make_plan(PlainInstance("arrays", problem), request)
    rows = np.array([result.plan.row_of[name] for name in problem.ids], np.int64)
    return Packed(result.plan.offset[rows[row_of_buffer]], Plan.of(result.plan, result))


@suggest_options()
def compare(baseline: Source, candidate: Source) -> Comparison:
    """Compare two plans: comparable or not, identical or not, and the difference of each tensor.

    A trace digest, which has no tensors, is compared by its hashes. Source: contract §7.

    Parameters
    ----------
    baseline, candidate : Plan or anything that :func:`read` reads
        A graph or an instance is planned with the default options.

    Returns
    -------
    Comparison
        ``comparable``, ``identical``, ``invalid`` (the sides with errors), ``first`` (the first divergence),
        ``arenas``, ``totals`` (bytes by kind of change) and ``changes()``.

    Raises
    ------
    UnreadableInput
        A source cannot be read. Errors of planning a graph are those of :func:`plan`.

    Examples
    --------
    >>> import tmmu
    >>> path = "sample_graphs/mixed_sizes.tmmu.json"
    >>> tmmu.compare(tmmu.plan(path), tmmu.plan(path, planner="auto")).identical
    False
    """
    sides = [side if isinstance(side, model.Plan) else read(side) for side in (baseline, candidate)]
    left, right = (side if isinstance(side, Trace) else as_plan(side) for side in sides)
    return compare_plans(left, right)


@suggest_options()
def verify(plan: Source, graph: Graph | None = None) -> Verdict:
    """Check a plan with rules that share no code with the planners. Source: contract §1 to §7.

    Parameters
    ----------
    plan : Plan or anything that :func:`read` reads
        The plan to check.
    graph : Graph, optional
        Check against this graph too [the graph that the plan was made from]; a trace digest is checked without a graph.

    Returns
    -------
    Verdict
        ``ok``, the findings, and the rules that were checked.

    Raises
    ------
    UnreadableInput
        The source cannot be read.

    Examples
    --------
    >>> import tmmu
    >>> tmmu.verify(tmmu.plan("sample_graphs/mixed_sizes.tmmu.json")).ok
    True
    """
    opened = arguments.open_source(plan)
    if isinstance(opened, Trace) and not opened.complete:
        return verify_finished(opened.plan, complete=False).verdict
    checked = as_plan(opened)
    return (checked if isinstance(checked, Plan) else Plan.of(checked)).verify(graph)
