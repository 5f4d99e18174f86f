"""The graph, walked: what is seen of it as boxes and edges, and what a click there changes of the choice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import streamlit as st

from app.parts import focus, pictures
from app.parts.walk_canvas import Arrow, Box, Drawing, Frame, walk_canvas
from app.say import words
from app.session import state, walked
from app.session.planning import Shown
from tmmu_core.graph.collapsed import Edge, Vertex
from tmmu_core.graph.tree import Tree
from tmmu_core.graph.walk import MOST_DRAWN, Walked
from tmmu_core.liveness.model import Liveness
from tmmu_core.plan.figures.storages import live_bytes

HEIGHT = 600
WAYS = {walked.MODEL: "Whole model", walked.AROUND: "Around the selection"}


@dataclass(frozen=True, eq=False)
class Scene:
    """What a drawing says, at hand."""

    shown: Shown
    liveness: Liveness
    tree: Tree
    found: Walked
    arena: str
    peak: int
    """The step of the arena's peak."""

    @property
    def peak_node(self) -> int:
        """The node that runs there; −1 for none."""
        return int(self.liveness.timeline.node_at[self.peak]) if self.liveness.timeline.steps else -1


def draw(shown: Shown) -> None:
    """The controls and the drawing, under the choice."""
    scene = scene_of(shown)
    controls(scene)
    walk_canvas(
        drawing(scene),
        key="walk",
        height=HEIGHT,
        on={"select": lambda name: state.choose(selected=name), "open": _open, "close": _close},
    )


def scene_of(shown: Shown) -> Scene:
    """What the choice shows."""
    assert shown.solution is not None
    liveness, chosen, arena = shown.solution.liveness, state.choice(), focus.arena(shown)
    peak = focus.peak(shown.plan, shown.key, arena)[0] if arena else 0
    at_peak = int(liveness.timeline.node_at[peak]) if liveness.timeline.steps else -1
    if at_peak < 0 and len(liveness.timeline.order):
        at_peak = liveness.timeline.index.node_of[liveness.timeline.order[0]]
    found = walked.walked(shown, chosen, at_peak)
    return Scene(shown, liveness, walked.tree(shown), found, arena, peak)


def controls(scene: Scene) -> None:
    """How it is walked: whole or around the selection, how far, and the way down to what is selected."""
    chosen, way = state.choice(), walked.way_of(scene.shown, state.choice())
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="walk-controls"):
        st.segmented_control(
            "Walk",
            list(WAYS),
            format_func=WAYS.__getitem__,
            key=state.seat("walk", way),
            on_change=lambda: state.choose(walk=state.value_of("walk") or way),
            label_visibility="collapsed",
            required=True,
        )
        if way == walked.AROUND:
            st.number_input(
                "Edges away",
                min_value=0,
                max_value=walked.MOST_RADIUS,
                key=state.seat("radius", walked.RADIUS if chosen.radius is None else chosen.radius),
                on_change=lambda: state.choose(radius=state.value_of("radius")),
                label_visibility="collapsed",
                width=130,
                help="How many edges between the selection and what is seen.",
            )
        inside = levels_above(scene, chosen.selected)
        st.button(
            "Open down to the selection",
            key="walk-down",
            disabled=not inside,
            help="Opens every module that the selection lies in."
            if inside
            else ("It is in sight." if chosen.selected else "Nothing is selected."),
            on_click=_open_all,
            args=(inside,),
        )
        if chosen.opened or chosen.closed:
            st.button(
                "As at first",
                key="walk-reset",
                type="tertiary",
                help="Lets go of what was opened and closed by hand.",
                on_click=state.choose,
                kwargs={"opened": "", "closed": ""},
            )


def levels_above(scene: Scene, selected: str) -> tuple[str, ...]:
    """The closed levels that hide who writes a tensor, outermost first."""
    index = scene.liveness.timeline.index
    tensor = index.tensor_of.get(selected, -1)
    node = int(index.producer[tensor]) if tensor >= 0 else -1
    if node < 0:
        return ()
    return tuple([walked.path_text(p) for p in scene.tree.above(node) if p not in scene.found.opened])


def drawing(scene: Scene) -> Drawing:
    """Everything that is drawn."""
    found, chosen = scene.found.collapsed, state.choice()
    index, total = scene.liveness.timeline.index, _live_at_peak(scene)
    held = walked.held(scene.shown, scene.found, scene.peak, scene.arena)
    tensor = index.tensor_of.get(chosen.selected, -1)
    at = int(found.of_node[index.producer[tensor]]) if tensor >= 0 and index.producer[tensor] >= 0 else -1
    if tensor >= 0 and at < 0:
        loose = [k for k, v in enumerate(found.vertices) if v.kind == "tensor" and v.item == tensor]
        inputs = [k for k, v in enumerate(found.vertices) if v.kind == "inputs" and bool(index.is_input[tensor])]
        at = next(iter(loose + inputs), -1)
    return Drawing(
        title=f"the graph of {scene.shown.opened.name}",
        said=said(scene),
        boxes=[_box(scene, vertex, n, total) for vertex, n in zip(found.vertices, held, strict=True)],
        arrows=[_arrow(scene, edge) for edge in found.edges],
        frames=[_frame(scene.tree, level) for level in found.levels],
        selected=at,
        peak=int(found.of_node[scene.peak_node]) if scene.peak_node >= 0 else -1,
        carrying=_carrying(scene, tensor),
        saved=pictures.saved_as(),
    )


def _carrying(scene: Scene, tensor: int) -> list[int]:
    """The edges along which the storage of a tensor goes: its views carry the same bytes."""
    storage_of = scene.liveness.storage_of
    if tensor < 0:
        return []
    own = int(storage_of[tensor])
    members = np.flatnonzero(storage_of == own).tolist() if own >= 0 else [tensor]
    return sorted({edge for member in members for edge in scene.found.collapsed.carrying(member)})


def said(scene: Scene) -> str:
    """What is seen, in a line: how much of the graph, and what was left out."""
    found = scene.found
    boxes, edges = len(found.collapsed.vertices), len(found.collapsed.edges)
    nodes = words.count(len(scene.liveness.timeline.index.node_ids), "node")
    line = f"{words.count(boxes, 'box', 'boxes')} and {words.count(edges, 'edge')} for {nodes}"
    if found.by_level:
        line += "; around it by module, for too many nodes are that near"
    if found.too_many and found.radius is not None:
        line += f"; {words.count(found.radius, 'edge')} away: more would be {found.too_many:,} boxes"
    elif found.too_many:
        line += f"; that would be {found.too_many:,} boxes, and {MOST_DRAWN:,} are the most: close some first"
    return line


def _live_at_peak(scene: Scene) -> int:
    if not scene.arena or not scene.shown.plan.steps:
        return 0
    return int(live_bytes(scene.shown.plan, scene.arena)[scene.peak])


def _box(scene: Scene, vertex: Vertex, held: int, total: int) -> Box:
    share = held / total if total else 0.0
    of_peak = [("at the peak", f"{words.short_bytes(held)} held, {words.percent(held, total)}")] if held else []
    if vertex.kind == "level":
        return _closed(scene, vertex, share, of_peak)
    index, timeline = scene.liveness.timeline.index, scene.liveness.timeline
    if vertex.kind == "inputs":
        names = timeline.graph.inputs
        largest = walked.largest_of(scene.shown, [index.tensor_of[name] for name in names])
        under = words.count(len(names), "tensor")
        loaded = index.tensor_ids[largest] if largest >= 0 else ""
        return Box("i", "inputs", under, "inputs", 0, None, loaded, [("loaded at", "step 0")], vertex.hidden)
    if vertex.kind == "tensor":
        tensor = timeline.graph.tensors[vertex.item]
        size = words.short_bytes(int(index.nbytes[vertex.item]))
        tip = [("role", tensor.role), ("size", size)]
        return Box(f"t{vertex.item}", tensor.id, size, "tensor", 0, None, tensor.id, tip, vertex.hidden)
    node = timeline.graph.nodes[vertex.item]
    written = index.outputs_of(vertex.item).tolist()
    pick = walked.largest_of(scene.shown, written or index.inputs_of(vertex.item).tolist())
    nbytes = sum(int(index.nbytes[t]) for t in written)
    step = int(timeline.step_of[vertex.item])
    tip = [("operator", node.instr)] if node.instr and node.instr != node.node_id else []
    tip += [("step", words.step(step))] if step >= 0 else [("step", "not in this mode")]
    tip += [("writes", words.short_bytes(nbytes)), *of_peak]
    origin = timeline.graph.origins.get(node.node_id)
    tip += [("source", origin.source)] if origin is not None and origin.source else []
    under = " · ".join([part for part in (node.instr, words.short_bytes(nbytes)) if part and part != node.node_id])
    name = index.tensor_ids[pick] if pick >= 0 else ""
    return Box(f"n{vertex.item}", node.node_id, under, "node", vertex.level, None, name, tip, vertex.hidden, share)


def _closed(scene: Scene, vertex: Vertex, share: float, of_peak: list[tuple[str, str]]) -> Box:
    tree, level = scene.tree, vertex.item
    blocks = int(tree.blocks[level])
    under = words.count(vertex.members, "node") + (f" · {blocks:,} blocks" if blocks else "")
    tip = [("nodes", f"{vertex.members:,}"), ("inside", f"{words.count(vertex.inside, 'tensor')} that never leave it")]
    path = walked.path_text(tree.paths[level])
    tip += of_peak
    return Box(f"l{level}", tree.label(level), under, "level", vertex.level, path, "", tip, vertex.hidden, share)


def _arrow(scene: Scene, edge: Edge) -> Arrow:
    index = scene.liveness.timeline.index
    more = [("and", f"{len(edge.tensors) - 1:,} more")] if len(edge.tensors) > 1 else []
    tip = [*more, ("bytes", words.short_bytes(edge.nbytes))]
    return Arrow(edge.source, edge.target, index.tensor_ids[edge.largest], tip, 1 + 0.5 * (len(edge.tensors) > 1))


def _frame(tree: Tree, level: int) -> Frame:
    parent = int(tree.parent[level])
    count = words.count(int(tree.members[level]), "node")
    return Frame(level, parent, tree.label(level), walked.path_text(tree.paths[level]), count)


def _open(path: str) -> None:
    _open_all((path,))


def _open_all(paths: tuple[str, ...]) -> None:
    chosen = state.choice()
    opened, closed = chosen.opened, chosen.closed
    for path in paths:
        opened, closed = walked.with_(opened, path), walked.without(closed, path)
    state.choose(opened=opened, closed=closed)


def _close(path: str) -> None:
    chosen = state.choice()
    state.choose(opened=walked.without(chosen.opened, path), closed=walked.with_(chosen.closed, path))
