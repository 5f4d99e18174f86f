"""Hostile inputs by the thousand: ``python -m tests.fuzz.run [TARGET …] [--seconds N] [--inputs N] [--seed S]``.

Each finding is written to ``.fuzz/`` (the input) and told with its place. A finding is whatever is no graph, plan or
typed refusal, and an input that takes more than 5 s or 1 GiB.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from random import Random

from tests.fuzz.targets import Target, outcome, targets

FOUND = Path(".fuzz")
SLOW = 5.0
MEMORY = 1 << 30


def main() -> int:
    """The command line; 1 when something was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", nargs="*", default=list(targets()))
    parser.add_argument("--seconds", type=float, default=20.0, help="for each target")
    parser.add_argument("--inputs", type=int, default=10**9, help="at most, for each target")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    found = 0
    for name in given.target:
        found += attack(targets()[name], given.seconds, given.inputs, given.seed)
    return int(found > 0)


def attack(target: Target, seconds: float, inputs: int, seed: int) -> int:
    """Run one target; how many places were found. Input ``k`` is made of the seed and ``k`` alone."""
    ends, outcomes, places = time.monotonic() + seconds, Counter[str](), Counter[str]()
    k = 0
    while k < inputs and time.monotonic() < ends:
        data = target.make(Random(f"{target.name}/{seed}/{k}"))
        begun = time.monotonic()
        try:
            with _bounded():
                outcomes[outcome(target, data)] += 1
            place = "slow" if time.monotonic() - begun > SLOW else ""
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            own = [frame for frame in frames if "tmmu_core" in frame.filename or "/app/" in frame.filename] or frames
            place = f"{type(error).__name__} at {Path(own[-1].filename).name}:{own[-1].lineno}: {str(error)[:160]}"
        if place:
            if not places[place.split(": ")[0]]:
                FOUND.mkdir(exist_ok=True)
                file = FOUND / f"{target.name}-{seed}-{k}"
                file.write_bytes(data)
                print(f"  {target.name} {k}: {place}\n    {file}", flush=True)
            places[place.split(": ")[0]] += 1
        k += 1
    print(
        f"{target.name}: {k} inputs, {dict(outcomes)}, {sum(places.values())} findings in {len(places)} places",
        flush=True,
    )
    return len(places)


@contextlib.contextmanager
def _bounded():  # type: ignore[no-untyped-def]
    """Inside, the process may take ``MEMORY`` bytes more than it has."""
    try:
        import resource
    except ImportError:
        yield
        return
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    old = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, old)


if __name__ == "__main__":
    sys.exit(main())
