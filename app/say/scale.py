"""Where an axis of bytes has its marks, for charts and still pictures alike. Pure."""

from __future__ import annotations


def ticks(top: int, most: int = 5) -> list[int]:
    """Round byte counts from 0 up to about ``top``: 1, 2 or 5 times ten times a binary unit."""
    if top <= 0:
        return [0]
    unit = 1
    while unit * 1024 <= top:
        unit *= 1024
    step = unit
    if top < 1024:
        step = 1
    for factor in (1, 2, 5, 10, 20, 50, 100, 200, 500):
        if top <= most * unit * factor:
            step = unit * factor
            break
    if unit > 1 and top <= 2 * unit:  # between one and two units, quarters read better than one tick
        step = unit // 4 if top <= unit + unit // 4 else unit // 2
    return list(range(0, top + 1, step))
