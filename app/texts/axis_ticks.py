"""Tick positions of byte axes, for charts and still pictures."""

from __future__ import annotations


def ticks(top: int, most: int = 5) -> list[int]:
    """Return round byte counts from 0 to about ``top``, at most ``most`` intervals."""
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
    if unit > 1 and top <= 2 * unit:  # between one and two units, use quarters
        step = unit // 4 if top <= unit + unit // 4 else unit // 2
    return list(range(0, top + 1, step))
