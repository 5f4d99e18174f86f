"""Record calls of this machine's library, and replay them on another machine's library under qemu."""

import ctypes
import re
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from tests.planners.alike import answers
from tmmu_core.planners import native as loading
from tmmu_core.planners.native import FOLDER, file_name

PROGRAM = Path(__file__).with_name("elsewhere.c")
SOURCES = "".join(path.read_text() for path in sorted(FOLDER.glob("*.c")))
FUNCTIONS = tuple(re.findall(r"^SHARED I (tmmu_\w+)", SOURCES, re.M))


class Recorder:
    """A library that records the calls to another one."""

    def __init__(self, loops: ctypes.CDLL) -> None:
        self.loops = loops
        self.calls: list[bytes] = []
        self.results: list[bytes] = []
        for name in FUNCTIONS:
            setattr(self, name, self._recorded(name))

    def _recorded(self, name: str) -> Any:
        def call_and_record(reference: Any) -> int:
            call = reference._obj
            values = [call.fields.get(field, 0) for field, _ in call._fields_]
            words = [struct.pack("<qq", FUNCTIONS.index(name), len(values))]
            for (field, _), value in zip(call._fields_, values, strict=True):
                number = struct.pack("<qq", 0, getattr(call, field))
                array = isinstance(value, np.ndarray)
                words.append(struct.pack("<qq", 1, value.nbytes) + value.tobytes() if array else number)
            result = int(getattr(self.loops, name)(reference))
            after = [value.tobytes() for value in values if isinstance(value, np.ndarray)]
            self.calls.append(b"".join(words))
            self.results.append(struct.pack("<q", result) + b"".join(after))
            return result

        return call_and_record


USERS = (
    *("planners.greedy", "planners.exact.search_tables", "planners.exact.branch_and_bound", "planners.exact.lns"),
    *("planners.auto", "fitting.recompute.recompute_search", "fitting.recompute.live_curve"),
    *("planners.reuse.local_search", "planners.reuse.cost_bound"),
)
"""Modules that call the library."""


def recorded(count: int, monkeypatch: Any) -> Recorder:
    """Return the calls made for ``count`` seeds of :mod:`alike`."""
    own = loading.library()
    assert own is not None
    recorder = Recorder(own)
    for module in USERS:
        monkeypatch.setattr(f"tmmu_core.{module}.library", lambda: recorder)
    for seed in range(count):
        answers(seed)
    return recorder


def results_on(recorder: Recorder, machine: str, folder: Path) -> list[bytes]:
    """Return the results of another machine's library for the recorded calls."""
    program = folder / "elsewhere"
    library = FOLDER / file_name(machine)
    names = "-DFUNCTIONS(X)=" + " ".join(f"X({name})" for name in FUNCTIONS)
    compiler = [f"{machine}-linux-gnu-gcc", "-O2", names, "-o", str(program), str(PROGRAM), str(library)]
    subprocess.run([*compiler, f"-Wl,-rpath,{FOLDER}"], check=True)
    command = [f"qemu-{machine}", "-L", f"/usr/{machine}-linux-gnu", str(program)]
    found = subprocess.run(command, input=b"".join(recorder.calls), capture_output=True, check=True).stdout
    ends = np.cumsum([len(result) for result in recorder.results]).tolist()
    assert len(found) == ends[-1]
    return [found[end - len(result) : end] for end, result in zip(ends, recorder.results, strict=True)]
