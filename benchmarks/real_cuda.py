"""Training steps on a GPU: ``python -m benchmarks.real --device cuda [STEP ...]``.

Runs the steps of ``real_steps``, and the models of ``real_large`` in bf16 with AdamW: in eager mode, with a checkpoint
around each repeated block, at AOTAutograd's memory budgets, and fitted. A fitted step runs again under
``set_per_process_memory_fraction``: it raises an error if the allocator needs more than the capacity.
The steps are planned in parallel and run one at a time. Two processors are kept free of planning, so that it does not
slow down the running step. Writes ``docs/measured/real-cuda.md`` and ``found/real-cuda.json``.
"""

import gc
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from typing import Any

import msgspec
import torch
from torch import nn
from torch._functorch import config
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.utils.checkpoint import checkpoint

import tmmu_core as tmmu
from benchmarks.real import BUDGETS, FOLDER, PERCENTS, ROOT, commit
from benchmarks.real_large import MODELS
from benchmarks.real_steps import STEPS
from tmmu_core.fitting.pytorch.fx_memory import make_optimizer
from tmmu_core.graph.model import ONE_MEMORY
from tmmu_core.library.torch_fit import TorchFit

OUT, FOUND = FOLDER / "real-cuda.md", ROOT / "benchmarks" / "found" / "real-cuda.json"
WARM, REPEATS = 2, 5
"""Steps before the measurement, and measured steps; a row's time is their median."""
BLOCK = 512
"""Bytes to which PyTorch's allocator on a GPU rounds."""
SEGMENTS = 22 << 20
"""Reserve for segments that are used in part: one for small blocks and one for larger ones."""
FRAGMENTED = 0.05
"""Reserve for fragmentation, as a share of the capacity."""


@dataclass(frozen=True)
class Row:
    """One way to run a step. Bytes; 0 where there is no plan or no limit."""

    step: str
    way: str
    answer: str = ""
    capacity: int = 0
    """Enforced on the reserved bytes, in a run of its own."""
    planned: int = 0
    modelled: int = 0
    """Reserved bytes by the model of the allocator, with the workspaces."""
    workspaces: int = 0
    """Allocated after a step beside parameters, buffers, inputs and states of the optimizer: cuBLAS and others."""
    allocated: int = 0
    """``torch.cuda.max_memory_allocated``."""
    reserved: int = 0
    """``torch.cuda.max_memory_reserved``."""
    milliseconds: float = 0.0
    """Median time of a step."""
    equal: str = ""
    """Whether gradients and buffers are those of the compiled step without moves."""
    error: str = ""

    @property
    def over_plan(self) -> float:
        """Allocated bytes beside the workspaces, as a change in percent of the planned peak."""
        return 100 * (self.allocated - self.workspaces - self.planned) / self.planned

    @property
    def over_model(self) -> float:
        """Reserved bytes, as a change in percent of the modelled ones."""
        return 100 * (self.reserved - self.modelled) / self.modelled


@dataclass(frozen=True)
class Found:
    """The results of one step."""

    commit: str
    date: str
    device: str
    torch: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Prepared:
    """A planned way to run a step."""

    row: Row
    step: Callable[..., Any] | None = None
    """``None`` if the row has an error."""
    context: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Returns a context manager that is entered while the step runs."""


@dataclass(frozen=True)
class Runner:
    """A step on the GPU that is run in several ways."""

    name: str
    module: nn.Module
    inputs: tuple[torch.Tensor, ...]
    optimizer: str | None
    alone: AbstractContextManager[Any]
    """Lock that is held while the GPU runs."""

    def fit(self, capacity: int | str, **options: Any) -> TorchFit:
        """Return the step fitted to ``capacity``."""
        found = tmmu.fit(self.module, capacity, example_inputs=self.inputs, optimizer=self.optimizer, **options)
        assert isinstance(found, TorchFit)
        return found

    def measured(self, way: Prepared) -> Row:
        """Run a step and return its row with the measurements, or with the error that it raised."""
        row, step = way.row, way.step
        assert step is not None
        gc.collect()
        with self.alone, way.context():
            try:
                row = self._measured(row, step, REPEATS)
                if row.capacity and row.answer == "fits":
                    gc.collect()
                    torch.cuda.empty_cache()
                    torch.cuda.set_per_process_memory_fraction(row.capacity / torch.cuda.mem_get_info()[1])
                    self._measured(row, step, 1)
                return row
            except RuntimeError as error:  # also out of memory
                traceback.print_exc()
                return replace(row, error=str(error).partition(". ")[0])
            finally:
                torch.cuda.set_per_process_memory_fraction(1.0)
                torch.cuda.empty_cache()

    def _measured(self, row: Row, step: Callable[..., Any], repeats: int) -> Row:
        parameters = list(self.module.parameters())
        for each in parameters:
            each.grad = torch.zeros_like(each)
        updated = {each: each for each in parameters}
        optimizer = None if self.optimizer is None else make_optimizer(self.optimizer, updated)
        for each in parameters:
            each.grad = None
        states = [each for state in (optimizer.state.values() if optimizer else ()) for each in state.values()]
        torch.cuda.empty_cache()
        times = []
        for k in range(WARM + repeats):
            if k == WARM:
                torch.cuda.reset_peak_memory_stats()
            begun = time.perf_counter()
            step(*self.inputs).backward()
            if optimizer is not None:
                optimizer.step()
            for each in parameters:
                each.grad = None
            torch.cuda.synchronize()
            times.append(1000 * (time.perf_counter() - begun))
        held = _held_bytes([*parameters, *self.module.buffers(), *self.inputs, *states])
        return replace(
            row,
            workspaces=torch.cuda.memory_allocated() - held,
            allocated=torch.cuda.max_memory_allocated(),
            reserved=torch.cuda.max_memory_reserved(),
            milliseconds=sorted(times[WARM:])[repeats // 2],
        )


def _held_bytes(tensors: Sequence[Any]) -> int:
    """Return the bytes of the allocator's blocks of all storages of ``tensors`` on the GPU."""
    storages = {each.untyped_storage()._cdata: each.untyped_storage() for each in tensors if each.is_cuda}
    return sum(-(-each.nbytes() // BLOCK) * BLOCK for each in storages.values())


@contextmanager
def checkpointed(module: nn.Module) -> Iterator[int]:
    """Run each block of the longest list of equal blocks as a checkpoint inside of ``with``; yield their number."""
    lists = [list(each.children()) for each in module.modules() if isinstance(each, (nn.Sequential, nn.ModuleList))]
    blocks = max((each for each in lists if len({type(block) for block in each}) == 1), key=len, default=[])
    for block in blocks:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    try:
        yield len(blocks)
    finally:
        for block in blocks:
            del block.forward


class Ways:
    """The ways to run one step; each method yields its rows."""

    def __init__(self, name: str, device: str, alone: AbstractContextManager[Any]) -> None:
        self.name, self.is_large = name, name in MODELS
        torch.set_num_threads(1)
        torch.manual_seed(0)
        module, given = (MODELS[name][0](), MODELS[name][1]()) if self.is_large else STEPS[name]()
        dtype = torch.bfloat16 if self.is_large else torch.float32
        self.module, self.inputs = (
            module.to(device, dtype).train(),
            tuple(
                each.to(device, dtype if each.is_floating_point() else each.dtype)
                for each in (given if isinstance(given, tuple) else (given,))
            ),
        )
        self.run = Runner(name, self.module, self.inputs, "adamw" if self.is_large else None, alone)
        with alone:  # the trace measures the scratch memory of each operator on the GPU
            self.start = self.run.fit("1PiB")
            self.eager_peak_bytes = self.start.eager_peak_bytes
        way = Prepared(Row(name, "compiled without moves", planned=self.start.extent_bytes), self.start.compile())
        self.workspaces = self.run.measured(way).workspaces
        self.plain = replace(way, row=replace(way.row, modelled=self.start.reserved_bytes + self.workspaces))

    def rows(self) -> list[Callable[[], Iterator[Prepared]]]:
        """Return the functions that plan the rows."""
        at_peaks = [partial(self.at_peak, budget) for budget in BUDGETS]
        *percents, last = [partial(self.at_percent, percent) for percent in PERCENTS]
        offload = partial(self.at_percent, PERCENTS[-1], allow="offload")
        return [self.unfitted, self.by_hand, *at_peaks, *percents, last, offload]

    def unfitted(self) -> Iterator[Prepared]:
        yield Prepared(Row(self.name, "eager", planned=self.eager_peak_bytes), self.module)
        yield self.plain

    def by_hand(self) -> Iterator[Prepared]:
        context = partial(checkpointed, self.module)
        with context() as count:
            pass
        if count < 2:
            return
        way = Prepared(Row(self.name, f"eager, checkpoint around {count} blocks"), self.module, context)
        found = self.run.measured(way)
        yield way
        yield self.fitted("fit to its peak (checkpoint)", found.allocated - found.workspaces)

    def at_peak(self, budget: float) -> Iterator[Prepared]:
        way, step = f"AOTAutograd {budget}", self.start.step
        with config.patch(activation_memory_budget=budget):
            run = step.compiled(min_cut_rematerialization_partition)
        try:
            with self.run.alone:
                peak = step.measured(run).peak_bytes
        except RuntimeError as error:
            yield Prepared(Row(self.name, way, error=str(error).partition(". ")[0]))
            return
        yield Prepared(Row(self.name, way), run)
        yield self.fitted(f"fit to its peak ({budget})", peak)

    def at_percent(self, percent: int, **options: Any) -> Iterator[Prepared]:
        states = 2 * sum(each.nbytes for each in self.module.parameters()) if self.is_large else 0
        fixed = states + _held_bytes([*self.module.parameters(), *self.module.buffers(), *self.inputs])
        bytes_of_step = fixed + (self.eager_peak_bytes - fixed) * percent // 100
        yield self.fitted(f"fit to {percent} %" + ", offload only" * bool(options), bytes_of_step, **options)

    def fitted(self, way: str, bytes_of_step: int, **options: Any) -> Prepared:
        """Return the fit to the capacity whose part beside the reserve is ``bytes_of_step``."""
        capacity = int((bytes_of_step + self.workspaces + SEGMENTS) / (1 - FRAGMENTED))
        fit = self.run.fit(capacity, reserve=capacity - bytes_of_step, **options)
        modelled = fit.reserved_bytes + self.workspaces
        row = Row(self.name, way, fit.answer, capacity, _peak_bytes(fit), modelled)
        if not self.is_large:
            with self.run.alone:
                found = fit.check()
            row = replace(row, equal="equal" if found["gradients_equal"] and found["buffers_equal"] else "differ")
        return Prepared(row, fit.compile())


def _peak_bytes(fit: TorchFit) -> int:
    """Return the peak of the live bytes without what is offloaded."""
    return next(int(each.peak_live_bytes) for each in fit.fitted.best.plan.arenas if each.name == ONE_MEMORY)


def _rows(name: str, device: str, alone: AbstractContextManager[Any], part: int) -> dict[int, list[Row]]:
    """Return one part of the rows of a step, by their place on the page."""
    ways: dict[int, list[Prepared]] = {}
    try:
        found = Ways(name, device, alone)
        for place, prepare in enumerate(found.rows()):
            if place % _parts(name) == part:
                ways[place] = list(prepare())
    except Exception as error:  # the other steps still run
        traceback.print_exc()
        line = next(iter(str(error).strip().splitlines()), "")
        ways[len(ways)] = [Prepared(Row(name, "", error=f"{type(error).__name__}: {line}"))]
    rows = {}
    for place, each in ways.items():
        rows[place] = [found.run.measured(way) if way.step is not None else way.row for way in each]
        print(*rows[place], sep="\n", file=sys.stderr, flush=True)
    return rows


def _parts(name: str) -> int:
    """Return the number of processes that measure a step."""
    return 4 if name in MODELS else 1


def measure_all(names: Sequence[str], device: str) -> None:
    """Measure the named steps, or all, and write the page after each."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic, and of the default's size
    context = get_context("spawn")
    found: dict[str, dict[int, list[Row]]] = {}
    parts = [(name, part) for name in names or (*MODELS, *STEPS) for part in range(_parts(name))]
    workers = max(1, (os.cpu_count() or 1) - 2)
    with context.Manager() as manager, ProcessPoolExecutor(workers, mp_context=context) as pool:
        alone = manager.Lock()
        waiting = {pool.submit(_rows, name, device, alone, part): name for name, part in parts}
        for done in as_completed(list(waiting)):
            name = waiting.pop(done)
            rows = found.setdefault(name, {})
            rows.update(done.result())
            if name not in waiting.values():
                in_order = [row for _, each in sorted(rows.items()) for row in each]
                record(name, torch.cuda.get_device_name(device), in_order)


def record(name: str, device: str, rows: Sequence[Row]) -> None:
    """Record the rows of a step and write the page."""
    found = msgspec.json.decode(FOUND.read_bytes(), type=dict[str, Found]) if FOUND.exists() else {}
    found[name] = Found(commit(), date.today().isoformat(), device, str(torch.__version__), tuple(rows))
    FOUND.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    OUT.write_text(page(found))


def page(found: dict[str, Found]) -> str:
    """Return the page of the results."""
    names = [name for name in (*STEPS, *MODELS) if name in found]
    large = [name for name in names if name in MODELS]
    rows = [row for name in names for row in found[name].rows]
    runs: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        runs.setdefault((found[name].date, found[name].commit, found[name].torch, found[name].device), []).append(name)
    done = [row for row in rows if row.allocated]
    planned = [row for row in done if row.planned]
    modelled = [row for row in done if row.modelled]
    limited = [row for row in rows if row.answer == "fits"]
    pairs = [(own, other) for other, own in pairwise(rows) if own.way.startswith("fit to its peak")]
    by_hand = [pair for pair in pairs if "checkpoint" in pair[1].way]
    aot = [pair for pair in pairs if pair not in by_hand]
    counts = (
        (planned, "are within 3 % of the plan", lambda row: abs(row.over_plan) <= 3),
        (modelled, "are within 5 % of the model of the allocator", lambda row: abs(row.over_model) <= 5),
        (limited, "fits run within their capacity", lambda row: not row.error),
        (aot, "fits to a peak of AOTAutograd are at most as slow as its step", lambda each: _is_no_slower(*each)),
        (by_hand, "fits to a peak of checkpoints are at most as slow as that step", lambda each: _is_no_slower(*each)),
        ([row for row in done if row.equal], "have equal gradients and buffers", lambda row: row.equal == "equal"),
    )
    lines = [
        "# PyTorch steps on a GPU",
        "",
        "Written by `python -m benchmarks.real --device cuda`. Small steps are in float32 without an optimizer;",
        "GPT-2 medium, Llama 1B, ViT-L and the large U-Net are in bf16 with AdamW. The allocator counts the bytes.",
        "`set_per_process_memory_fraction` enforces the capacity on the reserved bytes in a second run. The reserve is",
        "5 %, 22 MiB and the workspaces (bytes that remain after a step, without parameters, buffers, inputs,",
        "states). The difference to the plan excludes workspaces; the model of the allocator includes them. Plans",
        "of commits a423c5d8 and 870e5be6 lack the scratch memory of kernels. Now a plan fits only if the model of the",
        "allocator can run it.",
        "A percentage is a part of the bytes that eager mode holds without parameters, buffers, inputs and states.",
        "",
        "## Summary",
        "",
        *(f"- {sum(map(good, each))} of {len(each)} {what}." for each, what, good in counts),
        "",
        "## Memory",
        "",
        "The largest difference over all ways to run a step; `benchmarks/found/real-cuda.json` has all rows.",
        "",
        "| step | to plan | to model | fits within capacity |",
        "|---|---:|---:|---:|",
        *(_memory(name, found[name].rows) for name in names),
        "",
        "## Time",
        "",
        "Milliseconds per step, and GiB allocated without the workspaces.",
        "",
        f"| way | {' | '.join(large)} |",
        "|---|" + "---:|" * len(large),
        *(f"| {way} | {' | '.join(_time(way, found[name].rows) for name in large)} |" for way in _ways(found, large)),
        "",
        "## Measured at",
        "",
        "| date | commit | PyTorch | device | steps |",
        "|---|---|---|---|---|",
        *(f"| {' | '.join(run)} | {'; '.join(each)} |" for run, each in runs.items()),
    ]
    return "\n".join(lines) + "\n"


def _is_no_slower(own: Row, other: Row) -> bool:
    return own.milliseconds <= other.milliseconds


def _memory(name: str, rows: Sequence[Row]) -> str:
    plan = max((row.over_plan for row in rows if row.planned and row.allocated), key=abs)
    model = max((row.over_model for row in rows if row.modelled and row.allocated), key=abs)
    fits = [row for row in rows if row.answer == "fits"]
    good = sum(not row.error for row in fits)
    return f"| {name} | {plan:+.2f} % | {model:+.2f} % | {good} of {len(fits)} |"


def _ways(found: dict[str, Found], names: Sequence[str]) -> dict[str, None]:
    """Return the ways to run large steps, without the number of blocks."""
    return dict.fromkeys(re.sub(r" around \d+ blocks", "", row.way) for name in names for row in found[name].rows)


def _time(way: str, rows: Sequence[Row]) -> str:
    row = next(row for row in rows if re.sub(r" around \d+ blocks", "", row.way) == way)
    return f"{row.milliseconds:.0f} ({(row.allocated - row.workspaces) / 2**30:.1f})"
