"""Measure time and memory for reading allocator snapshots: ``python -m benchmarks.snapshot [EVENTS…]``.

The pickle is written operation by operation as Python's pickler writes PyTorch's snapshots, so that a file of 1 GB
needs no memory. Frames are written once; each allocation has a list of 20 frames, which its two free events refer to.
Each size is read in a separate process.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any, BinaryIO

SIZES = (100_000, 1_000_000)
FRAMES, STACKS, DEEP, LIVE = 3_000, 2_000, 20, 3_000
BASE, BLOCK, TIME = 0x7F00_0000_0000, 1 << 21, 1_700_000_000_000_000
KEYS = ("action", "addr", "size", "stream", "time_us", "frames", "alloc", "free_requested", "free_completed")


def _text(value: str) -> bytes:
    return b"\x8c" + bytes([len(value)]) + value.encode()


def _number(value: int) -> bytes:
    size = value.bit_length() // 8 + 1
    return b"\x8a" + bytes([size]) + value.to_bytes(size, "little")


def _get(number: int) -> bytes:
    return b"h" + bytes([number]) if number < 256 else b"j" + number.to_bytes(4, "little")


def _frame(k: int) -> bytes:
    path = f"/home/me/model/{k % 37}.py" if k % 3 else f"/site-packages/torch/nn/{k}.py"
    items = (_text("filename"), _text(path), _text("line"), _number(k), _text("name"), _text(f"f{k}"))
    return b"}\x94(" + b"".join(items) + b"u0"


def write(file: BinaryIO, events: int) -> None:
    """Write a snapshot with a number of events: blocks of up to 2 MiB, of which some thousands are live at a time."""
    random = Random(1)
    key = {name: _get(k) for k, name in enumerate(KEYS)}
    file.write(b"\x80\x04}(" + _text("segments") + b"]" + b"".join(_text(name) + b"\x940" for name in KEYS))
    file.write(b"".join(map(_frame, range(FRAMES))))
    first = len(KEYS)
    stacks = [b"".join(_get(first + random.randrange(FRAMES)) for _ in range(DEEP)) for _ in range(STACKS)]
    file.write(_text("device_traces") + b"](](")
    counted = first + FRAMES
    alive: list[tuple[bytes, bytes]] = []
    free: list[bytes] = []
    top, written, batch = BASE, 0, 0
    while written < events:
        parts = []
        if len(alive) < LIVE or (len(alive) < 2 * LIVE and random.random() < 0.5):
            top += 0 if free else BLOCK
            address = free.pop() if free else _number(top - BLOCK)
            rest = b"".join(
                (key["size"], _number(512 << random.randrange(12)), key["stream"], b"K\x00", key["time_us"])
            )
            rest += _number(TIME + written) + key["frames"]
            stack = b"]\x94(" + stacks[random.randrange(STACKS)] + b"e"
            parts.append(b"".join((b"}\x94(", key["action"], key["alloc"], key["addr"], address, rest, stack, b"u")))
            alive.append((address, rest + _get(counted + 1)))
            counted += 2
        else:
            k = random.randrange(len(alive))
            alive[k], alive[-1] = alive[-1], alive[k]
            address, rest = alive.pop()
            free.append(address)
            for action in ("free_requested", "free_completed"):
                parts += [b"".join((b"}\x94(", key["action"], key[action], key["addr"], address, rest, b"u"))]
            counted += 2
        written += len(parts)
        batch += len(parts)
        if batch >= 1000:
            parts.append(b"e(")
            batch = 0
        file.write(b"".join(parts))
    file.write(b"eeu.")


def measure(path: Path) -> dict[str, Any]:
    """Read one snapshot in this process; return CPU seconds and the growth of the peak memory in bytes."""
    from tmmu_core.formats import open_file
    from tmmu_core.formats.pytorch.snapshot import torch_snapshot

    assert torch_snapshot
    begun, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = open_file.read_any(path.read_bytes(), path.name)
    seconds = time.process_time() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "file_bytes": path.stat().st_size,
        "cpu_seconds": round(seconds, 2),
        "more_bytes_at_peak": (peak - before) * 1024,
        "lives": len(found.problem.ids),  # type: ignore[union-attr]
    }


def main() -> None:
    """Print a row per size."""
    if sys.argv[1:2] == ["--file"]:
        print(json.dumps(measure(Path(sys.argv[2]))))
        return
    for events in map(int, sys.argv[1:] or SIZES):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "snapshot.pickle"
            with path.open("wb") as file:
                write(file, events)
            command = [sys.executable, "-m", "benchmarks.snapshot", "--file", str(path)]
            row = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            print(f"{events:,} events: " + ", ".join(f"{name} {value:,}" for name, value in row.items()), flush=True)


if __name__ == "__main__":
    main()
