"""The differences between two plans as rows of text ``baseline → candidate``, for page, report and command line."""

import re
from collections.abc import Callable, Sequence

from app.texts import numbers
from app.texts.markup import optimality
from tmmu_core.formats.planfile.compare_plans import ArenaChange, Comparison, Difference, TensorChange
from tmmu_core.plans.figures.metrics import LineChange, by_category
from tmmu_core.plans.model import ArenaSummary, Plan, TensorRow

ABSENT = "–"  # shown instead of a figure, if only the other plan has the arena or tensor
ARENA_FIGURES = ("lower bound", "arena size", "change", "gap", "optimality", "slots", "max live buffers")
TENSOR_FIGURES = ("arena", "slot", "offset", "size", "live range")
LINE_FIGURES = ("baseline", "candidate", "change", "buffers")


def arena_row(change: ArenaChange, compared: Comparison, size: Callable[[int], str] = numbers.short_bytes) -> list[str]:
    """Return the name of an arena and its :data:`ARENA_FIGURES` in both plans. ``size`` formats bytes."""
    left, right = change.left, change.right
    texts = _arena_texts(left, compared.left, size), _arena_texts(right, compared.right, size)
    bound, extent, *others = map(numbers.change, *texts)
    growth = "" if left is None or right is None else numbers.delta_bytes(right.extent_bytes - left.extent_bytes)
    return [change.name, bound, extent, growth, *others]


def _arena_texts(arena: ArenaSummary | None, plan: Plan, size: Callable[[int], str]) -> tuple[str, ...]:
    if arena is None:
        return (ABSENT,) * 6
    slots = f"{arena.slots:,}" if plan.has_slots else numbers.NO_SLOTS
    sizes = map(size, (arena.bound_bytes, arena.extent_bytes))
    return (*sizes, numbers.over_bound(*arena.gap), optimality(arena.status), slots, f"{arena.max_live:,}")


def tensor_row(change: TensorChange, compared: Comparison) -> list[str]:
    """Return the id of a tensor, the kinds of its changes, and its :data:`TENSOR_FIGURES` in both plans."""
    texts = _tensor_texts(change.left, compared.left), _tensor_texts(change.right, compared.right)
    return [change.tensor_id, ", ".join(change.kinds).replace("_", " "), *map(numbers.change, *texts)]


def _tensor_texts(row: TensorRow | None, plan: Plan) -> tuple[str, ...]:
    if row is None:
        return (ABSENT,) * 5
    slot = f"{row.logical_slot:,}" if plan.has_slots else numbers.NO_SLOTS
    return row.arena, slot, f"{row.offset_bytes:,}", f"{row.size_bytes:,}", numbers.live_range(row.birth, row.death)


def kind_rows(comparison: Comparison, size: Callable[[int], str] = numbers.full_bytes) -> list[list[str]]:
    """Return the kind, the number of tensors and their bytes for each kind of change. ``size`` formats bytes."""
    rows = [(kind, count, nbytes) for kind, (count, nbytes) in comparison.totals.items() if count]
    formats = {"resized": numbers.delta_bytes}
    return [[kind, f"{count:,}", formats.get(kind, size)(nbytes)] for kind, count, nbytes in rows]


def line_tables(
    lines: Sequence[LineChange], most: int, size: Callable[[int], str] = numbers.short_bytes
) -> tuple[list[tuple[str, list[list[str]]]], str]:
    """Return tables ``(title, rows)`` by category and by line (up to ``most`` lines), and the line count as text."""
    changed = [line for line in lines if line.growth_bytes or line.before_count != line.after_count]
    changes = ("category at the peak", by_category(lines)), ("line at the peak", changed[:most])
    tables = [(title, [_line_row(change, size) for change in listed]) for title, listed in changes]
    return tables, numbers.of(min(most, len(changed)), len(changed), "changed line")


def sides(difference: Difference) -> str:
    """Return both values of a difference as text, long values shortened: ``64 → 128``."""
    values = (difference.left, difference.right)
    both = ("none" if value is None else f"{value:,}" if type(value) is int else str(value) for value in values)
    return " → ".join(text[:12] if re.fullmatch("[0-9a-f]{64}", text) else numbers.shortened(text, 60) for text in both)


def _line_row(change: LineChange, size: Callable[[int], str]) -> list[str]:
    """Return the name of a line of code or a category, and its :data:`LINE_FIGURES` at both peaks."""
    name = " · ".join(filter(None, (change.line, change.category)))
    counts = numbers.change(f"{change.before_count:,}", f"{change.after_count:,}")
    status = "new" if not change.before_count else "gone" if not change.after_count else counts
    return [name, size(change.before_bytes), size(change.after_bytes), numbers.delta_bytes(change.growth_bytes), status]
