"""``python -m tests.support.versions PYTHON…``: other Python versions write the same bytes.

Each interpreter, under its own hash seed, plans every sample with every planner and runs commands that write. One line
per output that differs; the exit code is 1 if there is one. Each PYTHON has what ``requirements-dev.lock`` pins.
"""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from app.canvas.component import pack_plan
from app.cli.main import COMMANDS, run
from tests.support.golden import sample_files
from tests.support.paths import ROOT, SAMPLES, read_graph_file
from tmmu_core.formats.planfile import plan_file, trace
from tmmu_core.planners import PLANNERS
from tmmu_core.plans.making.engine import plan_graph

SMALL = 500
"""Tensors up to which a sample is planned by the searches, which are kept short."""
SHORT: dict[str, dict[str, Any]] = {"exact": {"budget": 200}, "search": {"iterations": 2}, "portfolio": {}, "auto": {}}
WRITTEN = ("mixed_sizes", "views", "training_step")
"""Samples of which commands write everything."""


def plans() -> Iterator[tuple[str, bytes]]:
    for file in sample_files():
        graph = read_graph_file(SAMPLES / file)
        for planner in PLANNERS:
            if planner not in SHORT or len(graph.tensors) <= SMALL:
                plan = plan_graph(graph, planner=planner, options=SHORT.get(planner, {})).plan
                yield f"{file} {planner} plan", plan_file.to_cbor(plan)
                yield f"{file} {planner} trace", trace.to_json_lines(plan)
                yield f"{file} {planner} canvas", pack_plan(plan).data


def commands() -> Iterator[tuple[str, bytes]]:
    """Yield exit codes, standard outputs and files of commands."""
    asked = [[name, "--help"] for name in COMMANDS] + [["schema"]]
    for stem in WRITTEN:
        (file,) = [str(SAMPLES / file) for file in sample_files() if file.split(".")[0] == stem]
        asked += [[name, file] for name in ("plan", "lint")]
        asked += [["compare", file, file, "--json"], ["fit", file, "--capacity", "1GiB", "--json"]]
        asked += [["report", file, "-o", f"out.{ending}"] for ending in ("html", "md")]
        asked += [["convert", file, "-o", f"out.{ending}"] for ending in ("tmmu.json", "tmmu.cbor", "tmmu.json.gz")]
    for command in asked:
        with TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()) as out:
            code = run(command)
            written = b"".join(path.read_bytes() for path in sorted(Path(folder).iterdir()))
        printed = re.sub(r'"allocation_time_ns": \d+', "", out.getvalue()).replace(str(ROOT), "ROOT")
        yield " ".join(command), b"%d " % code + printed.encode() + written


PARTS = {"plans": plans, "commands": commands}


def digests(python: str, seed: int, *parts: str) -> dict[str, str]:
    """Return output → SHA-256, written by the interpreter ``python`` with a hash seed."""
    setting = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": str(seed), "COLUMNS": "80", "NO_COLOR": "1"}
    command = [python, "-m", "tests.support.versions", "--made", *(parts or PARTS)]
    done = subprocess.run(command, cwd=ROOT, env=setting, stdout=subprocess.PIPE, check=True)
    made: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return made


def main(given: list[str]) -> int:
    if given[:1] == ["--made"]:
        print(json.dumps({name: sha256(data).hexdigest() for part in given[1:] for name, data in PARTS[part]()}))
        return 0
    here, different = digests(sys.executable, 0), 0
    for seed, python in enumerate(given, start=1):
        existing = digests(python, seed)
        names = [name for name in sorted({*here, *existing}) if here.get(name) != existing.get(name)]
        different += len(names)
        print("\n".join([*names, f"{python}: {len(names)} of {len(here)} outputs differ"]), flush=True)
    return bool(different)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
