"""Read and check the arena configuration (contract §4)."""

from collections.abc import Mapping
from typing import Any

import msgspec

from tmmu_core.base import strict
from tmmu_core.base.errors import U64_MAX, AlignmentViolation, InvalidIrShapes
from tmmu_core.base.limits import ARENAS, ceiling, limit_error
from tmmu_core.graph.model import DEFAULT_ARENAS, OFFLOAD_ARENA, ONE_MEMORY, Arena, ArenaConfig, Graph


def read_arenas(config: Mapping[str, Arena | Mapping[str, Any]] | None) -> ArenaConfig:
    """Return the checked arenas by name. Raises ``AlignmentViolation``, ``InvalidIrShapes`` and ``UnreadableInput``."""
    refuse_too_many_arenas(config or {})
    arenas: ArenaConfig = {}
    example = 'Write it as {"capacity_bytes": 1048576, "alignment_bytes": 128, "page_size": 4096}.'
    for name, given in (config or {}).items():
        subject = f"arena {name!r} of the arena configuration"
        try:
            arena = given if isinstance(given, Arena) else msgspec.convert(given, Arena, strict=True)
        except msgspec.ValidationError as error:
            hint = strict.field_hint(error, Arena) or example
            what, field = strict.wrong_field(error)
            raise _invalid(f"{subject}: {what}.", name, "arena_config", hint, field[1:]) from None
        for field, value in msgspec.structs.asdict(arena).items():
            if not 0 <= value <= U64_MAX:
                message = f"{subject}: {field} is {value}, not between 0 and 2^64 − 1."
                raise _invalid(message, name, "arena_config", example, f".{field}")
        check_alignment(arena.alignment_bytes, arena=name)
        arenas[name] = arena
    return arenas


def refuse_unknown_arenas(config: Mapping[str, Any], graph: Graph) -> None:
    """Raise ``InvalidIrShapes`` (reason ``unknown_arena``) for an unused arena whose name resembles a known one."""
    known, unused = unused_arenas(config, graph)
    for name in unused:
        if strict.similar(name, known, 0.6) is not None:  # probably a misspelling
            hint = strict.closest_hint(name, known)
            raise _invalid(f"there is no arena {name!r} in this graph.", name, "unknown_arena", hint)


def unused_arenas(config: Mapping[str, Any], graph: Graph) -> tuple[tuple[str, ...], list[str]]:
    """Return the names to suggest for an unused arena, and the arenas of ``config`` that ``graph`` cannot use."""
    known = (*DEFAULT_ARENAS, "optimizer_state", OFFLOAD_ARENA)
    if config.keys() <= {*known} or {ONE_MEMORY} <= config.keys() <= {ONE_MEMORY, OFFLOAD_ARENA}:
        return known, []
    known = (*known, *sorted({tensor.arena for tensor in graph.tensors if tensor.arena} - {*known}))
    return known, sorted(config.keys() - {*known})


def refuse_too_many_arenas(config: Mapping[str, Any]) -> None:
    """Raise ``UnreadableInput`` for more arenas than the limit, because each arena costs a pass over all storages."""
    if len(config) > ceiling(ARENAS):
        raise limit_error(ARENAS, "the arena configuration")


def arena_fields(config: Mapping[str, Arena | Mapping[str, Any]] | None) -> dict[str, Any]:
    """Return each arena as a mapping of the given fields, to hash the configuration. Raises as :func:`read_arenas`."""
    read_arenas(config)
    items = (config or {}).items()
    return {name: msgspec.to_builtins(arena) if isinstance(arena, Arena) else dict(arena) for name, arena in items}


def check_alignment(alignment: int, *, arena: str) -> None:
    """Raise ``AlignmentViolation`` unless ``alignment`` (bytes) is a power of two ≥ 1."""
    if alignment < 1 or alignment & (alignment - 1):
        above = 1 << max(alignment, 1).bit_length()
        message = f"arena {arena!r} has the alignment {alignment} B, which is not a power of two."
        hint = f"Use a power of two, such as {above // 2} or {above}."
        raise AlignmentViolation(message, arena=arena, path=f"$.{arena}.alignment_bytes", hint=hint)


def _invalid(message: str, arena: str, reason: str, hint: str, field: str = "") -> InvalidIrShapes:
    return InvalidIrShapes(message, reason=reason, node_id="", arena=arena, path=f"$.{arena}{field}", hint=hint)
