"""A graph whose names are images, links, scripts and formulas: names are shown as text."""

import csv
import io
import json

import pytest

from app.cli.main import run
from app.pages.plan.step_views import treemap
from app.session import opening, pages
from tests.app.pages.run_page import opened
from tests.support.hostile import hostile_graph, hostile_names
from tmmu_core.formats.planfile import plan_file
from tmmu_core.graph.model import INPUTS_STEP
from tmmu_core.graph.native import native_file
from tmmu_core.plans.making.engine import plan_graph

IMAGE, LINK, SCRIPT, FORMULA, COLOURS = HOSTILE = hostile_names("http://127.0.0.1:9")
ARENAS = {"activations": {}, IMAGE: {}}
GRAPH = hostile_graph(HOSTILE)


def test_csv_of_a_plan_has_no_formula_and_no_control_sequence() -> None:
    plan = plan_graph(GRAPH, arenas=ARENAS).plan
    text = plan_file.to_csv(plan).decode()
    assert "\x1b" not in text
    assert "\u202e" not in text
    cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
    assert [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t"))] == []
    assert f"'{FORMULA}" in cells


def test_terminal_output_has_no_control_sequence(tmp_path: object, capfd: pytest.CaptureFixture[str]) -> None:
    file = f"{tmp_path}/hostile.json"
    with open(file, "wb") as out:
        out.write(native_file.encode_json(GRAPH))
    run(["plan", file])
    run(["plan", f"{tmp_path}/\x1b[31m.json"])
    written = "".join(capfd.readouterr())
    assert "\x1b" not in written
    assert "\u202e" not in written


def test_chart_has_neither_link_nor_image() -> None:
    plan = plan_graph(GRAPH, arenas=ARENAS).plan
    figure = treemap(plan, [(row, 8) for row in range(len(plan))], (lambda row: (plan.tensor_ids[row],), None))
    for text in (figure.to_json(), str(figure.to_dict())):
        assert "<a " not in text
        assert "<img" not in text
        assert "<script" not in text


@pytest.mark.parametrize("page", ["plan", "graph"])
def test_downloaded_tables_have_no_formula(page: str) -> None:
    source = opening.shelf().put("hostile.tmmu.json", native_file.encode_json(GRAPH))
    at = opened(page, graph=source, arenas=json.dumps(ARENAS))
    cells = [str(cell) for table in at.dataframe for column in table.value for cell in table.value[column]]
    assert any(FORMULA in cell for cell in cells)
    assert {cell for cell in cells if cell.startswith(("=", "+", "@", "-=", "\t"))} <= {INPUTS_STEP}


@pytest.mark.parametrize("page", [name for name, _ in pages.PAGES])
def test_own_values_have_no_apostrophe(page: str) -> None:
    at = opened(page, graph="sample:training_step")
    cells = [str(cell) for table in at.dataframe for column in table.value for cell in table.value[column]]
    assert [cell for cell in cells if cell.startswith("'")] == []
