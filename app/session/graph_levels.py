"""The graph of the plan that is shown, as it is walked: its tree, and what of it is seen under a choice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import quote, unquote

from app.session import plan_rows
from app.session.planning import Shown
from app.session.view_state import Choice
from app.session.work.jobs import remembered
from tmmu_core.graph.modules.graph_view import GraphView, ViewRequest, walk
from tmmu_core.graph.modules.module_paths import Path
from tmmu_core.graph.modules.module_tree import Tree, tree_of
from tmmu_core.plans.analysis.bytes_by_node import held_by_writer

AROUND, MODEL = "around", "model"
RADIUS = 2
MOST_RADIUS = 9
MOST_WITHOUT = 200
"""Maximum number of nodes of a graph without modules that is first shown completely."""


def path_text(path: Path) -> str:
    """Return the text of a level for links and the browser. Separators in names are quoted."""
    return "/".join([quote(part, safe="") for part in path])


def paths_of(text: str) -> frozenset[Path]:
    """The levels that a choice holds, as :func:`path_text` writes them, with commas."""
    return frozenset([tuple([unquote(part) for part in path.split("/")]) for path in text.split(",") if path])


def without(text: str, path: str) -> str:
    """The levels of a choice without one."""
    return ",".join([other for other in text.split(",") if other and other != path])


def with_(text: str, path: str) -> str:
    """The levels of a choice and one more."""
    return ",".join([*[other for other in text.split(",") if other and other != path], path])


def tree(shown: Shown) -> Tree:
    """The levels of the graph as run."""
    return _tree(shown.key, shown)


@remembered
def _tree(key: str, _shown: Shown) -> Tree:
    del key
    assert _shown.solution is not None
    timeline = _shown.solution.liveness.timeline
    return tree_of(timeline.index, plan_rows.modules(_shown), timeline.node_at.tolist())


def way_of(shown: Shown, chosen: Choice) -> str:
    """Whether the whole model is looked at, or what is around the selection."""
    if chosen.walk:
        return chosen.walk
    assert shown.solution is not None
    nodes = len(shown.solution.liveness.timeline.index.node_ids)
    return AROUND if nodes > MOST_WITHOUT and not plan_rows.modules(shown).known_by else MODEL


def walked(shown: Shown, chosen: Choice, peak_node: int) -> GraphView:
    """Return the visible part for a choice. Without a selection, a neighbourhood is that of ``peak_node``."""
    assert shown.solution is not None
    tensor = shown.solution.liveness.timeline.index.tensor_of.get(chosen.selected, -1)
    around = way_of(shown, chosen) == AROUND
    radius = (RADIUS if chosen.radius is None else min(chosen.radius, MOST_RADIUS)) if around else None
    # a whole model has one view for all selections, except tensors without a producer
    asked = (tensor, peak_node if tensor < 0 else -1) if around else (_unwritten(shown, tensor), -1)
    return _walked(shown.key, (*asked, radius), chosen.opened, chosen.closed, shown)


def _unwritten(shown: Shown, tensor: int) -> int:
    assert shown.solution is not None
    index = shown.solution.liveness.timeline.index
    return tensor if tensor >= 0 and index.producer[tensor] < 0 else -1


@remembered
def _walked(key: str, asked: tuple[int, int, int | None], opened: str, closed: str, _shown: Shown) -> GraphView:
    del key
    assert _shown.solution is not None
    tensor, node, radius = asked
    wish = ViewRequest(paths_of(opened), paths_of(closed), tensor, node, radius)
    return walk(_shown.solution.liveness.timeline.index, tree(_shown), wish)


def held(shown: Shown, found: GraphView, step: int, arena: str) -> tuple[int, ...]:
    """Per vertex, the bytes of an arena that it wrote and that are held at a step."""
    assert shown.solution is not None
    index = shown.solution.liveness.timeline.index
    if not arena:
        return (0,) * len(found.collapsed.vertices)
    return found.collapsed.total(held_by_writer(shown.plan, plan_rows.storages(shown), index, step, arena)[0])


def largest_of(shown: Shown, tensors: Iterable[int]) -> int:
    """The largest of some tensors, the first of several; −1 for none."""
    assert shown.solution is not None
    size: Sequence[int] = shown.solution.liveness.timeline.index.nbytes  # type: ignore[assignment]
    return max(tensors, key=lambda t: (int(size[t]), -t), default=-1)
