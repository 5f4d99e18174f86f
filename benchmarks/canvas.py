"""Measure the canvas in a real browser: ``python -m benchmarks.canvas`` writes ``docs/measured/performance.md``.

For each number of boxes, a new tab opens ``benchmarks/canvas_page.py`` under a running Streamlit. The page has two
canvases (map and lifetimes) with the same selection.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

from app.canvas.component import Origin, canvas_script, pack_plan
from app.report.html_report import build_report
from benchmarks.canvas_plans import synthetic_plan
from benchmarks.serving import ROOT, chromium, served
from tests.support.pixels import PIXEL, pixel_in
from tmmu_core.judge.finding import Verdict

COUNTS = (500, 5_000, 20_000, 100_000, 1_000_000)
SLOTS = {1_000_000: 3000}
REPORTS = (500, 20_000, 100_000)
ROUNDS = 9
VIEWS = ("map", "slots", "lifetimes")

_FRAME = """async (act) => {
  const { root, stage } = [...tmmuCanvas.charts][0], box = stage.getBoundingClientRect();
  const at = { clientX: box.left + box.width * 0.55, clientY: box.top + box.height * 0.6, cancelable: true };
  const count = root.dataset.paintings, began = performance.now();
  if (act.wheel) stage.dispatchEvent(new WheelEvent("wheel", { ...at, deltaY: act.wheel }));
  while (root.dataset.paintings === count) await new Promise((done) => requestAnimationFrame(done));
  return [performance.now() - began, Number(root.dataset.paintMs)];
}"""

_DRAG = """async () => {
  const chart = [...tmmuCanvas.charts][0], box = chart.stage.getBoundingClientRect(), times = [];
  const at = (x) => ({ clientX: box.left + x, clientY: box.top + 300, button: 0, pointerId: 1, bubbles: true });
  chart.stage.setPointerCapture = () => {};
  chart.stage.dispatchEvent(new PointerEvent("pointerdown", at(400)));
  for (let k = 1; k <= 9; k++) {
    const count = chart.root.dataset.paintings, began = performance.now();
    chart.stage.dispatchEvent(new PointerEvent("pointermove", at(400 - 12 * k)));
    for (let n = 0; n < 30 && chart.root.dataset.paintings === count; n++)
      await new Promise((done) => requestAnimationFrame(done));
    times.push(performance.now() - began);
  }
  chart.stage.dispatchEvent(new PointerEvent("pointerup", at(292)));
  return times;
}"""

_PICK = """() => {
  const chart = [...tmmuCanvas.charts][0], times = [];
  for (let k = 0; k < 9; k++) {
    const began = performance.now();
    for (let n = 0; n < 5; n++) chart.pick(200 + 60 * k, 200 + 20 * k);
    times.push((performance.now() - began) / 5);
  }
  return times;
}"""

_CLICK = """async (id) => {
  const charts = [...tmmuCanvas.charts], [chart, other] = charts, at = (PIXEL)(chart.root, id);
  const event = { clientX: at.x, clientY: at.y, button: 0, pointerId: 1, bubbles: true };
  chart.stage.setPointerCapture = () => {};
  const began = performance.now();
  chart.stage.dispatchEvent(new PointerEvent("pointerdown", event));
  chart.stage.dispatchEvent(new PointerEvent("pointerup", event));
  const meant = chart.plan.ids.at(chart.selected);
  const until = async (done) => {
    while (!done()) await new Promise((next) => requestAnimationFrame(next));
    return performance.now() - began;
  };
  const selected = await until(() => chart.root.dataset.selected === meant);
  const selectedInOther = await until(() => other.root.dataset.selected === meant);
  const texts = () => [...document.querySelectorAll('[data-testid="stText"]')];
  const isCaptionShown = () => texts().some((e) => e.textContent.endsWith(meant));
  return [selected, selectedInOther, await until(isCaptionShown)];
}"""


def demo(host: str, port: int) -> list[str]:
    """Return the command that starts the server of the page."""
    flags = ["--server.headless=true", f"--server.address={host}", "--browser.gatherUsageStats=false"]
    page = ROOT / "benchmarks" / "canvas_page.py"
    return [sys.executable, "-m", "streamlit", "run", str(page), f"--server.port={port}", *flags]


def measure(browser: Browser, address: str, boxes: int, view: str) -> dict[str, Any]:
    """Return the row of one number of boxes in one view."""
    slots = SLOTS.get(boxes, 48)
    plan, operators = synthetic_plan(boxes, slots=slots)
    began = time.perf_counter()
    packed = pack_plan(plan, Origin(operators))
    packing = time.perf_counter() - began
    url = f"{address}/?boxes={boxes}&slots={slots}&view={view}&two=1"
    page = _open(browser, url)  # the first visit also plans and is not reported
    page.close()
    began = time.perf_counter()
    page = _open(browser, url)
    loaded = time.perf_counter() - began
    page.wait_for_timeout(1000)
    first = float(page.locator(".tmmu-canvas").first.get_attribute("data-first-ms") or "nan")
    frames = [page.evaluate(_FRAME, {"wheel": delta}) for delta in (-120, -120, -120, 120, 120, -120, 120, -120, 120)]
    page.evaluate(_FRAME, {"wheel": -400})
    drags = page.evaluate(_DRAG)
    picks = page.evaluate(_PICK)
    page.evaluate("() => [...tmmuCanvas.charts][0].fit()")
    page.wait_for_timeout(500)
    clicks = []
    rows = [row for row in range(0, boxes, max(1, boxes // 200)) if plan.roles[row] != "parameter"]
    for row in rows[: len(rows) : max(1, len(rows) // ROUNDS)][:ROUNDS]:
        seen = pixel_in(page.locator(".tmmu-canvas").first, plan.tensor_ids[row])
        if seen is None:
            continue
        clicks.append(page.evaluate(_CLICK.replace("PIXEL", PIXEL), plan.tensor_ids[row]))
        page.wait_for_timeout(300)
    page.close()
    return {
        "boxes": boxes,
        "view": view,
        "megabytes": len(packed.data) / 1e6,
        "pack": packing,
        "load": loaded,
        "first": first,
        "paint": statistics.median(paint for _, paint in frames),
        "zoom": statistics.median(frame for frame, _ in frames),
        "pan": statistics.median(drags),
        "pick": statistics.median(picks),
        "here": statistics.median(click[0] for click in clicks),
        "there": statistics.median(click[1] for click in clicks),
        "python": statistics.median(click[2] for click in clicks),
    }


def _open(browser: Browser, url: str) -> Page:
    page = browser.new_page(viewport={"width": 1440, "height": 1200})
    page.goto(url)
    page.locator(".tmmu-canvas[data-first-ms]").nth(1).wait_for(timeout=120_000)
    return page


def measure_report(browser: Browser, boxes: int) -> dict[str, Any]:
    """Return the row of the offline report with a number of boxes, opened from a file."""
    plan, operators = synthetic_plan(boxes)
    began = time.perf_counter()
    report = build_report(plan, verified=Verdict(), origin=Origin(operators))
    building = time.perf_counter() - began
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        path.write_bytes(report)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        began = time.perf_counter()
        page.goto(path.as_uri())
        page.locator("#slots .tmmu-canvas[data-first-ms]").wait_for(timeout=60_000)
        opening = time.perf_counter() - began
        page.close()
    return {"boxes": boxes, "megabytes": len(report) / 1e6, "build": building, "open": opening}


OTHERS = "## Starting"
"""The first heading in ``docs/measured/performance.md`` whose section another command writes."""


def document(rows: list[dict[str, Any]], reports: list[dict[str, Any]], version: str) -> str:
    """Return the page ``docs/measured/performance.md``."""
    columns = (
        *("boxes", "view", "MB", "pack s", "page s", "bytes → picture ms", "paint ms", "zoom ms", "pan ms", "pick ms"),
        *("click: here ms", "click: other view ms", "click: Python ms"),
    )
    lines = [
        "# Performance of the canvas",
        "",
        "Measured by `python -m benchmarks.canvas` in a real browser",
        f"(Chromium {version}, software rendering, 1440 × 1200), on a machine shared with other work. Medians of nine",
        "runs; first pictures are single runs. `benchmarks/canvas_plans.py` makes the plans.",
        "",
        f"| {' | '.join(columns)} |",
        "|---:|---|" + "---:|" * 11,
    ]
    lines += [
        f"| {r['boxes']:,} | {r['view']} | {r['megabytes']:.2f} | {r['pack']:.3f} | {r['load']:.1f} | {r['first']:.0f} "
        f"| {r['paint']:.1f} | {r['zoom']:.0f} | {r['pan']:.0f} | {r['pick']:.2f} | {r['here']:.0f} "
        f"| {r['there']:.0f} | {r['python']:.0f} |"
        for r in rows
    ]
    lines += [
        "",
        "- **MB**, **pack s**: bytes that are sent to the browser once, and the time to make them.",
        "- **page s**: from opening the address to both pictures, with Streamlit's start.",
        "- **bytes → picture ms**: from the arrival of the bytes to the first picture of this view.",
        "- **paint ms**: one redraw. **zoom ms**, **pan ms**: from the input to the picture, with the wait for the",
        "  next frame (up to 17 ms) and the redraw of the second view.",
        "- **pick ms**: finding the tensor under the cursor.",
        "- **click**: from the click to its highlight here, in the other view, and to the response of Python.",
        "",
        "## The offline report",
        "",
        "| boxes | MB | build s | open s |",
        "|---:|---:|---:|---:|",
    ]
    lines += [f"| {r['boxes']:,} | {r['megabytes']:.2f} | {r['build']:.2f} | {r['open']:.2f} |" for r in reports]
    lines += [
        "",
        "**build s** does not include verification. **open s**: from opening the file to its last picture.",
        f"The canvas script is {len(canvas_script()) / 1e3:.0f} kB of each report.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure every number of boxes and the report, and write the page."""
    with served(demo) as address, chromium() as browser:
        rows = []
        for boxes in COUNTS:
            for view in VIEWS if boxes >= 100_000 else VIEWS[:1]:
                rows.append(measure(browser, address, boxes, view))
                print(rows[-1], flush=True)
        reports = [measure_report(browser, boxes) for boxes in REPORTS]
        page = ROOT / "docs" / "measured" / "performance.md"
        # Figures of other commands follow this heading. They are kept.
        behind = page.read_text(encoding="utf-8").partition(OTHERS)
        text = document(rows, reports, browser.version)
        page.write_text(text + "\n" + behind[1] + behind[2] if behind[1] else text, encoding="utf-8")


if __name__ == "__main__":
    main()
