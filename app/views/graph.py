"""Graph: what is planned? Its nodes, walked and in the order they run, its dimensions, who shares bytes."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app.parts import frame, remat, selected, sharing, tensors, walking
from app.say import markup, totals, words
from app.session import state
from app.session.jobs import remembered
from app.session.planning import Shown
from tmmu_core.graph.checks import resolve_dims
from tmmu_core.graph.model import INPUTS_STEP, Node
from tmmu_core.liveness.model import Timeline
from tmmu_core.names import for_markdown

MOST_NODES = 5_000


def page() -> None:
    """The page, top down."""
    shown = frame.shown()
    if shown.solution is None:
        _without(shown)
        return
    st.html(markup.claim(claim(shown)))
    body(shown)
    st.html(facts(shown))
    sharing.section(shown)
    remat.section(shown)


def claim(shown: Shown) -> str:
    """``resnet50: 176 nodes, 445 tensors, 177 steps in mode inference``."""
    assert shown.solution is not None
    timeline = shown.solution.liveness.timeline
    added = len(timeline.graph.nodes) - len(timeline.source.nodes)
    extra = f", {added:,} of them made for this mode" if added else ""
    return (
        f"{frame.name_of(shown)}: {words.count(len(timeline.graph.nodes), 'node')}{extra}, "
        f"{words.count(len(timeline.graph.tensors), 'tensor')}, {words.count(timeline.steps, 'step')} "
        f"in mode {timeline.mode}"
    )


def _without(shown: Shown) -> None:
    st.html(markup.claim(f"{shown.opened.name} came without its graph"))
    what = "A plan tells where tensors lie" if shown.opened.plan is not None else "An instance tells ranges and sizes"
    st.html(markup.empty(f"{what}, not what makes and reads them", "Open the graph that it was made from."))
    for line in shown.opened.notes:
        st.caption(for_markdown(line))


def facts(shown: Shown) -> str:
    """Hash, dimensions, arenas, policies: what the file says beside its nodes."""
    graph = shown.graph
    assert graph is not None
    point = resolve_dims(graph, None) | dict(shown.choice.dims)
    dims = ", ".join(f"{name} = {point[name]:,} of {d.min:,} … {d.max:,}" for name, d in sorted(graph.dims.items()))
    rows = [
        ("inputs", markup.esc(_some(graph.inputs))),
        ("outputs", markup.esc(_some(graph.outputs))),
        ("dimensions", markup.esc(dims or "none are named")),
        ("order", "as the file gives it" if graph.execution_order is not None else "topological, ties by node id"),
        ("hand-offs", f"{totals.handoffs(shown.plan)}, {len(refused(shown)):,} refused"),
        ("replanning", markup.esc(graph.replan_policy.replace("_", " ").lower())),
        ("ir hash", f'<span class="mono">{shown.plan.ir_hash.hex()}</span>'),
        ("order hash", f'<span class="mono">{shown.plan.execution_order_hash.hex()}</span>'),
    ]
    return f'<div class="tm tm-facts">{markup.definition_list(rows)}</div>'


def refused(shown: Shown) -> tuple[object, ...]:
    """The hand-offs that were refused."""
    return shown.solution.liveness.refusals if shown.solution is not None else ()


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6:,} more" if len(names) > 6 else "") or "none"


@remembered
def nodes(key: str, _shown: Shown) -> pd.DataFrame:
    """One row per step, as run."""
    del key
    assert _shown.solution is not None
    timeline = _shown.solution.liveness.timeline
    numbers = timeline.node_at.tolist()[:MOST_NODES]
    return pd.DataFrame([_row(timeline, step, node) for step, node in enumerate(numbers)])


def _row(timeline: Timeline, step: int, number: int) -> dict[str, object]:
    """A step's row; ``number`` is its node's, below 0 where the inputs are loaded."""
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
    """Follows the selection."""
    assert shown.solution is not None
    left, right = st.columns([0.755, 0.245], gap="small")
    chosen = state.choice()
    with left:
        walking.draw(shown)
        table = nodes(shown.key, shown)
        steps = shown.solution.liveness.timeline.steps
        st.html(
            markup.heading(
                "Nodes, in the order they run",
                f"{words.of(len(table), steps, 'step')} listed; a row selects the tensor that it writes",
            )
        )
        tensors.selectable(table, f"nodes.{shown.key}", chosen.selected, height=420)
    with right, st.container(key="beside"):
        selected.panel(shown, walking=True)
    state.write_link()


page()
