"""Write the plans in this folder: ``python tests/data/given/make.py FOLDER``.

Needs torch 2.13.0, executorch 1.5.1, ethos-u-vela 5.2.0, tflite-micro 0.dev20261023182759 or jax; others are left out.
"""

import ctypes
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

OURS = Path(__file__).resolve().parent
KEYWORDS = OURS.parent / "tflite" / "kws_ref_model.tflite"
PERSON = OURS.parent / "tflite" / "person_detect.tflite"
BUFFERS = ((2048, 0, 1), (1024, 1, 2), (512, 2, 4), (2048, 2, 3), (256, 3, 3), (1024, 3, 5))
"""``(size, first used, last used)``."""


def executorch(folder: Path) -> None:
    """Write a program with a convolution, a split, an elided view and a state that is kept between runs."""
    import torch
    from executorch.exir import to_edge
    from executorch.util.activation_memory_profiler import generate_memory_trace

    class Small(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = torch.nn.Conv2d(3, 8, 3, padding=1)
            self.linear = torch.nn.Linear(8 * 64, 10)
            self.register_buffer("state", torch.zeros(1, 10))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            a, b = torch.relu(self.convolution(x)).split(4, 1)
            z = self.linear(torch.cat([a * 2, b + 1], 1).view(1, -1))
            self.state.add_(z)
            return z + self.state, torch.topk(z, 3)[0]

    torch.set_grad_enabled(False)
    program = to_edge(torch.export.export(Small().eval().requires_grad_(False), (torch.randn(1, 3, 8, 8),)))
    made = program.to_executorch()
    (folder / "executorch_small.pte").write_bytes(made.buffer)
    for name, offsets in (("executorch_trace.json", True), ("executorch_trace_stacked.json", False)):
        generate_memory_trace(made, str(folder / name), enable_memory_offsets=offsets, ommit_metadata=True)
        file = folder / name
        file.write_text(json.dumps(json.loads(file.read_text()), separators=(",", ":")))


def ethosu(folder: Path) -> None:
    """Write the log of each of Vela's compilers, without warnings that contain paths."""
    for name, options in (("vela_regor.txt", ()), ("vela_core.txt", ("--debug-force-legacy-core",))):
        command = [str(Path(sys.executable).with_name("vela")), "--accelerator-config", "ethos-u55-128"]
        command += ["--verbose-allocation", "--output-dir", str(folder / "vela"), *options, str(KEYWORDS)]
        shown_text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        lines = [line for line in shown_text.splitlines(keepends=True) if not line.startswith("Warning:")]
        (folder / name).write_text("".join(lines))


def tflite_micro(folder: Path) -> None:
    """Write the output of the runtime: its greedy planner on six buffers, and its recording allocator on a model."""
    from tflite_micro.python.tflite_micro import runtime

    native = ctypes.CDLL(str(next(Path(runtime.__file__).parent.glob("_runtime*.so"))))

    def planner(method: str, *arguments: object) -> None:
        getattr(native, f"_ZN6tflite5micro19GreedyMemoryPlanner{method}")(this, *arguments)

    this, scratch = ctypes.create_string_buffer(512), ctypes.create_string_buffer(8192)
    with _standard_error_to(folder / "tflm_planner.txt"):
        planner("C1Ev")
        planner("4InitEPhi", scratch, 8192)
        for buffer in BUFFERS:
            planner("9AddBufferEiii", *buffer)
        planner("15PrintMemoryPlanEv")
    with _standard_error_to(folder / "tflm_recorded.txt"):
        runtime.Interpreter.from_file(str(PERSON), arena_size=1 << 21).print_allocations()


class _standard_error_to:  # noqa: N801
    """Write the standard error of native code to a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        self.kept = os.dup(2)
        with self.path.open("wb") as out:
            os.dup2(out.fileno(), 2)

    def __exit__(self, *_: object) -> None:
        os.dup2(self.kept, 2)


def jax(folder: Path) -> None:
    """Write the three texts of the module of a training step with two layers."""
    os.environ["XLA_FLAGS"] = f"--xla_dump_to={folder / 'dump'} --xla_dump_hlo_as_text"
    import jax
    import jax.numpy as jnp

    def loss(w1: jax.Array, w2: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.sum((jnp.tanh(x @ w1) @ w2) ** 2)

    step = jax.jit(lambda w1, w2, x: jax.grad(loss, (0, 1))(w1, w2, x))
    step(jnp.ones((64, 128)), jnp.ones((128, 32)), jnp.ones((16, 64)))
    for ending in ("buffer-assignment.txt", "live-range.txt", "memory-usage-report.txt"):
        (file,) = (folder / "dump").glob(f"*jit__lambda*optimizations-{ending}")
        (folder / f"xla_step-{ending}").write_bytes(file.read_bytes())


def main() -> None:
    """Write the files of all tools that are installed."""
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for package, make in (("executorch", executorch), ("ethosu", ethosu), ("tflite_micro", tflite_micro), ("jax", jax)):
        if importlib.util.find_spec(package):
            make(folder)
        else:
            print(f"{package} is not installed", file=sys.stderr)


if __name__ == "__main__":
    main()
