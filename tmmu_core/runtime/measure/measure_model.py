"""Measure the memory that a runtime uses for a model, and plan the same graph.

The figure of onnxruntime is the resident memory that the first two runs add. It excludes the inputs, which the caller
owns, and pages of the arena that no run writes. Linux counts resident pages in batches, so this figure is approximate.
Figures of other runtimes are exact (TensorFlow Lite Micro: to 16 bytes). See ``app/cli/commands/compare.py``.
"""

import json
import os
import subprocess
import sys
from base64 import b64decode
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tmmu_core.base.child_process import run_module
from tmmu_core.base.errors import TmmuError, UnreadableInput, need, require, source_of_errors
from tmmu_core.formats import signatures
from tmmu_core.formats.edge import executorch, tflite
from tmmu_core.formats.edge.tflm_plan import MicroModel, with_plan
from tmmu_core.formats.open_file import read_at, read_graph
from tmmu_core.formats.pytorch import torch_module
from tmmu_core.formats.pytorch.exported_program.pt2_archive import read_program
from tmmu_core.formats.pytorch.exported_program.pt2_graph import saved_graph
from tmmu_core.graph.model import Dim, Graph
from tmmu_core.plans.analysis.plan_notes import unplanned_parts
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.model import Plan

CHILD = "tmmu_core.runtime.measure.runtime_child"
TIMEOUT = 180  # seconds
PLANNER = "auto"
ONNXRUNTIME, LITERT, EAGER, EXECUTORCH = "onnxruntime", "LiteRT", "PyTorch eager", "ExecuTorch"
MICRO = "TensorFlow Lite Micro"

PARTS = {
    "pattern": "memory pattern block, outside the arena",
    "beyond_tensors": "scratch memory of kernels around the tensors",
    "scratch": "scratch memory of kernels, above the tensors",
    "tail": "tail: data that the runtime keeps",
    "temporary": "temporary tables, used only while the runtime loads the model",
}
"""Key of ``Measured.figures`` → description of this part of the difference from the lower bound."""

REST = {
    ONNXRUNTIME: "scratch memory of kernels, alignment and gaps, minus the inputs, which the caller owns",
    LITERT: "scratch of kernels between the tensors, gaps, alignment, and in-place reuse that the runtime does not use",
    EAGER: "in-place reuse that the lower bound assumes and eager mode does not use",
    EXECUTORCH: "gaps in its plan, and sizes rounded up to its alignment",
    MICRO: "gaps in its plan, scratch memory of kernels, and in-place reuse that it does not use",
}
"""Runtime → description of the remaining difference."""

RUN_ALONE = "Check that the model runs in its runtime without tmmu."

CHILDREN = {"onnx": ONNXRUNTIME, "optimised": ONNXRUNTIME, "litert": LITERT, "tflm": MICRO, "torch": "PyTorch"}
"""Task of a child process → the runtime that its errors name."""


@dataclass(frozen=True)
class Figures:
    """Bytes of the activations of a planned graph."""

    ours: int  # arena size in the plan
    bound: int  # lower bound of the arena size
    inputs: int  # bytes of the inputs, which the caller owns
    incomplete: tuple[str, ...] = ()  # warning that names the parts of the graph without a plan


@dataclass(frozen=True)
class Measured:
    """Memory of a model in its runtime and in plans, in bytes."""

    model: str
    runtime: str  # a key of :data:`REST`
    theirs: int  # bytes that the runtime uses; for onnxruntime its arena and its memory pattern block
    figures: dict[str, int]  # figure → bytes; :data:`PARTS` describes some of them
    given: Figures  # figures of a plan of the graph in the file
    run: Figures | None  # figures of the graph that onnxruntime rewrote, if it can be read
    sizes: dict[str, int]  # dimension → size in the run
    steps: tuple[int, ...] = ()  # tensor bytes after each operator, if the runtime reports them
    planner: str = PLANNER
    outputs_equal: bool | None = None  # whether the model with a plan has bit-identical outputs; ``None``: not compared

    @property
    def planned(self) -> Figures:
        """Figures of the plan to compare with: ``run`` if known, else ``given``."""
        return self.run or self.given

    def difference(self) -> tuple[tuple[str, int], ...]:
        """Return the parts of the difference between the runtime and the lower bound, as ``(description, bytes)``."""
        above = self.theirs - self.planned.bound
        parts = [(what, self.figures[name]) for name, what in PARTS.items() if name in self.figures]
        return (*parts, (REST[self.runtime], above - sum(size for _, size in parts)))


def measure(
    data: bytes,
    name: str,
    dims: dict[str, int] | None = None,
    runtime: str = "",
    *,
    in_order: bool = False,
    planned_model: bytes = b"",
) -> Measured:
    """Return the memory that the runtime uses for the model in ``data``, and that of a plan.

    ``runtime="tflm"`` runs a TensorFlow Lite model and ``planned_model`` in TensorFlow Lite Micro. ``planned_model`` is
    the same model with a plan; the default is a plan of ``PLANNER``. ``in_order`` runs an ONNX model in its node order,
    without optimizations. Raises ``UnreadableInput`` for a model that cannot be read or run, and for ``dims`` or
    ``in_order`` with a runtime that ignores them.
    """
    detected = runtime_of(data)
    with source_of_errors(name):
        if runtime and detected != LITERT:
            message = f"{MICRO} runs TensorFlow Lite models only."
            raise UnreadableInput(message, hint="Give a .tflite file, or omit --runtime.")
        if not detected:
            hint = "Give an .onnx, .tflite or .pt2 file. For other files, use tmmu plan."
            raise UnreadableInput(f"no runtime can run this file: {signatures.refusal_onnx(data)}.", hint=hint)
        if in_order and detected != ONNXRUNTIME:
            raise UnreadableInput(f"--in-order has no effect in {detected}.", hint="Omit --in-order.")
        if dims and detected not in (ONNXRUNTIME, EAGER):
            raise UnreadableInput(f"--dims has no effect in {detected}.", hint="Omit --dims.")
        if runtime:
            return _micro(data, name, planned_model)
        if detected in (LITERT, EXECUTORCH):
            return (_litert if detected == LITERT else _executorch)(data, name)
        return _eager(data, name, dims or {}) if detected == EAGER else _onnxruntime(data, name, dims, in_order)


def runtime_of(data: bytes) -> str:
    """Return the name of the runtime for these bytes; "" if no runtime reads them."""
    refusal_of = {LITERT: tflite.refusal, EAGER: torch_module.refusal, EXECUTORCH: executorch.refusal}
    refusal_of[ONNXRUNTIME] = signatures.refusal_onnx
    return next((runtime for runtime, refusal in refusal_of.items() if not refusal(data)), "")


def _onnxruntime(data: bytes, name: str, dims: dict[str, int] | None, in_order: bool) -> Measured:
    # This loads the onnx package, which only these models need.
    from tmmu_core.formats.onnx.onnx_shape_run import with_supported_ir_version

    need("onnxruntime", "running the model")
    if not sys.platform.startswith("linux"):
        raise UnreadableInput("memory is measured through Linux's /proc.", hint="Measure on Linux.")
    graph = read_at(read_graph(data, name), dims or {}, data, name)
    dim_sizes = {**{k: d.max for k, d in graph.dims.items()}, **graph.assumed, **(dims or {})}
    tensors, model = {tensor.id: tensor for tensor in graph.tensors}, with_supported_ir_version(data)
    inputs = [[i, tensors[i].dtype, [dim_sizes.get(str(d), d) for d in tensors[i].shape]] for i in graph.inputs]
    runs, without_arena = (run_onnx(model, inputs, arena=arena, in_order=in_order) for arena in (True, False))
    # The first run extends the arena; the second run allocates the memory pattern block.
    (arena, pattern, _), (reserved, pattern_reserved, _) = runs["resident_growth"], runs["reserved"]
    figures = {"arena": arena, "arena_reserved": reserved, "pattern": pattern, "pattern_reserved": pattern_reserved}
    figures["no_arena"] = min(without_arena["resident_growth"][1:])
    run = None
    with suppress(TmmuError):  # the rewritten model may have operators that no reader knows
        if not in_order:
            rewritten = b64decode(_run_child("optimised", {}, model)["model"])
            rewritten_graph = read_graph(rewritten, name)
            sizes = {dim: size for dim, size in dim_sizes.items() if dim in rewritten_graph.dims}
            run = _figures(read_at(rewritten_graph, sizes, rewritten, name), sizes)
    return Measured(name, ONNXRUNTIME, arena + pattern, figures, _figures(graph, dim_sizes), run, dim_sizes)


def run_onnx(data: bytes, inputs: list[list[Any]], *, arena: bool, in_order: bool = False) -> dict[str, Any]:
    """Return the figures of :func:`.runtime_child.measure_onnx`; ``inputs`` are lists of name, dtype and shape."""
    request = {"inputs": inputs, "arena": arena, "in_order": in_order}
    return _run_child("onnx", request, data, "Give sizes that the model accepts: --dims NAME=SIZE.")


def _litert(data: bytes, name: str) -> Measured:
    require("ai_edge_litert", "running the model")
    graph = read_graph(data, name)
    answer = _run_child("litert", {}, data)
    arena, outside = answer["arena"], answer["outside"]
    figures = {"arena": arena, "outside": outside, "beyond_tensors": arena - answer["tensors"]}
    figures["scratch_tensors"] = answer["scratch"]
    return Measured(name, LITERT, arena + outside, figures, _figures(graph, {}), None, {})


def _micro(data: bytes, name: str, planned_model: bytes) -> Measured:
    require("tflite_micro", "running the model")
    model = MicroModel(data, name)
    plan = make_plan(model.runtime_graph, PlanRequest(planner=PLANNER)).plan
    planned_model = planned_model or with_plan(model, plan).data
    answer = _run_child("tflm", {"length": len(data)}, data + planned_model)
    figures = answer["before"] | {f"{key}_with_plan": value for key, value in answer["after"].items()}
    own = _summary(model.runtime_graph, plan)
    return Measured(name, MICRO, figures["arena"], figures, own, None, {}, outputs_equal=answer["outputs_equal"])


def _executorch(data: bytes, name: str) -> Measured:
    program = executorch.read(data, name)
    planned = sum(arena.extent_bytes for arena in make_plan(program, PlanRequest()).plan.arenas)  # the plan of the file
    ours = make_plan(program, PlanRequest(planner=PLANNER)).plan.arenas
    inputs = sum(int(p.size[row]) for p in program.problems for row, role in enumerate(p.roles) if role == "input")
    figures = Figures(sum(arena.extent_bytes for arena in ours), sum(arena.bound_bytes for arena in ours), inputs)
    return Measured(name, EXECUTORCH, planned, {"planned": planned}, figures, None, {})


def _eager(data: bytes, name: str, dims: dict[str, int]) -> Measured:
    require("torch", "running the model")
    program, fixed = read_program(data), {dim: Dim(size, size) for dim, size in dims.items()}
    symbols = torch_module.chosen_sizes(program, fixed)
    program = program.at(symbols)
    graph = torch_module.with_dims(saved_graph(program, name), program, fixed)
    dim_sizes = {key: dim.max for key, dim in graph.dims.items()}
    answer = _run_child("torch", {"sizes": symbols}, data)
    allocated, tensors, steps = answer["allocated"], answer["tensors"], tuple(answer["steps"])
    figures = {"allocated": allocated, "tensors": tensors, "scratch": allocated - tensors}
    return Measured(name, EAGER, allocated, figures, _figures(graph, dim_sizes), None, dim_sizes, steps)


def _run_child(task: str, request: dict[str, Any], model: bytes, hint: str = RUN_ALONE) -> dict[str, Any]:
    # Make malloc return freed memory at once, so that the resident set follows the live bytes.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "4096", "MALLOC_TRIM_THRESHOLD_": "0"}
    try:
        child = run_module(CHILD, [task], json.dumps(request).encode() + b"\n" + model, TIMEOUT, environment)
    except subprocess.TimeoutExpired as error:
        hint = RUN_ALONE if task in ("litert", "tflm") else "Choose smaller sizes with --dims."
        raise UnreadableInput(f"the run took more than {TIMEOUT} seconds.", hint=hint) from error
    if child.returncode or not child.stdout:
        raise UnreadableInput("the run ended without a result.", hint=RUN_ALONE)
    answer: dict[str, Any] = json.loads(child.stdout)
    if "failed" in answer:
        raise UnreadableInput(f"{CHILDREN[task]} does not run the model: {answer['failed'].rstrip('.')}.", hint=hint)
    return answer


def _figures(graph: Graph, dim_sizes: dict[str, int]) -> Figures:
    return _summary(graph, make_plan(graph, PlanRequest(planner=PLANNER, dims=dim_sizes)).plan)


def _summary(graph: Graph, plan: Plan) -> Figures:
    arena = plan.arena_of["activations"]
    inputs = sum(int(plan.size[plan.row_of[name]]) for name in graph.inputs if name in plan.row_of)
    return Figures(arena.extent_bytes, arena.bound_bytes, inputs, unplanned_parts(plan))
