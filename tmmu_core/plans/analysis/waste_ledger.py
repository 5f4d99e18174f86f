"""Compute the waste ledger (contract §7), and explain the size of a plan in two sentences.

The waste ledger divides the bytes of an arena at every step into five accounts. A *buffer* of a slot is a storage in
it. A *block* is a slot with a live buffer; its length is the slot's backing (:attr:`.PlanStorages.backing`, the size of
the largest buffer). At each step, every byte of ``[0, extent)`` belongs to one account:

* *live*: bytes of the live buffers
* *slot rounding*: bytes of the blocks above their live buffer, backing − size
* *alignment gaps*: free bytes between neighbouring blocks, to the next multiple of the upper block's alignment
* *holes*: all other free bytes below the end of the highest block
* *tail*: bytes above the end of the highest block (the whole extent if nothing is live)

The sum of the accounts is the extent, or more if blocks overlap or end past the extent. Without slots, each storage is
a block of its own size, so the slot rounding is 0.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, get_args

import numpy as np

from tmmu_core.base.escaping import shortened, visible
from tmmu_core.graph.quantities import short_bytes
from tmmu_core.plans.figures import live_bytes
from tmmu_core.plans.figures.live_bytes import arena_number, curve_points_of, live_bytes_of, peak_step_of, storages_of
from tmmu_core.plans.figures.metrics import over_limits, ratio, reserved_bytes, totals
from tmmu_core.plans.making.sparse_addresses import in_memory
from tmmu_core.plans.model import GIVEN_OFFSETS, I64, U64, ArenaSummary, Plan, group_numbers

ACCOUNTS = ("live", "alignment_gaps", "slot_rounding", "holes", "tail")  # the accounts in display order
Cause = Literal["reuse", "holes", "slot_rounding", "alignment_gaps", "tail"]
CAUSES: tuple[Cause, ...] = get_args(Cause)  # of causes with equal losses, the first one is reported
LONGEST_NAME = 32  # maximum number of characters of a name in a sentence


@dataclass(frozen=True, eq=False)
class WasteLedger:
    """The accounts of one arena in bytes, as columns with a row per curve point (:class:`CurvePoints`)."""

    arena: str
    extent: int
    live: U64
    alignment_gaps: U64
    slot_rounding: U64
    holes: U64
    tail: U64
    steps: I64  # the first step of each row

    def at(self, step: int) -> dict[str, int]:
        """Return the accounts at one step, by name, in the order of :data:`ACCOUNTS`."""
        point = max(0, int(np.searchsorted(self.steps, step, side="right")) - 1)
        return {account: int(getattr(self, account)[point]) for account in ACCOUNTS}

    @property
    def worst_step(self) -> int:
        """The step with the most gaps, slot rounding and holes; of equal steps, the first with the most live bytes."""
        wasted = self.alignment_gaps + self.slot_rounding + self.holes
        return int(self.steps[np.lexsort((-self.steps, self.live, wasted))[-1]])


def waste_ledger(plan: Plan, arena: str) -> WasteLedger:
    """Return the accounts of an arena at every curve point of the plan."""
    s, points, number = storages_of(plan), curve_points_of(plan), arena_number(plan, arena)
    in_arena = np.flatnonzero((s.arena == number) & (s.backing > 0))
    extent = plan.arenas[number].extent_bytes
    ranges = points.birth[in_arena], points.death[in_arena]
    live = live_bytes_of(*ranges, s.size[in_arena], points.steps)
    occupied = live_bytes_of(*ranges, s.backing[in_arena], points.steps)
    gaps, top = _gaps_and_top(s, in_arena, points)
    used = occupied + gaps
    holes = np.where(top > used, top - used, np.uint64(0))
    tail = np.uint64(extent) - np.minimum(top, np.uint64(extent))
    return WasteLedger(arena, extent, live, gaps, occupied - live, holes, tail, points.steps)


def _gaps_and_top(s: live_bytes.PlanStorages, in_arena: I64, points: live_bytes.CurvePoints) -> tuple[U64, U64]:
    """Return ``(alignment gaps, end of the highest block)`` at each point for the storages ``in_arena``."""
    # A sweep over time keeps a list of live blocks by address and the sum of the gaps between neighbours in the list.
    slot, n = group_numbers(s.slot[in_arena])
    block = np.zeros((3, n), np.uint64)
    block[:, slot] = s.offset[in_arena], s.offset[in_arena] + s.backing[in_arena], s.slot_alignment[in_arena]
    by_address = np.lexsort((np.arange(n), block[0]))
    start, end, alignment = block[:, by_address].tolist()
    block_of = np.argsort(by_address)[slot].tolist()
    events: list[list[tuple[int, int]]] = [[] for _ in range(len(points) + 1)]
    for change, ends in ((-1, points.death), (1, points.birth)):
        for point, block_number in zip(ends[in_arena].tolist(), block_of, strict=True):
            events[point].append((change, block_number))
    buffers, live, gap_total = [0] * n, list[int](), 0

    def alignment_gap(lower: int | None, upper: int | None) -> int:
        if lower is None or upper is None:
            return 0
        return min(-end[lower] % alignment[upper], max(0, start[upper] - end[lower]))

    gaps, top = np.zeros((2, len(points)), np.uint64)
    for point in range(len(points)):
        for change, changed in events[point]:
            was_live = buffers[changed] > 0
            buffers[changed] += change
            if was_live == (buffers[changed] > 0):
                continue
            position = bisect_left(live, changed)
            if was_live:
                del live[position]
            below = live[position - 1] if position > 0 else None
            above = live[position] if position < len(live) else None
            gap_change = alignment_gap(below, changed) + alignment_gap(changed, above) - alignment_gap(below, above)
            gap_total += -gap_change if was_live else gap_change
            if not was_live:
                live.insert(position, changed)
        gaps[point], top[point] = gap_total, end[live[-1]] if live else 0
    return gaps, top


@dataclass(frozen=True)
class SlotReport:
    """The use of a slot by its buffers."""

    slot: int
    offset_bytes: int
    backing_bytes: int
    buffers: int  # number of its buffers
    largest: str  # name of the largest buffer
    busy_steps: int  # number of steps with a live buffer
    unused_byte_steps: int  # sum over its buffers: (backing − size) × live steps


def slot_reports(plan: Plan, arena: str) -> tuple[SlotReport, ...]:
    """Return one report per slot of the arena, by slot number."""
    s = storages_of(plan)
    in_arena = np.flatnonzero(s.arena == arena_number(plan, arena))
    by_slot = in_arena[np.argsort(s.slot[in_arena], kind="stable")].tolist()
    reports: list[SlotReport] = []
    for slot, group in groupby(by_slot, key=lambda k: int(s.slot[k])):
        buffers = list(group)
        backing, steps = int(s.backing[buffers[0]]), [int(s.death[k] - s.birth[k]) for k in buffers]
        unused = sum((backing - int(s.size[k])) * count for k, count in zip(buffers, steps, strict=True))
        largest = plan.tensor_ids[max((int(s.size[k]), int(s.head[k])) for k in buffers)[1]]
        offset = int(s.offset[buffers[0]])
        reports.append(SlotReport(slot, offset, backing, len(buffers), largest, sum(steps), unused))
    return tuple(reports)


def resource_ledger(plan: Plan) -> list[dict[str, int | float]]:
    """Return the resource ledger over all arenas: a row per curve point, with the keys of TMMU v2 II.J.

    ``bytes_allocated``: backing of the slots that are occupied at step ``t``. ``peak_bytes``: the highest end of an
    occupied slot up to step ``t``, summed over the arenas. ``internal_fragmentation_ratio`` covers the steps up to
    ``t``. Its last value is that of ``Plan.metrics``, except for a snapshot, whose extent covers the reserved bytes.
    """
    s, points = storages_of(plan), curve_points_of(plan)
    steps = len(points)
    peak_bytes, peak_live = np.zeros((2, steps), np.uint64)
    for number in range(len(plan.arenas)):
        in_arena = s.arena == number
        highest = np.zeros(steps + 1, np.uint64)  # one more: in a damaged plan, a storage may begin after the end
        np.maximum.at(highest, points.birth[in_arena], s.offset[in_arena] + s.backing[in_arena])
        peak_bytes += np.maximum.accumulate(highest[:steps])
        live = live_bytes_of(points.birth[in_arena], points.death[in_arena], s.size[in_arena], steps)
        peak_live += np.maximum.accumulate(live)
    allocated = live_bytes_of(points.birth, points.death, s.backing, steps)
    columns = (points.steps, allocated, peak_bytes, peak_live)
    return [
        {
            "t": t,
            "bytes_allocated": at_step,
            "peak_bytes": peak,
            "allocation_failures": int(plan.metrics.get("allocation_failures", 0)),
            "internal_fragmentation_ratio": ratio(peak - live_so_far, peak),
        }
        for t, at_step, peak, live_so_far in zip(*(column.tolist() for column in columns), strict=True)
    ]


@dataclass(frozen=True)
class Gap:
    """Why an arena may be larger than needed."""

    arena: str
    bytes: int  # maximum number of bytes that another plan can save in this arena
    step: int  # the deciding step: of the steps at which the topmost storage is live, one with the most live bytes
    cause: Cause  # the largest loss at that step
    cause_bytes: int
    reuse: tuple[str, str] | None = None  # ``(input, output)`` of the largest in-place reuse missed at that step


@dataclass(frozen=True)
class Explanation:
    """Two sentences about a plan, and the gap that they name."""

    headline: str  # the bytes that the plan needs, and its limit
    reason: str  # why the plan is not smaller or does not fit, or that it is invalid or incomplete; may be empty
    gap: Gap | None = None  # the gap of the arena that the sentences are about, if any

    def __str__(self) -> str:
        return f"{self.headline} {self.reason}".rstrip()


def explain_peak(plan: Plan, budget: int | None = None, name: str = "") -> Explanation:
    """Return the explanation of a plan; ``budget`` limits the sum of its arenas, in bytes."""
    name = name or plan.ir_name or "the graph"
    if len(name) > LONGEST_NAME:
        name = re.sub(r" \([^()]*\)", "", name) or name  # without the texts in parentheses
    name = _short(name)
    if not plan.arenas or not len(plan):
        return Explanation(f"{name} has no tensors to plan.", "")
    headline, limited = _headline(plan, budget, name)
    figures = totals(plan)
    if figures.reuse_cost is not None:
        headline = f"{headline[:-1]}, with a reuse cost of {figures.reuse_cost:,}."
    if plan.is_invalid:
        return Explanation(headline, "The plan is invalid: some of its checks failed.")
    if plan.incomplete:
        return Explanation(headline, "A part of the graph is not planned and needs more memory.")
    explained = limited or max(plan.arenas, key=lambda arena: (arena.open_bytes, arena.name))
    place = "" if limited is None or len(plan.arenas) == 1 else f" of {_short(limited.name)}"
    scope = "with the given offsets" if plan.remark(GIVEN_OFFSETS) else "of this execution order"
    bound = sum(arena.extent_bytes - arena.open_bytes for arena in ([limited] if limited else plan.arenas))
    limit, least = limited.capacity_bytes if limited else budget, short_bytes(bound)
    if explained.open_bytes:
        gap = gap_of(plan, explained.name)
        reason = _reason(plan, gap, is_named=limited is not None)
        if limit is not None and limit < bound:
            reason = f"No plan {scope} fits: the lower bound{place} is {least}."
        return Explanation(headline, reason, gap)
    step, live = peak_step_of(plan, explained.name) if place else (figures.peak_step, figures.peak_live_bytes)
    if (peak := short_bytes(live)) != least:
        scope += "" if limited or len(plan.arenas) == 1 else f" in {len(plan.arenas)} arenas"
        reason = f"At most {peak}{place} are live, at {_step(plan, step)}, but no plan {scope} needs less than {least}"
        reserved = sum(reserved_bytes(plan, arena.name) for arena in ([limited] if limited else plan.arenas))
        return Explanation(headline, reason + (f": {short_bytes(reserved)} are reserved." if reserved else "."))
    return Explanation(headline, f"{peak}{place} are live at {_step(plan, step)}; no plan {scope} is smaller.")


def gap_of(plan: Plan, arena: str) -> Gap:
    """Return the gap of an arena and its cause: the largest loss of bytes at the deciding step (:attr:`Gap.step`)."""
    plan = in_memory(plan)
    untaken: dict[int, list[tuple[int, str, str]]] = defaultdict(list)
    for (reuse_step, source, target), taken in zip(plan.handoffs, plan.taken, strict=True):
        row = plan.row_of[source]
        if not taken and plan.arenas[plan.arena[row]].name == arena:
            untaken[reuse_step].append((int(plan.size[row]), source, target))
    s, points, summary = storages_of(plan), curve_points_of(plan), plan.arena_of[arena]
    in_arena = np.flatnonzero(s.arena == arena_number(plan, arena))
    ends = (s.offset + s.size)[in_arena]
    top, ledger = in_arena[ends == ends.max()], waste_ledger(plan, arena)
    live = ledger.live
    # A candidate is a step at which a storage with the highest end is live. The deciding step is the candidate with the
    # most live bytes; on a tie, with the fewest bytes of missed in-place reuses.
    is_candidate = np.zeros(len(live), np.bool_)
    for first, last in zip(points.birth[top].tolist(), points.death[top].tolist(), strict=True):
        is_candidate[first : max(last, first + 1)] = True
    deciding_steps = points.steps[is_candidate & (live == live[is_candidate].max())].tolist()
    missed = {step: sum(size for size, _, _ in untaken[step]) for step in deciding_steps}
    step = min(missed, key=missed.__getitem__)
    lost_bytes = ledger.at(step)
    lost_bytes["holes"] -= min(lost_bytes["holes"], reserved_bytes(plan, arena))  # no plan can use reserved bytes
    # Only in-place reuse can reduce the live bytes, so live bytes above the lower bound count as missed reuse.
    lost_bytes["reuse"] = max(missed[step], lost_bytes["live"] - (summary.extent_bytes - summary.open_bytes))
    cause = max(CAUSES, key=lost_bytes.__getitem__)
    reuse = max(untaken[step])[1:] if cause == "reuse" and untaken[step] else None
    return Gap(arena, summary.open_bytes, step, cause, lost_bytes[cause], reuse)


def _headline(plan: Plan, budget: int | None, name: str) -> tuple[str, ArenaSummary | None]:
    """Return ``(headline, arena)``: the first sentence, and the arena whose size and limit it states, or ``None``."""
    total = short_bytes(sum(arena.extent_bytes for arena in plan.arenas))
    limited = [arena for arena in plan.arenas if arena.headroom_bytes is not None]
    only_arena = limited[0] if len(limited) == len(plan.arenas) == 1 else None
    over = over_limits(plan, budget)
    if over:
        exceeded = max(over, key=lambda arena: (over[arena], arena))
        arena, excess = plan.arena_of.get(exceeded), short_bytes(over[exceeded])
        if arena is None:  # the budget
            return f"{name} does not fit: it needs {total}, {excess} over the budget of {short_bytes(budget)}.", None
        subject = "it needs" if only_arena else f"{_short(exceeded)} {'need' if exceeded.endswith('s') else 'needs'}"
        need, limit = short_bytes(arena.extent_bytes), short_bytes(arena.capacity_bytes)
        return f"{name} does not fit: {subject} {need}, {excess} over the limit of {limit}.", arena
    if budget is not None:
        return f"{name} needs {total}, within the budget of {short_bytes(budget)}.", None
    listed = ", ".join(f"{_short(arena.name)} {short_bytes(arena.capacity_bytes)}" for arena in limited)
    within = f"limit of {short_bytes(only_arena.capacity_bytes)}" if only_arena else f"limits ({listed})"
    return f"{name} needs {total}, within the {within}." if limited else f"{name} needs {total}.", only_arena


def _step(plan: Plan, step: int) -> str:
    return f"#{step:,} {_short(plan.node_at(step))}".rstrip()


def _short(name: str) -> str:
    return shortened(visible(name), LONGEST_NAME)


def _reason(plan: Plan, gap: Gap, *, is_named: bool) -> str:
    """Return the gap and its cause as text. ``is_named``: whether the headline states the size of the arena."""
    step_text, lost, arena = _step(plan, gap.step), short_bytes(gap.cause_bytes), plan.arena_of[gap.arena]
    source, target = map(_short, gap.reuse or ("", ""))
    missed, place = f"{target} does not reuse {source}'s memory in place ({lost})", f"{step_text},"
    if gap.cause_bytes > gap.bytes:  # then the live bytes, at most extent − cause_bytes, are below the lower bound
        live = short_bytes(waste_ledger(plan, gap.arena).at(gap.step)["live"])
        place += f" {live} are live up to offset {short_bytes(arena.extent_bytes)}, and"
    causes = {
        "reuse": f"at {step_text}, {missed if gap.reuse else f'more in-place reuse could save {lost}'}",
        "holes": f"at {place} {lost} are free below the highest live tensor",
        "slot_rounding": f"at {place} {lost} are unused inside the slots of live tensors",
        "alignment_gaps": f"at {place} alignment costs {lost}",
        "tail": f"no tensor uses the last {lost}",
    }
    above = f"that is {short_bytes(gap.bytes)} above"
    if not is_named and len(plan.arenas) > 1:
        verb = "take" if gap.arena.endswith("s") else "takes"
        above = f"{_short(gap.arena)} {verb} {short_bytes(arena.extent_bytes)}, {short_bytes(gap.bytes)} above"
    text = f"{above} the lower bound of {short_bytes(arena.extent_bytes - gap.bytes)}: {causes[gap.cause]}."
    return text[0].upper() + text[1:]
