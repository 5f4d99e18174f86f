"""The wheel from an index: ``python -m tests.wheel`` makes environments with pip, uvx and pipx, and tries them.

Takes minutes and the network; the suite's form of it links packages instead (``environment.py``). What it prints stands
in ``docs/how-to/install.md``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support.paths import SAMPLES
from tests.wheel.environment import ROOT, build_wheel, weight

SAMPLE = SAMPLES / "linear_chain.tmmu.json"
TRIES = 7


def fastest(*command: str | Path) -> float:
    """The least seconds of several runs; the first one compiles Python and does not count."""
    found = []
    for _ in range(TRIES):
        start = time.perf_counter()
        subprocess.run([str(word) for word in command], check=True, capture_output=True, cwd=tempfile.gettempdir())
        found.append(time.perf_counter() - start)
    return min(found[1:])


def main() -> None:
    """Install, weigh, time, and open."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    with tempfile.TemporaryDirectory() as folder:
        wheel = build_wheel(Path(folder) / "dist")
        for extra in ("", "[app]"):
            binaries = Path(folder) / f"env{extra}" / "bin"
            subprocess.run([sys.executable, "-m", "venv", str(binaries.parent)], check=True)
            start = time.perf_counter()
            pip = [binaries / "python", "-m", "pip", "install", "--quiet"]
            subprocess.run([*pip, f"{wheel}{extra}"], check=True, env=plain)
            taken = time.perf_counter() - start
            print(f"tmmu-plan-explorer{extra}: {weight(binaries) / 1e6:,.0f} MB, {taken:.0f} s by pip", flush=True)
            print(f"  tmmu --version       {fastest(binaries / 'tmmu', '--version'):.2f} s")
            print(f"  tmmu plan (9 tensors) {fastest(binaries / 'tmmu', 'plan', SAMPLE):.2f} s")
        for tool, command in (
            ("uvx", ["uvx", "--from", str(ROOT), "tmmu", "plan", str(SAMPLE)]),
            ("pipx", ["pipx", "run", "--spec", str(wheel), "tmmu", "plan", str(SAMPLE)]),
        ):
            if shutil.which(tool) is None:
                print(f"{tool}: not installed here, not tried")
                continue
            ended = subprocess.run(command, capture_output=True, text=True, env=plain, cwd=folder)
            print(f"{tool}: {'ok' if ended.returncode == 0 else ended.stderr[-400:]}")


if __name__ == "__main__":
    main()
