"""Measure the opening of samples: ``python -m benchmarks.opening [NAME …]`` writes ``docs/measured/opening.md``.

The command clicks each sample in the menu Open of the explorer, then "Find the best plan", then opens each page of
large samples. A time ends when the canvas is painted, or on a page without a canvas when its script ends.

``python -m benchmarks.opening ROWS …`` uploads tables with these numbers of rows and writes the last section.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Page

from app.canvas.component import pack_plan
from app.cli.commands.explore import arguments
from app.session import pages
from app.session.opening import Sample, samples
from app.session.work import tasks
from app.session.work.workers import TaskContext
from benchmarks.serving import ROOT, chromium, served
from tmmu_core.formats.open_file import read_any
from tmmu_core.graph.model import Graph
from tmmu_core.planners.problem import PlainInstance
from tmmu_core.plans.analysis.waste_ledger import explain_peak
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.request import PlanRequest

TITLES = (*(title for name, title in pages.PAGES if name not in ("plan", "scale")), "Plan")
LARGE = 5_000
"""Minimum number of tensors of a sample whose pages are all timed."""
UPLOADS = "## Large files"
"""Title of the section about uploaded tables."""
LISTED = 1_000
"""Minimum number of tensors of a sample with its own row. Slow samples have a row too."""

_TOKEN = """() => [...(globalThis.tmmuCanvas?.charts ?? [])]
  .filter((chart) => chart.root.isConnected && chart.pack && chart.painted === chart.pack)
  .map((chart) => chart.pack.token)[0] ?? \"\""""
_PAINTED = f"(old) => {{ const now = ({_TOKEN})(); return now !== '' && now !== old; }}"
_BEST = f"""() => location.search.includes("planner=auto") && ({_TOKEN})() !== ''
  && document.querySelector('[data-test-script-state="notRunning"]') !== null"""
_LOADED = """(name) => {
  const charts = [...(globalThis.tmmuCanvas?.charts ?? [])].filter((chart) => chart.root.isConnected);
  return location.pathname.endsWith(`/${name}`) && document.querySelector(".tm-headline h1")
    && charts.every((chart) => chart.pack && chart.painted === chart.pack)
    && document.querySelector('[data-test-script-state="notRunning"]') !== null;
}"""
_STAGES = f"""(old) => {{
  const began = performance.now(), found = {{}};
  const states = {{
    "file named": () => document.body.dataset.opening,
    "progress": () => document.querySelector(".st-key-progress"),
    "first sentence": () => document.querySelector(".tm-headline h1")?.textContent.startsWith("table needs"),
    "picture": () => ![old, ""].includes(({_TOKEN})()),
    "verdict": () => found.picture && !document.querySelector(".st-key-headline")?.textContent.includes("verifying"),
  }};
  const look = () => {{
    for (const [name, is] of Object.entries(states)) {{
      if (!(name in found) && is()) found[name] = (performance.now() - began) / 1e3;
    }}
    if (!("verdict" in found)) requestAnimationFrame(look);
  }};
  look();
  window.stages = found;
}}"""
_CLICK = """async () => {
  const chart = [...tmmuCanvas.charts].find((c) => c.root.isConnected), { plan } = chart;
  let at = null, id = "";
  for (let row = 0; row < plan.n && !at; row++) { id = plan.ids.at(row); at = chart.pixelOf(id); }
  const event = { clientX: at.x, clientY: at.y, button: 0, pointerId: 1, bubbles: true };
  chart.stage.setPointerCapture = () => {};
  const began = performance.now();
  chart.stage.dispatchEvent(new PointerEvent("pointerdown", event));
  chart.stage.dispatchEvent(new PointerEvent("pointerup", event));
  const meant = plan.ids.at(chart.selected);
  const until = async (done) => {
    while (!done()) await new Promise((next) => requestAnimationFrame(next));
    return (performance.now() - began) / 1e3;
  };
  const here = await until(() => chart.root.dataset.selected === meant);
  const card = () => [...document.querySelectorAll(".tm-card[data-tensor]")].some((e) => e.dataset.tensor === meant);
  return [here, await until(card)];
}"""


def token(page: Page) -> str:
    """Return the token of the plan in the first canvas of a page; ``""`` before the canvas is painted."""
    return str(page.evaluate(_TOKEN))


def measure(browser: Browser, address: str, sample: Sample) -> dict[str, Any]:
    """Return the row of a sample: first opening, best plan, a click and, for a large sample, every page."""
    opened = read_any(sample.path.read_bytes(), sample.path.name)
    if isinstance(opened, Graph):
        tensors = len(opened.tensors)
    else:
        tensors = len(opened.problem if isinstance(opened, PlainInstance) else opened.plan)  # type: ignore[union-attr]
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(f"{address}/?graph=sample:{'views' if sample.name == 'linear_chain' else 'linear_chain'}")
    page.wait_for_function(_PAINTED, arg="", timeout=60_000)
    page.wait_for_timeout(1500)
    page.locator(".st-key-open button").first.click()
    line = page.locator(f".st-key-open-sample-{sample.name} button").first
    line.wait_for()
    page.wait_for_timeout(500)
    row: dict[str, Any] = {"name": sample.name, "tensors": tensors}
    old, began = token(page), time.perf_counter()
    line.click()
    page.wait_for_function(_PAINTED, arg=old, polling="raf", timeout=60_000)
    row["open"] = time.perf_counter() - began
    page.wait_for_timeout(500)
    page.keyboard.press("Escape")
    best = page.get_by_role("button", name="Find the best plan")
    if best.count():
        began = time.perf_counter()
        best.first.click()
        page.wait_for_function(_BEST, polling="raf", timeout=60_000)
        row["best"] = time.perf_counter() - began
    page.wait_for_timeout(500)
    row["here"], row["card"] = page.evaluate(_CLICK)
    page.wait_for_timeout(500)
    for title in TITLES if tensors >= LARGE else ():
        row[title] = visited(page, title)
    page.close()
    return row


def visited(page: Page, title: str) -> float:
    """Return the seconds until the script of a page has ended and its canvases are painted."""
    name = {title: name for name, title in pages.PAGES}[title]
    began = time.perf_counter()
    page.get_by_role("link", name=title, exact=True).click()
    page.wait_for_function(_LOADED, arg="" if name == pages.FIRST_PAGE else name, polling="raf", timeout=60_000)
    seconds = time.perf_counter() - began
    page.wait_for_timeout(500)
    return seconds


def table(folder: Path, rows: int) -> Path:
    """Return a CSV file of ``rows`` buffers with short and a few long live ranges."""
    draw = random.Random(1)
    spans = (min(int(draw.expovariate(1 / 20)), 400) for _ in range(rows))
    lines = (f"t{k},{k},{k + 1 + span},{64 * draw.randrange(1, 2000)}\n" for k, span in enumerate(spans))
    file = folder / "table.csv"
    file.write_text("id,lower,upper,size\n" + "".join(lines))
    return file


def without_page(file: Path) -> dict[str, float]:
    """Return the CPU seconds of the stages of planning in this process."""
    found: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        began = time.process_time()
        result = work()
        found[name] = round(time.process_time() - began, 2)
        return result

    instance = timed("read", lambda: read_any(file.read_bytes(), file.name))
    made = timed("plan", lambda: make_plan(instance, PlanRequest(planner="slots")))
    timed("explain", lambda: explain_peak(made.plan, None, "table"))
    timed("pack", lambda: pack_plan(made.plan))
    timed("judge", lambda: tasks.verify_and_lint(TaskContext(lambda *_: True), None, made.plan, None))
    return found


def uploaded(browser: Browser, address: str, file: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Return the seconds from choosing a file to each stage of its page, and the CPU seconds to the picture."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(f"{address}/?graph=sample:linear_chain")
    page.wait_for_function(_PAINTED, arg="", timeout=60_000)
    page.wait_for_timeout(1500)
    page.locator(".st-key-open button").first.click()
    field = page.locator('[data-testid="stPopoverBody"] [data-testid="stFileUploaderDropzoneInput"]')
    field.wait_for(state="attached")
    page.evaluate(_STAGES, token(page))
    with CpuTimes() as used:
        field.set_input_files(str(file))
        page.wait_for_function("() => 'picture' in window.stages", timeout=600_000)
        to_picture = used.now()
        page.wait_for_function("() => 'verdict' in window.stages", timeout=600_000)
    found: dict[str, float] = page.evaluate("() => window.stages")
    page.close()
    return {name: round(seconds, 2) for name, seconds in found.items()}, to_picture


class CpuTimes:
    """CPU seconds of this process's descendants by program, read ten times a second, because workers end."""

    def __enter__(self) -> CpuTimes:
        self._before = self._read()
        self._after = dict(self._before)
        self._ended = threading.Event()
        self._watch = threading.Thread(target=self._run)
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._watch.join()

    def now(self) -> dict[str, float]:
        """Return the CPU seconds of the server and of the browser since the start of the block."""
        found = {"server": 0.0, "browser": 0.0}
        for process, seconds in self._after.items():
            name = "server" if "python" in process[1] else "browser"
            found[name] += seconds - self._before.get(process, 0.0)
        return {name: round(seconds, 2) for name, seconds in found.items()}

    def _run(self) -> None:
        while not self._ended.wait(0.1):
            self._after |= self._read()

    @staticmethod
    def _read() -> dict[tuple[int, str], float]:
        found = {}
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                times = process.cpu_times()
                found[process.pid, process.name()] = times.user + times.system
        return found


def document(rows: list[dict[str, Any]], version: str) -> str:
    """Return the page ``docs/measured/opening.md``."""
    shown = [r for r in rows if r["tensors"] >= LISTED or (r.get("best") or 0) >= 1]
    small = [r for r in rows if r not in shown]
    lines = [
        "# From the gallery to the picture",
        "",
        f"Measured by `python -m benchmarks.opening` in a real browser (Chromium {version}, software rendering,",
        "1440 × 900), each sample once, on two shared cores: compare orders of magnitude. Seconds.",
        "",
        "| sample | tensors | open | best plan | click: drawn | click: details |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {r['name']} | {r['tensors']:,} | {r['open']:.2f} | {_seconds(r.get('best'))} | {r['here']:.3f} "
        f"| {r['card']:.2f} |"
        for r in shown
    ]
    if small:
        medians = [statistics.median(r.get(key) or 0.0 for r in small) for key in ("open", "best", "here", "card")]
        cells = f"{medians[0]:.2f} | {medians[1]:.2f} | {medians[2]:.3f} | {medians[3]:.2f}"
        lines.append(f"| median of {len(small)} others | below {LISTED} | {cells} |")
    lines += [
        "",
        "- **open**: from the click in the gallery to the painted plan of `slots`.",
        '- **best plan**: from the click on "Find the best plan" to the painted plan of `auto`.',
        "- **click**: from a click on a box to its highlight, and to its details beside the canvas.",
        "",
        "## Pages of large samples",
        "",
        "From the click on the page's name to the finished page, on the best plan.",
        "",
        f"| sample | {' | '.join(TITLES)} |",
        "|---|" + "---:|" * len(TITLES),
    ]
    large = [r for r in rows if TITLES[0] in r]
    lines += [f"| {r['name']} | {' | '.join(_seconds(r[title]) for title in TITLES)} |" for r in large]
    return "\n".join([*lines, ""])


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def uploads(rows: list[tuple[int, float, dict[str, float], dict[str, float]]]) -> str:
    """Return the section about uploaded tables: (rows, load, seconds to each stage, CPU seconds to the picture)."""
    stages = list(rows[0][2])
    lines = [
        UPLOADS,
        "",
        "`python -m benchmarks.opening ROWS …` uploads a CSV file with that many buffers. Seconds from the choice of",
        "the file; *load*: processes ready to run on the machine's two cores, which other work shares; *CPU*: CPU",
        "seconds of the server with its workers, and of the browser, up to the picture.",
        "",
        f"| rows | load | {' | '.join(stages)} | CPU, server | CPU, browser |",
        "|---:|---:|" + "---:|" * (len(stages) + 2),
    ]
    for count, load, seconds, cpu in rows:
        cells = [f"{count:,}", f"{load:.1f}", *(f"{seconds[stage]:.2f}" for stage in stages)]
        lines.append(f"| {' | '.join(cells)} | {cpu['server']:.1f} | {cpu['browser']:.1f} |")
    return "\n".join([*lines, ""])


def measured_upload(count: int) -> tuple[int, float, dict[str, float], dict[str, float]]:
    """Return one row of :func:`uploads`."""
    with (
        TemporaryDirectory() as folder,
        served(lambda host, port: arguments([], True, port, host)) as address,
        chromium() as browser,
    ):
        file = table(Path(folder), count)
        load = os.getloadavg()[0]
        stages, cpu = uploaded(browser, address, file)
        print(f"{count:,} rows at load {load:.1f}: {stages}; CPU seconds to the picture: {cpu}", flush=True)
        print("  CPU seconds to", without_page(file), flush=True)
        return count, load, stages, cpu


def main(names: list[str]) -> None:
    """Measure the named samples, or all samples and write the page; or tables by their number of rows."""
    page = ROOT / "docs" / "measured" / "opening.md"
    of_samples, _, kept = page.read_text(encoding="utf-8").partition(UPLOADS)
    if names and all(name.isdecimal() for name in names):
        page.write_text(of_samples + uploads([measured_upload(int(name)) for name in names]), encoding="utf-8")
        return
    with served(lambda host, port: arguments([], True, port, host)) as address, chromium() as browser:
        rows = []
        for sample in samples():
            if names and sample.name not in names:
                continue
            rows.append(measure(browser, address, sample))
            print({k: round(v, 3) if isinstance(v, float) else v for k, v in rows[-1].items()}, flush=True)
        if not names:
            page.write_text(f"{document(rows, browser.version)}\n{UPLOADS}{kept}", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
