"""The table of a fitted training step's bytes by module, for the command line and the page Fix."""

from app.texts import numbers
from tmmu_core.fitting.layers import COLUMNS, fitted_layers, fitted_peak, grouped_layers
from tmmu_core.fitting.problem.answer import Fitted


def module_table(fitted: Fitted) -> tuple[list[str], list[list[str]]]:
    """Return ``(titles, rows)`` with a row per group of equal modules; no rows for a graph without a backward pass.

    Columns in which every module has 0 bytes are left out.
    """
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
