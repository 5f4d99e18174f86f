"""Sources, points and results of a sweep, as picklable values for workers."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

import msgspec

from tmmu_core import SPEC_VERSION, __version__
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.making.request_options import option_texts


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
    """One requested plan or fit of a source."""

    number: int
    """Its position among the points."""
    source: int
    """Index of its source."""
    request: PlanRequest
    ranks: bool = False
    """Whether to plan all ranks of the shard spec, with one row per class of equal ranks."""
    fits: Mapping[str, int] | None = None
    """Fit these capacities (arena, or ``""`` for all together, → bytes) instead of planning."""
    head: Mapping[str, Any] = field(default_factory=dict)
    """The first columns of its rows, which describe the request."""

    def key(self, sources: Sequence[Source]) -> str:
        """Return a digest of everything that the rows of the point depend on."""
        row: list[Any] = [SPEC_VERSION, __version__, sources[self.source].digest, option_texts(self.request)]
        row += [self.ranks, None if self.fits is None else sorted(self.fits.items()), dict(self.head)]
        return hashlib.sha256(msgspec.json.encode(row)).hexdigest()


@dataclass(frozen=True)
class PointResult:
    """The rows of a point."""

    number: int
    rows: tuple[dict[str, Any], ...]
    failed: bool = False


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
    points: list[Point] = []
    for source, name in enumerate(names):
        axes_of_source = (axes.modes, axes.presets, axes.alignments, axes.planners, sizes[source])
        for mode, preset, alignment, planner, size in product(*axes_of_source):
            point_request = request.but(mode=mode, preset=preset, planner=planner)
            head: dict[str, Any] = {"model": name} if name else {}
            head |= {"planner": planner, "mode": mode, "preset": preset, "alignment": alignment}
            if alignment is not None:
                point_request = point_request.but(alignment=alignment)
            if size is not None:
                point_request = point_request.but(dims={**request.dims, size[0]: size[1]})
                head["dims"] = dict(point_request.dims)
            for shard, fits in product(axes.shards or (None,), axes.fits or (None,)):
                columns = head | ({} if shard is None else {"shard": shard[0]})
                columns |= {} if fits is None else {"capacity": dict(fits)}
                sharded = point_request if shard is None else point_request.but(shard_spec=shard[1])
                points.append(Point(len(points), source, sharded, axes.ranks, fits, columns))
    return tuple(points)


def name_of_sweep(sources: Sequence[Source], points: Sequence[Point]) -> str:
    """Return 16 hexadecimal digits that depend on sources, points and version."""
    return hashlib.sha256("".join(point.key(sources) for point in points).encode()).hexdigest()[:16]
