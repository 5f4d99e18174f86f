"""Compare two plans: whether they are comparable, their first difference, and the changes per tensor.

Two plans are *comparable* if graph, arena configuration, token and schemas are equal (contract §7, TMMU v2 §7); two
allocator snapshots may have different graphs. A digest without ``tensors_hash`` is not comparable. A *divergence* is a
difference between comparable plans; mode and order are reported first. Planner, options, preset and name are
*context*: a difference in them is reported, but is no divergence. ``allocation_time_ns`` is never compared.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tmmu_core.formats.planfile.plan_document import tensors_hash
from tmmu_core.formats.planfile.trace import Trace
from tmmu_core.plans.figures.metrics import LineChange, changes_at_peak, written_metrics
from tmmu_core.plans.model import I64, ArenaSummary, Plan, TensorRow

MOST_REUSES = 20  # maximum number of different in-place reuses that a comparison lists

KINDS = ("moved", "resized", "retimed", "other_arena", "redescribed", "added", "removed", "renumbered")
"""Kinds of changes of a tensor, in reporting order:

* ``moved``: at another offset of the same arena;
* ``resized``: another size in bytes;
* ``retimed``: another birth or death;
* ``other_arena``: in another arena;
* ``redescribed``: another role, dtype, shape, alignment, alias group or base;
* ``added``, ``removed``: only in the candidate, only in the baseline;
* ``renumbered``: the same offset, another slot number or generation. If only one plan has slots, this is reported
  only if nothing else differs.
"""


@dataclass(frozen=True)
class Difference:
    """Two different values at one JSON path of a plan file."""

    path: str
    left: Any
    right: Any


@dataclass(frozen=True)
class TensorChange:
    """The change of one tensor; the row of a plan without it is ``None``."""

    tensor_id: str
    kinds: tuple[str, ...]
    left: TensorRow | None
    right: TensorRow | None


@dataclass(frozen=True)
class ArenaChange:
    """The figures of one arena in both plans; ``None`` for a plan without it."""

    name: str
    left: ArenaSummary | None
    right: ArenaSummary | None


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """The result of :func:`compare`."""

    left: Plan
    right: Plan
    incomparable: tuple[Difference, ...]  # reasons why the plans are not comparable
    divergences: tuple[Difference, ...]  # differences outside of the rows; mode and order first
    context: tuple[Difference, ...]  # differences in planner, options, preset and name, which are no divergences
    certificates: tuple[Difference, ...]  # lower bounds that differ; also divergences if planner and options are equal
    ids: tuple[str, ...]  # tensors of either plan, by id bytes; parallel to the columns below
    left_row: I64  # row in ``left``, or −1
    right_row: I64
    kinds: NDArray[np.uint8]  # bit k is set if the tensor has the change ``KINDS[k]``
    complete: bool = True  # whether both sides contain their tensors; a digest has only their hash

    @property
    def comparable(self) -> bool:
        """Whether the plans are comparable."""
        return not self.incomparable

    @property
    def identical(self) -> bool:
        """Whether the plans are comparable without divergences and changed tensors; ``context`` may differ."""
        return not self.incomparable and not self.divergences and not self.kinds.any()

    @property
    def summary(self) -> str:
        """``not comparable``, ``identical``, ``diverged in slot numbers only`` or ``diverged``."""
        if not self.comparable:
            return "not comparable"
        if self.identical:
            return "identical"
        has_no_other_kind = np.bitwise_or.reduce(self.kinds) == 1 << KINDS.index("renumbered")
        return "diverged in slot numbers only" if has_no_other_kind and not self._before_rows else "diverged"

    @property
    def invalid(self) -> tuple[str, ...]:
        """The sides (``left``, ``right``) whose plans are invalid."""
        return tuple([name for name in ("left", "right") if getattr(self, name).is_invalid])

    @property
    def incomplete(self) -> tuple[str, ...]:
        """The sides (``left``, ``right``) whose figures omit a part of the graph."""
        return tuple([name for name in ("left", "right") if getattr(self, name).incomplete])

    @cached_property
    def first(self) -> Difference | None:
        """The first divergence: mode, order, then by tensor, then figures and hashes."""
        if self._before_rows:
            return self._before_rows[0]
        changed = next(self.changes(), None)
        if changed is None:
            return self.divergences[0] if self.divergences else None
        path = f"$.tensors[{changed.tensor_id!r}]"
        if changed.left is None or changed.right is None:
            rows = (changed.left, changed.right)
            return Difference(path, *[r and f"{r.arena} slot {r.logical_slot} [{r.birth}, {r.death})" for r in rows])
        sides = ((field, getattr(changed.left, field), getattr(changed.right, field)) for field in _ROW_FIELDS)
        return next(Difference(f"{path}.{field}", a, b) for field, a, b in sides if a != b)

    @property
    def _before_rows(self) -> list[Difference]:
        """The divergences that are reported before those of tensors."""
        return [difference for difference in self.divergences if difference.path.startswith(_PATHS_BEFORE_ROWS)]

    def changes(self, kind: str | None = None) -> Iterator[TensorChange]:
        """Yield the changed tensors (of one of :data:`KINDS`, or all), by id bytes."""
        for i in self._changed(kind).tolist():
            yield self.change(i)

    def largest(self, kind: str | None, most: int) -> list[TensorChange]:
        """Return the ``most`` largest of :meth:`changes`, by the bytes of the larger side, then by id bytes."""
        indexes = self._changed(kind)
        size = np.zeros(len(indexes), np.uint64)
        for plan, rows in ((self.left, self.left_row[indexes]), (self.right, self.right_row[indexes])):
            size[rows >= 0] = np.maximum(size[rows >= 0], plan.size[rows[rows >= 0]])
        order = np.argsort(np.uint64(2**64 - 1) - size, kind="stable")
        return [self.change(i) for i in indexes[order[:most]].tolist()]

    def _changed(self, kind: str | None) -> I64:
        """Return the indexes into :attr:`ids` of the tensors with this kind of change, or with any change."""
        return np.flatnonzero(self.kinds if kind is None else self.kinds & (1 << KINDS.index(kind)))

    def change(self, i: int) -> TensorChange:
        """Return the change of tensor ``ids[i]``."""
        bits, a, b = int(self.kinds[i]), int(self.left_row[i]), int(self.right_row[i])
        kinds = tuple(kind for k, kind in enumerate(KINDS) if bits & (1 << k))
        left, right = (self.left.row(a) if a >= 0 else None), (self.right.row(b) if b >= 0 else None)
        return TensorChange(self.ids[i], kinds, left, right)

    @cached_property
    def totals(self) -> dict[str, tuple[int, int]]:
        """Kind → (tensors, bytes in the candidate). ``removed``: bytes in the baseline; ``resized``: the increase."""
        result: dict[str, tuple[int, int]] = {}
        for kind in KINDS:
            indexes = self._changed(kind)
            sides = ((self.left, self.left_row[indexes]), (self.right, self.right_row[indexes]))
            before, after = (sum(plan.size[rows[rows >= 0]].tolist()) for plan, rows in sides)
            size = before if kind == "removed" else after - before if kind == "resized" else after
            result[kind] = len(indexes), size
        return result

    @cached_property
    def lines(self) -> tuple[LineChange, ...]:
        """Changes between the peaks of two different snapshots, by source line and category; else empty."""
        is_other_graph = self.complete and self.left.ir_hash != self.right.ir_hash
        return changes_at_peak(self.left, self.right) if is_other_graph else ()

    @cached_property
    def arenas(self) -> tuple[ArenaChange, ...]:
        """Every arena of either plan, by name."""
        names = sorted({**self.left.arena_of, **self.right.arena_of})
        return tuple(ArenaChange(n, self.left.arena_of.get(n), self.right.arena_of.get(n)) for n in names)

    def __repr__(self) -> str:
        left, right = (f"{plan.ir_name[:60]!r} · {plan.planner}" for plan in (self.left, self.right))
        verdict = f"INVALID ({', '.join(self.invalid)})" if self.invalid else self.summary
        changed = [f"{n:,} {kind.replace('_', ' ')}" for kind, (n, _) in self.totals.items() if n]
        return f"<Comparison {left} → {right}: {'; '.join(filter(None, (verdict, ', '.join(changed))))}>"


_PATHS_BEFORE_ROWS = ("$.mode", "$.execution_order", "$.steps")
_LAST = ("logical_slot", "generation")
_ROW_FIELDS = tuple(sorted(TensorRow.__dataclass_fields__, key=lambda name: (name in _LAST, name != "arena")))
"""Fields in reporting order: the arena first, the slot number last, because it depends on the planner."""


def compare(left: Plan | Trace, right: Plan | Trace) -> Comparison:
    """Compare ``left`` (the baseline) with ``right`` (the candidate). O(n log n)."""
    a, b = (side if isinstance(side, Trace) else Trace(side, tensor_count=len(side)) for side in (left, right))
    complete = a.complete and b.complete
    ids = tuple(sorted({**a.plan.row_of, **b.plan.row_of})) if complete else ()
    left_row, right_row = (np.array([side.plan.row_of.get(i, -1) for i in ids], np.int64) for side in (a, b))
    if not complete:
        a, b = (replace(side, tensors_hash=tensors_hash(side.plan)) if side.complete else side for side in (a, b))
    required = ["arena_config_hash", "replay_token"]
    if not (a.plan.categories and b.plan.categories):  # two allocator snapshots may have different graphs
        required.insert(0, "ir_hash")
    incomparable = [*_fields(a.plan, b.plan, required), *_fields(a, b, ("trace_schema", "metric_schema"))]
    if any(not side.complete and not side.tensors_hash for side in (a, b)):
        # Without tensors_hash, the live ranges of a digest cannot be compared.
        incomparable.append(Difference("$.tensors_hash", a.tensors_hash or "missing", b.tensors_hash or "missing"))
    context = tuple(_fields(a.plan, b.plan, ("ir_name", "planner", "planner_options", "preset")))
    certificates = tuple(_certificates(a.plan, b.plan, complete))
    return Comparison(
        *(a.plan, b.plan, tuple(incomparable), tuple(_divergences(a, b, complete)), context, certificates),
        *(ids, left_row, right_row, _kinds(a.plan, b.plan, left_row, right_row), complete),
    )


def _divergences(a: Trace, b: Trace, complete: bool) -> Iterator[Difference]:
    left, right = a.plan, b.plan
    yield from _fields(left, right, ("mode",))
    if complete:
        nodes = enumerate(zip_longest(left.execution_order, right.execution_order))
        yield from islice((Difference(f"$.execution_order[{k}]", x, y) for k, (x, y) in nodes if x != y), 1)
    yield from _fields(left, right, ("execution_order_hash", "steps", "rank", "world_size", "shard_spec_hash"))
    yield from _fields(a, b, ("tensor_count", "tensors_hash")) if not complete else ()
    for name in sorted({**left.arena_of, **right.arena_of}):
        x, y = left.arena_of.get(name), right.arena_of.get(name)
        if x is None or y is None:
            yield Difference(f"$.arenas.{name}", x and x.extent_bytes, y and y.extent_bytes)
        else:
            yield from _fields(x, y, _ARENA_FIELDS, f"$.arenas.{name}")
    if complete:
        one, two = (dict(zip(plan.handoffs, plan.taken, strict=True)) for plan in (left, right))
        changed = [reuse for reuse in sorted({**one, **two}) if one.get(reuse) != two.get(reuse)]
        for step, source, target in changed[:MOST_REUSES]:
            sides = (side.get((step, source, target)) for side in (one, two))
            yield Difference(f"$.handoffs[{step}, {source!r}, {target!r}]", *sides)
        if len(changed) > MOST_REUSES:
            more = f"… {len(changed) - MOST_REUSES:,} more differences"
            yield Difference("$.handoffs", more, more)
    before, after = _metrics(left), _metrics(right)
    for key in sorted({**before, **after}):
        if before.get(key) != after.get(key):
            yield Difference(f"$.metrics.{key}", before.get(key), after.get(key))
    yield from _fields(left, right, ("layout_hash", "tmmu_plan_hash"))
    if (left.planner, left.planner_options) == (right.planner, right.planner_options):
        yield from _certificates(left, right, complete)


def _metrics(plan: Plan) -> dict[str, Any]:
    """Return the metrics without the lower bound, which belongs to the certificates."""
    metrics = written_metrics(plan.metrics)
    if isinstance(metrics.get("totals"), dict):
        metrics["totals"] = {key: value for key, value in metrics["totals"].items() if key != "lower_bound_bytes"}
    return metrics


def _certificates(left: Plan, right: Plan, complete: bool) -> Iterator[Difference]:
    """Yield the lower bounds that differ. A digest's bound of the reuse cost cannot be recomputed, and is omitted."""
    for arena in left.arenas:
        other = right.arena_of.get(arena.name)
        for field, key in _BOUNDS.items() if other is not None else ():
            one, two = getattr(arena, field), getattr(other, field)
            if one != two and (complete or field != "reuse_cost_lower_bound"):
                yield Difference(f"$.arenas.{arena.name}.{key}", one, two)


_BOUNDS = {"stated_bound_bytes": "lower_bound_bytes", "reuse_cost_lower_bound": "reuse_cost_lower_bound"}
"""Figures of an arena's certificate → keys of the plan file."""
_CERTIFICATE = {"lower_bound_bytes", "proven_bytes", "status", "witness", "witness_step"}
_CERTIFICATE |= {"reuse_cost_lower_bound", "reuse_cost_witness"}
_ARENA_FIELDS = tuple(name for name in ArenaSummary.__dataclass_fields__ if name not in {"name", *_CERTIFICATE})
"""The figures of an arena's layout; its certificate is compared separately."""


def _fields(a: object, b: object, names: Sequence[str], path: str = "$") -> Iterator[Difference]:
    for name in names:
        one, two = getattr(a, name), getattr(b, name)
        if one != two:
            shown = [each.hex() if isinstance(each, bytes) else each for each in (one, two)]
            yield Difference(f"{path}.{name}", *shown)


def _kinds(left: Plan, right: Plan, left_row: I64, right_row: I64) -> NDArray[np.uint8]:
    both = np.flatnonzero((left_row >= 0) & (right_row >= 0))
    a, b = left_row[both], right_row[both]

    def differ(*columns: str) -> NDArray[np.bool_]:
        is_different = np.zeros(len(both), np.bool_)
        for x, y in ((getattr(left, name), getattr(right, name)) for name in columns):
            if isinstance(x, tuple):
                is_different |= np.array([x[i] != y[j] for i, j in zip(a.tolist(), b.tolist(), strict=True)], np.bool_)
            else:
                is_different |= x[a] != y[b]
        return is_different

    names = [np.array([arena.name for arena in side.arenas], object) for side in (left, right)]
    same_arena = names[0][left.arena[a]] == names[1][right.arena[b]]
    masks = {"moved": differ("offset") & same_arena, "resized": differ("size"), "retimed": differ("birth", "death")}
    masks["other_arena"] = ~same_arena
    masks["redescribed"] = differ("alignment", "roles", "dtypes", "shapes", "alias_group_ids", "base_tensor_uids")
    # In a plan without slots, ``logical_slot`` and ``generation`` only number the storages.
    is_changed = len(both) < len(left_row) or any(mask.any() for mask in masks.values())
    if left.has_slots == right.has_slots or not is_changed:
        masks["renumbered"] = differ("logical_slot", "generation") & ~masks["moved"] & same_arena
    rows = {kind: both[mask] for kind, mask in masks.items()}
    rows |= {"added": np.flatnonzero(left_row < 0), "removed": np.flatnonzero(right_row < 0)}
    kinds = np.zeros(len(left_row), np.uint8)
    for kind, changed in rows.items():
        kinds[changed] |= np.uint8(1 << KINDS.index(kind))
    return kinds
