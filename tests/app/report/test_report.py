import re
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser

from app.report.html_report import build_report
from app.report.pictures import MOST_COLUMNS, drawn_rows
from tests.app.canvas.plans import FOUR, plan_of
from tests.support.build import residual
from tests.support.pixels import pixel_in
from tmmu_core.judge.finding import Finding, Verdict
from tmmu_core.plans.analysis.waste_ledger import WasteLedger
from tmmu_core.plans.making.engine import Solution, plan_graph
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.request import PlanRequest

RED = Verdict((Finding("overlap", "error", "a and b share bytes [0, 16) at step 1", "a", "b"),), ("overlap",))


def planned() -> Solution:
    return plan_graph(residual())


def text_of(report: bytes) -> str:
    body = report.decode().split("<body>", 1)[1].split('<script type="text/plain"', 1)[0]
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", body)))


def test_ledger_at_the_peak_sums_to_the_extent() -> None:
    plan = plan_of()
    report = build_report(plan).decode()
    table = report.split("Use of the arena at the peak", 1)[1].split("</table>", 1)[0]
    counts = [int(n.replace(",", "")) for n in re.findall(r"\(?([\d,]+) B\)?</", table)]
    assert len(counts) == 6
    assert sum(counts[:5]) == counts[5] == plan.arenas[0].extent_bytes


def test_arena_with_constant_live_bytes_is_described() -> None:
    rows = (("a", "activations", 0, 0, 512, 0, 2), ("b", "activations", 0, 0, 512, 2, 4))
    assert "activations: the live bytes are the same at every step." in text_of(build_report(plan_of(rows)))


def test_failed_verification_lists_its_findings() -> None:
    shown_text = text_of(build_report(plan_of(), verified=RED))
    assert "✗ 1 error" in shown_text
    assert "a and b share bytes [0, 16) at step 1" in shown_text
    assert "Lint: ✗ 1 error" in shown_text


def test_plan_over_its_capacity_keeps_its_certificates() -> None:
    over = make_plan(residual(), PlanRequest(capacities={"activations": 16}), over_limits=True)
    shown_text = build_report(over.solution or over.plan).decode()
    assert shown_text.count("✗ valid plan, over its capacity") == 2
    certificates = re.findall(r"<td>(\w+)</td></tr>", shown_text.split("optimality", 1)[1].split("</table>", 1)[0])
    assert certificates[: len(over.plan.arenas)] == [arena.status for arena in over.plan.arenas]
    assert "invalid" not in certificates


def test_comparison_reads_baseline_to_candidate() -> None:
    before, after = plan_of(), plan_of((("a", "activations", 0, 128, 1024, 0, 2), *FOUR[1:]))
    shown_text = text_of(build_report(after, baseline=before))
    assert "Baseline → candidate: diverged" in shown_text
    assert "a moved activations 0 0 → 128 1,024 [0, 2)" in shown_text
    assert "1 changed tensor, by name" in shown_text


def test_long_timeline_is_thinned_with_its_peak() -> None:
    rng = np.random.default_rng(3)
    live = rng.integers(0, 1000, 12_345).astype(np.uint64)
    zero = np.zeros_like(live)
    steps = drawn_rows(WasteLedger("a", 1000, live, zero, zero, zero, np.uint64(1000) - live, np.arange(len(live))))
    assert len(steps) == MOST_COLUMNS
    assert (np.diff(steps) > 0).all()
    assert live[steps].max() == live.max()


@pytest.mark.browser
def test_report_works_from_a_file_without_a_network(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_bytes(build_report(planned(), baseline=plan_graph(residual("any"))))
    context = browser.new_context(viewport={"width": 1200, "height": 900}, offline=True)
    page = context.new_page()
    requested, wrong = [], []
    page.on("request", lambda request: requested.append(request.url))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.goto(path.as_uri())
    page.locator("#slots .tmmu-canvas[data-paintings]").wait_for()
    assert requested == [path.as_uri()]
    page.locator("#map").scroll_into_view_if_needed()
    at = pixel_in(page.locator("#map .tmmu-canvas"), "a")
    page.mouse.click(at["x"], at["y"])
    page.locator('#lifetimes .tmmu-canvas[data-selected="a"]').wait_for()
    assert page.locator("#pinned b").inner_text() == "a"
    assert wrong == []
    context.close()
