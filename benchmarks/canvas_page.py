"""A page on which the canvas is measured: ``python -m streamlit run benchmarks/canvas_page.py -- 100000 map``."""

import sys
from collections.abc import Mapping
from typing import Any

import streamlit as st

from app.canvas.pack import Origin, Packed, pack_plan
from app.canvas.plan_component import plan_canvas, plan_store
from benchmarks.canvas_plans import synthetic_plan
from tmmu_core.plans.model import Plan

st.set_page_config(page_title="canvas", layout="wide")


@st.cache_resource
def _packed(boxes: int, slots: int, is_compared: bool) -> tuple[Packed, Plan, Plan | None]:
    plan, operators = synthetic_plan(boxes, slots=slots)
    other = synthetic_plan(boxes, slots=40)[0] if is_compared else None
    return pack_plan(plan, Origin(operators), baseline=other), plan, other


arguments = [a for a in sys.argv[1:] if not a.startswith("-")]
boxes = int(st.query_params.get("boxes", arguments[0] if arguments else 500))
view = st.query_params.get("view", "map")
two = "two" in st.query_params
handle = plan_store(*_packed(boxes, int(st.query_params.get("slots", 48)), "compare" in st.query_params))


@st.fragment
def charts() -> None:
    """Draw two views with the same selection, which is stored in the address."""

    def selected(event: Mapping[str, Any]) -> None:
        st.query_params["tensor"] = event["id"] or ""

    now = st.query_params.get("tensor") or None
    shared: dict[str, Any] = {"on": {"select": selected}, "selected": now, "link": "page"}
    plan_canvas(handle, key="one", view=view, height=560, arena=st.query_params.get("arena"), **shared)
    if two:
        plan_canvas(handle, key="two", view="lifetimes", height=300, **shared)
    st.text(f"selected {now}")


charts()
