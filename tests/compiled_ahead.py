"""What is compiled ahead is all that is compiled: ``python -m tests.compiled_ahead``.

Compiles every loop anew in a folder of its own, which takes a minute or two; the suite does so with those alone that
the library of compiled loops has not.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tmmu_core.compiled import AHEAD

ROOT = Path(__file__).resolve().parents[1]


def left_out(folder: Path, *, native: bool) -> list[str]:
    """Compiled loops that ``app.cli.warm`` does not compile; none, one hopes. ``native``: the library has its own."""
    asked = dict(os.environ, NUMBA_CACHE_DIR=str(folder), TMMU_NATIVE="" if native else "0")
    subprocess.run([sys.executable, "-m", "app.cli.warm"], cwd=ROOT, env=asked, check=True)
    kept = {re.sub(r"-\d+\.py.*", "", path.name) for path in folder.rglob("*.nbi")}
    written = set()
    core = ROOT / "tmmu_core"
    for path in sorted(core.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if native and ".".join(path.relative_to(core).with_suffix("").parts).startswith(AHEAD):
            continue
        written |= {f"{path.stem}.{name}" for name in re.findall(r"@njit(?:_leaf|_or\(\w+\))?\ndef (\w+)", text)}
        written |= {f"{path.stem}.{name}" for name in re.findall(r"= njit\((\w+)\)", text)}
    return sorted(written - kept)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        missing = left_out(Path(folder), native=False)
    print("\n".join(missing) or "all loops are compiled ahead")
    sys.exit(bool(missing))
