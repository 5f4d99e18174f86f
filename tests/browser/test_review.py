"""Two people exchange a review file and reach a decision."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Visit, download, open_files, rest, still, texts_drawn

pytestmark = pytest.mark.browser


def drop(page: Page, file: Path, place: str = ".tm-headline") -> None:
    """Drop a file on an element of the page when its script has ended."""
    page.locator(place).first.wait_for()
    page.wait_for_function("() => window.history.tmmuListens")
    rest(page)
    transfer = page.evaluate_handle(
        """([text, name]) => {
            const transfer = new DataTransfer();
            transfer.items.add(new File([text], name));
            return transfer;
        }""",
        [file.read_text(encoding="utf-8"), file.name],
    )
    page.locator(place).first.dispatch_event("drop", {"dataTransfer": transfer})


def test_two_people_exchange_a_review_and_decide(visit: Visit, tmp_path: Path, browser: Browser) -> None:
    first = visit(graph="sample:residual_block", planner="exact", tensor="r1")
    headline = first.locator(".tm-headline h1").inner_text()
    review = first.locator(".st-key-review summary")
    review.click()
    first.get_by_label("Your name").fill("Ada")
    first.get_by_label("Your name").press("Enter")
    still(first)
    first.get_by_label("Note", exact=True).fill("Why is <b>r1</b> so large?")
    first.get_by_role("button", name="Add note").click()
    expect(first.locator(".st-key-note-0")).to_contain_text("tensor r1: Why is <b>r1</b> so large?")
    assert "Why is <b>r1" in "".join(texts_drawn(first))  # a flag on the timeline
    first.get_by_role("button", name="Bookmark this view").click()
    expect(first.locator(".st-key-bookmarks").get_by_role("button", name="map r1")).to_be_visible()
    file = tmp_path / "block.tmmu-review.html"
    download(first, "Review file").save_as(file)

    offline = browser.new_page()
    offline.goto(file.as_uri())
    expect(offline.locator("#notes")).to_contain_text("tensor r1: Why is <b>r1</b> so large? Ada")
    expect(offline.locator(".tmmu-canvas[data-paintings]").first).to_be_visible()
    offline.locator("#bookmarks").get_by_role("button", name="map r1").click()
    expect(offline.locator(".tmmu-canvas").first).to_have_attribute("data-selected", "r1")
    expect(offline.locator("#pinned")).to_contain_text("r1")
    offline.close()

    second = visit(graph="sample:linear_chain")
    drop(second, file)
    expect(second.locator(".tm-headline h1")).to_have_text(headline)
    expect(second.locator(".st-key-note-0")).to_contain_text("Why is <b>r1</b> so large?")
    expect(second.locator(".st-key-bookmarks").get_by_role("button", name="map r1")).to_be_visible()
    expect(second.locator(".tmmu-canvas").first).to_have_attribute("data-selected", "r1")
    second.get_by_label("Your name").fill("Grace")
    second.get_by_label("Your name").press("Enter")
    still(second)
    second.get_by_text("approved", exact=True).click()
    expect(second.locator(".st-key-review")).to_contain_text("approved · Grace")
    answer = tmp_path / "answer.tmmu-review.html"
    download(second, "Review file").save_as(answer)

    open_files(first, answer)
    expect(first.locator(".st-key-review")).to_contain_text("approved · Grace")
    expect(first.locator(".st-key-note-0")).to_contain_text(re.compile("Ada"))


def test_file_dropped_anywhere_opens(visit: Visit, tmp_path: Path) -> None:
    page = visit(graph="sample:linear_chain")
    file = tmp_path / "three.csv"
    file.write_text("id,lower,upper,size\na,0,4,64\nb,1,5,32\n")
    page.evaluate(
        """() => { window.openings = []; new MutationObserver(() => openings.push(document.body.dataset.opening ?? ""))
             .observe(document.body, { attributes: true, attributeFilter: ["data-opening"] }); }"""
    )
    drop(page, file)
    expect(page.locator(".tm-headline h1")).to_contain_text("three needs 96 B")
    page.wait_for_function("() => openings.at(-1) === ''")
    assert page.evaluate("openings") == ["Opening three.csv …", ""]  # named at once, until the server has it


def test_link_of_another_server_applies_to_the_file_that_is_opened_again(visit: Visit, tmp_path: Path) -> None:
    page = visit(graph="sample:linear_chain")
    page.goto(f"{page.url.split('?')[0]}?graph=file:{'0' * 32}&file=three.csv&planner=exact&tensor=b")
    expect(page.locator(".tm-error")).to_contain_text("three.csv is no longer on this server")
    file = tmp_path / "three.csv"
    file.write_text("id,lower,upper,size\na,0,4,64\nb,1,5,32\n")
    drop(page, file, ".tm-error")
    expect(page.locator(".tm-headline h1")).to_contain_text("three needs 96 B")
    expect(page.locator(".tmmu-canvas").first).to_have_attribute("data-selected", "b")
    expect(page).to_have_url(re.compile("planner=exact"))


def test_damaged_review_is_refused_and_the_picture_stays(visit: Visit, tmp_path: Path) -> None:
    page = visit(graph="sample:linear_chain")
    headline = page.locator(".tm-headline h1").inner_text()
    file = tmp_path / "bad.tmmu-review.json"
    file.write_text('{"schema":"tmmu_review/1","review":{}}')
    drop(page, file)
    expect(page.locator(".tm-error")).to_contain_text("bad.tmmu-review.json was not opened")
    expect(page.locator(".tm-headline h1")).to_have_text(headline)
