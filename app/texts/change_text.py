"""The differences between two plans as rows of text ``baseline → candidate``, for page, report and command line."""

from collections.abc import Callable, Sequence

from app.texts import numbers
from app.texts.markup import optimality
from tmmu_core.formats.planfile.compare_plans import ArenaChange, Comparison, TensorChange
from tmmu_core.plans.analysis.peak_lines import LineChange, by_category
from tmmu_core.plans.model import ArenaSummary, Plan, TensorRow

ABSENT = "–"  # text of a figure of an arena or tensor that only the other plan has
ARENA_FIGURES = ("lower bound", "arena size", "change", "gap", "optimality", "slots", "max live")
TENSOR_FIGURES = ("arena", "slot", "offset", "size", "live range")
LINE_FIGURES = ("baseline", "candidate", "change", "buffers")


def arena_row(
    change: ArenaChange, comparison: Comparison, size: Callable[[int], str] = numbers.short_bytes
) -> list[str]:
    """Return name and :data:`ARENA_FIGURES` of an arena in both plans; ``size``: the format of bytes."""
    left, right = change.left, change.right
    sides = zip(_arena(left, comparison.left, size), _arena(right, comparison.right, size), strict=True)
    bound, extent, *others = (numbers.change(*pair) for pair in sides)
    grown = "" if left is None or right is None else numbers.delta_bytes(right.extent_bytes - left.extent_bytes)
    return [change.name, bound, extent, grown, *others]


def _arena(arena: ArenaSummary | None, plan: Plan, size: Callable[[int], str]) -> tuple[str, ...]:
    if arena is None:
        return (ABSENT,) * 6
    slots = f"{arena.slots:,}" if plan.has_slots else numbers.NO_SLOTS
    sizes = map(size, (arena.bound_bytes, arena.extent_bytes))
    return (*sizes, numbers.over_bound(*arena.gap), optimality(arena.status), slots, f"{arena.max_live:,}")


def tensor_row(change: TensorChange, comparison: Comparison) -> list[str]:
    """Return id, kinds of changes and :data:`TENSOR_FIGURES` of a tensor in both plans."""
    sides = zip(_tensor(change.left, comparison.left), _tensor(change.right, comparison.right), strict=True)
    kinds = ", ".join(change.kinds).replace("_", " ")
    return [change.tensor_id, kinds, *(numbers.change(*pair) for pair in sides)]


def _tensor(row: TensorRow | None, plan: Plan) -> tuple[str, ...]:
    if row is None:
        return (ABSENT,) * 5
    slot = f"{row.logical_slot:,}" if plan.has_slots else numbers.NO_SLOTS
    places = (row.arena, slot, f"{row.offset_bytes:,}", f"{row.size_bytes:,}")
    return (*places, numbers.live_range(row.birth, row.death))


def line_tables(
    lines: Sequence[LineChange], most: int, size: Callable[[int], str] = numbers.short_bytes
) -> tuple[list[tuple[str, list[list[str]]]], str]:
    """Return ``(title, rows)`` of the changes by category and of ``most`` changes by line of code, and a count."""
    changed = [line for line in lines if line.growth_bytes or line.before_count != line.after_count]
    listed = ("category at the peak", by_category(lines)), ("line at the peak", changed[:most])
    tables = [(title, [_line_row(line, size) for line in found]) for title, found in listed]
    return tables, numbers.of(min(most, len(changed)), len(changed), "changed line")


def _line_row(change: LineChange, size: Callable[[int], str]) -> list[str]:
    """Return the name of a line of code or category of a snapshot, and :data:`LINE_FIGURES` at both peaks."""
    name = " · ".join(filter(None, (change.line, change.category)))
    counts = numbers.change(f"{change.before_count:,}", f"{change.after_count:,}")
    status = "new" if not change.before_count else "gone" if not change.after_count else counts
    return [name, size(change.before_bytes), size(change.after_bytes), numbers.delta_bytes(change.growth_bytes), status]
