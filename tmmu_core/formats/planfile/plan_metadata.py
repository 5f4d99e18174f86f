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
SUMMED = ("slots", "storages", "max_live", "extent_bytes", "committed_bytes", "peak_live_bytes")
"""Figures of arenas that are added up: their sums must fit into 64 bits too."""

Count = Annotated[int, msgspec.Meta(ge=0)]
Moment = Annotated[int, msgspec.Meta(ge=0, le=I64_MAX)]
Ratio = Annotated[float, msgspec.Meta(gt=-1e9, lt=1e9)]

_COUNTS = ("peak_logical_slots", "max_live", "storages", "peak_live_bytes", "extent_bytes", "committed_bytes")
_KIND_OF: dict[Any, tuple[str, ...]] = {
    Count: (*_COUNTS, "activation_bytes_retained", "activation_bytes"),
    Moment: ("allocation_failures", "allocation_time_ns"),
    Ratio: ("memory_reuse_ratio", "internal_fragmentation_ratio", "activation_retention_ratio"),
    dict[str, Count]: ("peak_physical_bytes_per_arena", "peak_tmmu_usage_per_arena", "totals"),
}
"""Kind → metrics that are read (``metrics.plan_metrics``)."""
_Metrics = msgspec.defstruct(
    "_Metrics", [(name, kind | msgspec.UnsetType, msgspec.UNSET) for kind, names in _KIND_OF.items() for name in names]
)


class _Spill(msgspec.Struct):
    storage: str
    reason: str


class _Arena(msgspec.Struct):
    """Notes on one arena: of its planner, and where the plan is over memories, of its memory."""

    picked: str = ""
    why: str = ""
    order: str = ""
    fit: str = ""
    start: str = ""
    sharing_pairs: Count = 0
    saved_bytes: Count = 0
    memory: str = ""
    role: Literal["scratch", "persistent", "constant"] | msgspec.UnsetType = msgspec.UNSET
    source_memory: str = ""
    origin: Count | None = None
    said_by: dict[str, list[str]] = {}
    spills: list[_Spill] = []
    alignment: Annotated[int, msgspec.Meta(ge=1)] = 1


class _Addressing(msgspec.Struct):
    kind: str = ""
    bits: int = 0


TOGETHER = (("memory", "role", "source_memory"), ("said_by", "spills", "alignment"))
"""Notes that are written together: with the first of them, the others are required."""
register_types(_Metrics, _Arena, _Addressing)


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
                raise UnreadableInput(f"the key {key!r:.80} is not text.", source=source, place=place)
            check_plain(inner, f"{place}.{key}", source)
    elif isinstance(value, list):
        for k, inner in enumerate(value):
            check_plain(inner, f"{place}[{k}]", source)
    elif not isinstance(value, str | int | float | None):
        raise UnreadableInput(f"{value!r:.80} is neither text nor a number.", source=source, place=place)


def check_sums(arenas: Iterable[ArenaSummary], source: str) -> None:
    """Raise ``UnreadableInput`` if the sum of a figure over all arenas exceeds 64 bits."""
    arenas = tuple(arenas)
    for field in SUMMED:
        if sum(getattr(arena, field) for arena in arenas) > U64_MAX:
            what = f"all {field} together exceed 64 bits."
            raise UnreadableInput(what, source=source, place="$.arenas", hint="Plan again.")


def check_notes(notes: Mapping[str, Any], arenas: Iterable[str], source: str) -> None:
    """Raise ``UnreadableInput`` for a malformed note on an arena or addresses, or by a reader."""
    kinds: dict[str, Any] = {**dict.fromkeys(REMARKS, str), "addressing": _Addressing, **dict.fromkeys(arenas, _Arena)}
    for name, kind in kinds.items():
        note: Any = notes.get(name, msgspec.UNSET)
        if note is msgspec.UNSET or (isinstance(note, str) and name in REMARKS):
            continue
        try:
            msgspec.convert(note, kind)
            missing = [other for first, *others in TOGETHER for other in others if first in note and other not in note]
            if kind is _Arena and missing:
                raise msgspec.ValidationError(f"{missing[0]} is missing")
        except msgspec.ValidationError as error:
            raise UnreadableInput(f"invalid note: {error}.", source=source, place=f"$.notes.{name}") from error
