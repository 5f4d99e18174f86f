"""Check metrics and notes of a plan file by kind and range, once, on reading.

A known key has a kind: a count of 64 bits, a ratio, counts by name, or a planner's note on an arena. Unknown keys are
kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import msgspec

from tmmu_core.base.errors import U64_MAX, UnreadableInput
from tmmu_core.base.struct_types import register_types
from tmmu_core.plans.model import REMARKS, ArenaSummary

I64_MAX = 2**63 - 1


Count = Annotated[int, msgspec.Meta(ge=0)]
Counts = dict[str, Count]
Moment = Annotated[int, msgspec.Meta(ge=0, le=I64_MAX)]
Ratio = Annotated[float, msgspec.Meta(gt=-1e9, lt=1e9)]


class _Metrics(msgspec.Struct):
    """Metrics that are read (``metrics.plan_metrics``)."""

    peak_logical_slots: Count = 0
    max_live: Count = 0
    storages: Count = 0
    peak_live_bytes: Count = 0
    extent_bytes: Count = 0
    committed_bytes: Count = 0
    activation_bytes_retained: Count = 0
    activation_bytes: Count = 0
    allocation_failures: Moment = 0
    allocation_time_ns: Moment = 0
    memory_reuse_ratio: Ratio = 0
    internal_fragmentation_ratio: Ratio = 0
    activation_retention_ratio: Ratio = 0
    peak_physical_bytes_per_arena: Counts = {}
    peak_tmmu_usage_per_arena: Counts = {}
    totals: Counts = {}


SUMMED = ("slots", "storages", "max_live", "extent_bytes", "committed_bytes", "peak_live_bytes")
"""Figures of arenas that are added up: their sums must fit into 64 bits too."""


class _Spill(msgspec.Struct):
    storage: str
    reason: str


class _Searched(msgspec.Struct):
    """Notes of a planner on one arena."""

    picked: str = ""
    why: str = ""
    order: str = ""
    fit: str = ""
    start: str = ""
    sharing_pairs: Count = 0
    saved_bytes: Count = 0


class _Region(msgspec.Struct):
    """Notes of a plan over memories on one arena."""

    memory: str
    role: Literal["scratch", "persistent", "constant"]
    source_memory: str
    origin: Count | None = None


class _OverMemories(_Region, kw_only=True):
    """:class:`_Region` with the source of each placement; all of these are written together."""

    said_by: dict[str, list[str]]
    spills: list[_Spill]
    alignment: Annotated[int, msgspec.Meta(ge=1)]


class _Addressing(msgspec.Struct):
    kind: str = ""
    bits: int = 0


register_types(_Metrics, _Spill, _Searched, _Region, _OverMemories, _Addressing)


def figures(metrics: dict[str, Any], source: str) -> dict[str, Any]:
    """Return the metrics, each of its kind. Raises ``UnreadableInput`` otherwise."""
    try:
        msgspec.convert(metrics, _Metrics)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `$")
        place = f"$.metrics{path.rstrip('`').partition('[')[0]}"
        raise UnreadableInput(f"invalid metric: {what}.", source=source, place=place, hint="Plan again.") from error
    return metrics


def check_plain(value: Any, place: str, source: str) -> None:
    """Raise ``UnreadableInput`` for keys and values of a CBOR file that JSON does not have."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise UnreadableInput(f"the key {key!r:.80} is no text.", source=source, place=place)
            check_plain(inner, f"{place}.{key}", source)
    elif isinstance(value, list):
        for k, inner in enumerate(value):
            check_plain(inner, f"{place}[{k}]", source)
    elif not isinstance(value, str | int | float | None):
        raise UnreadableInput(f"{value!r:.80} is no text and no number.", source=source, place=place)


def check_sums(arenas: Iterable[ArenaSummary], source: str) -> None:
    """Raise ``UnreadableInput`` if the sum of a figure over all arenas exceeds 64 bits."""
    arenas = tuple(arenas)
    for field in SUMMED:
        if sum(getattr(arena, field) for arena in arenas) > U64_MAX:
            raise UnreadableInput(
                f"all {field} together exceed 64 bits.", source=source, place="$.arenas", hint="Plan again."
            )


def check_notes(notes: Mapping[str, Any], arenas: Iterable[str], source: str) -> None:
    """Raise ``UnreadableInput`` for a malformed note on an arena or addresses, or by a reader."""
    named = set(arenas)
    for key in REMARKS:
        if not isinstance(notes.get(key, ""), str) and key not in named:
            raise UnreadableInput("this note is no text.", source=source, place=f"$.notes.{key}")
    if "addressing" not in named:
        _read(notes.get("addressing", {}), _Addressing, "addressing", source)
    for name in sorted(named):
        noted = notes.get(name, {})
        if isinstance(noted, str) and name in REMARKS:
            continue
        if not isinstance(noted, dict):
            raise UnreadableInput("the notes of an arena are no map.", source=source, place=f"$.notes.{name}")
        _read(noted, _Searched, name, source)
        if "memory" in noted:
            _read(noted, _Region, name, source)
        if "said_by" in noted:
            _read(noted, _OverMemories, name, source)


def _read(value: Any, kind: type[msgspec.Struct], name: str, source: str) -> None:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise UnreadableInput(f"invalid note: {error}.", source=source, place=f"$.notes.{name}") from error
