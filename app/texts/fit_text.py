"""Texts about a fit for the command line and the page Fix: result, reasons for the lower bound, bytes by module."""

from collections.abc import Callable

from app.texts import numbers
from tmmu_core.fitting.problem.answer import COLUMNS, Capacity, Fitted, fitted_layers, fitted_peak, grouped_layers
from tmmu_core.graph.model import ONE_MEMORY


def limit_text(capacity: Capacity, size: Callable[[int], str] = numbers.short_bytes) -> str:
    """Return the limit as text: ``2.00 GiB``, or ``8.00 MiB of activations``. ``size`` formats bytes."""
    texts = [] if capacity.total is None else [size(capacity.total)]
    texts += [size(n) + (f" of {name}" if name != ONE_MEMORY else "") for name, n in sorted(capacity.arenas.items())]
    return " and ".join(texts)


def result_text(fitted: Fitted, size: Callable[[int], str] = numbers.short_bytes) -> str:
    """Return the result: ``Fits the limit of 2 GiB: 1.98 GiB after 4 changes, 2 % more FLOPs``, or why not."""
    best, capacity = fitted.best, fitted.capacity
    limit = limit_text(capacity, size)
    planned, bound = map(size, (capacity.limited_bytes(best.plan), fitted.lower_bound_for(capacity)))
    if fitted.answer == "cannot":
        return f"Does not fit: needs at least {bound}, limit {limit}"
    if fitted.answer == "open":
        return f"Best plan found: {planned}, {size(fitted.over_bytes)} over the limit of {limit}; lower bound {bound}"
    if not best.moves:
        return f"Fits the limit of {limit} without changes: {planned}"
    cost = [f"{numbers.percent(best.cost.extra_flops, fitted.flops)} more FLOPs"] if best.cost.extra_flops else []
    cost += [f"{size(best.cost.moved_bytes)} transferred"] if best.cost.moved_bytes else []
    count = numbers.count(len(best.moves), "change")
    return f"Fits the limit of {limit}: {planned} after {count}, {', '.join(cost) or 'no extra cost'}"


def module_table(fitted: Fitted) -> tuple[list[str], list[list[str]]]:
    """Return ``(titles, rows)`` with a row per group of equal modules; no rows for a graph without a backward pass."""
    groups = grouped_layers(fitted_layers(fitted))
    columns = [name for name in COLUMNS if any(row[name] for _, row in groups.values())]
    rows = []
    for path, (count, row) in groups.items():
        sizes = [numbers.short_bytes(row[name]) if row[name] else "" for name in columns]
        rows.append([f"{path} × {count}" if count > 1 else path, *sizes])
    return ["module", *(name.replace("_", " ") for name in columns)], rows


def peak_text(fitted: Fitted) -> str:
    """Return the node and module at the peak, and a suggestion to lower it: ``Peak: mm_6 in blocks.3. …``."""
    peak = fitted_peak(fitted)
    place = f" in {peak['module']}" if peak["module"] else ", outside modules"
    return f"Peak: {peak['node']}{place}. {peak['suggestion']}".rstrip()


def unknown_operators(fitted: Fitted) -> str:
    """Return a sentence about the operators that limit the fit, with at most 8 of their names."""
    names = [
        f"{each.name or '(no name)'} ({numbers.count(each.nodes, 'node')}, {numbers.short_bytes(each.bytes)})"
        for each in fitted.unknown
    ]
    rule = "Operators of unknown cost are not recomputed; operators of unknown properties also keep their order"
    return f"{rule}: {numbers.some(names, 8)}."


def bound_lines(fitted: Fitted) -> list[str]:
    """Return the lower bound of each limited arena, with its reason and up to four tensors that cause it."""
    lines = []
    limited = fitted.capacity.limited(fitted.start.plan)
    for each in fitted.bound.arenas:
        if each.arena in limited:
            step = f" at step {each.step!r}" if each.step else ""
            tensors = f" (live: {numbers.some([*map(repr, each.tensors)], 4)})" if each.tensors else ""
            lines.append(f"{each.arena}: {numbers.full_bytes(each.bytes)}{step}{tensors}: {each.why}")
    return lines
