"""The page Graph: modules and nodes, execution order, dimensions, in-place reuse and aliases."""

import pandas as pd
import streamlit as st

from app.kit.frame import page_frame
from app.kit.tensor import tensor_card, tensor_table
from app.pages.graph import graph_view, sharing
from app.session import graph_levels, state
from app.session.planning import Shown
from app.session.work.jobs import remembered
from app.texts import markup, totals_text
from app.texts import numbers as words
from tmmu_core.base.escaping import for_markdown
from tmmu_core.graph.checks import resolve_dims
from tmmu_core.graph.model import INPUTS_STEP, Node
from tmmu_core.liveness.live_model import Timeline

MOST_NODES = 5_000
LARGER_SIZES = {"ABORT": "stop the run", "REPLAN_AT_SAFEPOINT": "plan again at a safepoint"}
"""Replan policy → what happens in a run when a size exceeds the planned one."""


def page() -> None:
    """Draw the page."""
    shown = page_frame.shown()
    if shown.solution is None:
        _without(shown)
        return
    st.html(markup.claim(claim(shown)))
    body(shown)
    st.html(facts(shown))
    sharing.section(shown)


def claim(shown: Shown) -> str:
    """Return the title: ``resnet50: 176 nodes, 445 tensors, 177 steps in mode inference``."""
    assert shown.solution is not None
    timeline = shown.solution.liveness.timeline
    added = len(timeline.graph.nodes) - len(timeline.source.nodes)
    extra = f" ({added:,} added for this mode)" if added else ""
    return (
        f"{page_frame.name_of(shown)}: {words.count(len(timeline.graph.nodes), 'node')}{extra}, "
        f"{words.count(len(timeline.graph.tensors), 'tensor')}, {words.count(timeline.steps, 'step')} "
        f"in mode {timeline.mode}"
    )


def _without(shown: Shown) -> None:
    st.html(markup.claim(f"{shown.opened.name} has no graph"))
    what = "A plan lists places" if shown.opened.plan is not None else "An instance lists live ranges and sizes"
    st.html(markup.empty(f"{what}, but no nodes", "Open its graph."))
    for line in shown.opened.notes:
        st.caption(for_markdown(line))


def facts(shown: Shown) -> str:
    """Return inputs, outputs, dimensions, policies and hashes of the graph."""
    graph = shown.graph
    assert graph is not None
    point = resolve_dims(graph, None) | dict(shown.choice.dims)
    dims = ", ".join(f"{name} = {point[name]:,} of {d.min:,} … {d.max:,}" for name, d in sorted(graph.dims.items()))
    rows = [
        ("inputs", markup.esc(_some(graph.inputs))),
        ("outputs", markup.esc(_some(graph.outputs))),
        ("dimensions", markup.esc(dims or "no named dimensions")),
        ("order", "from the file" if graph.execution_order is not None else "topological, ties by node id"),
        ("in-place reuse", f"{totals_text.handoffs(shown.plan)}, {len(refused(shown)):,} not allowed"),
        *([("if a size is exceeded", LARGER_SIZES[graph.replan_policy])] if graph.dims else []),
        ("ir hash", f'<span class="mono">{shown.plan.ir_hash.hex()}</span>'),
        ("order hash", f'<span class="mono">{shown.plan.execution_order_hash.hex()}</span>'),
    ]
    return f'<div class="tm tm-facts">{markup.definition_list(rows)}</div>'


def refused(shown: Shown) -> tuple[object, ...]:
    """Return the in-place reuses that are not allowed."""
    return shown.solution.liveness.refusals if shown.solution is not None else ()


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6:,} more" if len(names) > 6 else "") or "none"


@remembered
def nodes(key: str, _shown: Shown) -> pd.DataFrame:
    """Return one row per step."""
    del key
    assert _shown.solution is not None
    timeline = _shown.solution.liveness.timeline
    numbers = timeline.node_at.tolist()[:MOST_NODES]
    return pd.DataFrame([_row(timeline, step, node) for step, node in enumerate(numbers)])


def _row(timeline: Timeline, step: int, number: int) -> dict[str, object]:
    """Return the row of a step; ``number`` is its node, below 0 for the step that loads the inputs."""
    index = timeline.index
    if number < 0:
        node, reads, writes = Node("", INPUTS_STEP, inplace=()), [], list(timeline.graph.inputs)
    else:
        node = timeline.graph.nodes[number]
        reads = [index.tensor_ids[i] for i in index.inputs_of(number)]
        writes = [index.tensor_ids[i] for i in index.outputs_of(number)]
    permitted = "undeclared" if node.inplace is None else node.inplace
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
        "in place": permitted if isinstance(permitted, str) else ", ".join(f"{i}→{o}" for i, o in permitted),
        "tensor": writes[0] if writes else "",
    }


@st.fragment
def body(shown: Shown) -> None:
    """Draw everything that depends on the selection."""
    assert shown.solution is not None
    left, right = st.columns([0.755, 0.245], gap="small")
    chosen = state.choice()
    with left:
        graph_view.draw(shown)
        table = nodes(shown.key, shown)
        steps = shown.solution.liveness.timeline.steps
        if chosen.search:
            table = table[table["step"].isin(list(graph_levels.found_steps(shown, chosen.search)))].reset_index(
                drop=True
            )
        st.html(
            markup.heading(
                "Nodes in execution order",
                f"{words.of(len(table), steps, 'step')} listed; click a row to select its output",
            )
        )
        tensor_table.selectable(table, f"nodes.{shown.key}.{chosen.search}", chosen.selected, height=420)
    with right, st.container(key="beside"):
        tensor_card.panel(shown, walking=True)
    state.write_link()


page()
