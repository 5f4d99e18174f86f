"""Every real model of the project, planned: ``python -m benchmarks.models`` writes ``docs/measured/models.md``."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sample_graphs import make
from tmmu_core.formats.open_file import read_any
from tmmu_core.formats.xla import xla_dump
from tmmu_core.graph.model import Graph
from tmmu_core.graph.native import unpacking
from tmmu_core.liveness.timeline import default_mode
from tmmu_core.planners import PLANNERS
from tmmu_core.planners.problem import PlainInstance
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.making.instance import plan_problem
from tmmu_core.plans.model import ArenaSummary, Plan

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "measured" / "models.md"
TFLITE = ROOT / "tests" / "data" / "tflite"
XLA_DUMPS = tuple(
    ROOT / "sample_graphs" / "instances" / name
    for name in ("xla_transformer_step.txt", "xla_transformer_step_2x256.txt.gz")
)

PLANNED = ("activations", "gradients", "arena")
"""Arenas whose bytes are reused. Parameters and states live from end to end: there is nothing to plan."""
MICRO = {name: {"alignment_bytes": 16} for name in ("activations", "gradients", "parameters")}
"""The Micro runtime's alignment; all other graphs are planned at the default of 128 bytes."""
ALIGNMENT = 128
"""The default, in bytes."""
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
    within: int = 0
    """Of a dump: its bytes were every temporary laid anew within the allocation of the temporaries."""


def rows() -> Iterator[Row]:
    """One row per model, as each is measured; graphs with their own backward pass in mode ``backward``."""
    for sample in make.CATALOGUE:
        if sample.group == make.MODEL:
            yield _of_graph(make.HERE / sample.file, None)
    for file in sorted(TFLITE.glob("*.tflite")):
        yield _of_graph(file, MICRO)
    yield from map(_of_dump, XLA_DUMPS)


def _stem(file: Path) -> str:
    return file.name.split(".")[0]


def _timed(work: Any) -> tuple[Any, float]:
    begun = time.perf_counter()
    return work(), time.perf_counter() - begun


def _arenas(plan: Plan) -> list[ArenaSummary]:
    return [arena for arena in plan.arenas if arena.name in PLANNED]


def _extent(plan: Plan) -> int:
    return sum(arena.extent_bytes for arena in _arenas(plan))


def _bound(plan: Plan) -> int:
    return sum(arena.bound_bytes for arena in _arenas(plan))


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
    stem = _stem(file)
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
    within = xla_dump.read_dump(unpacking.unpack(file.read_bytes(), file.name), file.name).within
    given = _extent(plan_problem(instance))
    return Row(
        name=_stem(file),
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
        within=within,
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
"""


def gaps(measured: list[Row]) -> str:
    """What stands in the way where a gap is left, or that none is; a paragraph."""
    open_ = [row for row in measured if row.best > row.bound]
    if not open_:
        return "Every best plan is as low as the bound, which no plan is below.\n"
    named = ", ".join(f"{row.name} ({row.best - row.bound:,} bytes)" for row in open_)
    reasons = []
    if any(row.best - row.bound < ALIGNMENT for row in open_):
        reasons.append(
            f"A gap of less than {ALIGNMENT} bytes is below one step of the alignment: how many small tensors must be "
            "rounded up to it is not known exactly."
        )
    if any(row.best - row.bound >= ALIGNMENT for row in open_):
        reasons.append(
            "Hand-offs stand in the way: the bound counts every permitted one as used, and a planner that places bytes "
            "can use one only by giving the output exactly its input's offset, which pins two storages to one place."
        )
    text = f"A gap is left in {named}; that no plan is lower is not proven there. {' '.join(reasons)}"
    return "\n".join(textwrap.wrap(text, 120, break_long_words=False)) + "\n"


def dumps(measured: list[Row]) -> str:
    """What XLA's own plans leave to be won, and where; a paragraph."""
    parts = [
        f"{row.name}: XLA {row.peer.removeprefix('XLA ')}; its temporaries at best within their allocation "
        f"{row.within:,}; everything laid anew {row.best:,}."
        for row in measured
        if row.within
    ]
    text = (
        "XLA lays only its temporaries into one allocation, and a donated parameter's buffer is written over by values "
        "of its own size; a re-plan puts temporaries into every buffer that is free. In bytes: " + " ".join(parts)
    )
    return "\n".join(textwrap.wrap(text, 120, break_long_words=False)) + "\n"


TAIL = """
## What is imported, and what is not

**PyTorch** (`import_torch`, extra `torch`; saved programs, `.pt2`, need no PyTorch to be opened). The joint graph of
AOTAutograd under fake tensors, functional, without decompositions, one node per operator as the eager framework runs it
on a CPU. Views are told by the identity of storages. Tied weights are one parameter; their gradients are added where
the second arrives. `batch_norm` writes its running statistics in place. The gradient of an output comes from a node
`tangent`, which stands for whatever follows the model. Workspaces that a kernel allocates for itself are not in the
graph, nor is the allocator's rounding. The optimizer is left out: `tmmu.fit(module, …)` counts it.
Shapes are those of the example inputs; the symbolic ones of an exported program are not
kept, and the graph's name says so. An operator with bodies (`cond`, `scan`) is one node whose `params` name them.

What is counted and saved depends on how attention is written, so the training samples take the one in plain operators
(`attn_implementation="eager"`) and the inference samples scaled-dot-product attention (`sdpa`), which PyTorch runs as
one fused operator on a CPU, but as plain math where dropout is on. GPT-2's 72 MiB between the two are, in each of its
12 layers, the scaled query and the scaled key (3 MiB each), which plain math scales before it multiplies them.
`python -m sample_graphs.make_torch settings` printed:

| training step (batch 1 of 1,024, 8 of 512, 1 of 2,048) | nodes | tensors | with bytes of their own | saved bytes |
|---|---:|---:|---:|---:|
| GPT-2 small, plain operators, dropout 0.1 | 1,676 | 1,988 | 1,085 | 2,647,953,420 |
| GPT-2 small, plain operators, no dropout | 1,639 | 1,914 | 1,011 | 2,477,297,676 |
| GPT-2 small, plain operators, dropout 0.1, logits summed up for a loss | 1,667 | 1,977 | 1,079 | 2,442,092,544 |
| GPT-2 small, `sdpa` (plain math, for there is dropout) | 1,769 | 2,081 | 1,161 | 2,723,450,892 |
| GPT-2 small, `sdpa`, no dropout (one fused operator) | 1,228 | 1,539 | 883 | 1,269,927,948 |
| BERT base, plain operators | 1,980 | 2,328 | 1,100 | 5,776,379,908 |
| BERT base, `sdpa` (plain math, for there is dropout) | 2,028 | 2,376 | 1,124 | 5,776,379,908 |
| Llama 3 8B, plain operators | 8,405 | 8,701 | 4,480 | 40,847,843,340 |
| Llama 3 8B, `sdpa` (one fused operator) | 6,790 | 7,182 | 3,928 | 14,281,121,804 |

A saved program is read from the JSON in its archive and never loaded, because loading runs what is in it
(`docs/explanation/security.md`). Without PyTorch it is its forward pass as it was saved, at the granularity of
`torch.export`
(`linear`, `conv2d`), and its name ends in "(as saved)". With PyTorch it is rebuilt from the same JSON, call by call,
and traced like a live module, in a process of its own under `--max-trace-seconds` and `--max-trace-bytes`: a training
step when its only output is a scalar. The two are different graphs with different hashes: `tmmu convert model.pt2 -o
graph.tmmu.json` writes down the one that is meant.

Modules on the `meta` device, of several fake modes, or wrapped by `torch.compile` are traced as on a CPU. While one is
traced, `transformers` 5 does not look at position numbers (a row is one sequence) nor at masks (one that is given is
used). Refused by name: branches and sizes that depend on values (`nonzero`, a mixture of experts whose experts are
called one by one; in bfloat16, or with `experts_implementation="batched_mm"`, it is traced), loops without a fixed
count, sparse gradients.

```python
from tmmu_core.graph import native
from tmmu_core.formats.pytorch.torch_module import fake_tensors, import_torch

with fake_tensors("bfloat16"):  # no memory, no weights
    model, words = MyModel(), torch.zeros(1, 2048, dtype=torch.long)
graph = import_torch(model, {"input_ids": words, "labels": words})
Path("step.tmmu.cbor.gz").write_bytes(native.encode(graph, "step.tmmu.cbor.gz"))
```

**TensorFlow Lite** (extra `tflite`). The first subgraph in the file's order; the others are told in the graph's name.
Scratch buffers, which the Micro runtime's head includes, are not in the file. Variables are persistent, those behind a
handle too. An offline plan in the file is not used.

**XLA**. The figures of the peer are the sum of all allocations of the module that hold a value, parameters and
constants included; the best plan lays the same values, at the same times, anew. What a loop carries round is one
storage.

DUMPS_HERE

A larger step that is known from elsewhere (84,788,336 bytes by XLA where 84,788,288 are possible) was not at hand.

**ONNX**. Bodies of `If`, `Loop` and `Scan` are planned as nested scopes (`docs/decisions/04-control-flow.md`), local
functions are inlined, weights beside the file are not opened; sequences, optionals and what else has no plan are
refused by name (`tmmu_core/formats/onnx/onnx_reader.py`). ExecuTorch's figure for ResNet-50 is of its own export of the
same topology; without hand-offs the bound is 9,633,792 bytes.
"""


DUMPS_HERE = "DUMPS_HERE\n"
COLUMNS = (
    *("model", "mode", "nodes", "tensors", "storages", "lower bound", "slots", "best", "by", "gap"),
    *("read s", "slots s", "best s", "peer"),
)


def page(measured: list[Row]) -> str:
    """The page's text."""
    lines = [
        HEAD,
        gaps(measured),
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
    return "\n".join([*lines, TAIL.replace(DUMPS_HERE, dumps(measured))])


def main() -> None:
    measured = []
    for row in rows():
        print(f"{row.name:<34} bound {row.bound:>16,}  best {row.best:>16,}  {row.best_planner}", flush=True)
        measured.append(row)
    PAGE.write_text(page(measured), encoding="utf-8")


if __name__ == "__main__":
    main()
