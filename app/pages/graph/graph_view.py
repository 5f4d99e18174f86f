"""The drawing of the graph: boxes and edges of the visible part, its controls, and the callbacks of clicks."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

from app.canvas.script import GRAPH
from app.kit import arena_focus, controls
from app.session import shown_graph, state
from app.session.planning import Shown
from app.texts import numbers
from tmmu_core.base.escaping import visible
from tmmu_core.graph.index import GraphIndex
from tmmu_core.graph.modules.collapsed_graph import MAX_VERTICES, GraphView, Tree, Vertex
from tmmu_core.plans.figures.live_bytes import live_bytes_by_writer

HEIGHT = 600
PARTS = {shown_graph.MODEL: "Whole model", shown_graph.AROUND: "Around the selection"}


@dataclass(frozen=True, eq=False)
class Scene:
    """The visible part of the graph of a plan, and the data for its drawing."""

    shown: Shown
    view: GraphView
    index: GraphIndex  # numbers of the nodes and tensors of the executed graph
    tree: Tree
    arena: str  # the chosen or default arena; "" for a plan without arenas
    peak: int  # step of the arena's peak
    peak_node: int  # node of that step; −1 for the step that loads the inputs, and for a plan without steps


def draw(shown: Shown, key: str = "graph") -> None:
    """Draw the graph. Its controls are drawn only for the default ``key``, which the page Compare does not use."""
    timeline, arena = shown.timeline, arena_focus.arena(shown)
    peak = arena_focus.peak_step(shown, arena) if arena else 0
    peak_node = int(timeline.node_at[peak]) if timeline.steps else -1
    first_node = timeline.index.node_of[timeline.order[0]] if len(timeline.order) else -1
    view = shown_graph.visible_graph(shown, state.choice(), peak_node if peak_node >= 0 else first_node)
    scene = Scene(shown, view, timeline.index, shown_graph.tree(shown), arena, peak, peak_node)
    if key == "graph":
        _controls(scene)

    def close(path: str) -> None:
        opened, closed = shown_graph.move_path(path, state.choice().opened, state.choice().closed)
        state.choose(opened=opened, closed=closed)

    callbacks: dict[str, Any] = {"select": lambda name: state.choose(selected=str(name)), "close": close}
    callbacks["open"] = lambda path: _open_all((str(path),))
    on_event = state.listeners(key, callbacks)
    controls.canvas_component(GRAPH)(key=key, data=drawing(scene), height="content", **on_event)


def _controls(scene: Scene) -> None:
    chosen, part = state.choice(), shown_graph.shown_part(scene.shown, state.choice())
    with controls.row("graph-controls"):
        controls.switch("Shown part", PARTS, **state.bind("graph_part", part))
        search(scene.shown)
        if part == shown_graph.AROUND:
            hint = "Show the boxes that are at most this number of edges away from the selection."
            widget = state.bind("radius", shown_graph.RADIUS if chosen.radius is None else chosen.radius)
            st.number_input("Maximum distance", 0, shown_graph.MAX_RADIUS, width=230, help=hint, **widget)
        closed = closed_modules_containing(scene, chosen.selected)
        hint = "Open every closed module that contains the selection."
        label = "Open modules of the selection"
        st.button(label, key="open-modules", disabled=not closed, help=hint, on_click=_open_all, args=(closed,))
        if chosen.opened or chosen.closed:
            hint = "Restore the initially open modules."
            controls.button("Reset", "reset-modules", {"opened": "", "closed": ""}, help=hint)


def search(shown: Shown) -> None:
    """Draw the search for nodes and attributes. Enter selects the largest tensor of the next found node."""
    chosen = state.choice()
    matches = _matches(shown, chosen.search)

    def searched(text: str) -> None:
        state.choose(search=text.strip(), marked="")
        _select_next(_matches(shown, text))

    options: dict[str, Any] = {"placeholder": "search nodes and attributes", "label_visibility": "collapsed"}
    options |= {"width": 240, **state.bind("node-search", chosen.search, searched)}
    st.text_input("Search nodes and attributes", type="search", **options)
    if chosen.search:
        position = f"{matches.index(chosen.selected) + 1:,} of " if chosen.selected in matches else ""
        options = {"icon": ":material/keyboard_arrow_down:", "type": "tertiary", "shortcut": "Shift+Enter"}
        options |= {"disabled": not matches, "help": "Select the next node found."}
        label = f"{position}{len(matches):,} found"
        st.button(label, key="next-node", on_click=_select_next, args=(matches,), **options)


def _matches(shown: Shown, text: str) -> list[str]:
    """Return the tensor to select for each found node, without duplicates."""
    return [name for name in dict.fromkeys(shown_graph.matching_steps(shown, text).values()) if name]


def _select_next(matches: list[str]) -> None:
    if matches:
        selected = state.choice().selected
        state.choose(selected=matches[(matches.index(selected) + 1) % len(matches) if selected in matches else 0])


def closed_modules_containing(scene: Scene, selected: str) -> tuple[str, ...]:
    """Return the paths of the closed modules that contain the producer of the selected tensor, outermost first."""
    tensor = scene.index.tensor_of.get(selected, -1)
    node = int(scene.index.producer[tensor]) if tensor >= 0 else -1
    modules = scene.tree.above(node) if node >= 0 else ()
    return tuple([shown_graph.path_text(path) for path in modules if path not in scene.view.opened])


def drawing(scene: Scene) -> dict[str, Any]:
    """Return the input of ``graph_chart.js``, which lays out the graph again when the digest ``shape`` changes."""
    graph, plan, arena = scene.view.collapsed, scene.shown.plan, scene.arena
    total = plan.arena_of[arena].peak_live_bytes if arena else 0
    written = (0,) * len(graph.vertices)
    if arena:  # bytes that the nodes of each box wrote and that are live at the peak
        written = graph.total(live_bytes_by_writer(plan, scene.index, scene.peak, arena)[0])
    boxes = [_box(scene, vertex, size, total) for vertex, size in zip(graph.vertices, written, strict=True)]
    edges = [[edge.source, edge.target, 1.5 if len(edge.tensors) > 1 else 1] for edge in graph.edges]  # last: the width
    tree, levels = scene.tree, []  # per open module: number, parent, name, path, number of nodes as text
    for level in graph.levels:
        path, count = shown_graph.path_text(tree.paths[level]), numbers.count(int(tree.members[level]), "node")
        levels.append([level, int(tree.parent[level]), visible(tree.label(level)), path, count])
    box_texts = [[box[field] for field in ("key", "name", "under", "level")] for box in boxes]
    shape = [box_texts, levels, [edge[:2] for edge in edges]]
    tensor = scene.index.tensor_of.get(state.choice().selected, -1)
    return {
        "shape": hashlib.sha256(json.dumps(shape).encode()).hexdigest()[:16],
        "title": f"the graph of {scene.shown.opened.name}",
        "status": status_text(scene),
        "vertices": boxes,
        "edges": edges,
        "levels": levels,
        "marks": {
            "selected": _vertex_of(scene, tensor),
            "peak": int(graph.of_node[scene.peak_node]) if scene.peak_node >= 0 else -1,
            "carrying": _edges_of_buffer(scene, tensor),
        },
        "height": HEIGHT,
    }


def _vertex_of(scene: Scene, tensor: int) -> int:
    """Return the vertex of a tensor: its producer, the inputs, or the tensor itself; −1 if none is drawn."""
    graph, index = scene.view.collapsed, scene.index
    if tensor < 0:
        return -1
    if index.producer[tensor] >= 0:
        return int(graph.of_node[index.producer[tensor]])
    kind, item = ("inputs", -1) if index.is_input[tensor] else ("tensor", tensor)
    return next((k for k, v in enumerate(graph.vertices) if v.kind == kind and v.item == item), -1)


def _edges_of_buffer(scene: Scene, tensor: int) -> list[int]:
    """Return the edges that carry the tensor or another tensor of its buffer."""
    solution = scene.shown.solution
    assert solution is not None
    if tensor < 0:
        return []
    storage_of = solution.liveness.storage_of
    storage = int(storage_of[tensor])
    members = np.flatnonzero(storage_of == storage).tolist() if storage >= 0 else [tensor]
    return [k for k, edge in enumerate(scene.view.collapsed.edges) if not set(edge.tensors).isdisjoint(members)]


def status_text(scene: Scene) -> str:
    """Return the number of drawn boxes and edges, and the reason for missing boxes, as a text."""
    view = scene.view
    boxes, edges = len(view.collapsed.vertices), len(view.collapsed.edges)
    nodes = numbers.count(len(scene.index.node_ids), "node")
    line = f"{numbers.count(boxes, 'box', 'boxes')} and {numbers.count(edges, 'edge')} for {nodes}"
    line += "; +n: n neighbours not drawn" if any(vertex.hidden for vertex in view.collapsed.vertices) else ""
    if view.by_level:
        line += "; grouped by module: too many nodes in this radius"
    if view.rejected_vertices and view.radius is not None:
        line += f"; radius reduced to {numbers.count(view.radius, 'edge')}, because "
        line += f"{view.radius + 1} need {view.rejected_vertices:,} boxes"
    elif view.rejected_vertices:  # the initial modules are open instead
        needed, limit = view.rejected_vertices, MAX_VERTICES
        line += f"; the opened modules need {needed:,} boxes, and the limit is {limit:,}. Close modules"
    return line


def _box(scene: Scene, vertex: Vertex, written_bytes: int, total: int) -> dict[str, Any]:
    """Return the box of a node, a tensor, all inputs, or a closed module.

    ``written_bytes``: bytes that the nodes of the box wrote and that are live at the peak; ``total``: all live bytes at
    the peak. Some fields of the result: ``pick`` (tensor that a click selects, or ""), ``path`` (module that a click
    opens, or ``None``), ``held`` (share of ``total``), ``under`` (second line) and ``hidden`` (neighbours not drawn).
    """
    index, timeline, tree = scene.index, scene.shown.timeline, scene.tree
    share = f"{numbers.short_bytes(written_bytes)}, {numbers.percent(written_bytes, total)}"
    peak_tip = [("at the peak", share)] if written_bytes else []
    pick, path, level = "", None, 0
    if vertex.kind == "level":
        blocks = int(tree.blocks[vertex.item])
        key, name, level, path = f"l{vertex.item}", tree.label(vertex.item), vertex.level, tree.paths[vertex.item]
        under = numbers.count(vertex.members, "node") + (f" · {blocks:,} blocks" if blocks else "")
        tip = [("nodes", f"{vertex.members:,}"), ("internal tensors", f"{vertex.internal:,}"), *peak_tip]
    elif vertex.kind == "inputs":
        names = timeline.graph.inputs
        key, name, under, tip = "i", "inputs", numbers.count(len(names), "tensor"), [("loaded at", "step 0")]
        pick = shown_graph.largest_of(scene.shown, [index.tensor_of[each] for each in names])
    elif vertex.kind == "tensor":
        tensor = timeline.graph.tensors[vertex.item]
        key, name, pick = f"t{vertex.item}", tensor.id, tensor.id
        under = numbers.short_bytes(int(index.nbytes[vertex.item]))
        tip = [("role", tensor.role), ("size", under)]
    else:
        node = timeline.graph.nodes[vertex.item]
        key, name, level = f"n{vertex.item}", node.node_id, vertex.level
        written = index.outputs_of(vertex.item).tolist()
        pick = shown_graph.largest_of(scene.shown, written or index.inputs_of(vertex.item).tolist())
        size, step = numbers.short_bytes(sum(int(index.nbytes[t]) for t in written)), timeline.step_of[vertex.item]
        tip = [("operator", node.instr)] if node.instr not in ("", name) else []
        tip += [("step", numbers.step(int(step)) if step >= 0 else "not in this mode"), ("writes", size), *peak_tip]
        origin = timeline.graph.origins.get(name)
        tip += [("source", origin.source)] if origin is not None and origin.source else []
        under = " · ".join(part for part in (node.instr, size) if part not in ("", name))
    tip += [("not drawn", numbers.count(vertex.hidden, "neighbour"))] if vertex.hidden else []
    texts = {"name": visible(name), "under": visible(under), "tip": [(label, visible(text)) for label, text in tip]}
    target = {"pick": pick, "path": None if path is None else shown_graph.path_text(path)}
    held = written_bytes / total if total else 0.0
    return {"key": key, "kind": vertex.kind, "level": level, "hidden": vertex.hidden, "held": held, **texts, **target}


def _open_all(paths: tuple[str, ...]) -> None:
    chosen = state.choice()
    opened, closed = chosen.opened, chosen.closed
    for path in paths:
        closed, opened = shown_graph.move_path(path, closed, opened)
    state.choose(opened=opened, closed=closed)
