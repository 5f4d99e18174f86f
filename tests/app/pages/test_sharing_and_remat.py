"""Idle and padded bytes on the pages."""

import numpy as np
import pandas as pd

from app.kit import tensor_table
from app.session import planning
from app.session.view_state import Choice
from app.texts import tensor_text
from tests.app.pages.run_page import drawings, opened
from tests.support.build import chain
from tmmu_core.plans.making.engine import plan_graph


def plan_of(sample: str, **choice: str) -> planning.Shown:
    return planning.make_plan(Choice(source=f"sample:{sample}", **choice))  # type: ignore[arg-type]


def test_buffer_that_waits_for_its_last_reader_is_flagged_with_it() -> None:
    at = opened(graph="sample:residual_block", marked="late")
    (drawing,) = drawings(at, "flags")
    ((step, text),) = drawing["flags"]
    shown = plan_of("residual_block")
    assert text == f"{shown.plan.node_at(step)} frees x"
    assert drawing["marked"] == [shown.plan.row_of["x"]]


def test_card_and_table_show_padded_sizes() -> None:
    plan = plan_graph(chain(2, floats=5)).plan
    assert "128 B" in tensor_text.details(plan, None, "t1").split("padded")[1].split("</dd>")[0]
    assert tensor_table.frame_of(plan, np.array([0]))["padded"].tolist() == [128]


def test_column_of_differences_is_text() -> None:
    columns = {"tensor": ["a"], "offset": ["0 → 64"], "size": [64]}
    config = tensor_table.column_config(pd.DataFrame(columns))
    assert [config[name]["type_config"]["type"] for name in columns] == ["text", "text", "number"]
