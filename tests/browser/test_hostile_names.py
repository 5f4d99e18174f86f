"""Hostile names cause no request from a page or a report."""

import subprocess
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pytest
from markdown_it import MarkdownIt
from playwright.sync_api import Browser, expect

from app.kit import downloads
from app.report import html_report
from app.report.html_report import build_report
from app.session import opening, planning
from app.session.pages import PAGES
from app.session.view_state import Choice
from tests.browser.conftest import Visit, open_files, rest
from tests.support.hostile import hostile_graph, hostile_names, hostile_to_files
from tmmu_core.graph.native import native_file
from tmmu_core.plans.making.engine import plan_graph


@pytest.mark.slow
def test_hostile_graph_causes_no_request_on_any_page(
    visit: Visit, listener: tuple[str, list[str]], tmp_path: Path
) -> None:
    address, asked = listener
    names = hostile_names(address)
    file = tmp_path / "![f](x).tmmu.json"
    file.write_bytes(native_file.encode_json(hostile_graph(names)))
    page = visit()
    open_files(page, file)
    declare = page.get_by_role("button", name="Declare the arenas")
    expect(declare).to_be_visible()
    declare.click()
    expect(page.locator(".tm-headline h1")).to_contain_text("image.png")
    rest(page)
    query = {key: values[0] for key, values in parse_qs(urlparse(page.url).query).items()}
    for name, _ in PAGES:
        shown = visit(name, **query, selected=names[1])
        shown.wait_for_timeout(300)
        assert shown.locator(f"img[src^='{address}'], a[href^='{address}']").count() == 0, name
        shown.close()
    assert asked == []


def test_report_of_a_hostile_graph_causes_no_request(
    browser: Browser, listener: tuple[str, list[str]], tmp_path: Path
) -> None:
    address, asked = listener
    names = hostile_names(address)
    solution = plan_graph(hostile_graph(names), arenas={"activations": {}, names[0]: {}})
    file = tmp_path / "report.html"
    file.write_bytes(build_report(solution))
    page = browser.new_page()
    page.goto(file.as_uri())
    page.wait_for_timeout(300)
    assert page.locator("img, a[href^='http']").count() == 0
    page.close()
    assert asked == []


def test_exports_of_a_hostile_graph_cause_no_request(
    browser: Browser, listener: tuple[str, list[str]], tmp_path: Path
) -> None:
    address, asked = listener
    names = hostile_to_files(address)
    graph = hostile_graph(names)
    arenas = {"activations": {}, names[0]: {}}
    source = opening.shelf().put(f"{names[0]}.tmmu.json", native_file.encode_json(graph))
    shown = planning.make_plan(Choice(source=source, arenas=arenas))
    stem = downloads.file_stem(graph.name)
    files = {}
    for listed in downloads.entries(shown, stem).values():
        for _, name, _, make in listed:
            data = make()
            files[name] = data if isinstance(data, bytes) else data.encode()
    report = build_report(shown.solution)
    files["report.html"] = report
    files["summary.html"] = (
        b"<!doctype html>" + MarkdownIt("gfm-like", {"linkify": False}).render(files[f"{stem}.md"].decode()).encode()
    )
    assert html_report.browser() is not None
    paper = html_report.pdf(report)
    assert all(word not in paper for word in (b"/URI", b"/JavaScript", b"/Launch", b"/EmbeddedFile"))
    assert all(Path(name).name == name and name.isprintable() and not name.startswith(".") for name in files)
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    page = browser.new_page()
    for file in sorted(path for path in tmp_path.iterdir() if path.suffix in (".html", ".svg")):
        page.goto(file.as_uri())
        page.wait_for_timeout(200)
        assert page.locator(f"img, image, [href^='{address}'], a[href^='http']").count() == 0, file.name
    page.close()
    for file in tmp_path.glob("*.[ch]"):
        command = ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", str(file)]
        assert subprocess.run(command, capture_output=True, text=True, cwd=tmp_path).stderr == ""
    assert asked == []
