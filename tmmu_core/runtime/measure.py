"""What a runtime really takes beside what a plan says: a model run by onnxruntime, and the graph that it runs planned.

::

    theirs   resident memory that a run adds, arena on (first run), with its pattern (second run), arena off (any run)
    ours     the extent of the best quick plan of the graph as onnxruntime rewrites it, which is what runs
    bound    what no plan of that graph can be below

Theirs is read from the kernel, which counts pages of 4 KiB in batches of some dozens: it holds the scratch of kernels
and the results, and not the inputs, which the caller owns; a page of an arena that nothing wrote is not in it. Ours
holds the inputs and no scratch. Neither is to be had to the byte from outside: compare figures by their size, not by
their digits.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from tmmu_core.errors import UnreadableInput
from tmmu_core.graph.model import Graph
from tmmu_core.plan.formats.reading import read_at, read_graph
from tmmu_core.plan.making.make import make_plan
from tmmu_core.plan.making.request import PlanRequest
from tmmu_core.runtime.onnx_run import runtime

SECONDS = 180
PLANNER = "portfolio"


@dataclass(frozen=True)
class Figures:
    """One graph planned: bytes of its activations."""

    ours: int
    bound: int
    inputs: int
    """Of which the caller owns these."""


@dataclass(frozen=True)
class Measured:
    """A model's figures, in bytes."""

    model: str
    arena: int
    """Resident memory that the first run adds with the arena on."""
    pattern: int
    """What the second run adds to that, for the block that its pattern of the first run asks for."""
    no_arena: int
    """The peak of a later run with the arena off: what is freed goes back."""
    given: Figures
    """The graph of the file."""
    run: Figures | None
    """The graph as onnxruntime rewrites it; ``None`` where that one does not open."""
    sizes: dict[str, int]
    """Where the named dimensions stood."""


def measure(data: bytes, name: str, dims: dict[str, int] | None = None) -> Measured:
    """Run the model in ``data`` and plan it. Raises ``UnreadableInput`` where it cannot be run, and as reading does."""
    runtime()
    if not sys.platform.startswith("linux"):
        raise UnreadableInput("memory is measured through Linux's /proc.", source=name, hint="Measure on Linux.")
    graph = read_graph(data, name)
    graph = read_at(graph, dims, data, name) if dims else graph
    point = {**{k: d.max for k, d in graph.dims.items()}, **graph.assumed, **(dims or {})}
    inputs = _inputs(graph, point)
    arena = _grown(data, name, inputs, arena=True)
    off = _grown(data, name, inputs, arena=False)
    rewritten = _ask(b"{}\n" + data, name).partition(b"\n")[2]
    return Measured(
        model=name,
        arena=arena[0],
        pattern=arena[1],
        no_arena=min(off[1:]),
        given=_figures(graph, point),
        run=_figures_of(rewritten, name, point),
        sizes=point,
    )


def _inputs(graph: Graph, point: dict[str, int]) -> list[list[Any]]:
    tensors = {tensor.id: tensor for tensor in graph.tensors}
    return [[name, tensors[name].dtype, [point.get(str(d), d) for d in tensors[name].shape]] for name in graph.inputs]


def _grown(data: bytes, name: str, inputs: list[list[Any]], *, arena: bool) -> list[int]:
    request = json.dumps({"inputs": inputs, "arena": arena, "pattern": arena}).encode()
    answer = json.loads(_ask(request + b"\n" + data, name))
    if "failed" in answer:
        raise UnreadableInput(
            f"onnxruntime does not run the model: {answer['failed'].rstrip('.')}.",
            source=name,
            hint="Give sizes that it was made for: --dims NAME=SIZE.",
        )
    found: list[int] = answer["grown"]
    return found


def _ask(request: bytes, name: str) -> bytes:
    # Freed memory goes back at once, so that the resident set follows what is held.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "4096", "MALLOC_TRIM_THRESHOLD_": "0"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, "-m", "tmmu_core.runtime.measure_child"]
    try:
        done = subprocess.run(
            command, input=request, capture_output=True, timeout=SECONDS, env=environment, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise UnreadableInput(f"the run took more than {SECONDS} seconds.", source=name, hint="Give --dims.") from error
    if done.returncode or not done.stdout:
        raise UnreadableInput("the run ended without an answer.", source=name, hint="Run the model by itself first.")
    return done.stdout


def _figures_of(model: bytes, name: str, point: dict[str, int]) -> Figures | None:
    from tmmu_core.errors import TmmuError

    try:
        graph = read_graph(model, name)
        there = {dim: size for dim, size in point.items() if dim in graph.dims}
        return _figures(read_at(graph, there, model, name), there)
    except TmmuError:
        return None


def _figures(graph: Graph, point: dict[str, int]) -> Figures:
    plan = make_plan(graph, PlanRequest(planner=PLANNER, dims=point)).plan
    arena = plan.arena_of["activations"]
    inputs = sum(int(plan.size[plan.row_of[name]]) for name in graph.inputs if name in plan.row_of)
    return Figures(arena.extent_bytes, arena.bound_bytes, inputs)
