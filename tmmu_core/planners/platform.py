"""Options of ``helia``: the memories of a platform, rules that choose a memory for a storage, and known boards.

:func:`read_platform` rejects options that no plan can follow, such as a memory of 0 bytes, a rule for an unknown
memory, a copy into a read-only memory, or two rules that contradict each other.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec

from tmmu_core.base import strict
from tmmu_core.base.cbor import NotCanonical, cbor_canonical
from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.graph.model import ROLES as TENSOR_ROLES

ROLES = ("scratch", "persistent", "constant")  # roles of a storage (:mod:`.helia`)
KNOWN_ROLES = (*ROLES, *TENSOR_ROLES)  # roles that a rule may name
READ_ONLY_ROLES = frozenset({"parameter", "constant"})
"""Tensor roles of read-only data. Each member of a constant storage has one of these roles and no producing node."""
BASE_ALIGNMENT = 16  # smallest base alignment of an arena, in bytes


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One memory of the platform."""

    name: str
    max_size: Annotated[int, msgspec.Meta(ge=1)] | None = None  # bytes; ``None``: no limit
    arena_alignment: int | None = None
    """Minimum alignment in bytes of the base of each arena and of its storages (DMA, cache lines)."""
    writable: bool = True
    origin: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Address of the first byte, if known; the exported linker fragment uses it."""


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Conditions on storages, and a memory. A storage is placed by the first rule whose conditions all match."""

    memory: str  # memory of the storage; for a constant, the memory that stores it in the program
    constant_destination_memory: str | None = None
    """Memory to which a constant is copied before the first run; ``None``: kernels read it where it is stored."""
    role: str | None = None  # ``scratch``, ``persistent``, ``constant``, or a tensor role such as ``gradient``
    operator: str | None = None  # shell-style pattern of the producing operator's name
    name: str | None = None  # shell-style pattern of the storage's tensor id
    min_size: int = 0  # bytes, included
    max_size: int | None = None  # bytes, included; ``None``: no limit


class Platform(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of ``helia``."""

    memories: tuple[Memory, ...] = (Memory("SRAM"),)  # in order of preference
    rules: tuple[Rule, ...] = ()
    min_alignment: int = 16  # minimum alignment of every storage in bytes


strict.register_types(Memory, Rule, Platform)


def read_platform(options: Mapping[str, Any]) -> Platform:
    """Return the options as a :class:`Platform`. Raises ``InvalidIrShapes`` (reason ``planner_option``)."""
    try:
        platform = msgspec.convert({k: v for k, v in options.items() if v is not None}, Platform)
        cbor_canonical(msgspec.to_builtins(platform))  # a plan file contains the options, so they must be encodable
    except msgspec.ValidationError as error:
        what, field = strict.wrong_field(error)
        raise _option_error(f"{field}: {what}.", strict.field_hint(error, Platform)) from error
    except NotCanonical as error:
        raise _option_error(f"{error}.") from error
    declared = [memory.name for memory in platform.memories]
    for rule in platform.rules:
        if rule.role is not None and rule.role not in KNOWN_ROLES:
            raise _option_error(f"there is no role {rule.role!r}.", strict.closest_hint(rule.role, KNOWN_ROLES))
        for name in (rule.memory, rule.constant_destination_memory or rule.memory):
            if name not in declared:
                raise _option_error(f"memory {name!r} is not declared.", strict.closest_hint(name, declared))
    for message in _faults(platform):
        raise _option_error(message)
    return platform


def _faults(platform: Platform) -> Iterator[str]:
    names = [memory.name for memory in platform.memories]
    if len(set(names)) != len(names) or not names:
        yield f"there must be at least one memory, and all names must differ: {names}."
    alignments = [(f"memory {memory.name!r}", memory.arena_alignment) for memory in platform.memories]
    for where, alignment in [("min_alignment", platform.min_alignment), *alignments]:
        if alignment is not None and (alignment < 1 or alignment & (alignment - 1)):
            yield f"{where}: an alignment of {alignment} B is not a power of two."
    memory = {each.name: each for each in platform.memories}
    first: dict[tuple[Any, ...], int] = {}
    for k, rule in enumerate(platform.rules):
        where = f"rule {k + 1}"
        destination = rule.constant_destination_memory
        if destination is not None and not memory[destination].writable:
            yield f"{where} copies constants into {destination}, which cannot be written."
        is_never_constant = rule.role is not None and rule.role not in READ_ONLY_ROLES
        if destination is not None and is_never_constant:
            yield f"{where} names a constant_destination_memory for {rule.role}, which is never a constant."
        if is_never_constant and not memory[rule.memory].writable:
            yield f"{where} sends {rule.role} to {rule.memory}, which cannot be written."
        if rule.max_size is not None and rule.min_size > rule.max_size:
            yield f"{where} matches nothing: its min_size of {rule.min_size:,} B is over its max_size."
        conditions = (rule.role, rule.operator, rule.name, rule.min_size, rule.max_size)
        earlier = first.setdefault(conditions, k)
        other = platform.rules[earlier]
        if (other.memory, other.constant_destination_memory) != (rule.memory, destination):
            yield f"rules {earlier + 1} and {k + 1} contradict each other: equal conditions, but different memories."


def _option_error(what: str, hint: str = "") -> InvalidIrShapes:
    memories = '[{"name": "DTCM", "max_size": 131072}, {"name": "SRAM"}]'
    example = f'{{"memories": {memories}, "rules": [{{"role": "constant", "memory": "SRAM"}}]}}'
    hint = hint or f"Options look like {example}."
    return InvalidIrShapes(f"planner 'helia': {what}", reason="planner_option", node_id="", hint=hint)


BOARDS: dict[str, tuple[str, dict[str, tuple[int, int]]]] = {
    "STM32H743": (
        "ST DS12110 and RM0433, STM32H743xI: 128 KiB DTCM, 512 KiB AXI SRAM, 2 MiB flash (xG: 1 MiB)",
        {"DTCM": (128, 0x20000000), "AXI_SRAM": (512, 0x24000000), "FLASH": (2048, 0x08000000)},
    ),
    "STM32F746": (
        "ST DS10916 and RM0385, STM32F746xG: 64 KiB DTCM, 240 KiB SRAM1 and 16 KiB SRAM2 behind it, 1 MiB flash",
        {"DTCM": (64, 0x20000000), "SRAM": (256, 0x20010000), "FLASH": (1024, 0x08000000)},
    ),
    "nRF52840": (
        "Nordic nRF52840 Product Specification: 256 KiB RAM, 1 MiB flash",
        {"RAM": (256, 0x20000000), "FLASH": (1024, 0)},
    ),
    "Raspberry Pi Pico": (
        "RP2040 Datasheet 2.6: 264 KiB SRAM; Raspberry Pi Pico Datasheet: 2 MiB of QSPI flash",
        {"SRAM": (264, 0x20000000), "FLASH": (2048, 0x10000000)},
    ),
}
"""Board → ``(source of the figures, memories)``; memory → ``(KiB, address)``, in order of preference.

Sizes include the memory of the program itself (code, stack, heap): subtract it from ``max_size``.
"""


def options_of(board: str) -> dict[str, Any]:
    """Return the options of ``helia`` for a board. Constants stay in flash and are read there."""
    memories = [
        {"name": name, "max_size": 1024 * kib, "origin": origin, **({"writable": False} if name == "FLASH" else {})}
        for name, (kib, origin) in BOARDS[board][1].items()
    ]
    return {"memories": memories, "rules": [{"role": "constant", "memory": "FLASH"}]}
