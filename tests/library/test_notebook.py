"""A notebook, executed."""

from __future__ import annotations

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.paths import ROOT


@pytest.mark.slow
def test_plan_at_the_end_of_a_cell_shows_its_map() -> None:
    cells = [
        "import tmmu\nplan = tmmu.plan('sample_graphs/residual_block.tmmu.json', planner='greedy')",
        "plan",
        "plan.table().head(2)",
        "plan.gate(max_gap=0)",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}).execute()
    shown = [cell.outputs[0].data if cell.outputs else {} for cell in notebook.cells]
    assert "Arena map of activations" in shown[1]["text/html"]
    assert shown[1]["text/plain"].startswith("<Plan residual_block · ")
    assert "offset_bytes" in shown[2]["text/html"]
    assert shown[3]["text/plain"].startswith("<Gate ")
