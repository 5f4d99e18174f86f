"""Sources, points and results of a sweep. They are picklable, so that workers can receive and return them."""

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
        """SHA-256 of name and bytes in hexadecimal. It includes the name, by which some formats are recognised."""
        return hashlib.sha256(self.name.encode("utf-8", "backslashreplace") + b"\0" + self.data).hexdigest()


@dataclass(frozen=True)
class Point:
    """A source and the settings with which it is planned or fitted."""

    number: int  # position among the points of the sweep
    source: int  # index of the source among the sources of the sweep
    request: PlanRequest
    fits: Mapping[str, int] | None = None  # arena → capacity in bytes to fit to; key ``""``: one memory for all arenas
    head: Mapping[str, Any] = field(default_factory=dict)  # the first columns of the rows, which describe the request

    def key(self, sources: Sequence[Source]) -> str:
        """Return a digest of everything that the rows of the point depend on."""
        row: list[Any] = [SPEC_VERSION, __version__, sources[self.source].digest, option_texts(self.request)]
        row += [None if self.fits is None else sorted(self.fits.items()), dict(self.head)]
        return hashlib.sha256(msgspec.json.encode(row)).hexdigest()


@dataclass(frozen=True)
class PointResult:
    """The rows of a point."""

    number: int
    rows: tuple[dict[str, Any], ...]
    failed: bool = False  # whether the only row contains an error


@dataclass(frozen=True)
class Axes:
    """Values of each axis. ``None`` selects the default mode, preset or planner, or keeps the request's alignment."""

    modes: tuple[Any, ...] = (None,)
    presets: tuple[Any, ...] = (None,)
    alignments: tuple[int | None, ...] = (None,)
    planners: tuple[str | None, ...] = ("slots", "naive")
    shards: tuple[tuple[str, Mapping[str, Any] | None], ...] | None = None  # ``(name, spec)``; default: the request's
    fits: tuple[Mapping[str, int], ...] | None = None  # values of :attr:`Point.fits`; ``None``: no point is fitted


def points_of(
    request: PlanRequest, axes: Axes, sizes: Sequence[Sequence[tuple[str, int] | None]], names: Sequence[str]
) -> tuple[Point, ...]:
    """Return all combinations in this order: source, mode, preset, alignment, planner, size, shards, capacity.

    ``sizes``: the values of the size axis for each source: ``(dimension, size)``, or ``None`` for the request's sizes.
    ``names``: the name of each source in the rows; ``""``: the rows have no name.
    """
    points: list[Point] = []
    for source, name in enumerate(names):
        settings = (axes.modes, axes.presets, axes.alignments, axes.planners)
        other_axes = (sizes[source], axes.shards or (None,), axes.fits or (None,))
        for mode, preset, alignment, planner, size, shard, fits in product(*settings, *other_axes):
            changes: dict[str, Any] = {"planner": planner, "mode": mode, "preset": preset}
            head = ({"model": name} if name else {}) | changes | {"alignment": alignment}
            if alignment is not None:
                changes["alignment"] = alignment
            if size is not None:
                head["dims"] = changes["dims"] = {**request.dims, size[0]: size[1]}
            if shard is not None:
                head["shard"], changes["shard_spec"] = shard
            if fits is not None:
                head["capacity"] = dict(fits)
            points.append(Point(len(points), source, request.but(**changes), fits, head))
    return tuple(points)


def name_of_sweep(sources: Sequence[Source], points: Sequence[Point]) -> str:
    """Return 16 hexadecimal digits of a hash of sources, points and version."""
    return hashlib.sha256("".join(point.key(sources) for point in points).encode()).hexdigest()[:16]
