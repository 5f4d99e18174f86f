"""Plan every real model of the project: ``python -m benchmarks.models`` writes ``docs/measured/models.md``."""

import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sample_graphs import make
from tmmu_core.formats.open_file import read_any
from tmmu_core.graph.model import Graph
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
"""Arenas whose bytes are reused. Parameters and states are live at every step."""
MICRO = {name: {"alignment_bytes": 16} for name in ("activations", "gradients", "parameters")}
"""Alignment of TensorFlow Lite Micro. Other graphs are planned with the default of 128 bytes."""
QUICK = ("ffd", "greedy", "portfolio")
SEARCHING = tuple(name for name in PLANNERS if name not in (*QUICK, "slots", "naive", "helia"))
"""Slow planners, for models on which no quick planner reaches the lower bound."""
SEARCH_UP_TO = 3_000  # maximum number of buffers for the slow planners

PEERS = {
    "person_detect": "TFLM 55,296",
    "vww_96_int8": "TFLM 73,728",
    "kws_ref_model": "TFLM 16,000",
    "resnet50": "ExecuTorch 14,614,528",
}
"""Measured plans of other tools in bytes: TensorFlow Lite Micro's head, ExecuTorch on ResNet-50 at batch 1."""


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
    """Yield one row per model. Graphs with a backward pass are planned in mode ``backward``."""
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
    """Return the smallest plan of the quick planners; if it is above the lower bound, try the slow planners."""
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
    )


HEAD = """\
# Real models

Written by `python -m benchmarks.models`. Bytes count the arenas whose memory is reused: activations and gradients.
Graphs with a backward pass are planned in mode `backward`, all others in mode `inference`. *Lower bound*: no plan is
smaller. *Gap*: extent of the best plan above it. *Best*: the smallest plan of the listed planners. Seconds are from one
run on two shared cores: read the file, plan with `slots`, plan with the best planner. Alignment is 128 bytes, 16 for
TensorFlow Lite and 1 for XLA.
"""


def gaps(measured: list[Row]) -> str:
    """Return a sentence that lists the models with a gap."""
    open_ = [row for row in measured if row.best > row.bound]
    if not open_:
        return "Every best plan is equal to its lower bound.\n"
    named = ", ".join(f"{row.name} ({row.best - row.bound:,} bytes)" for row in open_)
    return textwrap.fill(f"These plans are above their bound and not proven optimal: {named}.", 120) + "\n"


def dumps(measured: list[Row]) -> str:
    """Return a paragraph about XLA's plans: as compiled, and planned again."""
    parts = [
        f"{row.name}: {row.peer}, placed again {row.best:,} bytes." for row in measured if row.peer.startswith("XLA ")
    ]
    text = "XLA places only its temporaries in one allocation; a re-plan uses every free buffer. " + " ".join(parts)
    return textwrap.fill(text, 120, break_long_words=False) + "\n"


TAIL = """
## Notes on the models

**PyTorch.** The joint graph of AOTAutograd under fake tensors, without decompositions: one node per operator. Kernel
workspaces, the rounding of the allocator and the optimizer are not included; `tmmu.fit(module, …)` counts it.
Training samples use attention in plain operators (`attn_implementation="eager"`), inference samples
`scaled_dot_product_attention`. `python -m sample_graphs.make_torch settings` prints the saved bytes of both.

A `.pt2` file is read from its JSON and never loaded. Without PyTorch it is planned as saved; with PyTorch it is traced
again, as a training step if its only output is a scalar. The two graphs have different hashes.

**TensorFlow Lite.** The first subgraph. Scratch buffers of the Micro runtime are not in the file.

**XLA.** The peer's figure is the sum of all allocations that hold a value, parameters and constants included.
DUMPS_HERE

**ONNX.** ExecuTorch's figure for ResNet-50 is from its own export of the same topology. Without in-place reuse the
bound is 9,633,792 bytes.
"""


DUMPS_HERE = "DUMPS_HERE\n"
COLUMNS = (
    *("model", "mode", "nodes", "tensors", "storages", "lower bound", "slots", "best", "by", "gap"),
    *("read s", "slots s", "best s", "peer"),
)


def page(measured: list[Row]) -> str:
    """Return the page."""
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
