"""Sources and points of a sweep, as picklable values for workers.

A point is a request on a source. Its key identifies both, so that a killed sweep can resume.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

import msgspec

from tmmu_core import SPEC_VERSION, __version__
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.making.request_options import written


@dataclass(frozen=True, eq=False)
class Source:
    """The name and the bytes of a file, so that a worker on another machine needs no access to it."""

    name: str
    data: bytes

    @cached_property
    def digest(self) -> str:
        """SHA-256 of name and bytes; some formats are recognised by the name."""
        return hashlib.sha256(self.name.encode("utf-8", "backslashreplace") + b"\0" + self.data).hexdigest()


@dataclass(frozen=True)
class Point:
    """One requested plan or fit."""

    number: int
    """Its position among the points."""
    source: int
    request: PlanRequest
    ranks: bool = False
    """Whether to plan all ranks of the shard spec, with one row per class of equal ranks."""
    fits: Mapping[str, int] | None = None
    """Fit these capacities (arena, or ``""`` for all together, → bytes) instead of planning."""
    head: Mapping[str, Any] = field(default_factory=dict)
    """The first columns of its rows, which describe the request."""

    def key(self, sources: Sequence[Source]) -> str:
        """Return a key of the point and of everything that its rows depend on."""
        row: list[Any] = [SPEC_VERSION, __version__, sources[self.source].digest, written(self.request)]
        row += [self.ranks, None if self.fits is None else sorted(self.fits.items()), dict(self.head)]
        return hashlib.sha256(msgspec.json.encode(row)).hexdigest()


@dataclass(frozen=True)
class Done:
    """The rows of a point."""

    number: int
    rows: tuple[dict[str, Any], ...]
    died: bool = False
    """Whether every worker that ran the point died; a retry may succeed."""

    @property
    def failed(self) -> bool:
        """Whether one of its rows is an error."""
        return any(row["error"] is not None for row in self.rows)


@dataclass(frozen=True)
class Axes:
    """Values of each axis; ``(None,)``: the value of the request."""

    modes: tuple[Any, ...] = (None,)
    presets: tuple[Any, ...] = (None,)
    alignments: tuple[int | None, ...] = (None,)
    planners: tuple[str | None, ...] = ("slots", "naive")
    shards: tuple[tuple[str, Mapping[str, Any] | None], ...] | None = None
    """``(name, spec)``; ``None``: the spec of the request."""
    fits: tuple[Mapping[str, int], ...] | None = None
    ranks: bool = False


def points_of(
    request: PlanRequest, axes: Axes, sizes: Sequence[Sequence[tuple[str, int] | None]], names: Sequence[str]
) -> tuple[Point, ...]:
    """Return all combinations, sorted by source, mode, preset, alignment, planner, size, shards, capacity.

    ``sizes``: per source, the values ``(dimension, size)`` to plan; ``names``: per source, its name in the rows, or
    ``""`` for a single source.
    """
    found: list[Point] = []
    for source, name in enumerate(names):
        plain = (axes.modes, axes.presets, axes.alignments, axes.planners, sizes[source])
        for mode, preset, alignment, planner, size in product(*plain):
            point_request = request.but(mode=mode, preset=preset, planner=planner)
            head: dict[str, Any] = {"model": name} if name else {}
            head |= {"planner": planner, "mode": mode, "preset": preset, "alignment": alignment}
            if alignment is not None:
                point_request = point_request.but(alignment=alignment)
            if size is not None:
                point_request = point_request.but(dims={**request.dims, size[0]: size[1]})
                head["dims"] = dict(point_request.dims)
            for shard, fits in product(axes.shards or (None,), axes.fits or (None,)):
                here, row = point_request, dict(head)
                if shard is not None:
                    here, row["shard"] = point_request.but(shard_spec=shard[1]), shard[0]
                if fits is not None:
                    row["capacity"] = dict(fits)
                found.append(Point(len(found), source, here, axes.ranks, fits, row))
    return tuple(found)


def name_of_sweep(sources: Sequence[Source], points: Sequence[Point]) -> str:
    """Return 16 hexadecimal digits that depend on sources, points and version."""
    whole = hashlib.sha256()
    for point in points:
        whole.update(point.key(sources).encode())
    return whole.hexdigest()[:16]
