"""The result of a fit: the answer, the plan, the changed graph and the moves."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from tmmu_core.base.app_package import app_module
from tmmu_core.base.atomic_files import write_output_file
from tmmu_core.fitting.move import Cost, Move
from tmmu_core.fitting.problem.answer import Fitted, UnknownOperator
from tmmu_core.fitting.recompute.recompute_model import recompute_model
from tmmu_core.graph.model import Graph
from tmmu_core.graph.native import native_file
from tmmu_core.plans import model

P = TypeVar("P", bound=model.Plan)


@dataclass(frozen=True)
class Assumptions:
    """The assumptions under which the answer of a fit holds."""

    alignment_bytes: dict[str, int]
    """Arena of the best plan → its alignment."""
    not_recomputable: dict[str, int]
    """Operator → number of its nodes that cannot run again, for example collectives and operators of unknown cost."""
    unit: str = "byte"
    """The unit of every size and capacity."""


def assumptions(fitted: Fitted) -> Assumptions:
    """Return the assumptions of ``fitted``. O(tensors + operands)."""
    recomputable = recompute_model(fitted.start.plan_input)
    not_recomputable = Counter(map(recomputable.instr, np.flatnonzero(~recomputable.can_rerun).tolist()))
    alignments = {arena.name: arena.alignment_bytes for arena in fitted.best.plan.arenas}
    return Assumptions(alignments, dict(sorted(not_recomputable.items())))


@dataclass(frozen=True, eq=False, repr=False)
class Fit(Generic[P]):
    """The result of :func:`tmmu.fit`: the answer, the plan, the changed graph and the moves; true if it fits."""

    fitted: Fitted
    """The result of the search, with the lower bound of each arena and the best candidates by rising cost."""
    plan: P
    """The cheapest plan that fits; else the plan that exceeds the capacity least."""

    @property
    def answer(self) -> str:
        """``fits``; ``cannot`` (proven); or ``open``: the search found neither a plan that fits nor a proof."""
        return self.fitted.answer

    @property
    def graph(self) -> Graph:
        """The changed graph: nodes in execution order, with recomputations and copies to the offload memory."""
        return self.fitted.best.plan_input.graph

    @property
    def moves(self) -> tuple[Move, ...]:
        """The moves in order, each with the bytes it saves and its cost."""
        return self.fitted.best.moves

    @property
    def cost(self) -> Cost:
        """Extra FLOPs, bytes transferred and extra steps of all moves."""
        return self.fitted.best.cost

    @property
    def extent_bytes(self) -> int:
        """Sum of the extents of all arenas except ``offload``."""
        return self.fitted.best.extent_bytes

    @property
    def lower_bound_bytes(self) -> int:
        """Lower bound of ``extent_bytes`` over all plans that the allowed moves can reach."""
        return self.fitted.lower_bound_bytes

    @property
    def next_steps(self) -> tuple[str, ...]:
        """Suggested changes of the request; empty if it fits."""
        return self.fitted.next_steps

    @property
    def unknown_operators(self) -> tuple[UnknownOperator, ...]:
        """Operators of unknown kind or cost. A fit recomputes none, and does not reorder those of unknown kind."""
        return self.fitted.unknown

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the input, the request and the plan: assumed sizes, missing parts, options without effect."""
        return self.fitted.warnings

    @property
    def assumptions(self) -> Assumptions:
        """The assumptions under which the answer holds: alignment, unit, operators that are not recomputed."""
        return assumptions(self.fitted)

    def save(self, path: str | Path) -> Path:
        """Write the fitted graph as a native file (``.tmmu.json``, ``.tmmu.cbor``, also ``.gz``) and return its path.

        Raises ``UnreadableInput`` for an unsupported suffix, ``UnwritableOutput`` if the file cannot be written.
        """
        path = Path(path)
        write_output_file(path, native_file.encode(self.graph, path.name))
        return path

    def __bool__(self) -> bool:
        return self.answer == "fits"

    def __repr__(self) -> str:
        over = f", over by {self.fitted.over_bytes:,} B" * bool(self.fitted.over_bytes)
        figures = f"extent {self.extent_bytes:,} B{over}, bound {self.lower_bound_bytes:,} B"
        return f"<Fit {self.answer}: {figures}, {len(self.moves)} move{'s' * (len(self.moves) != 1)}>"

    def _repr_html_(self) -> str:
        plan_html = getattr(self.plan, "_repr_html_", str)()
        return f"<code>{app_module('texts.markup').esc(repr(self))}</code>{plan_html}"
