"""A store's rows as they come out, by type: SQLite keeps anything in any column, and a store may be anybody's file."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable
from typing import Annotated, Any, NamedTuple, TypedDict, TypeVar

import msgspec
from msgspec import Meta

from tmmu_core.base.errors import StoreFault
from tmmu_core.base.once import learned
from tmmu_core.store.run_label import LONGEST, ArenaFigures

T = TypeVar("T")

Name = Annotated[str, Meta(max_length=LONGEST)]
At = Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")]
Digest = Annotated[bytes, Meta(min_length=32, max_length=32)]
Count = Annotated[int, Meta(ge=0)]


class RunRow(NamedTuple):
    """The columns of a run, in the order of its fields; arenas as JSON."""

    model: Name
    commit: Name
    branch: Name
    at: At
    planner: str
    mode: str
    preset: str
    graph: str
    steps: Count
    extent_bytes: Count
    peak_live_bytes: Count
    peak_step: int
    lower_bound_bytes: Count
    layout_hash: Digest
    tmmu_plan_hash: Digest
    content: Digest
    arenas: str


class SeriesRow(NamedTuple):
    """A run's series, its number, and its extent as the database has it."""

    model: Name
    branch: Name
    planner: str
    mode: str
    preset: str
    number: int
    extent: int


class FactsRow(NamedTuple):
    """What a list says of a run."""

    number: int
    at: At
    commit: Name
    extent_bytes: Count
    peak_live_bytes: Count
    lower_bound_bytes: Count


class SweepRow(NamedTuple):
    """A sweep in the list; what was asked as JSON."""

    name: str
    at: At
    asked: str
    points: Count
    done: Count
    failed: Count


class PointRow(NamedTuple):
    """A point of a sweep; its rows as JSON."""

    number: int
    rows: str
    failed: int


class PlanRow(NamedTuple):
    """A plan: how many bytes it has, and these packed."""

    size: Count
    packed: bytes


class FileRow(NamedTuple):
    """A file that somebody opened."""

    name: Annotated[str, Meta(max_length=1 << 12)]
    size: Count
    packed: bytes


class Asked(TypedDict, total=False):
    """What a sweep was asked, as far as anybody reads it."""

    sources: list[str]


class Refusal(TypedDict):
    """An error in a row of a sweep, as far as anybody reads it."""

    code_id: str
    message: str


class _Head(TypedDict):
    planner: str
    mode: str | None
    preset: str | None
    alignment: Count | None
    error: Refusal | None


class Refused(_Head, total=False):
    """A row of a sweep without a plan, as far as anybody reads it."""

    model: str
    shard: str
    dims: dict[str, int]
    ranks: list[int] | None
    capacity: dict[str, Count]
    name: str | None
    lower_bound_bytes: Count | None
    extent_bytes: Count | None


class Planned(_Head):
    """A row of a sweep with a plan, as far as anybody reads it."""

    name: str
    lower_bound_bytes: Count
    extent_bytes: Count
    places: str
    slots: Count
    layout_hash: str
    arenas: dict[str, Count]


learned(RunRow, SeriesRow, FactsRow, SweepRow, PlanRow, PointRow, FileRow, Asked, Refused, Planned)


_ARENAS = msgspec.json.Decoder(tuple[ArenaFigures, ...])
_BELOW = 1 << 64


def typed(kind: type[T], row: Iterable[Any], store: str) -> T:
    """A row as ``kind``. Raises ``StoreFault`` where a column holds something else."""
    try:
        return msgspec.convert(tuple(row), kind, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        raise damaged(str(error), store) from error


def names(found: Iterable[Any], store: str) -> list[str]:
    """A column of names. Raises ``StoreFault``."""
    try:
        return msgspec.convert(list(found), list[Name])
    except msgspec.ValidationError as error:
        raise damaged(str(error), store) from error


def from_json(kind: type[T], text: str, store: str) -> T:
    """A column's JSON as ``kind``. Raises ``StoreFault``."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise damaged(str(error), store) from error


def arenas(text: str, store: str) -> tuple[ArenaFigures, ...]:
    """The arenas of a run. Raises ``StoreFault``."""
    try:
        found = _ARENAS.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise damaged(str(error), store) from error
    for arena in found:
        for number in list(vars(arena).values())[1:]:
            if not 0 <= number < _BELOW:
                raise damaged("a figure of an arena is outside of 64 bits", store)
    return found


def asked(text: str, store: str) -> dict[str, Any]:
    """What a sweep was asked, as it was kept. Raises ``StoreFault``."""
    found = from_json(dict[str, Any], text, store)
    return _shaped(found, Asked, store)


def of_sweep(text: str, store: str) -> tuple[dict[str, Any], ...]:
    """A sweep's rows of one point, as they were kept. Raises ``StoreFault`` where one is not what is read of it."""
    found = tuple(from_json(list[dict[str, Any]], text, store))
    for row in found:
        _shaped(row, Refused, store)
        if row.get("error") is None:
            _shaped(row, Planned, store)
    return found


def _shaped(mapping: dict[str, Any], kind: Any, store: str) -> dict[str, Any]:
    """The mapping as it is, whatever else it holds. Raises ``StoreFault`` where it is none of ``kind``."""
    try:
        msgspec.convert(mapping, kind)
    except msgspec.ValidationError as error:
        raise damaged(str(error), store) from error
    return mapping


def damaged(why: str, store: str) -> StoreFault:
    """The fault of a row that is not what it should be."""
    return StoreFault(
        f"a row of the store is damaged: {why.rstrip('.')}.", store=store, hint="Bring back a copy, or record again."
    )


def unpacked(data: bytes, size: int) -> bytes | None:
    """The ``size`` bytes that ``data`` packs; ``None`` where it packs others. Never unpacks more than one byte more."""
    try:
        found = zlib.decompressobj().decompress(data, size + 1)
    except zlib.error:
        return None
    return found if len(found) == size else None


def document(data: bytes, size: int, content: bytes, store: str) -> bytes:
    """The ``size`` bytes of SHA-256 ``content`` that ``data`` packs. Raises ``StoreFault`` where it packs others."""
    found = unpacked(data, size)
    if found is None or hashlib.sha256(found).digest() != content:
        raise damaged(f"what is kept as {content.hex()[:12]} is something else", store)
    return found
