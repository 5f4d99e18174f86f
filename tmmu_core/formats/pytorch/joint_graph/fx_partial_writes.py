"""Find writes to a part of a tensor in a traced graph.

Eager mode writes to a view. A traced graph is functional and has three operators instead, one of which creates a
temporary part::

    y[:, 2:4] = x     slice(y, 1, 2, 4) ─► copy(·, x) ─► slice_scatter(y, ·, 1, 2, 4)
    y[:, 2:4] += x    slice(y, 1, 2, 4) ─► add(·, x)  ─► slice_scatter(y, ·, 1, 2, 4), and a copy of that onto itself
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tag

from tmmu_core.formats.pytorch.exported_program.pt2_operators import operator

SCATTERS = {
    "slice_scatter": "slice",
    "select_scatter": "select",
    "diagonal_scatter": "diagonal",
    "as_strided_scatter": "as_strided",
}
"""Operator that puts a part in its place → the view that takes it from there."""
DEFAULTS: dict[str, tuple[Any, ...]] = {"slice": (0, None, None, 1), "diagonal": (0, 0, 1), "as_strided": (0, 0, None)}
"""Defaults of the arguments after the tensor."""
LAST = 2**63 - 1
"""The end of a slice that has none."""
WRITES = frozenset({"copy", "fill"})
"""Operators beside the pointwise ones that write to their first argument when their names end in ``_``."""


@dataclass(frozen=True)
class Part:
    """A part of ``whole`` that gets the value that ``made`` makes."""

    whole: Any
    """A node of the traced graph."""
    made: Any
    is_itself: bool
    """Whether that value is what stands there already."""


def written_part(node: Any) -> Part | None:
    """The part that ``node`` puts in its place, where what makes its value was an operator that wrote to it."""
    name = _name(node)
    if name not in SCATTERS:
        return None
    whole, made, *where = node.args
    if _name(made) == "" or list(made.users) != [node] or not made.args:
        return None
    view = made.args[0]
    place = _place(SCATTERS[name], where, node.kwargs)
    if not _takes(view, whole, SCATTERS[name], place):
        return None
    if _name(made) not in WRITES and Tag.pointwise not in getattr(made.target, "tags", ()):
        return None
    itself = _name(made) == "copy" and _takes(made.args[1], whole, SCATTERS[name], place)
    return Part(whole, made, itself)


def _takes(view: Any, whole: Any, name: str, place: tuple[Any, ...]) -> bool:
    return _name(view) == name and view.args[0] is whole and _place(name, view.args[1:], view.kwargs) == place


def _place(name: str, where: Any, named: Any) -> tuple[Any, ...]:
    defaults = DEFAULTS.get(name, ())
    given = (*where, *defaults[len(where) :])
    if name == "slice":
        dim, start, end, step = given
        given = (dim, named.get("start", start) or 0, named.get("end", end), named.get("step", step))
        given = (*given[:2], LAST if given[2] is None else given[2], given[3])
        return (*given, *sorted((k, v) for k, v in named.items() if k not in ("start", "end", "step")))
    return (*given, *sorted(named.items()))


def _name(node: Any) -> str:
    """The operator of a node, without its overload; ``""`` where it calls none."""
    return operator(str(node.target)).name if getattr(node, "op", "") == "call_function" else ""
