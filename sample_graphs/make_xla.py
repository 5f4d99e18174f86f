"""Write the samples from XLA: ``python -m sample_graphs.make_xla [NAME …]`` (needs ``pip install 'jax>=0.6'``).

A training step of a transformer is compiled for the CPU with donated parameters. A sample contains the buffer
assignment and the live ranges of the dump, without stack traces. The result depends on the release of jax, which is
printed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent / "instances"
MODULE = "jit_training_step"


@dataclass(frozen=True)
class Size:
    """Sizes of a transformer and its batch."""

    layers: int
    width: int
    heads: int
    hidden: int
    length: int
    batch: int
    words: int


SAMPLES = {
    "xla_transformer_step.txt": Size(2, 64, 4, 256, 32, 4, 100),
    "xla_transformer_step_2x256.txt.gz": Size(2, 256, 4, 1024, 128, 8, 1000),
}
"""File → sizes of the compiled step."""


def compile_step(size: Size) -> None:
    """Compile the step in this process; XLA writes its dump to the folder in ``XLA_FLAGS``."""
    import jax
    import jax.numpy as jnp

    def forward(weights, tokens):  # type: ignore[no-untyped-def]
        h = weights["embedding"][tokens]
        for layer in weights["layers"]:
            heads = [
                part.reshape(size.batch, size.length, size.heads, size.width // size.heads).transpose(0, 2, 1, 3)
                for part in jnp.split(h @ layer["qkv"], 3, -1)
            ]
            scores = jax.nn.softmax(heads[0] @ heads[1].swapaxes(-1, -2) / (size.width // size.heads) ** 0.5)
            h = h + (scores @ heads[2]).transpose(0, 2, 1, 3).reshape(size.batch, size.length, size.width) @ layer["out"]
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
        "qkv": of(size.width, 3 * size.width),
        "out": of(size.width, size.width),
        "up": of(size.width, size.hidden),
        "down": of(size.hidden, size.width),
    }
    weights = {"embedding": of(size.words, size.width), "layers": [layer] * size.layers}
    tokens = jax.ShapeDtypeStruct((size.batch, size.length), jnp.int32)
    jax.jit(training_step, donate_argnums=0).lower(weights, tokens, tokens).compile()
    print(f"jax {jax.__version__}")


def join(folder: Path) -> str:
    """Return the buffer assignment and the live ranges of the dump in ``folder``, without stack traces."""
    assignment = next(folder.glob(f"*{MODULE}*-buffer-assignment.txt")).read_text()
    ranges = next(folder.glob(f"*{MODULE}*-live-range.txt")).read_text()
    return assignment.rstrip("\n") + "\n" + re.split(r"\n  Live ranges at", ranges)[0].rstrip("\n") + "\n"


def dumped(name: str) -> str:
    """Return the text of the sample ``name``, compiled in a separate process."""
    with tempfile.TemporaryDirectory() as folder:
        flags = f"--xla_dump_to={folder} --xla_dump_hlo_as_text --xla_dump_hlo_module_re={MODULE}"
        subprocess.run([sys.executable, __file__, "compile", name], check=True, env=os.environ | {"XLA_FLAGS": flags})
        return join(Path(folder))


def main(names: list[str]) -> None:
    from tmmu_core.graph.native import document

    for name in names or SAMPLES:
        data = dumped(name).encode()
        (HERE / name).write_bytes(document.pack(data) if name.endswith(".gz") else data)
        print(f"{(HERE / name).stat().st_size:>9,} B  {name}")


if __name__ == "__main__":
    compile_step(SAMPLES[sys.argv[2]]) if sys.argv[1:2] == ["compile"] else main(sys.argv[1:])
