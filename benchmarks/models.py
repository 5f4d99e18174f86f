"""Every real model of the project, planned: ``python -m benchmarks.models`` writes ``docs/models.md``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sample_graphs import make
from tmmu_core.graph.model import Graph
from tmmu_core.liveness.timeline import default_mode
from tmmu_core.plan.engine import plan_graph
from tmmu_core.plan.instance import plan_problem
from tmmu_core.plan.model import ArenaSummary, Plan
from tmmu_core.plan.reading import PlainInstance, read_any
from tmmu_core.planners import PLANNERS

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "models.md"
TFLITE = ROOT / "tests" / "data" / "tflite"
XLA_DUMP = ROOT / "sample_graphs" / "instances" / "xla_transformer_step.txt"

PLANNED = ("activations", "gradients", "arena")
"""Arenas whose bytes are reused. Parameters and states live from end to end: there is nothing to plan."""
MICRO = {name: {"alignment_bytes": 16} for name in ("activations", "gradients", "parameters")}
"""The Micro runtime's alignment; all other graphs are planned at the default of 128 bytes."""
QUICK = ("ffd", "greedy", "portfolio")
SEARCHING = tuple(name for name in PLANNERS if name not in (*QUICK, "slots", "naive", "helia"))
"""Asked only where no quick planner reaches the lower bound, and only for what they can bear."""
SEARCH_UP_TO = 3_000

PEERS = {
    "person_detect": "TFLM 55,296",
    "vww_96_int8": "TFLM 73,728",
    "kws_ref_model": "TFLM 16,000",
    "resnet50": "ExecuTorch 14,614,528",
}
"""What peers were measured to plan, in bytes: TensorFlow Lite Micro's head, ExecuTorch on ResNet-50 at batch 1."""


@dataclass(frozen=True)
class Row:
    """One model in one mode."""

    name: str
    mode: str
    nodes: int
    tensors: int
    storages: int
    bound: int
    slots: int
    best: int
    best_planner: str
    read_s: float
    slots_s: float
    best_s: float
    peer: str


def rows() -> Iterator[Row]:
    """One row per model, as each is measured; graphs with their own backward pass in mode ``backward``."""
    for sample in make.CATALOGUE:
        if sample.group == make.MODEL:
            yield _of_graph(make.HERE / sample.file, None)
    for file in sorted(TFLITE.glob("*.tflite")):
        yield _of_graph(file, MICRO)
    yield _of_dump(XLA_DUMP)


def _timed(work: Any) -> tuple[Any, float]:
    begun = time.perf_counter()
    return work(), time.perf_counter() - begun


def _arenas(plan: Plan) -> list[ArenaSummary]:
    return [arena for arena in plan.arenas if arena.name in PLANNED]


def _extent(plan: Plan) -> int:
    return sum(arena.extent_bytes for arena in _arenas(plan))


def _bound(plan: Plan) -> int:
    return sum(max(arena.lower_bound_bytes or 0, arena.peak_live_bytes) for arena in _arenas(plan))


def _best(plans: Any, bound: int, size: int) -> tuple[str, Plan, float]:
    """The lowest plan of the quick planners, the first of equals; searched for further where it is above the bound."""
    found: list[tuple[str, Plan, float]] = []
    for name in (*QUICK, *(SEARCHING if size <= SEARCH_UP_TO else ())):
        plan, seconds = _timed(lambda name=name: plans(name))
        found.append((name, plan, seconds))
        if _extent(plan) == bound:
            break
    return min(found, key=lambda each: _extent(each[1]))


def _of_graph(file: Path, arenas: Any) -> Row:
    graph, read_s = _timed(lambda: read_any(file.read_bytes(), file.name))
    assert isinstance(graph, Graph)

    def plans(planner: str) -> Plan:
        return plan_graph(graph, planner=planner, arenas=arenas, ir_hash=bytes(32)).plan

    slots, slots_s = _timed(lambda: plans("slots"))
    name, best, best_s = _best(plans, _bound(slots), len(graph.tensors))
    stem = file.name.split(".")[0]
    return Row(
        name=stem,
        mode=default_mode(graph),
        nodes=len(graph.nodes),
        tensors=len(graph.tensors),
        storages=sum(arena.storages for arena in _arenas(slots)),
        bound=max(_bound(slots), _bound(best)),
        slots=_extent(slots),
        best=_extent(best),
        best_planner=name,
        read_s=read_s,
        slots_s=slots_s,
        best_s=best_s,
        peer=PEERS.get(stem, ""),
    )


def _of_dump(file: Path) -> Row:
    instance, read_s = _timed(lambda: read_any(file.read_bytes(), file.name))
    assert isinstance(instance, PlainInstance)
    problem = instance.problem
    slots, slots_s = _timed(lambda: plan_problem(problem, planner="slots"))
    name, best, best_s = _best(lambda planner: plan_problem(problem, planner=planner), _bound(slots), len(problem))
    given = _extent(plan_problem(problem, packing=instance.packing))
    return Row(
        name=file.stem,
        mode="as compiled",
        nodes=slots.steps,
        tensors=len(problem),
        storages=len(problem),
        bound=_bound(slots),
        slots=_extent(slots),
        best=_extent(best),
        best_planner=name,
        read_s=read_s,
        slots_s=slots_s,
        best_s=best_s,
        peer=f"XLA {given:,}",
    )


HEAD = """\
# Real models

Written by `python -m benchmarks.models`. Bytes are those of the arenas whose memory is reused (activations and
gradients, each an arena of its own); parameters, buffers, constants and optimizer states live from end to end and are
left out. Graphs that carry their backward pass are planned in mode `backward`, all others in mode `inference`.
*Lower bound* is the most that is alive at one step, or what is proven beyond it; *gap* is how far the best plan is
above it; *best* is the lowest of the planners named, the quickest of equals. Seconds are of one run in one process,
on two shared cores: reading the file, planning with `slots`, planning with the best planner. Alignment is 128 bytes,
16 for TensorFlow Lite (as its Micro runtime), 1 for XLA (its dumps do not say it).

Where a gap is left, hand-offs stand in the way: the bound counts every permitted one as used, and a planner that places
bytes can use one only by giving the output exactly its input's offset, which pins two storages to one place. That no
plan is lower is not proven there. (ResNet-50 at batch 1 has a bound of 9,633,792 bytes without hand-offs.)
"""

TAIL = """
## What is imported, and what is not

**PyTorch** (`import_torch`, extra `torch`; `.pt2` files by `tmmu convert`). The joint graph of AOTAutograd under fake
tensors, functional, without decompositions, one node per operator as the eager framework runs it on a CPU. Views are
told by the identity of storages. Tied weights are one parameter; their gradients are added where the second arrives.
`batch_norm` writes its running statistics in place. The gradient of an output comes from a node `tangent`, which
stands for whatever follows the model. Workspaces that a kernel allocates for itself are not in the graph, nor is the
allocator's rounding. The optimizer step, where it is asked for, is one fused AdamW node per parameter (its step counter
is left out). Shapes are those of the example inputs; symbolic ones are not kept. Scaled-dot-product attention is what
PyTorch dispatches to on a CPU: one fused operator, but plain math where dropout is on (GPT-2 and BERT in training). The
choice decides the count of nodes: Llama 3 8B in training has 6,787 with the fused operator on grouped heads, as here,
7,267 with repeated heads, and 8,771 with repeated heads and plain math.

```python
from tmmu_core.graph import native
from tmmu_core.graph.importers.torch import fake_tensors, import_torch

with fake_tensors("bfloat16"):  # no memory, no weights
    model, words = MyModel(), torch.zeros(1, 2048, dtype=torch.long)
graph = import_torch(model, {"input_ids": words, "labels": words}, optimizer="adamw")
Path("step.tmmu.cbor.gz").write_bytes(native.encode(graph, "step.tmmu.cbor.gz"))
```

**TensorFlow Lite** (extra `tflite`). The first subgraph in the file's order; the others are told in the graph's name.
Scratch buffers, which the Micro runtime's head includes, are not in the file.

**XLA**. The figures of the peer are the sum of all allocations of the module that hold a value, parameters and
constants included; the best plan lays the same values, at the same times, anew.

**ONNX**. See `tmmu_core/graph/importers/onnx.py`. ExecuTorch's figure for ResNet-50 is of its own export of the same
topology.
"""


COLUMNS = (
    *("model", "mode", "nodes", "tensors", "storages", "lower bound", "slots", "best", "by", "gap"),
    *("read s", "slots s", "best s", "peer"),
)


def page(measured: list[Row]) -> str:
    """The page's text."""
    lines = [
        HEAD,
        "| " + " | ".join(COLUMNS) + " |",
        "|---|---|---:|---:|---:|---:|---:|---:|---|---:|---:|---:|---:|---|",
    ]
    for row in measured:
        gap = 100 * (row.best - row.bound) / row.bound
        cells = [
            *(row.name, row.mode, f"{row.nodes:,}", f"{row.tensors:,}", f"{row.storages:,}"),
            *(f"{row.bound:,}", f"{row.slots:,}", f"{row.best:,}", row.best_planner, f"{gap:.3g} %"),
            *(f"{row.read_s:.2f}", f"{row.slots_s:.2f}", f"{row.best_s:.2f}", row.peer),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, TAIL])


def main() -> None:
    measured = []
    for row in rows():
        print(f"{row.name:<34} bound {row.bound:>16,}  best {row.best:>16,}  {row.best_planner}", flush=True)
        measured.append(row)
    PAGE.write_text(page(measured), encoding="utf-8")


if __name__ == "__main__":
    main()
