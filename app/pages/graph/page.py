"""The page Graph: the drawing, and the nodes in execution order."""

import pandas as pd
import streamlit as st

from app.kit.frame import page_frame, toolbar
from app.kit.tensor import tensor_card, tensor_table
from app.pages.graph import graph_view
from app.session import shown_graph, state
from app.session.planning import Shown
from app.session.work.jobs import memoized
from app.texts import markup, numbers
from tmmu_core.graph.model import INPUTS_STEP, Node
from tmmu_core.liveness.live_model import Timeline

MOST_NODES = 5_000
DEFAULT_ORDER = "topological; among ready nodes, the lowest id first"


def page() -> None:
    """Draw the page; for a file without a graph, draw a message instead."""
    shown = page_frame.draw()
    if shown.solution is None:
        st.html(markup.view_title(f"{shown.opened.name} has no graph"))
        st.html(markup.empty("No nodes to draw", "Open the graph of the model."))
        return
    st.html(markup.view_title(view_title(shown)))
    _selectable_part(shown)


def view_title(shown: Shown) -> str:
    """Return the title: ``resnet50: 176 nodes, 445 tensors, 177 steps; mode: inference``."""
    timeline = shown.timeline
    added = len(timeline.graph.nodes) - len(timeline.source.nodes)
    added_text = f" ({added:,} added for this mode)" if added else ""
    return (
        f"{page_frame.name_of(shown)}: {numbers.count(len(timeline.graph.nodes), 'node')}{added_text}, "
        f"{numbers.count(len(timeline.graph.tensors), 'tensor')}, {numbers.count(timeline.steps, 'step')}; "
        f"mode: {toolbar.MODES.get(f'{shown.plan.mode}/{shown.plan.preset}', timeline.mode)}"
    )


@memoized
def nodes(shown: Shown, search: str) -> pd.DataFrame:
    """Return a table with a row for each step that matches ``search``, up to :data:`MOST_NODES` rows."""
    timeline = shown.timeline
    steps = list(shown_graph.matching_steps(shown, search) if search else range(timeline.steps))
    rows = [_row(timeline, step, int(timeline.node_at[step])) for step in steps[:MOST_NODES]]
    return pd.DataFrame(rows or [_row(timeline, 0, -1)]).head(len(rows))  # an empty table needs typed columns too


def _row(timeline: Timeline, step: int, node_number: int) -> dict[str, object]:
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
    size = {name: int(index.nbytes[index.tensor_of[name]]) for name in {*reads, *writes}}
    return {
        "step": step,
        "node": node.node_id,
        "operator": node.instr,
        "phase": node.phase,
        "reads": ", ".join(reads),
        "writes": ", ".join(writes),
        "bytes in": sum(size[name] for name in reads),
        "bytes out": sum(size[name] for name in writes),
        "in place (input→output)": in_place,
        "tensor": writes[0] if writes else "",
    }


@st.fragment
def _selectable_part(shown: Shown) -> None:
    left, right = st.columns([0.755, 0.245], gap="small")
    chosen = state.choice()
    with left:
        graph_view.draw(shown)
        table = nodes(shown, chosen.search)
        order = DEFAULT_ORDER if shown.timeline.source.execution_order is None else "the order of the file"
        listed = numbers.of(len(table), shown.timeline.steps, "step")
        note = f"{order}; {listed} listed; click a row to select its tensor, the first output"
        st.html(markup.heading("Nodes in execution order", note))
        tensor_table.selectable_table(table, f"nodes.{shown.key}.{chosen.search}", chosen.selected, height=420)
    with right, st.container(key="beside"):
        tensor_card.panel_of_tensor(shown, on_graph_page=True)
    state.write_link()


page()
