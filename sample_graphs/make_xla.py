"""Write the sample that comes from XLA: ``python -m sample_graphs.make_xla`` (needs ``pip install 'jax>=0.6'``).

One training step of a transformer of two layers, compiled for the CPU with its parameters donated. What is kept of the
dump is the buffer assignment and the live ranges, one behind the other, without the stack traces that follow them.
What XLA decides may change from release to release; the release is printed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

FILE = Path(__file__).parent / "instances" / "xla_transformer_step.txt"
MODULE = "jit_training_step"

LAYERS, WIDTH, HEADS, HIDDEN, LENGTH, BATCH, WORDS = 2, 64, 4, 256, 32, 4, 100


def compile_step() -> None:
    """Compile the step in this process; XLA writes its dump where ``XLA_FLAGS`` say."""
    import jax
    import jax.numpy as jnp

    def forward(weights, tokens):  # type: ignore[no-untyped-def]
        h = weights["embedding"][tokens]
        for layer in weights["layers"]:
            heads = [
                part.reshape(BATCH, LENGTH, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)
                for part in jnp.split(h @ layer["qkv"], 3, -1)
            ]
            scores = jax.nn.softmax(heads[0] @ heads[1].swapaxes(-1, -2) / (WIDTH // HEADS) ** 0.5)
            h = h + (scores @ heads[2]).transpose(0, 2, 1, 3).reshape(BATCH, LENGTH, WIDTH) @ layer["out"]
            h = h + jax.nn.gelu(h @ layer["up"]) @ layer["down"]
        return h @ weights["embedding"].T

    def loss(weights, tokens, targets):  # type: ignore[no-untyped-def]
        logs = jax.nn.log_softmax(forward(weights, tokens))
        return -jnp.take_along_axis(logs, targets[..., None], -1).mean()

    def training_step(weights, tokens, targets):  # type: ignore[no-untyped-def]
        value, gradients = jax.value_and_grad(loss)(weights, tokens, targets)
        return jax.tree.map(lambda weight, gradient: weight - 0.1 * gradient, weights, gradients), value

    def of(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    layer = {
        "qkv": of(WIDTH, 3 * WIDTH),
        "out": of(WIDTH, WIDTH),
        "up": of(WIDTH, HIDDEN),
        "down": of(HIDDEN, WIDTH),
    }
    weights = {"embedding": of(WORDS, WIDTH), "layers": [layer] * LAYERS}
    tokens = jax.ShapeDtypeStruct((BATCH, LENGTH), jnp.int32)
    jax.jit(training_step, donate_argnums=0).lower(weights, tokens, tokens).compile()
    print(f"jax {jax.__version__}")


def join(folder: Path) -> str:
    """The two texts of the dump in ``folder``, as far as they speak of buffers."""
    assignment = next(folder.glob(f"*{MODULE}*-buffer-assignment.txt")).read_text()
    ranges = next(folder.glob(f"*{MODULE}*-live-range.txt")).read_text()
    return assignment.rstrip("\n") + "\n" + re.split(r"\n  Live ranges at", ranges)[0].rstrip("\n") + "\n"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        flags = f"--xla_dump_to={folder} --xla_dump_hlo_as_text --xla_dump_hlo_module_re={MODULE}"
        subprocess.run([sys.executable, __file__, "compile"], check=True, env=os.environ | {"XLA_FLAGS": flags})
        FILE.write_text(join(Path(folder)), encoding="utf-8")
    print(f"{FILE.stat().st_size:>9,} B  {FILE.name}")


if __name__ == "__main__":
    compile_step() if sys.argv[1:] == ["compile"] else main()
