"""What is compiled ahead is all that is compiled."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from app.cli import warm
from tmmu_core.planners import PLANNERS

ROOT = Path(__file__).resolve().parents[2]


def test_the_ring_takes_a_search() -> None:
    packing = PLANNERS["exact"].pack(warm.ring(), {}, None)
    assert (packing.optimal, packing.lower_bound, packing.notes["nodes"] > 0) == (True, 24, True)


def test_every_compiled_loop_of_planners_and_plans_is_compiled_ahead(tmp_path: Path) -> None:
    asked = dict(os.environ, NUMBA_CACHE_DIR=str(tmp_path))
    subprocess.run([sys.executable, "-m", "app.cli.warm"], cwd=ROOT, env=asked, check=True)
    kept = {re.sub(r"-\d+\.py.*", "", path.name) for path in tmp_path.rglob("*.nbi")}
    written = set()
    # Those of fitting are compiled when a fit is first asked for.
    rooms = [path for room in ("planners", "plan", "runtime") for path in (ROOT / "tmmu_core" / room).rglob("*.py")]
    for path in sorted(rooms):
        text = path.read_text(encoding="utf-8")
        written |= {f"{path.stem}.{name}" for name in re.findall(r"@njit\ndef (\w+)", text)}
        written |= {f"{path.stem}.{name}" for name in re.findall(r"= njit\((\w+)\)", text)}
    assert written <= kept
