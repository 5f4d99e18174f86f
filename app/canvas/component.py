"""The canvas component in Python: a plan as bytes for the browser, and the JavaScript modules as one script.

Layout of the bytes of a plan (little-endian, every array starts at a multiple of 8)::

    u64     length of the header in bytes
    header  JSON, UTF-8, padded with spaces
    arrays  located by [type, start, count] in the header; start is in bytes after the header

A column of integers has the narrowest type of u1, u2, u4 and u8 that fits, so that a million boxes take about 20 MB
plus their names. An array of the type "json" is a JSON list; its count is in bytes.

In the script for the explorer, the report and the plan viewer, each module below ``js/`` is the body of a function, so
that the script works inline, without loading files. File names of modules must be unique across folders.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.texts import numbers as number_text
from app.texts import palette, totals_text
from tmmu_core.formats.planfile.compare_plans import KINDS, compare
from tmmu_core.graph.model import INPUTS_STEP
from tmmu_core.judge.verifier.finished_plan import conflicting_rows
from tmmu_core.plans.analysis.reuse_costs import costly_reuses
from tmmu_core.plans.figures.live_bytes import curve_points_of, live_bytes, peak_of, storages_of
from tmmu_core.plans.model import INVALID, ArenaSummary, Plan

MOST_REUSES = 200  # maximum number of reuses that the canvas marks with their cost
PLAN, GRAPH, VIEWER = "tmmuCanvas", "tmmuGraph", "tmmuViewer"
MAIN_MODULES = {PLAN: "page.js", GRAPH: "graph_chart.js", VIEWER: "viewer.js"}
"""Global variable → the main module, whose exports are the value of the variable."""
PALETTE = "palette.js"  # generated module: the constants of app.texts.palette
WORKER = "worker.js"  # generated module: the script of the layout worker as a string
WORKER_MODULE = "layout.js"  # the module of the layout worker; it runs after the layout library
LIBRARY = "dagre.min.js"  # unchanged; its licence is in the same folder (docs/decisions/03-one-canvas.md)

_IMPORT = re.compile(r'^import \{([^}]*)\} from "\.[\w./]*/(\w+\.js)";\n', re.M)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:const|function|class) (\w+))", re.M)
_EXPORT_LIST = re.compile(r"^export \{([^}]*)\};\n", re.M)


@dataclass(frozen=True)
class Packed:
    """A packed plan for the browser. ``token`` is a digest of the bytes."""

    token: str
    data: bytes


@dataclass(frozen=True, eq=False)
class Origin:
    """Operator and layer of each row of a plan, and the phases of its steps."""

    operators: Sequence[str] | None = None  # the operator that writes each row; ``""`` for a row without an operator
    layers: Sequence[str] | None = None
    phases: Sequence[tuple[str, int, int]] = ()  # ``(phase, first step, step after the last)``


class _Arrays:
    """The arrays of a pack, stored one after the other at 8-byte boundaries."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []

    def add(self, values: NDArray[Any] | Sequence[int]) -> list[Any]:
        """Store integers ≥ 0 in the narrowest type; return ``[type, start, count]`` for the header."""
        column = np.asarray(values)
        kind = f"u{np.min_scalar_type(int(column.max()) if column.size else 0).itemsize}"
        return [kind, self._append(column.astype("<" + kind).tobytes()), column.size]

    def add_list(self, values: Iterable[Any]) -> list[Any]:
        """Store a list of strings or of small integers as JSON; return its position for the header."""
        data = _json(list(values))
        return ["json", self._append(data), len(data)]

    def table(self, values: Sequence[str], order: Iterable[str] = ()) -> dict[str, Any]:
        """Store a code per value (``order``: first values). Return ``{codes: position, names: value of each code}``."""
        codes = {value: code for code, value in enumerate(dict.fromkeys((*order, *values)))}
        return {"codes": self.add([codes[value] for value in values]), "names": list(codes)}

    def _append(self, data: bytes) -> int:
        start = sum(map(len, self.chunks))
        self.chunks.append(data + b"\0" * (-len(data) % 8))
        return start


NO_ORIGIN = Origin()


def pack_plan(
    plan: Plan, origin: Origin = NO_ORIGIN, *, baseline: Plan | None = None, baseline_origin: Origin = NO_ORIGIN
) -> Packed:
    """Pack a plan, and a baseline if given, with the origins of their rows."""
    arrays = _Arrays()
    plans = [_pack_one(arrays, plan, baseline, origin)]
    if baseline is not None:
        plans.append(_pack_one(arrays, baseline, plan, baseline_origin))
        comparison = compare(baseline, plan)
        rows = (comparison.right_row, comparison.left_row)
        for spec, own, other in zip(plans, rows, reversed(rows), strict=True):
            has_row = own >= 0
            twin, changes = np.zeros((2, int(has_row.sum())), np.int64)  # see Columns in columns.js
            twin[own[has_row]], changes[own[has_row]] = other[has_row] + 1, comparison.kinds[has_row]
            spec["arrays"] |= {"twin": arrays.add(twin), "changes": arrays.add(changes)}
    body = b"".join(arrays.chunks)
    header: dict[str, Any] = {"kinds": KINDS, "plans": plans}
    token = hashlib.sha256(_json(header) + body).hexdigest()[:16]
    head = _json({"token": token, **header})
    head += b" " * (-len(head) % 8)
    return Packed(token, len(head).to_bytes(8, "little") + head + body)


def arena_title(plan: Plan, arena: ArenaSummary, step: int) -> str:
    """Return the title of an arena's chart: ``peak 1.50 MiB at #104 conv_12; arena size 1.66 MiB; gap 10.4 %``."""
    return (
        f"peak {number_text.short_bytes(arena.peak_live_bytes)} at {number_text.step(step, plan.node_at(step))}; "
        f"arena size {number_text.short_bytes(arena.extent_bytes)}; gap {number_text.over_bound(*arena.gap)}"
    )


def matches(plan: Plan, text: str) -> NDArray[np.bool_]:
    """Return a flag per row: its id or its producer's id contains ``text`` (see ``searchHits`` in scene.js)."""
    if not text:
        return np.zeros(len(plan), np.bool_)
    fold = str.maketrans(ascii_uppercase, ascii_lowercase)
    needle = text.translate(fold)
    nodes = np.array([needle in name.translate(fold) for name in _nodes(plan)], np.bool_)
    ids = np.array([needle in tensor_id.translate(fold) for tensor_id in plan.tensor_ids], np.bool_)
    is_produced = plan.held_until - plan.birth < plan.steps  # no node writes a row that is live at every step
    return ids | (nodes[plan.birth] & is_produced) if plan.steps else ids


def _nodes(plan: Plan) -> list[str]:
    named = [*([INPUTS_STEP] if plan.has_inputs_step else []), *plan.execution_order][: plan.steps]
    return named + [""] * (plan.steps - len(named))


def drawn_plan(plan: Plan, beside: Plan | None = None) -> tuple[Plan, NDArray[np.int64] | None]:
    """Return ``(plan to draw, steps)``. Drawn step k begins at ``steps[k]``; ``None``: all steps are drawn.

    If a plan has many more steps than rows (an instance may have 2^62 steps), only steps at which a live range begins
    or ends are drawn. ``beside``: a second plan that is drawn with the same steps.
    """
    plans = [plan] if beside is None else [plan, beside]
    if all(each.steps <= 8 * len(each) + 1024 for each in plans):
        return plan, None
    events = [np.concatenate([[0, each.steps], each.birth, each.death, each.held_until]) for each in plans]
    steps = np.unique(np.concatenate(events)).astype(np.int64)
    end = int(np.searchsorted(steps, plan.steps))
    drawn = replace(
        plan,
        steps=end,
        birth=np.searchsorted(steps, plan.birth),
        death=np.searchsorted(steps, plan.death),
        handoffs=tuple([(int(np.searchsorted(steps, step)), source, target) for step, source, target in plan.handoffs]),
        has_inputs_step=False,
        execution_order=tuple([plan.node_at(step) for step in steps[:end].tolist()]),
    )
    return drawn, steps


def _pack_one(arrays: _Arrays, original: Plan, other: Plan | None, origin: Origin) -> dict[str, Any]:
    """Pack a plan and return its part of the header. ``other``: see ``beside`` of :func:`drawn_plan`."""
    plan, events = drawn_plan(original, other)
    storages, is_invalid = storages_of(original), any(arena.status == INVALID for arena in plan.arenas)
    shapes, layers = {shape: number_text.shape(shape) for shape in set(plan.shapes)}, origin.layers
    tables = {
        "role": arrays.table(plan.roles),
        "category": arrays.table(plan.categories) if plan.categories else None,
        "dtype": arrays.table(plan.dtypes),
        "shape": arrays.table([shapes[shape] for shape in plan.shapes]),
        "operator": None if origin.operators is None else arrays.table(origin.operators),
        "module": None if layers is None else arrays.table(layers, palette.layer_order(original, layers)),
    }
    numbers: dict[str, Any] = {"birth": plan.birth, "death": plan.held_until, "offset": plan.offset}
    numbers |= {"size": plan.size, "slot": plan.logical_slot, "generation": plan.generation, "arena": plan.arena}
    members: dict[int, list[int]] = {}
    for row in np.flatnonzero(np.bincount(plan.storage, minlength=1)[plan.storage] > 1).tolist():
        members.setdefault(int(storages.head[plan.storage[row]]), []).append(row)
    taken = [handoff for handoff, is_taken in zip(plan.handoffs, plan.taken, strict=True) if is_taken]
    handoffs = [(t, plan.row_of[x], plan.row_of[y]) for t, x, y in taken if x in plan.row_of and y in plan.row_of]
    reuses = [(reuse.first, reuse.second, min(reuse.cost, 2**53)) for reuse in costly_reuses(original)[:MOST_REUSES]]
    ranked = [] if origin.operators is None else palette.ranked(original, origin.operators)
    return {
        "slotted": plan.has_slots,
        "steps": plan.steps,
        "main": list(plan.arena_of).index(totals_text.main_arena(original)) if plan.arenas else 0,
        "ranked": ranked[: len(palette.CATEGORIES)],
        "phases": [] if events is not None else origin.phases,
        "arenas": _arenas(arrays, original, plan, events),
        "tables": tables,
        "columns": {name: arrays.add(values) for name, values in numbers.items()},
        "arrays": {
            "ids": arrays.add_list(plan.tensor_ids),
            "nodes": arrays.add_list(_nodes(plan)),
            "handoffs": arrays.add_list(handoffs),
            "reuses": arrays.add_list(reuses),
            "events": None if events is None else arrays.add(events),
            "conflict": arrays.add(conflicting_rows(plan)) if is_invalid else None,
        },
        "views": arrays.add_list((k, plan.row_of[i]) for k, i in enumerate(plan.base_tensor_uids) if i in plan.row_of),
        "storages": arrays.add_list(members.items()),
        "stillRead": arrays.add_list(np.flatnonzero(plan.held_until > plan.death).tolist()),
    }


def _arenas(arrays: _Arrays, original: Plan, plan: Plan, events: NDArray[np.int64] | None) -> list[dict[str, Any]]:
    points = curve_points_of(original)
    steps = np.arange(max(1, plan.steps)) if events is None else events[: plan.steps]
    arenas = []
    for summary in plan.arenas:
        curve = live_bytes(original, summary.name)[np.searchsorted(points.steps, steps, side="right") - 1]
        step, _ = peak_of(curve) if plan.steps else (0, 0)
        arenas.append(
            {
                "name": summary.name,
                "capacity": None if summary.capacity_bytes >= number_text.UNLIMITED else summary.capacity_bytes,
                "extent": summary.extent_bytes,
                "bound": summary.bound_bytes,
                "peak": summary.peak_live_bytes,
                "peak_step": step,
                "reserved": () if plan.constraints is None else plan.constraints.reserved.get(summary.name, ()),
                "slots": summary.slots,
                "storages": summary.storages,
                "title": arena_title(original, summary, int(steps[step]) if plan.steps else 0),
                "live": arrays.add(curve),
            }
        )
    return arenas


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


@cache
def canvas_script(variable: str = PLAN) -> str:
    """Return JavaScript that sets a global variable of :data:`MAIN_MODULES` if it is not defined."""
    module = MAIN_MODULES[variable]
    parts = []  # a constant per module, which has the exports of the module; an import reads this constant
    for name, text in ordered(sources(), module):
        exported = [*_EXPORT.findall(text)]
        for names in _EXPORT_LIST.findall(text):
            exported += [part.strip() for part in names.split(",") if part.strip()]
        body = _IMPORT.sub(lambda match: f"const {{{match[1]}}} = {_variable(match[2])};\n", text)
        body = _EXPORT_LIST.sub("", _EXPORT.sub("", body))
        parts.append(f"const {_variable(name)} = (() => {{\n{body}\nreturn {{ {', '.join(exported)} }};\n}})();")
    body = "\n".join(parts)
    return f'globalThis.{variable} ??= (() => {{\n"use strict";\n{body}\nreturn {_variable(module)};\n}})();\n'


def sources() -> dict[str, str]:
    """Return file name → text of each module, including the generated modules of the palette and of the worker."""
    paths = Path(str(files(__package__) / "js")).rglob("*.js")
    texts = {path.name: path.read_text(encoding="utf-8") for path in paths}
    worker = f"{library()}\n{_EXPORT.sub('', texts[WORKER_MODULE])}"
    colours = {name: value for name, value in vars(palette).items() if name.isupper()}
    constants = [f"export const {name} = {json.dumps(value)};\n" for name, value in colours.items()]
    return {**texts, PALETTE: "".join(constants), WORKER: f"export const WORKER = {json.dumps(worker)};\n"}


def library() -> str:
    """Return the script of the layout library."""
    return (files(__package__) / "vendor" / LIBRARY).read_text(encoding="utf-8")


def ordered(modules: dict[str, str], module: str) -> list[tuple[str, str]]:
    """Return ``(name, text)`` of ``module`` and of its direct and indirect imports, each module after its imports."""
    ordered_modules: dict[str, str] = {}

    def add(name: str) -> None:
        if name not in ordered_modules:
            for _, imported in _IMPORT.findall(modules[name]):
                add(imported)
            ordered_modules[name] = modules[name]

    add(module)
    return list(ordered_modules.items())


def _variable(module: str) -> str:
    return f"in_{module.removesuffix('.js')}"
