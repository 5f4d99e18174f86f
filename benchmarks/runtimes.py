"""Measure plans that runtimes execute: ``python -m benchmarks.runtimes`` writes ``docs/measured/runtimes.md``.

Needs the extras ``run``, ``tflm`` and ``executorch``. The section of a missing runtime keeps its rows.
"""

import ctypes
import gc
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import tmmu
from benchmarks import onnx_nets, tflite_nets
from tmmu_core.fitting.order.order_search import order_move
from tmmu_core.fitting.problem.planner_calls import initial_candidate
from tmmu_core.formats.onnx.onnx_model import with_order
from tmmu_core.formats.open_file import read_graph
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.runtime.measure.measure_model import measure, run_onnx

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "measured" / "runtimes.md"
FILES = ROOT / "tests" / "data" / "tflite"

HEAD = """\
# Plans that runtimes execute

Written by `python -m benchmarks.runtimes`. Arena and resident bytes are measured with the runtime, on x86-64 Linux;
lower bounds are computed by the planner. Outputs are compared bit by bit on random inputs.
"""
TFLM = """
## TensorFlow Lite Micro

`tmmu export MODEL.tflite --to tflm -o OUT.tflite`, run by the package `tflite-micro`. *Arena* is the smallest size in
which the model runs, *head* its activations and scratch memory as the runtime prints them. The first four are files
of MLPerf Tiny and of the runtime, the others architectures with random weights (`benchmarks/tflite_nets.py`).

| model | arena today | with the plan | head today | with the plan | lower bound | outputs |
|---|---:|---:|---:|---:|---:|---|
"""
EXECUTORCH = """
## ExecuTorch

`ExecutorchBackendConfig(memory_planning_pass=tmmu.executorch_pass())`, portable kernels. *Planned* is the size in
the file, *allocated* the bytes that `load_program` allocates from the C library. Lower bounds are of ExecuTorch's
live ranges.

| program | alignment | greedy: planned | allocated | with the plan: planned | allocated | lower bound | outputs |
|---|---:|---:|---:|---:|---:|---:|---|
"""
ONNX = """
## onnxruntime

`tmmu export MODEL.onnx --to onnx -o OUT.onnx`. onnxruntime sorts nodes again: by default, depth first from the outputs,
and the order of the file has no effect. `execution_order = ExecutionOrder.PRIORITY_BASED` with
`graph_optimization_level = ORT_DISABLE_ALL` keeps it (`tmmu measure --in-order`). To keep optimizations, save the
optimized model (`optimized_model_filepath`) and export that one. Bytes are the growth of resident memory, arena and
memory pattern off, up to 256 KiB off; the caller's input is not in them.

| model | file, default | ordered, default | file, kept | ordered, kept | lower bound, file | ordered | outputs |
|---|---:|---:|---:|---:|---:|---:|---|
"""


def row(*cells: object) -> str:
    """A row of a table."""
    return "| " + " | ".join(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells) + " |"


def tflm_rows() -> Iterator[str]:
    """Return the rows of files and architectures in TensorFlow Lite Micro."""
    models: dict[str, Callable[[], bytes]] = {file.stem: file.read_bytes for file in sorted(FILES.glob("*.tflite"))}
    for name, made in (models | tflite_nets.NETS).items():
        found = measure(made(), name, runtime="tflm")
        figures = [found.figures[key] for key in ("arena", "arena_with_plan", "head", "head_with_plan")]
        yield row(name, *figures, found.given.bound, "equal" if found.outputs_equal else "DIFFERENT")


class _Allocated(ctypes.Structure):
    names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    _fields_ = tuple((name, ctypes.c_size_t) for name in names)


def allocated() -> int:
    """Return the number of bytes that the C library has allocated."""
    report = ctypes.CDLL(None).mallinfo2
    report.restype = _Allocated
    found = report()
    return int(found.uordblks + found.hblkhd)


def executorch_rows() -> Iterator[str]:
    """Return the rows of programs in ExecuTorch."""
    import torch
    from executorch.exir import ExecutorchBackendConfig, to_edge
    from executorch.exir.passes import MemoryPlanningPass
    from executorch.runtime import Runtime

    from benchmarks.executorch_nets import NETS

    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    for (name, made), alignment in [*((net, 16) for net in NETS.items()), (("vit", NETS["vit"]), 64)]:
        module, inputs = made()
        exported = torch.export.export(module.eval(), inputs)
        figures: list[int] = []
        outputs = []
        for planning in (MemoryPlanningPass(alignment=alignment), tmmu.executorch_pass(alignment=alignment)):
            config = ExecutorchBackendConfig(memory_planning_pass=planning)
            program = to_edge(exported).to_executorch(config)
            data = program.buffer
            gc.collect()
            before = allocated()
            loaded = Runtime.get().load_program(data)
            figures += [sum(program.executorch_program.execution_plan[0].non_const_buffer_sizes), allocated() - before]
            outputs.append([each.clone() for each in loaded.load_method("forward").execute(list(inputs))])
            del loaded
        bound = tmmu.plan(tmmu.read(data), planner="auto").arenas[0].bound_bytes
        same = all(torch.equal(a, b) for a, b in zip(*outputs, strict=True))
        yield row(name, alignment, *figures, bound, "equal" if same else "DIFFERENT")


def onnx_rows() -> Iterator[str]:
    """Return the rows of models with branches in onnxruntime."""
    inputs = [["x", "float32", [1, onnx_nets.CHANNELS, onnx_nets.SIDE, onnx_nets.SIDE]]]
    for name, made in onnx_nets.NETS.items():
        data = made()
        graph = read_graph(data, name)
        start = initial_candidate(graph, PlanRequest())
        found = order_move(start)
        assert found is not None
        order = found.move.details["order"] if found.move else start.plan.execution_order
        files = (data, with_order(data, graph, order, name))
        default = [run_onnx(file, inputs, arena=False) for file in files]
        kept = [run_onnx(file, inputs, arena=False, in_order=True) for file in files]
        bounds = [tmmu.plan(read_graph(file, name)).arena_of["activations"].bound_bytes for file in files]
        same = kept[0]["outputs"] == kept[1]["outputs"]
        bytes_of = [min(run["resident_growth"][1:]) for run in (*default, *kept)]
        yield row(name, *bytes_of, *bounds, "equal" if same else "DIFFERENT")


def main() -> None:
    """Write the page; a section whose runtime is missing keeps its rows."""
    old = OUT.read_text() if OUT.exists() else ""
    page = HEAD
    for package, head, rows in (
        ("tflite_micro", TFLM, tflm_rows),
        ("executorch", EXECUTORCH, executorch_rows),
        ("onnxruntime", ONNX, onnx_rows),
    ):
        title = head.split("\n")[1]
        before = old.partition(title)[2].partition("\n## ")[0].splitlines()
        kept = [line for line in before if line.startswith("| ")][1:]
        page += head + "\n".join(rows() if find_spec(package) else kept) + "\n"
        print(title, flush=True)
    OUT.write_text(page)


if __name__ == "__main__":
    main()
