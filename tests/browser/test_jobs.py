"""Reasons to open the explorer that no other file tests: a model that does not fit, gaps, big graphs, dead links."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit, open_files, rest

pytestmark = pytest.mark.browser


def test_change_that_fits_is_opened_and_can_be_exported(visit: Visit) -> None:
    page = visit(graph="sample:resnet50", capacity="activations=6.5MiB")
    page.get_by_role("link", name="Make it fit").click()
    page.get_by_role("button", name="Open this plan").click()
    expect(page.locator(".tm-headline h1")).not_to_contain_text("over the limit")
    page.locator(".st-key-headline").get_by_role("link", name="Export").click()
    expect(page.get_by_role("button", name="Download report")).to_be_visible()


def test_fit_of_a_training_step_lists_its_modules_and_a_remedy(visit: Visit) -> None:
    page = visit("fit", graph="sample:gpt2_small_train_b1_s1024", capacity="2GiB")
    expect(page.get_by_text("Memory by module")).to_be_visible(timeout=60_000)
    expect(page.get_by_text("in chunks of tokens")).to_be_visible()
    row = page.locator(".tm-table tr", has_text="transformer.h.*.ln_2 × 12")
    expect(row.locator("td")).to_have_text(
        ["transformer.h.*.ln_2 × 12", "72.0 KiB", "72.0 KiB", "36.1 MiB", "12.1 MiB", "24.0 MiB", "12.1 MiB"]
    )


def test_fragmentation_names_the_cause_at_the_chosen_step(visit: Visit) -> None:
    page = visit("fragmentation", graph="sample:mixed_sizes")
    title = page.locator(".tm-title h2")
    expect(title).to_contain_text(re.compile("At #.* (unused|live)"))
    before = title.inner_text()
    page.get_by_role("button", name="+", exact=True).or_(page.get_by_role("button", name="Increment")).first.click()
    expect(title).not_to_have_text(before)
    step = int(re.findall(r"#(\d+)", before)[0])
    expect(title).to_contain_text(f"#{step + 1}")


def test_dead_link_names_its_file_and_reload_keeps_the_view(visit: Visit) -> None:
    page = visit(graph="sample:linear_chain", tensor="t1", view="lifetimes")
    page.reload()
    expect(page.locator('.tm-card[data-tensor="t1"]')).to_be_visible()
    expect(page.locator(".tmmu-canvas").first).to_have_attribute("data-view", "lifetimes")
    page.goto(page.url.split("?")[0] + "?graph=file:0123456789abcdef")
    expect(page.locator(".tm-error")).to_contain_text("open")
    page.get_by_role("button", name="SqueezeNet ·").click()
    expect(page.locator(".tm-headline h1")).to_contain_text("squeezenet")


@pytest.mark.slow
def test_hundred_thousand_buffers_are_drawn_and_searched(visit: Visit, tmp_path: Path) -> None:
    file = tmp_path / "large.csv"
    rows = (f"b{k},{k},{k + 1 + k % 97},{128 + 128 * (k % 31)}\n" for k in range(100_000))
    file.write_text("id,lower,upper,size\n" + "".join(rows))
    page = visit(graph="sample:linear_chain")
    open_files(page, file)
    expect(page.locator(".tm-headline h1")).to_contain_text("large needs", timeout=120_000)
    canvas = page.locator(".tmmu-canvas").first
    expect(canvas).to_have_attribute("data-total", "100000", timeout=120_000)
    rest(page)
    page.keyboard.press("Escape")
    page.get_by_label("search tensors and nodes").fill("b99999")
    page.get_by_label("search tensors and nodes").press("Enter")
    expect(page.locator('.tm-card[data-tensor="b99999"]')).to_be_visible()
