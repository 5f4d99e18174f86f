"""Memories of some boards: sizes and addresses from public datasheets and reference manuals.

Memory that the program itself needs (code, stack, heap) is not subtracted: lower ``max_size`` by it.
"""

from typing import Any

KIB = 1024


def _memory(name: str, size: int, origin: int, *, writable: bool = True) -> dict[str, Any]:
    return {"name": name, "max_size": size, "origin": origin, **({} if writable else {"writable": False})}


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
"""Name → source of the figures, and memories in order of preference."""

CONSTANTS_STAY = ({"role": "constant", "memory": "FLASH"},)
"""Default rules of a board: constants are read where they are stored."""


def options_of(board: str) -> dict[str, Any]:
    """Return the options of ``helia`` for a board."""
    return {"memories": BOARDS[board][1], "rules": list(CONSTANTS_STAY)}
