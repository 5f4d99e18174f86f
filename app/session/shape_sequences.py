"""Sequences of shapes as people type them, and presets for a dimension. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tmmu_core.base import strict
from tmmu_core.graph.model import Dim

Shape = tuple[tuple[str, int], ...]
MOST_ITERATIONS = 5_000
_TIMES = re.compile(r"^(.*\S)\s*\*\s*(\d+)$")


def read_shapes(text: str, dims: Mapping[str, Dim], dim: str) -> tuple[Shape, ...]:
    """``8, 16*3, 40`` or ``B=8 T=128; B=16`` to one shape per iteration; a bare number is ``dim``'s.

    Iterations are parted by commas, semicolons or lines; ``*3`` repeats one. Raises ``ValueError`` with a sentence.
    """
    found: list[Shape] = []
    for word in (part.strip() for part in re.split(r"[,;\n]", text)):
        if not word:
            continue
        times = _TIMES.match(word)
        shape = tuple(sorted(_pair(pair, dims, dim) for pair in (times[1] if times else word).split()))
        if len(dict(shape)) != len(shape):
            raise ValueError(f"“{word}” gives one dimension twice.")
        found += [shape] * (min(int(times[2]), MOST_ITERATIONS + 1) if times else 1)
        if len(found) > MOST_ITERATIONS:
            raise ValueError(f"A session here has up to {MOST_ITERATIONS:,} iterations.")
    if not found:
        raise ValueError(f"Type the sizes of {dim}, an iteration each: 8, 16, 8.")
    return tuple(found)


def _pair(text: str, dims: Mapping[str, Dim], dim: str) -> tuple[str, int]:
    name, separator, value = text.rpartition("=")
    name = name if separator else dim
    if name not in dims:
        raise ValueError(f"The graph names no dimension “{name}”. {strict.closest_hint(name, sorted(dims))}")
    try:
        return name, strict.whole_number(value)
    except ValueError:
        raise ValueError(f"{strict.shown(text)} is no size. Write 8, or {dim}=8.") from None


def presets(dim: Dim) -> dict[str, str]:
    """Name → sequence, made of an envelope."""
    low, high = dim.min, dim.max
    half, quarter = (low + high) // 2, low + (high - low) // 4
    over = high + max(1, high // 4)
    return {
        "leaves the envelope": _text([half, high, quarter, over, half, over, quarter, high]),
        "grows and shrinks": _text([low, quarter, half, high, high, half, quarter, low]),
        "short and long in turn": _text([quarter, high] * 4),
        "stays inside": _text([half] * 3 + [quarter] * 3 + [high] * 2),
    }


def _text(sizes: list[int]) -> str:
    return ", ".join(map(str, sizes))
