"""The page that opens finished plans and review files without a server, from local files in the browser."""

import base64
import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

import tmmu
from app.cli.main import run
from tests.support.build import graph, node, tensor
from tests.support.paths import DATA, SAMPLES
from tmmu_core.formats.planfile import plan_file

BLOCK = SAMPLES / "residual_block.tmmu.json"
pytestmark = [pytest.mark.browser, pytest.mark.gate]


@pytest.fixture
def viewer(browser: Browser, tmp_path: Path) -> Iterator[Page]:
    path = tmp_path / "viewer.html"
    assert run(["explore", "--viewer", str(path)]) == 0
    page = browser.new_context(offline=True).new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(path.as_uri())
    yield page
    page.close()
    assert wrong == []


def review_file(plan: bytes) -> bytes:
    link = "graph=sample%3Aresidual_block&view=lifetimes&tensor=c1&step=2&zoom=1~3~0~4"
    review = {
        "notes": [{"text": "why so late?", "tensor": "c1"}],
        "views": [{"name": "lifetimes c1", "link": link}],
        "decision": {"answer": "approved"},
    }
    coded = base64.b64encode(gzip.compress(plan)).decode()
    return json.dumps({"schema": "tmmu_review/1", "review": review, "plan": coded}).encode()


def test_plans_of_every_planner_and_encoding_are_drawn(viewer: Page, tmp_path: Path) -> None:
    for k, name in enumerate(("residual_block", "training_step", "views", "two_arenas")):
        for planner, suffix in (("slots", ".json"), ("greedy", ".cbor")):
            plan = tmmu.plan(next(SAMPLES.glob(f"{name}.tmmu.json")), planner=planner)
            path = tmp_path / f"{k}{planner}{suffix}.gz"
            path.write_bytes(gzip.compress(plan.save(tmp_path / f"plan{suffix}").read_bytes()))
            viewer.set_input_files("#file", path)
            expect(viewer.locator("h2")).to_have_text(f"{plan.ir_name}: {plan.mode}, planned by {planner}")
            expect(viewer.locator("#facts .good")).to_be_visible()
            for arena in plan.arenas:
                expect(viewer.locator("#facts table")).to_contain_text(f"({arena.extent_bytes:,} B)")
    viewer.locator("#slots .tmmu-canvas[data-paintings]").wait_for()


def test_plans_of_earlier_versions_are_drawn(viewer: Page) -> None:
    for path in sorted((DATA / "versions").glob("*/*plan*.json")):
        viewer.set_input_files("#file", path)
        expect(viewer.locator("h2")).to_be_visible()
        expect(viewer.locator("#problem")).to_be_hidden()


EQUAL = graph([tensor("x", role="input", arena="b"), tensor("y", arena="c")], [node("n", "x", "y")], "x", "y")


@pytest.mark.parametrize("sample", ["mixed_sizes", "training_step", "equal arenas"])
def test_peak_size_and_gap_are_those_of_the_notebook_view(viewer: Page, tmp_path: Path, sample: str) -> None:
    source = SAMPLES / f"{sample}.tmmu.json"
    plan = tmmu.plan(EQUAL, arenas={"b": {}, "c": {}}) if sample == "equal arenas" else tmmu.plan(source)
    viewer.set_input_files("#file", plan.save(tmp_path / "plan.json"))
    drawn = "document.querySelector('#map .tmmu-canvas .chart-title').textContent"
    viewer.locator("#map .tmmu-canvas[data-paintings]").wait_for()
    in_viewer = viewer.evaluate(drawn)
    viewer.set_content(plan._repr_html_())
    frame = viewer.frame_locator("iframe")
    frame.locator(".tmmu-canvas[data-paintings]").wait_for()
    assert frame.locator(".chart-title").text_content() == in_viewer


def test_review_files_show_notes_views_and_decision(viewer: Page, tmp_path: Path) -> None:
    data = review_file(plan_file.to_cbor(tmmu.plan(BLOCK)))
    html = b'<html><script type="application/json" id="tmmu-review">' + data + b"</script></html>"
    for name, content in (("review.json", data), ("review.html", html)):
        (tmp_path / name).write_bytes(content)
        viewer.reload()
        viewer.set_input_files("#file", tmp_path / name)
        expect(viewer.locator("#notes")).to_contain_text("tensor c1: why so late?")
        expect(viewer.locator("#decision")).to_contain_text("approved")
        viewer.locator("#bookmarks").get_by_role("button", name="lifetimes c1").click()
        expect(viewer.locator("#pinned")).to_contain_text("c1")
        expect(viewer.locator("#map .tmmu-canvas")).to_have_attribute("data-selected", "c1")
        expect(viewer.locator("#lifetimes .tmmu-canvas")).to_have_attribute("data-window", "1,3")
    viewer.set_input_files("#file", DATA / "versions" / "0bdebe6" / "greedy.plan.json")
    expect(viewer.locator("#pinned")).to_be_empty()
    expect(viewer.locator("#map .tmmu-canvas")).to_have_attribute("data-selected", "")


def test_bookmarked_step_of_a_long_plan_is_drawn_in_the_range_that_contains_it(viewer: Page, tmp_path: Path) -> None:
    plan = tmmu.plan(b"id,lower,upper,size\na,0,1099511627776,100\n")
    (tmp_path / "review.json").write_bytes(review_file(plan_file.to_cbor(plan)))
    viewer.set_input_files("#file", tmp_path / "review.json")
    viewer.locator("#bookmarks").get_by_role("button").click()
    assert viewer.evaluate("document.querySelector('#map .tmmu-canvas').drawing.state.step") == 0


def test_capacity_of_2_to_the_63_is_a_limit(viewer: Page, tmp_path: Path) -> None:
    plan = tmmu.plan(BLOCK, capacity={"activations": 2**63})
    viewer.set_input_files("#file", plan.save(tmp_path / "plan.json"))
    row = viewer.locator("#facts tr", has_text="activations")
    expect(row).to_contain_text("(9,223,372,036,854,775,808 B)")


def test_overlapping_tensors_are_reported(viewer: Page, tmp_path: Path) -> None:
    plan = tmmu.plan(BLOCK)
    path = tmp_path / "plan.json"
    path.write_bytes(plan_file.to_json(replace(plan, offset=plan.offset * 0)))
    viewer.set_input_files("#file", path)
    expect(viewer.locator("#facts .bad").last).to_contain_text("tensors overlap in time and bytes")


def test_other_files_are_refused_with_the_reason(viewer: Page, tmp_path: Path) -> None:
    (tmp_path / "damaged.cbor").write_bytes(plan_file.to_cbor(tmmu.plan(BLOCK))[:-9])
    for path in (BLOCK, SAMPLES / "instances" / "A.1048576.csv", tmp_path / "damaged.cbor"):
        viewer.set_input_files("#file", path)
        expect(viewer.locator("#problem")).to_contain_text(f"{path.name} cannot be opened")
