"""A page on which the canvas is measured: ``python -m streamlit run benchmarks/canvas_page.py -- 100000 map``."""

import sys
from collections.abc import Mapping
from typing import Any

import streamlit as st

from app.canvas.component import PLAN, Origin, Packed, pack_plan
from app.kit import controls
from app.kit.plan_drawing import PlanHandle, draw
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
packed, plan, other = _packed(boxes, int(st.query_params.get("slots", 48)), "compare" in st.query_params)
controls.canvas_component(PLAN)(key="plan_store", data=packed.data, height="content")
handle = PlanHandle(packed.token, (plan,) if other is None else (plan, other))


@st.fragment
def charts() -> None:
    """Draw two views with the same selection, which is stored in the address."""

    def selected(event: Mapping[str, Any]) -> None:
        st.query_params["tensor"] = event["id"] or ""

    now = st.query_params.get("tensor") or None
    shared: dict[str, Any] = {"on": {"select": selected}, "selected": now, "link": "page"}
    draw(handle, key="one", view=view, height=560, arena=st.query_params.get("arena"), **shared)
    if two:
        draw(handle, key="two", view="lifetimes", height=300, **shared)
    st.text(f"selected {now}")


charts()
