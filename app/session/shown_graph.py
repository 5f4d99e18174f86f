"""The graph of the shown plan: its module tree, and the part of the graph that is visible on the page."""

from collections.abc import Iterable
from urllib.parse import quote, unquote

from app.session import plan_rows
from app.session.planning import Shown
from app.session.view_state import GRAPH_PARTS, Choice
from app.session.work.jobs import job_table, memoized
from tmmu_core.graph.model import Origin
from tmmu_core.graph.modules.collapsed_graph import GraphView, Tree, ViewRequest, tree_of, visible_part
from tmmu_core.graph.modules.module_paths import Path

MODEL, AROUND = GRAPH_PARTS
RADIUS = 2  # default distance from the selection, in edges
MAX_RADIUS = 9
MAX_NODES_WITHOUT_MODULES = 200  # a larger graph without modules is first shown around the selection


def path_text(path: Path) -> str:
    """Return a module path as text for links: its names, quoted and separated by slashes."""
    return "/".join([quote(part, safe="") for part in path])


def paths_of(text: str) -> frozenset[Path]:
    """Return the module paths in a comma-separated list of texts from :func:`path_text`."""
    return frozenset([tuple([unquote(part) for part in path.split("/")]) for path in text.split(",") if path])


def move_path(path: str, source: str, target: str) -> tuple[str, str]:
    """Return the comma-separated list ``source`` without ``path``, and the list ``target`` with ``path`` at its end."""
    remaining, present = ([p for p in paths.split(",") if p not in ("", path)] for paths in (source, target))
    return ",".join(remaining), ",".join([*present, path])


@memoized
def tree(shown: Shown) -> Tree:
    """Return the module tree of the executed graph."""
    timeline = shown.timeline
    return tree_of(timeline.index, plan_rows.modules(shown), timeline.node_at.tolist())


def shown_part(shown: Shown, chosen: Choice) -> str:
    """Return the part to show: :data:`MODEL` (the whole graph), or :data:`AROUND` (around the selection)."""
    if chosen.graph_part:
        return chosen.graph_part
    is_large = len(shown.timeline.index.node_ids) > MAX_NODES_WITHOUT_MODULES
    return AROUND if is_large and not plan_rows.modules(shown).known_by else MODEL


def visible_graph(shown: Shown, chosen: Choice, peak_node: int) -> GraphView:
    """Return the visible part of the graph; for :data:`AROUND` without a selection, around ``peak_node``."""
    index = shown.timeline.index
    tensor, node, radius = index.tensor_of.get(chosen.selected, -1), -1, None
    if shown_part(shown, chosen) == AROUND:
        radius = RADIUS if chosen.radius is None else min(chosen.radius, MAX_RADIUS)
        node = peak_node if tensor < 0 else -1
    elif tensor >= 0 and index.producer[tensor] >= 0:
        tensor = -1  # only tensors without a producer are vertices: other selections share one cached view
    request = ViewRequest(paths_of(chosen.opened), paths_of(chosen.closed), tensor, node, radius)
    key = ("visible graph", shown.key, request)
    return job_table().cache.get_or_make(key, lambda: visible_part(index, tree(shown), request))


@memoized
def _node_texts(shown: Shown) -> list[tuple[str, str]]:
    """Return for each step the tensor to select, and the searchable text of the node in lower case."""
    timeline = shown.timeline
    index, graph, rows = timeline.index, timeline.graph, []
    for number in timeline.node_at.tolist():
        if number < 0:
            rows.append(("", ""))
            continue
        node = graph.nodes[number]
        origin = graph.origins.get(node.node_id, Origin())
        tensors = index.outputs_of(number).tolist() or index.inputs_of(number).tolist()
        parts = [node.node_id, node.instr, node.phase, *node.inputs, *node.outputs, ".".join(origin.module)]
        parts += [origin.source, *(f"{name}={value}" for name, value in node.params.items())]
        rows.append((largest_of(shown, tensors), "\n".join(parts).lower()))
    return rows


def matching_steps(shown: Shown, text: str) -> dict[int, str]:
    """Return step → tensor to select, for each node with ``text`` in its name, operator, attributes or origin."""
    needle = text.strip().lower()
    if not needle:
        return {}
    return {step: tensor for step, (tensor, node_text) in enumerate(_node_texts(shown)) if needle in node_text}


def largest_of(shown: Shown, tensors: Iterable[int]) -> str:
    """Return the name of the largest tensor; of equally large tensors the first; "" for no tensor."""
    index = shown.timeline.index
    largest = max(tensors, key=lambda t: (int(index.nbytes[t]), -t), default=None)
    return "" if largest is None else index.tensor_ids[largest]
