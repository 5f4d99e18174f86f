"""The answer of a fit, and what one asks of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from tmmu_core.errors import UnreadableInput
from tmmu_core.fit.answer import ALLOWED, Allowed, Fitted
from tmmu_core.fit.asking import question_of
from tmmu_core.fit.moves import KINDS, Cost, Move
from tmmu_core.graph import native
from tmmu_core.graph.model import Graph
from tmmu_core.library.requests import capacity_of, ratio
from tmmu_core.plan import model
from tmmu_core.plan.making.request import PlanRequest
from tmmu_core.writing import put

P = TypeVar("P", bound=model.Plan)


@dataclass(frozen=True, eq=False, repr=False)
class Fit(Generic[P]):
    """``fits``, ``cannot`` or ``open``; the plan, the graph that gives it with no further flags, and the moves."""

    fitted: Fitted
    """All of it: the curve of bytes and cost, the bound and what makes it."""
    plan: P
    """The cheapest plan that fits; else the one that is over by the least."""

    @property
    def answer(self) -> str:
        """``fits``; ``cannot``, which is proven; or ``open``: neither a plan nor a proof was found."""
        return self.fitted.answer

    @property
    def graph(self) -> Graph:
        """What is run then: its order stands, recomputing and copying nodes are written out."""
        return self.fitted.best.fitted_graph

    @property
    def moves(self) -> tuple[Move, ...]:
        """What was done, in order, with the bytes that each brings and its cost."""
        return self.fitted.best.moves

    @property
    def cost(self) -> Cost:
        """Extra operations, bytes moved, extra steps: of all moves together."""
        return self.fitted.best.cost

    @property
    def extent_bytes(self) -> int:
        """What the plan reserves, over all arenas that the capacity counts."""
        return self.fitted.best.extent_bytes

    @property
    def lower_bound_bytes(self) -> int:
        """No plan that the allowed moves lead to takes fewer."""
        return self.fitted.lower_bound_bytes

    def save(self, path: str | Path) -> Path:
        """Write the fitted graph as a native file (``.tmmu.json``, ``.tmmu.cbor``, ``.gz`` of either). Gives the path.

        Raises ``UnreadableInput`` for another ending, ``UnwritableOutput`` where the file cannot be written.
        """
        path = Path(path)
        if not {".json", ".cbor"} & set(path.suffixes):
            raise UnreadableInput("a graph is written as .tmmu.json or .tmmu.cbor.", source=str(path))
        put(path, native.encode(self.graph, path.name))
        return path

    def __bool__(self) -> bool:
        return self.answer == "fits"

    def __repr__(self) -> str:
        over = f", over by {self.fitted.over_bytes:,} B" * bool(self.fitted.over_bytes)
        figures = f"extent {self.extent_bytes:,} B{over}, bound {self.lower_bound_bytes:,} B"
        return f"<Fit {self.answer}: {figures}, {len(self.moves)} move{'s' * (len(self.moves) != 1)}>"


OF_FITS = ("allow", "max_cost", "keep_phases", "progress")
"""What a fit is asked beside the fields of a request."""


def fitted_of(graph: Graph, request: PlanRequest, capacity: Any, how: Mapping[str, Any]) -> Fitted:
    """The search, as a caller writes it. Raises ``TypeError`` for an option that there is not."""
    from tmmu_core.fit.fitting import fit  # its loops load numba, which takes longer than packing

    unknown = sorted(set(how) - set(OF_FITS))
    if unknown:
        raise TypeError(f"there is no option {unknown[0]!r}; the options are {', '.join(OF_FITS)}")
    kinds = how.get("allow")
    kinds = ALLOWED if kinds is None else [k.strip() for k in kinds.split(",")] if isinstance(kinds, str) else kinds
    wrong = sorted(set(kinds) - set(KINDS))
    if wrong:
        raise UnreadableInput(f"allow: there is no move {wrong[0]!r}.", hint=f"Moves are: {', '.join(KINDS)}.")
    cost, progress = how.get("max_cost"), how.get("progress")
    most = None if cost is None else int(ratio("max_cost", cost) * 100_000)
    allowed = Allowed(frozenset(kinds), most, bool(how.get("keep_phases")))
    return fit(question_of(graph, request, progress), capacity_of(capacity), allowed, progress)
