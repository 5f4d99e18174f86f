"""Calls of this machine's library, recorded with their answers, and made again of another machine's by qemu."""

from __future__ import annotations

import ctypes
import struct
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from alike import wild

from tmmu_core.loops import library as loading
from tmmu_core.loops.library import FOLDER, file_name
from tmmu_core.planners import kernels
from tmmu_core.planners.bounds import lower_bound
from tmmu_core.planners.columns import columns
from tmmu_core.planners.exact import exact
from tmmu_core.planners.exact.model import build, chains
from tmmu_core.planners.exact.rebuild import rebuild_of
from tmmu_core.planners.exact.tables import shape_of
from tmmu_core.planners.greedy import by_size, place
from tmmu_core.planners.problem import Problem

CALLS = ("tmmu_place_near", "tmmu_place", "tmmu_search", "tmmu_neighbours", "tmmu_rebuild")
PROGRAM = Path(__file__).with_name("elsewhere.c")


class Recorder:
    """A library in the place of the one that it asks."""

    def __init__(self, loops: ctypes.CDLL) -> None:
        self.loops = loops
        self.asked: list[bytes] = []
        self.answers: list[bytes] = []
        self.tmmu_settle = loops.tmmu_settle
        for name in CALLS:
            setattr(self, name, self._recorded(name))

    def _recorded(self, name: str) -> Any:
        def ask(reference: Any) -> int:
            call = reference._obj
            values = [call.fields.get(field, 0) for field, _ in call._fields_]
            words = [struct.pack("<qq", CALLS.index(name), len(values))]
            for (field, _), value in zip(call._fields_, values, strict=True):
                number = struct.pack("<qq", 0, getattr(call, field))
                array = isinstance(value, np.ndarray)
                words.append(struct.pack("<qq", 1, value.nbytes) + value.tobytes() if array else number)
            answer = int(getattr(self.loops, name)(reference))
            after = [value.tobytes() for value in values if isinstance(value, np.ndarray)]
            self.asked.append(b"".join(words))
            self.answers.append(struct.pack("<q", answer) + b"".join(after))
            return answer

        return ask


def recorded(problems: Iterable[Problem], monkeypatch: Any) -> Recorder:
    """What the planners ask of the library while they pack these."""
    own = loading.library()
    assert own is not None
    recorder = Recorder(own)
    for module in ("greedy", "near_kernel", "kernels", "exact.tables", "exact.run", "exact.rebuild"):
        monkeypatch.setattr(f"tmmu_core.planners.{module}.library", lambda: recorder)
    for problem in problems:
        cols = columns(problem)
        for tightest in (False, True):
            place(cols, by_size(cols), "tightest" if tightest else "lowest", compiled=True)
            kernels.place(cols, by_size(cols), tightest)
        exact(problem, {"budget": 200})
        model = build(cols, chains(cols, ()) or ())
        rebuild_of(model, shape_of(model), 1).run(max(lower_bound(problem).bytes, 1), 40)
    return recorder


def asked_again(recorder: Recorder, machine: str, folder: Path) -> list[bytes]:
    """The answers of another machine's library to the same calls."""
    program = folder / "elsewhere"
    library = FOLDER / file_name(machine)
    compiler = [f"{machine}-linux-gnu-gcc", "-O2", "-o", str(program), str(PROGRAM), str(library)]
    subprocess.run([*compiler, f"-Wl,-rpath,{FOLDER}"], check=True)
    command = [f"qemu-{machine}", "-L", f"/usr/{machine}-linux-gnu", str(program)]
    found = subprocess.run(command, input=b"".join(recorder.asked), capture_output=True, check=True).stdout
    ends = np.cumsum([len(answer) for answer in recorder.answers]).tolist()
    assert len(found) == ends[-1]
    return [found[end - len(answer) : end] for end, answer in zip(ends, recorder.answers, strict=True)]


def drawn(count: int) -> list[Problem]:
    """Problems for it, some of them stretched as far as 64 bits go."""
    return [wild(seed) for seed in range(count)]
