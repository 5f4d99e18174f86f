"""What is compiled ahead is all that is compiled: ``python -m tests.compiled_ahead``.

Compiles every loop anew in a folder of its own, which takes a minute or two; so it is no part of the suite.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def left_out(folder: Path) -> list[str]:
    """Compiled loops of planners, plans and runtime that ``app.cli.warm`` does not compile; none, one hopes."""
    asked = dict(os.environ, NUMBA_CACHE_DIR=str(folder), TMMU_NATIVE="0")
    subprocess.run([sys.executable, "-m", "app.cli.warm"], cwd=ROOT, env=asked, check=True)
    kept = {re.sub(r"-\d+\.py.*", "", path.name) for path in folder.rglob("*.nbi")}
    written = set()
    # Those of fitting are compiled when a fit is first asked for.
    rooms = [path for room in ("planners", "plan", "runtime") for path in (ROOT / "tmmu_core" / room).rglob("*.py")]
    for path in sorted(rooms):
        text = path.read_text(encoding="utf-8")
        written |= {f"{path.stem}.{name}" for name in re.findall(r"@njit(?:_leaf|_or\(\w+\))?\ndef (\w+)", text)}
        written |= {f"{path.stem}.{name}" for name in re.findall(r"= njit\((\w+)\)", text)}
    return sorted(written - kept)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        missing = left_out(Path(folder))
    print("\n".join(missing) or "all loops are compiled ahead")
    sys.exit(bool(missing))
