"""The page Graph: the drawing of the visible boxes and edges, and the nodes in execution order."""

import hashlib
import json
from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from app.canvas.component import GRAPH
from app.kit import arena_focus, controls, page_frame, tensor_card, tensor_table, toolbar
from app.session import plan_rows, state
from app.session.planning import Shown
from app.session.view_state import AROUND, MODEL, move_path, path_text, paths_of
from app.session.work.jobs import job_table, memoized
from app.texts import markup, numbers
from tmmu_core.base.escaping import visible
from tmmu_core.graph.model import INPUTS_STEP, Node, Origin
from tmmu_core.graph.modules import collapsed_graph
from tmmu_core.graph.modules.collapsed_graph import GraphView, Tree, Vertex
from tmmu_core.liveness.timeline import Timeline
from tmmu_core.plans.figures.live_bytes import live_bytes_by_writer

HEIGHT = 600
MOST_NODES = 5_000
DEFAULT_ORDER = "topological; among ready nodes, the lowest id first"
RADIUS = 2  # default distance from the selection, in edges
MAX_RADIUS = 9
MAX_NODES_WITHOUT_MODULES = 200  # a larger graph without modules is first shown around the selection
PARTS = {MODEL: "Whole model", AROUND: "Around the selection"}


def page() -> None:
    """Draw the page; for a file without a graph, draw a message instead."""
    shown = page_frame.draw()
    if shown.solution is None:
        st.html(markup.view_title(f"{shown.opened.name} has no graph"))
        st.html(markup.empty("No nodes to draw", "Open the graph of the model."))
        return
    timeline = shown.timeline
    nodes, tensors = len(timeline.graph.nodes), len(timeline.graph.tensors)
    added = nodes - len(timeline.source.nodes)
    title = f"{page_frame.name_of(shown)}: {numbers.count(nodes, 'node')}"
    title += f" ({added:,} added for this mode)" if added else ""
    title += f", {numbers.count(tensors, 'tensor')}, {numbers.count(timeline.steps, 'step')}; mode: "
    title += toolbar.MODES.get(f"{shown.plan.mode}/{shown.plan.preset}", timeline.mode)
    is_inferred = plan_rows.modules(shown).known_by == "parameters"
    st.html(markup.view_title(title, ["modules inferred from parameter names"] if is_inferred else []))
    _selectable_part(shown)


@st.fragment
def _selectable_part(shown: Shown) -> None:
    left, right = st.columns([0.755, 0.245], gap="small")
    chosen = state.choice()
    with left:
        draw(shown)
        table = node_table(shown, chosen.search)
        has_order = shown.timeline.source.execution_order is not None
        order = "the chosen order" if shown.choice.order else "the order of the file" if has_order else DEFAULT_ORDER
        listed = numbers.of(len(table), shown.timeline.steps, "step")
        note = f"{order}; {listed} listed; tensor: the first output; click a row to select it"
        st.html(markup.heading("Nodes in execution order", note))
        tensor_table.selectable_table(table, f"nodes.{shown.key}.{chosen.search}", chosen.selected, height=420)
    with right, st.container(key="beside"):
        tensor_card.panel_of_tensor(shown, on_graph_page=True)
    state.write_link()


@memoized
def node_table(shown: Shown, search: str) -> pd.DataFrame:
    """Return a table with a row for each step that matches ``search``, up to :data:`MOST_NODES` rows."""
    timeline = shown.timeline
    steps = list(matching_steps(shown, search) if search else range(timeline.steps))
    rows = [_row(timeline, step, int(timeline.node_at[step])) for step in steps[:MOST_NODES]]
    columns = ["step", "node", "operator", "phase", "reads", "writes", "bytes in", "bytes out"]
    frame = pd.DataFrame(rows or [_row(timeline, 0, -1)], columns=[*columns, "in place (input→output)", "tensor"])
    return frame.head(len(rows))  # an empty table needs typed columns too


def _row(timeline: Timeline, step: int, node_number: int) -> tuple[object, ...]:
    """Return the row of a step. ``node_number``: the node at the step, or −1 for the step that loads the inputs."""
    index = timeline.index
    if node_number < 0:
        node, reads, writes = Node("", INPUTS_STEP, inplace=()), [], list(timeline.graph.inputs)
    else:
        node = timeline.graph.nodes[node_number]
        reads = [index.tensor_ids[i] for i in index.inputs_of(node_number)]
        writes = [index.tensor_ids[i] for i in index.outputs_of(node_number)]
    in_place = "undeclared" if node.inplace is None else node.inplace
    if not isinstance(in_place, str):
        in_place = ", ".join(f"{i}→{o}" for i, o in in_place)
    read_bytes, written_bytes = (sum(int(index.nbytes[index.tensor_of[t]]) for t in names) for names in (reads, writes))
    texts = node.node_id, node.instr, node.phase, ", ".join(reads), ", ".join(writes)
    return step, *texts, read_bytes, written_bytes, in_place, writes[0] if writes else ""


def draw(shown: Shown, key: str = "graph") -> None:
    """Draw the graph. Its controls are drawn only for the default ``key``, which the page Compare does not use."""
    timeline, arena, chosen = shown.timeline, arena_focus.arena(shown), state.choice()
    index = timeline.index
    peak = arena_focus.peak_step(shown, arena) if arena else 0
    peak_node = int(timeline.node_at[peak]) if timeline.steps else -1  # −1: no steps, or the step that loads the inputs
    tensor, node, radius = index.tensor_of.get(chosen.selected, -1), -1, None
    is_large = len(index.node_ids) > MAX_NODES_WITHOUT_MODULES
    part = chosen.graph_part or (AROUND if is_large and not plan_rows.modules(shown).known_by else MODEL)
    if part == AROUND:
        radius = RADIUS if chosen.radius is None else min(chosen.radius, MAX_RADIUS)
        if tensor < 0:  # without a selection, the part around the peak is shown
            first_node = index.node_of[timeline.order[0]] if len(timeline.order) else -1
            node = peak_node if peak_node >= 0 else first_node
    elif tensor >= 0 and index.producer[tensor] >= 0:
        tensor = -1  # only tensors without a producer are vertices: other selections share one cached view
    request = collapsed_graph.ViewRequest(paths_of(chosen.opened), paths_of(chosen.closed), tensor, node, radius)
    tree = module_tree(shown)
    visible_part = partial(collapsed_graph.visible_part, index, tree, request)
    view = job_table().cache.get_or_make(("visible graph", shown.key, request), visible_part)
    if key == "graph":
        _controls(shown, view, part)

    def close(path: str) -> None:
        opened, closed = move_path(path, state.choice().opened, state.choice().closed)
        state.choose(opened=opened, closed=closed)

    callbacks: dict[str, Any] = {"select": lambda name: state.choose(selected=str(name)), "close": close}
    callbacks["open"] = lambda path: _open_all((str(path),))
    on_event = state.listeners(key, callbacks)
    controls.canvas_component(GRAPH)(key=key, data=drawing(shown, view, peak_node), height="content", **on_event)


def _controls(shown: Shown, view: GraphView, part: str) -> None:
    chosen, index = state.choice(), shown.timeline.index
    matches = _matches(shown, chosen.search)

    def searched(text: str) -> None:
        state.choose(search=text.strip(), marked="")
        _select_next(_matches(shown, text))

    with controls.row("graph-controls"):
        controls.switch("Shown part", PARTS, **state.bind("graph_part", part))
        options: dict[str, Any] = {"placeholder": "search nodes and attributes", "label_visibility": "collapsed"}
        options |= {"width": 240, **state.bind("node-search", chosen.search, searched)}
        st.text_input("Search nodes and attributes", type="search", **options)  # Enter selects the next found node
        if chosen.search:
            position = f"{matches.index(chosen.selected) + 1:,} of " if chosen.selected in matches else ""
            options = {"icon": ":material/keyboard_arrow_down:", "type": "tertiary", "shortcut": "Shift+Enter"}
            options |= {"disabled": not matches, "help": "Select the next node found."}
            label = f"{position}{len(matches):,} found"
            st.button(label, key="next-node", on_click=_select_next, args=(matches,), **options)
        if part == AROUND:
            hint = "Show the boxes that are at most this number of edges away from the selection."
            widget = state.bind("radius", RADIUS if chosen.radius is None else chosen.radius)
            st.number_input("Maximum distance", 0, MAX_RADIUS, width=230, help=hint, **widget)
        tensor = index.tensor_of.get(chosen.selected, -1)
        node = int(index.producer[tensor]) if tensor >= 0 else -1
        modules = module_tree(shown).above(node) if node >= 0 else ()  # around the producer, outermost first
        closed = tuple([path_text(path) for path in modules if path not in view.opened])
        hint = "Open every closed module that contains the selection."
        label = "Open modules of the selection"
        st.button(label, key="open-modules", disabled=not closed, help=hint, on_click=_open_all, args=(closed,))
        if chosen.opened or chosen.closed:
            hint = "Restore the initially open modules."
            controls.button("Reset", "reset-modules", {"opened": "", "closed": ""}, help=hint)


def _matches(shown: Shown, text: str) -> list[str]:
    """Return the tensor to select for each found node, without duplicates."""
    return [name for name in dict.fromkeys(matching_steps(shown, text).values()) if name]


def _select_next(matches: list[str]) -> None:
    if matches:
        selected = state.choice().selected
        state.choose(selected=matches[(matches.index(selected) + 1) % len(matches) if selected in matches else 0])


def drawing(shown: Shown, view: GraphView, peak_node: int) -> dict[str, Any]:
    """Return the input of ``graph_chart.js``, which lays out the graph again when the digest ``layout_key`` changes."""
    graph, index, plan, arena = view.collapsed, shown.timeline.index, shown.plan, arena_focus.arena(shown)
    solution, tree = shown.solution, module_tree(shown)
    assert solution is not None
    total = plan.arena_of[arena].peak_live_bytes if arena else 0
    written = (0,) * len(graph.vertices)
    if arena:  # bytes that the nodes of each box wrote and that are live at the peak
        written = graph.total(live_bytes_by_writer(plan, index, arena_focus.peak_step(shown, arena), arena)[0])
    boxes = [_box(shown, vertex, size, total) for vertex, size in zip(graph.vertices, written, strict=True)]
    edges = [[edge.source, edge.target, 1.5 if len(edge.tensors) > 1 else 1] for edge in graph.edges]  # last: the width
    levels = []  # per open module: number, parent, name, path, number of nodes as text
    for level in graph.levels:
        path, count = path_text(tree.paths[level]), numbers.count(int(tree.members[level]), "node")
        count += f" · {tree.blocks[level]:,} blocks" * bool(tree.blocks[level])
        levels.append([level, int(tree.parent[level]), visible(tree.label(level)), path, count])
    box_texts = [[box[field] for field in ("key", "name", "under", "level")] for box in boxes]
    layout_input = [box_texts, levels, [edge[:2] for edge in edges]]
    tensor = index.tensor_of.get(state.choice().selected, -1)
    carrying: list[int] = []  # the edges that carry the selected tensor or another tensor of its buffer
    selected = -1  # the vertex of the selected tensor: its producer, the inputs, or the tensor itself; −1: not drawn
    if tensor >= 0:
        kind, item = ("inputs", -1) if index.is_input[tensor] else ("tensor", tensor)
        selected = next((k for k, v in enumerate(graph.vertices) if v.kind == kind and v.item == item), -1)
        if index.producer[tensor] >= 0:
            selected = int(graph.of_node[index.producer[tensor]])
        storage_of = solution.liveness.storage_of
        buffer = np.flatnonzero(storage_of == storage_of[tensor]).tolist() if storage_of[tensor] >= 0 else [tensor]
        carrying = [k for k, edge in enumerate(graph.edges) if not set(edge.tensors).isdisjoint(buffer)]
    peak = int(graph.of_node[peak_node]) if peak_node >= 0 else -1
    return {
        "layout_key": hashlib.sha256(json.dumps(layout_input).encode()).hexdigest()[:16],
        "title": f"the graph of {shown.opened.name}",
        "status": status_text(shown, view),
        "vertices": boxes,
        "edges": edges,
        "levels": levels,
        "marks": {"selected": selected, "peak": peak, "carrying": carrying},
        "height": HEIGHT,
    }


def status_text(shown: Shown, view: GraphView) -> str:
    """Return the number of drawn boxes and edges, and the reason for missing boxes, as a text."""
    boxes, edges = len(view.collapsed.vertices), len(view.collapsed.edges)
    nodes = numbers.count(len(shown.timeline.index.node_ids), "node")
    line = f"{numbers.count(boxes, 'box', 'boxes')} and {numbers.count(edges, 'edge')} for {nodes}"
    line += "; +n: n neighbours not drawn" if any(vertex.hidden for vertex in view.collapsed.vertices) else ""
    if view.by_level:
        line += "; grouped by module: too many nodes in this radius"
    if view.rejected_vertices and view.radius is not None:
        line += f"; radius reduced to {numbers.count(view.radius, 'edge')}, because "
        line += f"{view.radius + 1} need {view.rejected_vertices:,} boxes"
    elif view.rejected_vertices:  # the view opens the initial modules instead
        needed, limit = view.rejected_vertices, collapsed_graph.MAX_VERTICES
        line += f"; the opened modules need {needed:,} boxes, and the limit is {limit:,}. Close modules"
    return line


def _box(shown: Shown, vertex: Vertex, written_bytes: int, total: int) -> dict[str, Any]:
    """Return the box of a node, a tensor, all inputs, or a closed module. ``total``: all live bytes at the peak.

    ``written_bytes``: the part that nodes of the box wrote. Some fields: ``pick`` (tensor that a click selects),
    ``path`` (module that a click opens), ``held`` (share of ``total``), ``under`` (second line), ``hidden`` neighbours.
    """
    timeline, index, tree = shown.timeline, shown.timeline.index, module_tree(shown)
    share = f"{numbers.short_bytes(written_bytes)}, {numbers.percent(written_bytes, total)}"
    peak_tip = [("at the peak", share)] if written_bytes else []
    pick, path, level = "", None, 0
    if vertex.kind == "level":
        key, name, level, path = f"l{vertex.item}", tree.label(vertex.item), vertex.level, tree.paths[vertex.item]
        under = numbers.count(vertex.members, "node")
        under += f" · {tree.blocks[vertex.item]:,} blocks" * bool(tree.blocks[vertex.item])
        tip = [("nodes", f"{vertex.members:,}"), ("internal tensors", f"{vertex.internal:,}"), *peak_tip]
    elif vertex.kind == "inputs":
        names = timeline.graph.inputs
        key, name, under, tip = "i", "inputs", numbers.count(len(names), "tensor"), [("loaded at", "step 0")]
        pick = largest_of(shown, [index.tensor_of[each] for each in names])
    elif vertex.kind == "tensor":
        tensor = timeline.graph.tensors[vertex.item]
        key, name, pick = f"t{vertex.item}", tensor.id, tensor.id
        under = numbers.short_bytes(int(index.nbytes[vertex.item]))
        tip = [("role", tensor.role), ("size", under)]
    else:
        node = timeline.graph.nodes[vertex.item]
        key, name, level = f"n{vertex.item}", node.node_id, vertex.level
        written = index.outputs_of(vertex.item).tolist()
        pick = largest_of(shown, written or index.inputs_of(vertex.item).tolist())
        size, step = numbers.short_bytes(sum(int(index.nbytes[t]) for t in written)), timeline.step_of[vertex.item]
        tip = [("operator", node.instr)] if node.instr not in ("", name) else []
        tip += [("step", numbers.step(int(step)) if step >= 0 else "not in this mode"), ("writes", size), *peak_tip]
        origin = timeline.graph.origins.get(name)
        tip += [("source", origin.source)] if origin is not None and origin.source else []
        under = " · ".join(part for part in (node.instr, size) if part not in ("", name))
    tip += [("not drawn", numbers.count(vertex.hidden, "neighbour"))] if vertex.hidden else []
    texts = {"name": visible(name), "under": visible(under), "tip": [(label, visible(text)) for label, text in tip]}
    target = {"pick": pick, "path": None if path is None else path_text(path)}
    held = written_bytes / total if total else 0.0
    return {"key": key, "kind": vertex.kind, "level": level, "hidden": vertex.hidden, "held": held, **texts, **target}


def _open_all(paths: tuple[str, ...]) -> None:
    chosen = state.choice()
    opened, closed = chosen.opened, chosen.closed
    for path in paths:
        closed, opened = move_path(path, closed, opened)
    state.choose(opened=opened, closed=closed)


@memoized
def module_tree(shown: Shown) -> Tree:
    """Return the module tree of the executed graph."""
    timeline = shown.timeline
    return collapsed_graph.tree_of(timeline.index, plan_rows.modules(shown), timeline.node_at.tolist())


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
    """Return step → tensor to select, for each node with ``text`` in its :func:`_node_texts`. The case is ignored."""
    needle = text.strip().lower()
    if not needle:
        return {}
    return {step: tensor for step, (tensor, node_text) in enumerate(_node_texts(shown)) if needle in node_text}


def largest_of(shown: Shown, tensors: Iterable[int]) -> str:
    """Return the name of the largest tensor, the first of several; "" without tensors."""
    index = shown.timeline.index
    largest = max(tensors, key=lambda t: (int(index.nbytes[t]), -t), default=None)
    return "" if largest is None else index.tensor_ids[largest]


if __name__ == "__main__":  # Streamlit runs a page as a script
    page()
