"""Texts about a fit for the command line and the page Fix: reasons for the lower bound, and bytes by module."""

from app.texts import numbers
from tmmu_core.fitting.layers import COLUMNS, fitted_layers, fitted_peak, grouped_layers
from tmmu_core.fitting.problem.answer import Fitted


def module_table(fitted: Fitted) -> tuple[list[str], list[list[str]]]:
    """Return ``(titles, rows)`` with a row per group of equal modules; no rows for a graph without a backward pass."""
    groups = grouped_layers(fitted_layers(fitted))
    columns = [name for name in COLUMNS if any(row[name] for _, row in groups.values())]
    rows = [
        [
            f"{path} × {count}" if count > 1 else path,
            *(numbers.short_bytes(row[name]) if row[name] else "" for name in columns),
        ]
        for path, (count, row) in groups.items()
    ]
    return ["module", *(name.replace("_", " ") for name in columns)], rows


def peak_text(fitted: Fitted) -> str:
    """Return the node and module at the peak, and a suggestion to lower it: ``Peak: mm_6 in blocks.3. …``."""
    peak = fitted_peak(fitted)
    return f"Peak: {peak['node']} in {peak['module'] or 'the model'}. {peak['suggestion']}".rstrip()


def bound_lines(fitted: Fitted) -> list[str]:
    """Return the lower bound of each limited arena, with its reason and up to four tensors that cause it."""
    lines = []
    limited = fitted.capacity.limited(fitted.start.plan)
    for need in fitted.bound.needs:
        if need.arena in limited:
            step = f" at {need.step!r}" if need.step else ""
            tensors = f" of {numbers.some([*map(repr, need.tensors)], 4)}" if need.tensors else ""
            lines.append(f"{need.arena}: {numbers.full_bytes(need.bytes)}{tensors}{step}: {need.why}")
    return lines
