"""A graph whose every name is an image, a link, a script or a formula: names are text wherever they are shown."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest

from app.cli.main import run
from app.kit.charts.live_chart import live_curve
from app.session import opening, pages
from tests.app.test_pages import opened
from tests.support.hostile import hostile_graph, hostile_names
from tests.support.paths import ROOT
from tmmu_core.base import escaping
from tmmu_core.formats.planfile import plan_file
from tmmu_core.graph.model import INPUTS_STEP
from tmmu_core.graph.native import native_file
from tmmu_core.plans.making.engine import plan_graph

IMAGE, LINK, SCRIPT, FORMULA, COLOURS = HOSTILE = hostile_names("http://127.0.0.1:9")
ARENAS = {"activations": {}, IMAGE: {}}
GRAPH = hostile_graph(HOSTILE)


def test_markdown_shows_a_name_as_it_stands() -> None:
    assert escaping.for_markdown("![x](a.b)") == r"\!\[x\]\(a\.b\)"


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@a", " =1", "\uff1d1+1", '"=1'])
def test_a_cell_that_a_spreadsheet_would_compute_is_led_by_an_apostrophe(name: str) -> None:
    assert escaping.for_cell(name) == f"'{name}"


@pytest.mark.parametrize("name", ["=1;+1;@a", "x;=cmd|'/c calc'!A1;y", 'x"|-1', "\t=1", "x\r\n=1", "x;;\t =1", "=1,=1"])
@pytest.mark.parametrize("apart", [",", ";", "\t", "|"])
def test_no_cell_computes_whatever_a_spreadsheet_takes_for_its_end(name: str, apart: str) -> None:
    """Where numbers have a comma, a spreadsheet opens CSV by semicolons; others ask, or look for themselves."""
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\n").writerow([7, escaping.for_cell(name), 8])
    cells = [cell.strip(' "') for row in csv.reader(out.getvalue().splitlines(), delimiter=apart) for cell in row]
    assert [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))] == []


def test_a_cell_that_computes_nothing_is_left_alone() -> None:
    for name in ("conv,-1", "a=b", "relu_1:0", "layer/1 - 2", "x;y"):
        assert escaping.for_cell(name) == name


def test_the_csv_of_a_plan_computes_nothing() -> None:
    plan = plan_graph(GRAPH, arenas=ARENAS).plan
    cells = [cell for row in csv.reader(io.StringIO(plan_file.to_csv(plan).decode())) for cell in row]
    assert [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t"))] == []
    assert f"'{FORMULA}" in cells


def test_a_terminal_is_told_no_command(tmp_path: object, capfd: pytest.CaptureFixture[str]) -> None:
    file = f"{tmp_path}/hostile.json"
    with open(file, "wb") as out:
        out.write(native_file.encode_json(GRAPH))
    run(["plan", file])
    run(["plan", f"{tmp_path}/\x1b[31m.json"])
    written = "".join(capfd.readouterr())
    assert "\x1b" not in written
    assert "\u202e" not in written


def test_a_chart_holds_no_link_and_no_image() -> None:
    plan = plan_graph(GRAPH, arenas=ARENAS).plan
    figure = live_curve(plan, "activations", step=1)
    for text in (figure.to_json(), str(figure.to_dict())):
        assert "<a " not in text
        assert "<img" not in text
        assert "<script" not in text
    assert "<b>peak" in str(figure.to_dict())


@pytest.mark.parametrize("page", ["plan", "graph"])
def test_no_table_that_a_page_lets_be_taken_away_computes(page: str) -> None:
    """A table's own button writes its cells as they are."""
    source = opening.shelf().put("hostile.tmmu.json", native_file.encode_json(GRAPH))
    at = opened(page, graph=source, arenas=json.dumps(ARENAS))
    cells = [str(cell) for table in at.dataframe for column in table.value for cell in table.value[column]]
    assert any(FORMULA in cell for cell in cells)
    assert {cell for cell in cells if cell.startswith(("=", "+", "@", "-=", "\t"))} <= {INPUTS_STEP}


@pytest.mark.parametrize("page", [name for name, _ in pages.PAGES])
def test_what_is_ours_in_a_table_is_drawn_as_everywhere(page: str) -> None:
    at = opened(page, graph="sample:training_step")
    cells = [str(cell) for table in at.dataframe for column in table.value for cell in table.value[column]]
    assert [cell for cell in cells if cell.startswith("'")] == []


def test_tables_are_drawn_in_one_place() -> None:
    call = re.compile(r"st\.(dataframe|table|data_editor)\(")
    assert [path.name for path in (ROOT / "app").rglob("*.py") if call.search(path.read_text())] == ["data_table.py"]
