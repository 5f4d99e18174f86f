"""Touch input: two fingers zoom, one finger pans or scrolls the page."""

import base64
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, CDPSession, Page

from app.canvas.pack import pack_plan
from app.canvas.script import canvas_script
from tests.app.canvas.plans import plan_of

pytestmark = pytest.mark.browser


@pytest.fixture
def touched(browser: Browser) -> Iterator[tuple[Page, CDPSession]]:
    """Yield a page of 420 pixels with a chart that is taller than the window, and its input of fingers."""
    context = browser.new_context(viewport={"width": 420, "height": 700}, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.set_content('<meta name="viewport" content="width=device-width"><div id="c"></div><div style="height:2000px">')
    page.add_script_tag(content=canvas_script())
    page.evaluate(
        """(text) => { window.sent = [];
             const plan = tmmuCanvas.keep(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)));
             window.chart = tmmuCanvas.show(document.getElementById("c"), { plan, height: 400, view: "map",
               toolbar: false }, (event, value) => sent.push([event, value])); }""",
        base64.b64encode(pack_plan(plan_of()).data).decode(),
    )
    page.wait_for_selector(".tmmu-canvas[data-paintings]")
    yield page, context.new_cdp_session(page)
    context.close()


Points = tuple[tuple[float, float], ...]


def touch(hand: CDPSession, *path: Points) -> None:
    """Put fingers down at the first points, move them along the others, and lift them."""
    for k, points in enumerate(path):
        hand.send(
            "Input.dispatchTouchEvent",
            {
                "type": "touchMove" if k else "touchStart",
                "touchPoints": [{"x": x, "y": y, "id": n} for n, (x, y) in enumerate(points)],
            },
        )
    hand.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


def window(page: Page) -> tuple[float, float, float, float]:
    w = page.evaluate("() => ({...chart.win})")
    return w["t0"], w["t1"], w["v0"], w["v1"]


def middle(page: Page) -> tuple[float, float]:
    p = page.evaluate(
        "() => { const b = chart.stage.getBoundingClientRect(); return {...chart.plot, l: b.left, t: b.top}; }"
    )
    return p["l"] + p["x"] + p["w"] / 2, p["t"] + p["y"] + p["h"] / 2


def pinch(at: tuple[float, float], dx: float, dy: float, factor: float, steps: int = 4) -> list[Points]:
    x, y = at
    grown = [1 + (factor - 1) * k / steps for k in range(steps + 1)]
    return [((x - dx * g, y - dy * g), (x + dx * g, y + dy * g)) for g in grown]


@pytest.mark.parametrize(("dx", "dy", "levels"), [(30, 30, 2), (40, 2, 1)])
def test_pinch_zooms_about_its_centre_and_a_horizontal_one_zooms_steps_only(
    touched: tuple[Page, CDPSession], dx: float, dy: float, levels: int
) -> None:
    page, hand = touched
    t0, t1, v0, v1 = window(page)
    touch(hand, *pinch(middle(page), dx, dy, 2))
    n0, n1, m0, m1 = window(page)
    assert n1 - n0 == pytest.approx((t1 - t0) / 2, rel=0.02)
    assert m1 - m0 == pytest.approx((v1 - v0) / levels, rel=0.02)
    assert (n0 + n1) / 2 == pytest.approx((t0 + t1) / 2, rel=0.02)


def swipe_up(at: tuple[float, float]) -> list[Points]:
    return [((at[0], at[1] - 12.0 * k),) for k in range(12)]


def test_one_finger_scrolls_the_page_when_not_zoomed(touched: tuple[Page, CDPSession]) -> None:
    page, hand = touched
    touch(hand, *swipe_up(middle(page)))
    page.wait_for_function("() => scrollY > 50")


def test_one_finger_pans_when_zoomed(touched: tuple[Page, CDPSession]) -> None:
    page, hand = touched
    touch(hand, *pinch(middle(page), 30, 30, 2))
    before = window(page)
    touch(hand, *swipe_up(middle(page)))
    assert window(page)[2] < before[2]
    assert page.evaluate("() => scrollY") == 0
