"""The graph of the shown plan: its tree of modules, and the part that a choice shows."""

from collections.abc import Iterable, Sequence
from urllib.parse import quote, unquote

from app.session import plan_rows
from app.session.planning import Shown
from app.session.view_state import Choice
from app.session.work.jobs import remembered
from tmmu_core.graph.model import Origin
from tmmu_core.graph.modules.collapsed_graph import GraphView, ViewRequest, walk
from tmmu_core.graph.modules.module_paths import Path
from tmmu_core.graph.modules.module_tree import Tree, tree_of
from tmmu_core.plans.figures.live_bytes import held_by_writer

AROUND, MODEL = "around", "model"
RADIUS = 2
MOST_RADIUS = 9
MOST_WITHOUT = 200
"""Maximum number of nodes of a graph without modules that is first shown completely."""


def path_text(path: Path) -> str:
    """Return the text of a level for links and the browser. Separators in names are quoted."""
    return "/".join([quote(part, safe="") for part in path])


def paths_of(text: str) -> frozenset[Path]:
    """Return the levels in the text of a choice, written by :func:`path_text` and separated by commas."""
    return frozenset([tuple([unquote(part) for part in path.split("/")]) for path in text.split(",") if path])


def without(text: str, path: str) -> str:
    """Return the levels of a choice without ``path``."""
    return ",".join([other for other in text.split(",") if other and other != path])


def with_(text: str, path: str) -> str:
    """Return the levels of a choice with ``path``."""
    return f"{without(text, path)},{path}".lstrip(",")


@remembered
def tree(shown: Shown) -> Tree:
    """Return the levels of the graph as run."""
    timeline = shown.timeline
    return tree_of(timeline.index, plan_rows.modules(shown), timeline.node_at.tolist())


def way_of(shown: Shown, chosen: Choice) -> str:
    """Return the part that is shown: :data:`MODEL`, or the nodes :data:`AROUND` the selection."""
    if chosen.walk:
        return chosen.walk
    nodes = len(shown.timeline.index.node_ids)
    return AROUND if nodes > MOST_WITHOUT and not plan_rows.modules(shown).known_by else MODEL


def walked(shown: Shown, chosen: Choice, peak_node: int) -> GraphView:
    """Return the visible part for a choice. Without a selection, a neighbourhood is that of ``peak_node``."""
    index = shown.timeline.index
    tensor = index.tensor_of.get(chosen.selected, -1)
    around = way_of(shown, chosen) == AROUND
    radius = (RADIUS if chosen.radius is None else min(chosen.radius, MOST_RADIUS)) if around else None
    # a whole model has one view for all selections, except tensors without a producer
    has_producer = tensor >= 0 and index.producer[tensor] >= 0
    tensor, node = (tensor, peak_node if tensor < 0 else -1) if around else (-1 if has_producer else tensor, -1)
    request = ViewRequest(paths_of(chosen.opened), paths_of(chosen.closed), tensor, node, radius)
    return _walked(shown, request)


@remembered
def _walked(shown: Shown, request: ViewRequest) -> GraphView:
    return walk(shown.timeline.index, tree(shown), request)


@remembered
def _node_texts(shown: Shown) -> list[tuple[str, str]]:
    """Return, per step, the largest tensor of its node, and all texts of the node in lower case."""
    timeline = shown.timeline
    index, graph, rows = timeline.index, timeline.graph, []
    for number in timeline.node_at.tolist():
        if number < 0:
            rows.append(("", ""))
            continue
        node = graph.nodes[number]
        origin = graph.origins.get(node.node_id, Origin())
        written = index.outputs_of(number).tolist() or index.inputs_of(number).tolist()
        parts = [node.node_id, node.instr, node.phase, *node.inputs, *node.outputs, ".".join(origin.module)]
        parts += [origin.source, *(f"{name}={value}" for name, value in node.params.items())]
        picked = largest_of(shown, written)
        rows.append((index.tensor_ids[picked] if picked >= 0 else "", "\n".join(parts).lower()))
    return rows


def found_steps(shown: Shown, text: str) -> dict[int, str]:
    """Return step → tensor to select, for nodes with ``text`` in their name, operator, attributes or origin."""
    needle = text.strip().lower()
    if not needle:
        return {}
    return {step: tensor for step, (tensor, words) in enumerate(_node_texts(shown)) if needle in words}


def held(shown: Shown, found: GraphView, step: int, arena: str) -> tuple[int, ...]:
    """Return, per vertex, the bytes of an arena that it wrote and that are live at a step."""
    index = shown.timeline.index
    if not arena:
        return (0,) * len(found.collapsed.vertices)
    return found.collapsed.total(held_by_writer(shown.plan, index, step, arena)[0])


def largest_of(shown: Shown, tensors: Iterable[int]) -> int:
    """Return the largest tensor, the first of equal ones; −1 for none."""
    size: Sequence[int] = shown.timeline.index.nbytes  # type: ignore[assignment]
    return max(tensors, key=lambda t: (int(size[t]), -t), default=-1)
