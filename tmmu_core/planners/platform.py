"""Options of ``helia``: the memories of a platform and the rules that choose one for a storage.

Impossible options are rejected before anything is placed: a memory without room, a rule with an unknown memory, a
copy into a read-only memory, contradicting rules.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from tmmu_core.base import strict
from tmmu_core.base.errors import U64_MAX, InvalidIrShapes, escaped_surrogates
from tmmu_core.base.struct_types import register_types
from tmmu_core.graph.model import ROLES as TENSOR_ROLES

ROLES = ("scratch", "persistent", "constant")
KNOWN_ROLES = (*ROLES, *TENSOR_ROLES)
"""Roles that a rule may name."""
READ_ONLY_ROLES = frozenset({"parameter", "constant"})
"""Roles of tensors that no node writes. A storage is constant if its members have only these roles."""
BASE_ALIGNMENT = 16
"""Smallest base alignment of an arena, in bytes."""


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One memory of the platform. ``max_size`` in bytes, ``None`` for no limit."""

    name: str
    max_size: int | None = None
    arena_alignment: int | None = None
    """Bytes: least alignment of the arena's base and of its slots (DMA, cache lines)."""
    writable: bool = True
    origin: int | None = None
    """Address of its first byte, if known; the linker fragment uses it."""


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The memory of storages that meet all given conditions. The first rule that matches decides."""

    memory: str
    """Memory of the storage; for constants, the memory that stores them."""
    constant_destination_memory: str | None = None
    """Memory from which kernels read constants, if it is another one; then the arena is staged."""
    role: str | None = None
    """``scratch``, ``persistent``, ``constant``, or a tensor role such as ``gradient``."""
    operator: str | None = None
    """Pattern of the producing operator's name."""
    name: str | None = None
    """Pattern of the tensor id."""
    min_size: int = 0
    max_size: int | None = None

    @property
    def conditions(self) -> tuple[Any, ...]:
        """All conditions. Two rules with equal conditions must name the same memories."""
        return self.role, self.operator, self.name, self.min_size, self.max_size


class Platform(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of ``helia``. Memories in order of preference."""

    memories: tuple[Memory, ...] = (Memory("SRAM"),)
    rules: tuple[Rule, ...] = ()
    min_alignment: int = 16
    """Bytes: least alignment of every slot."""


register_types(Memory, Rule, Platform)


def read_platform(options: Mapping[str, Any]) -> Platform:
    """Return the options as a :class:`Platform`. Raises ``InvalidIrShapes`` (reason ``planner_option``)."""
    try:
        platform = msgspec.convert({k: v for k, v in options.items() if v is not None}, Platform)
    except msgspec.ValidationError as error:
        raise _bad(f"{error}.", strict.field_hint(error, Platform)) from error
    declared = [memory.name for memory in platform.memories]
    for rule in platform.rules:
        if rule.role is not None and rule.role not in KNOWN_ROLES:
            raise _bad(f"there is no role {rule.role!r}.", strict.closest_hint(rule.role, KNOWN_ROLES))
        for name in (rule.memory, rule.constant_destination_memory or rule.memory):
            if name not in declared:
                raise _bad(f"memory {name!r} is not declared.", strict.closest_hint(name, declared))
    for problem in (
        *_invalid_values(msgspec.to_builtins(platform)),
        *_invalid_memories(platform),
        *_invalid_rules(platform),
    ):
        raise _bad(problem)
    return platform


def _invalid_values(value: Any) -> Iterator[str]:
    """Yield integers beyond 64 bits and invalid Unicode, which no plan can store."""
    if isinstance(value, int) and not -U64_MAX <= value <= U64_MAX:
        yield f"{value:,} does not fit 64 bits."
    elif isinstance(value, str) and value != escaped_surrogates(value):
        yield f"{escaped_surrogates(value)} is not text: it contains half of a surrogate pair."
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        yield from _invalid_values(inner)


def _invalid_memories(platform: Platform) -> Iterator[str]:
    names = [memory.name for memory in platform.memories]
    if len(set(names)) != len(names) or not names:
        yield f"there must be at least one memory, and all names must differ: {names}."
    for memory in platform.memories:
        if memory.max_size is not None and memory.max_size < 1:
            yield f"memory {memory.name!r} has a max_size of {memory.max_size:,} B: no storage fits."
        if memory.origin is not None and memory.origin < 0:
            yield f"memory {memory.name!r} begins at address {memory.origin}."
    for floor in [platform.min_alignment, *(m.arena_alignment for m in platform.memories)]:
        if floor is not None and (floor < 1 or floor & (floor - 1)):
            yield f"an alignment of {floor} B is not a power of two."


def _invalid_rules(platform: Platform) -> Iterator[str]:
    memory = {each.name: each for each in platform.memories}
    first: dict[tuple[Any, ...], int] = {}
    for k, rule in enumerate(platform.rules):
        where = f"rule {k + 1}"
        to = rule.constant_destination_memory
        if to is not None and not memory[to].writable:
            yield f"{where} copies constants into {to}, which cannot be written."
        never_constant = rule.role is not None and rule.role not in READ_ONLY_ROLES
        if to is not None and never_constant:
            yield f"{where} names a constant_destination_memory for {rule.role}, which is never a constant."
        if never_constant and not memory[rule.memory].writable:
            yield f"{where} sends {rule.role} to {rule.memory}, which cannot be written."
        if rule.max_size is not None and rule.min_size > rule.max_size:
            yield f"{where} matches nothing: its min_size of {rule.min_size:,} B is over its max_size."
        before = first.setdefault(rule.conditions, k)
        other = platform.rules[before]
        if (other.memory, other.constant_destination_memory) != (rule.memory, to):
            yield f"rules {before + 1} and {k + 1} contradict each other: equal conditions, but different memories."


def _bad(what: str, hint: str = "") -> InvalidIrShapes:
    return InvalidIrShapes(
        f"planner 'helia': {what}",
        reason="planner_option",
        node_id="",
        hint=hint
        or 'Options look like {"memories": [{"name": "DTCM", "max_size": 131072}, {"name": "SRAM"}], "rules": '
        '[{"role": "constant", "memory": "SRAM"}]}.',
    )


# --- boards -----------------------------------------------------------------------------------------------------

KIB = 1024


def _memory(name: str, size: int, origin: int, *, writable: bool = True) -> dict[str, Any]:
    return {"name": name, "max_size": size, "origin": origin, **({} if writable else {"writable": False})}


# Memory that the program itself needs (code, stack, heap) is not subtracted: lower ``max_size`` by it.
BOARDS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "STM32H743": (
        "ST DS12110 and RM0433, STM32H743xI: 128 KiB DTCM, 512 KiB AXI SRAM, 2 MiB flash (xG: 1 MiB)",
        [
            _memory("DTCM", 128 * KIB, 0x20000000),
            _memory("AXI_SRAM", 512 * KIB, 0x24000000),
            _memory("FLASH", 2048 * KIB, 0x08000000, writable=False),
        ],
    ),
    "STM32F746": (
        "ST DS10916 and RM0385, STM32F746xG: 64 KiB DTCM, 240 KiB SRAM1 and 16 KiB SRAM2 behind it, 1 MiB flash",
        [
            _memory("DTCM", 64 * KIB, 0x20000000),
            _memory("SRAM", 256 * KIB, 0x20010000),
            _memory("FLASH", 1024 * KIB, 0x08000000, writable=False),
        ],
    ),
    "nRF52840": (
        "Nordic nRF52840 Product Specification: 256 KiB RAM, 1 MiB flash",
        [_memory("RAM", 256 * KIB, 0x20000000), _memory("FLASH", 1024 * KIB, 0, writable=False)],
    ),
    "Raspberry Pi Pico": (
        "RP2040 Datasheet 2.6: 264 KiB SRAM; Raspberry Pi Pico Datasheet: 2 MiB of QSPI flash",
        [_memory("SRAM", 264 * KIB, 0x20000000), _memory("FLASH", 2048 * KIB, 0x10000000, writable=False)],
    ),
}
"""Board → source of the figures (public datasheets and manuals), and memories in order of preference."""


def options_of(board: str) -> dict[str, Any]:
    """Return the options of ``helia`` for a board."""
    constants_stay = {"role": "constant", "memory": "FLASH"}  # they are read where they are stored
    return {"memories": BOARDS[board][1], "rules": [constants_stay]}
