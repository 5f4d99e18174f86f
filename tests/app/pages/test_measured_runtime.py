"""Measured runtime, plan and lower bound side by side."""

import time

from streamlit.testing.v1 import AppTest

from app.session import opening
from tests.app.pages.run_page import opened
from tests.runtime.test_measure import products


def captions(at: AppTest) -> str:
    return "\n".join(element.value for element in at.caption)


def until(at: AppTest, shown_text: str) -> str:
    """Run the page again until it shows the text."""
    ends = time.monotonic() + 60
    while shown_text not in captions(at) and time.monotonic() < ends:
        time.sleep(0.2)
        at.run()
    return captions(at)


def test_given_plan_is_compared_with_ours_and_the_bound() -> None:
    shown_text = until(opened(graph="sample:xla_transformer_step"), "lower bound")
    assert "The file's plan: 2.37 MiB (2,485,860 B); planned 2.25 MiB (2,354,708 B)" in shown_text
    assert "lower bound 2.25 MiB (2,354,708 B)" in shown_text


def test_model_is_run_on_request() -> None:
    source = opening.shelf().put("products.onnx", products())
    at = opened(graph=source)
    assert "lower bound" not in captions(at)
    at.button(key="measure").click().run()
    assert not at.exception
    shown_text = until(at, "lower bound")
    assert "onnxruntime: " in shown_text
    assert "lower bound 8.00 MiB (8,388,608 B)" in shown_text
    assert any("Difference from the lower bound" in each.proto.body for each in at.get("html"))
