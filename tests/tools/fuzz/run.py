"""Run readers on damaged inputs: ``python -m tests.tools.fuzz.run [TARGET …] [--seconds N] [--inputs N] [--seed S]``.

A finding is an untyped error, an input that takes more than 5 s of processor time or 1 GiB, and an input that ends or
blocks the process. The input is written to ``.fuzz/`` and its place is printed. Input ``k`` of a target depends only on
the seed and ``k``; ``--show K`` writes it again.

One process runs all inputs of a target. If it dies or blocks, its current input is a finding and a new process
continues. ``.fuzz/tally.json`` keeps the counts of each target and seed; ``--tally`` prints the sums.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import mmap
import os
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

from tests.tools.fuzz.targets import Target, outcome, targets

FOUND = Path(".fuzz")
TALLY = FOUND / "tally.json"
SLOW = 5.0
"""Maximum processor seconds of the process and its children for one input."""
MEMORY = 1 << 30
BLOCKED_AFTER = 300.0
"""Wall-clock seconds without processor time after which an input counts as blocked."""
NUMBERS = ("begun", "read", "refused", "findings", "slowest_microseconds", "slowest_input", "cpu_microseconds")
"""Counters that the process shares with the runner, 64 bits each."""


def main() -> int:
    """Run the command line; return 1 if there is a finding."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", nargs="*", default=list(targets()), help="names of targets [all]")
    parser.add_argument("--seconds", type=float, default=20.0, help="time for each target")
    parser.add_argument("--inputs", type=int, default=10**9, help="maximum number of inputs for each target")
    parser.add_argument("--seed", type=int, default=0, help="seed of the inputs [0]")
    parser.add_argument("--show", type=int, metavar="K", help="write input K of the target to standard output")
    parser.add_argument("--tally", action="store_true", help="print the counts of earlier runs and exit")
    given = parser.parse_args()
    if given.tally:
        print(table(_kept()))
        return 0
    if given.show is not None:
        sys.stdout.buffer.write(made(targets()[given.target[0]], given.seed, given.show))
        return 0
    found = 0
    for name in given.target:
        row = attack(targets()[name], given.seconds, given.inputs, given.seed)
        _keep(name, given.seed, row)
        found += row["findings"]
        print(f"{name}: {json.dumps(row)}", flush=True)
    return int(found > 0)


def made(target: Target, seed: int, k: int) -> bytes:
    """Return input ``k`` of a target."""
    return target.make(Random(f"{target.name}/{seed}/{k}"))


def attack(target: Target, seconds: float, inputs: int, seed: int) -> dict[str, Any]:
    """Run one target; return its counts and the number of findings."""
    ends, shown = time.monotonic() + seconds, memoryview(mmap.mmap(-1, 8 * len(NUMBERS))).cast("q")
    total, peak, begin = Counter[str](), 0, 0
    while begin < inputs and time.monotonic() < ends:
        for number in range(len(NUMBERS)):
            shown[number] = begin if NUMBERS[number] == "begun" else 0
        child = os.fork()
        if not child:
            _work(target, shown, (begin, inputs, seed), ends)
        died, used = _look_on(child, shown)
        row = dict(zip(NUMBERS, shown, strict=True))
        peak = max(peak, used.ru_maxrss * 1024)
        for name in ("read", "refused", "findings", "cpu_microseconds"):
            total[name] += row[name]
        if row["slowest_microseconds"] > total["slowest_microseconds"]:
            total["slowest_microseconds"], total["slowest_input"] = row["slowest_microseconds"], row["slowest_input"]
        begin = row["begun"]
        if died:
            _report(target, seed, begin - 1, died)
            total["findings"] += 1
    return {
        "inputs": begin,
        **{name: total[name] for name in ("read", "refused", "findings")},
        "cpu_seconds": round(total["cpu_microseconds"] / 1e6, 1),
        "slowest_cpu_seconds": round(total["slowest_microseconds"] / 1e6, 3),
        "slowest_input": total["slowest_input"],
        "peak_bytes": peak,
    }


def _work(target: Target, shown: memoryview[int], which: tuple[int, int, int], ends: float) -> None:
    """Read the inputs in the child process, and end the process."""
    begin, inputs, seed = which
    count = dict.fromkeys(NUMBERS, 0)
    places: set[str] = set()
    begun_with = _used()
    for k in range(begin, inputs):
        if time.monotonic() > ends:
            break
        count["begun"] = k + 1
        shown[0] = k + 1
        before = _used()
        data = made(target, seed, k)
        place = ""
        try:
            with _bounded():
                count[outcome(target, data)] += 1
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            own = [frame for frame in frames if "tmmu_core" in frame.filename or "/app/" in frame.filename] or frames
            place = f"{type(error).__name__} at {Path(own[-1].filename).name}:{own[-1].lineno}: {str(error)[:160]}"
        taken = _used() - before
        if taken > count["slowest_microseconds"]:
            count["slowest_microseconds"], count["slowest_input"] = taken, k
        if taken > SLOW * 1e6 and not place:
            place = f"slow: {taken / 1e6:.1f} s of the processor"
        if place:
            count["findings"] += 1
            if place.split(": ")[0] not in places:
                places.add(place.split(": ")[0])
                _report(target, seed, k, place)
        count["cpu_microseconds"] = _used() - begun_with
        for number, name in enumerate(NUMBERS):
            shown[number] = count[name]
    sys.stdout.flush()
    os._exit(0)


def _look_on(child: int, shown: memoryview[int]) -> tuple[str, resource.struct_rusage]:
    """Wait for the end of the process; return the reason if it was killed, else ``""``, and the used resources."""
    since, input_, cpu_then, killed = time.monotonic(), -1, 0.0, ""
    while True:
        ended, status, used = os.wait4(child, os.WNOHANG)
        if ended and os.WIFSIGNALED(status):
            return killed or f"died: {signal.strsignal(os.WTERMSIG(status))}", used
        if ended:
            return f"died: exit {os.WEXITSTATUS(status)}" if status else "", used
        time.sleep(0.05)
        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        cpu = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
        if shown[0] != input_:
            since, input_, cpu_then = time.monotonic(), shown[0], cpu
        elif cpu - cpu_then > 4 * SLOW or time.monotonic() - since > BLOCKED_AFTER:
            killed = "never ends" if cpu - cpu_then > 4 * SLOW else "stands still"
            os.kill(child, signal.SIGKILL)


def _used() -> int:
    """Return the microseconds of processor time of this process and of its ended children."""
    here, below = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return int(1e6 * (here.ru_utime + here.ru_stime + below.ru_utime + below.ru_stime))


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    """Limit the address space to ``MEMORY`` bytes above the current size."""
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    old = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, old)


def _report(target: Target, seed: int, k: int, place: str) -> None:
    FOUND.mkdir(exist_ok=True)
    file = FOUND / f"{target.name}-{seed}-{k}"
    file.write_bytes(made(target, seed, k))
    print(f"  {target.name} {k}: {place}\n    {file}", flush=True)


def _kept() -> dict[str, dict[str, Any]]:
    """Return target → seed → counts of earlier runs."""
    kept: dict[str, dict[str, Any]] = json.loads(TALLY.read_text()) if TALLY.exists() else {}
    return kept


def _keep(name: str, seed: int, row: dict[str, Any]) -> None:
    FOUND.mkdir(exist_ok=True)
    kept = _kept()
    kept.setdefault(name, {})[str(seed)] = row
    TALLY.write_text(json.dumps(kept, indent=1, sort_keys=True))


def table(kept: dict[str, dict[str, Any]]) -> str:
    """Return a Markdown table with the sums of each target over all seeds, and the total."""
    lines = [
        "| target | inputs | read | refused | findings | CPU s | slowest, CPU s | peak, MB |",
        "|---|" + "---:|" * 7,
    ]
    sums = Counter[str]()
    for name, seeds in sorted(kept.items()):
        rows = list(seeds.values())
        own = {key: sum(row[key] for row in rows) for key in ("inputs", "read", "refused", "findings", "cpu_seconds")}
        sums.update(own)
        slowest, peak = max(row["slowest_cpu_seconds"] for row in rows), max(row["peak_bytes"] for row in rows)
        lines.append(_line(name, own, f"{slowest:.2f} | {peak / 1e6:.0f}"))
    return "\n".join([*lines, _line("all", sums, "|")])


def _line(name: str, of: Mapping[str, float], end: str) -> str:
    counted = " | ".join(f"{of[key]:,}" for key in ("inputs", "read", "refused", "findings"))
    return f"| {name} | {counted} | {of['cpu_seconds']:,.0f} | {end} |"


if __name__ == "__main__":
    sys.exit(main())
