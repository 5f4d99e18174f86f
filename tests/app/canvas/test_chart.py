"""The canvas in the browser: drawing, input, and messages to the page."""

import base64
import itertools
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from app.canvas.component import matches, pack_plan
from app.kit.tensor_table import matching_rows
from app.texts import numbers
from app.texts.palette import layer_colours
from benchmarks.canvas_plans import synthetic_plan
from tests.app.canvas.conftest import Draw
from tests.app.canvas.plans import FOUR, plan_of
from tests.app.texts.test_colours import CLEARLY, linear, oklab
from tests.support.pixels import pixel_in
from tmmu_core.plans.model import Constraints

pytestmark = pytest.mark.browser


def data(page: Page) -> dict[str, str]:
    found: dict[str, str] = page.locator(".tmmu-canvas").first.evaluate("e => ({...e.dataset})")
    return found


def pixel(page: Page, tensor: str, chart: int = 0) -> tuple[float, float]:
    at = pixel_in(page.locator(".tmmu-canvas").nth(chart), tensor)
    return at["x"], at["y"]


def colour_at(page: Page, x: float, y: float) -> tuple[int, ...]:
    return tuple(
        page.evaluate(
            """([x, y]) => { const c = document.querySelector("canvas.base"), b = c.getBoundingClientRect();
                 x = Math.round(x - b.left); y = Math.round(y - b.top);
                 return [...c.getContext("2d").getImageData(x, y, 1, 1).data]; }""",
            [x, y],
        )
    )


def sent(page: Page, event: str) -> list[Any]:
    return [value for name, value in page.evaluate("sent") if name == event]


def settle(page: Page) -> None:
    frame = "new Promise((done) => requestAnimationFrame(done))"
    page.evaluate(f"() => {frame}.then(() => {frame}).then(() => new Promise((done) => setTimeout(done)))")


# --- words and bytes are the same on both sides ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "n", [0, 1, 1023, 1024, 1025, 10_239, 102_399, 2**20 - 1, 2**20, 1_572_864, 12_900_000, 2**40 - 1, 2**63, 2**64 - 1]
)
def test_figures_are_formatted_as_in_python(sheet: Page, n: int) -> None:
    shown_text = sheet.evaluate(
        "(n) => ['shortBytes', 'fullBytes', 'offsetText'].map((how) => tmmuCanvas.textFunctions[how](BigInt(n)))",
        str(n),
    )
    assert shown_text == [numbers.short_bytes(n), numbers.full_bytes(n), numbers.offset(n)]


@pytest.mark.parametrize(
    ("every", "tick", "label"),
    [
        (2**27, 11 * 2**27, "1.375 GiB"),
        (2**26, 11 * 2**26, "704 MiB"),
        (2**30, 2**31, "2 GiB"),
        (512, 1536, "1.5 KiB"),
        (1, 2**41 + 1, "0x20000000001"),
    ],
)
def test_ticks_of_an_axis_have_one_unit_and_exact_numbers(sheet: Page, every: int, tick: int, label: str) -> None:
    ticks = "([every, tick]) => tmmuCanvas.textFunctions.byteLabels(every, tick, 14)(tick)"
    assert sheet.evaluate(ticks, [every, tick]) == label


# --- drawing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", ["lifetimes", "slots", "map"])
@pytest.mark.parametrize("transposed", [False, True])
def test_box_is_drawn_at_its_reported_pixel(draw: Draw, view: str, transposed: bool) -> None:
    page = draw(plan_of(), view=view, transposed=transposed, colour="role")
    assert page.locator(".status").first.inner_text().startswith("4 of 4 tensors drawn")
    assert colour_at(page, *pixel(page, "b"))[:3] == (0x00, 0x72, 0xB2)
    assert colour_at(page, *pixel(page, "w"))[:3] == (0x8A, 0x8F, 0x98)


@pytest.mark.gate
def test_offset_zero_is_at_the_bottom_and_time_runs_right(draw: Draw) -> None:
    page = draw(plan_of(), view="map")
    a, b, c = (pixel(page, t) for t in "abc")
    assert a[1] > b[1]
    assert a[0] < c[0]


def test_arenas_share_one_byte_scale(draw: Draw) -> None:
    page = draw(plan_of(), view="map")
    heights = page.evaluate("() => charts[0].scene.bands.map((b) => [b.arena.name, b.height])")
    assert heights == [["activations", 3072], ["parameters", 4096]]


def test_name_of_an_arena_is_above_its_boxes_at_any_height(draw: Draw) -> None:
    page = draw(plan_of(), view="map", arena="activations", height=1200)
    page.evaluate("() => charts[0].update({ height: 250 })")
    page.wait_for_function("() => charts[0].plot.h < 250")
    space = "() => { const { plane, plot, scene } = charts[0]; return plane.level(scene.bands[0].extent) - plot.y; }"
    assert page.evaluate(space) >= 18


def test_view_is_inside_its_base(draw: Draw) -> None:
    rows = (*FOUR, ("v", "activations", 1, 1024 + 512, 1024, 1, 4))
    page = draw(plan_of(rows, bases={"v": "b"}), view="map", arena="activations")
    assert pixel(page, "v") == pixel(page, "b")  # the middle half of b
    page.mouse.move(*pixel(page, "v"))
    page.wait_for_selector(".tip:not([hidden])")
    assert page.locator(".tip b").inner_text() == "v"


def test_bytes_of_a_dead_base_are_held_by_its_views(draw: Draw) -> None:
    rows = (FOUR[0], ("b", "activations", 1, 1024, 2048, 1, 2), ("v", "activations", 1, 1024, 512, 1, 4))
    page = draw(plan_of(rows, bases={"v": "b"}), view="map")
    middle = (
        "() => { const { x, y } = charts[0].stage.getBoundingClientRect(), [px, py] = charts[0].plane.point(3, 2560);"
    )
    assert colour_at(page, *page.evaluate(f"{middle} return [x + px, y + py]; }}"))[:3] == (0x00, 0x72, 0xB2)


def test_claim_is_above_the_chart_and_in_its_label(draw: Draw) -> None:
    page = draw(plan_of(), view="map")
    claim = "activations: peak 3.00 KiB at #1 n1; arena size 3.00 KiB; gap 0 %"
    assert page.locator(".chart-title").inner_text() == claim
    assert claim in (page.locator(".stage").get_attribute("aria-label") or "")


def test_names_are_text(draw: Draw) -> None:
    name = '<img src=x onerror="window.broken=1">'
    page = draw(plan_of(((name, "activations", 0, 0, 1024, 0, 4),)), view="map")
    page.mouse.move(*pixel(page, name))
    page.wait_for_selector(".tip:not([hidden])")
    assert page.locator(".tip b").inner_text() == name
    assert page.locator("img").count() == 0


@pytest.mark.parametrize(
    ("names", "letters", "shown_text"),
    [
        (["net/conv_6/Relu6", "net/conv_7/Relu6", "net/conv_8/Relu6"], 5, "…6…"),
        (["net/conv_6/Relu6", "net/conv_7/Relu6", "net/conv_8/Relu6"], 10, "…6/Relu6"),
        (["model.layers.0.mlp.up", "model.layers.1.mlp.up", "model.layers.1.attn.q"], 10, "…0.mlp.up"),
        (["n/1_depth/relu", "n/1_point/relu", "n/2_depth", "n/2_point", "n/point", "n/depth"], 13, "…1…relu"),
        (["n/c_1_depth/relu", "n/c_1_point/relu"], 6, "…de…"),
        (["block_1:out", "block_2:out"], 8, "…1:out"),
        (["depthwiseconvolution"], 10, "dept…tion"),
        (["block_1:out", "block_2:out"], 12, "block_1:out"),
    ],
)
def test_label_keeps_its_distinct_part(sheet: Page, names: list[str], letters: int, shown_text: str) -> None:
    plan = plan_of(tuple((name, "activations", k, 1024 * k, 1024, 0, 4) for k, name in enumerate(names)))
    packed = base64.b64encode(pack_plan(plan).data).decode()
    brief = sheet.evaluate(
        """([packed, name, letters]) => {
             const plan = tmmuCanvas.decode(Uint8Array.from(atob(packed), (c) => c.charCodeAt(0))).plans[0];
             return tmmuCanvas.textFunctions.namerOf(plan).brief(name, letters); }""",
        [packed, names[0], letters],
    )
    assert brief == shown_text


def test_operators_are_ranked_by_bytes(draw: Draw) -> None:
    rows = (*FOUR, ("v", "activations", 1, 1024, 1024, 1, 4), ("x", "activations", 2, 8192, 64, 0, 4))
    plan = plan_of(rows, bases={"v": "b"})
    operators = ["relu", "conv", "relu", "view", "load", "relu"]  # of a, b, c, v, w, x
    page = draw(plan, operators=operators, view="map", colour="operator")
    legend = page.locator(".legend span").all_inner_texts()
    assert legend[1:4] == ["load", "conv", "relu"]
    assert "view" not in legend
    codes = page.evaluate("() => [...charts[0].colouring.codes]")
    assert codes[plan.row_of["v"]] == codes[plan.row_of["b"]]


def legend_of(page: Page) -> list[str]:
    return page.locator(".legend > span").all_inner_texts()


def test_legend_has_the_colours_of_shown_arenas(draw: Draw) -> None:
    weights = tuple((f"w{k}", "parameters", k, 4096 * k, 4096, 0, 4) for k in range(5))
    page = draw(plan_of((*FOUR[:3], *weights)), view="slots", arena="activations")
    assert legend_of(page)[1:] == ["0", "1", "slot free", "arena size", "lower bound", "▼ peak"]
    page.evaluate("() => charts[0].choose('arena', null)")
    settle(page)
    assert legend_of(page)[1:] == ["0", "1", "2", "3", "4", "slot free", "arena size", "lower bound", "▼ peak"]
    assert page.evaluate("() => charts[0].scene.stripArena.name") == "all arenas"
    page = draw(plan_of(constraints=Constraints(reserved={"parameters": ((0, 64),)})), view="map")
    assert "reserved" in legend_of(page)


def test_layers_have_the_same_colours_on_the_canvas_and_beside_it(draw: Draw) -> None:
    plan, layers = plan_of(FOUR), ["late", "early", "", "late"]
    page = draw(plan, layers=layers, view="map", colour="module")
    shown = dict(page.evaluate("() => charts[0].colouring.legend"))
    wanted = layer_colours(plan, layers)
    assert shown == {name: f"rgb({','.join(map(str, bytes.fromhex(wanted[name][1:])))})" for name in ("late", "early")}


def test_slots_and_layers_beside_each_other_differ_in_colour(draw: Draw) -> None:
    page = draw(plan_of(FOUR), view="map", colour="slot")
    table = page.evaluate("() => charts[0].colouring.table")
    seen = [oklab(linear("#" + bytes(colour).hex())) for colour in table]
    pairs = itertools.combinations(range(len(seen)), 2)
    near = [(a, b) for a, b in pairs if np.linalg.norm(seen[a] - seen[b]) < CLEARLY]
    assert near == []


def test_tooltip_names_the_holder_of_a_shared_storage(draw: Draw) -> None:
    rows = (*FOUR[:2], ("v", "activations", 0, 0, 1024, 1, 4))
    page = draw(plan_of(rows, bases={"v": "a"}), view="map")
    lines = dict(page.evaluate("() => charts[0].lines(0)"))
    assert (lines["tensor live"], lines["buffer"]) == ("[0, 2) · 2 steps", "a and 1 more tensor")
    assert lines["memory held"] == "[0, 4) · 4 steps, last by v"


# --- input -----------------------------------------------------------------------------------------------------------


def test_hover_shows_exact_figures(draw: Draw) -> None:
    page = draw(plan_of(handoffs=((2, "a", "c"),)), view="map")
    page.mouse.move(*pixel(page, "c"))
    page.wait_for_selector(".tip:not([hidden])")
    shown_text = page.locator(".tip").inner_text()
    for part in ("512 B", "0 (0x0)", "activations, slot 0, order 2", "[2, 3) · 1 step", "#2 n2", "a at #2"):
        assert part in shown_text
    assert sent(page, "select") == []


def test_click_selects_and_escape_clears(draw: Draw) -> None:
    page = draw(plan_of(), view="map")
    page.mouse.click(*pixel(page, "b"))
    settle(page)
    assert data(page)["selected"] == "b"
    page.keyboard.press("Escape")
    settle(page)
    assert data(page)["selected"] == ""
    assert sent(page, "select") == [{"id": "b", "row": 1, "how": "click"}, {"id": None, "row": -1, "how": "clear"}]


def test_no_hue_is_close_to_the_colour_over_a_limit(draw: Draw) -> None:
    hues = draw(plan_of(), view="slots").evaluate("() => charts[0].colouring.table")
    assert min(np.linalg.norm(np.subtract(hue, (0xD5, 0x5E, 0x00))) for hue in hues) > 70


def test_selected_box_has_a_frame(draw: Draw) -> None:
    page = draw(plan_of(), view="map", selected="b")
    settle(page)
    dark = page.evaluate(
        """() => { const c = document.querySelector("canvas.over");
             const pixels = new Uint32Array(c.getContext("2d").getImageData(0, 0, c.width, c.height).data.buffer);
             return pixels.filter((p) => p === 0xff000000).length; }"""
    )
    assert dark > 100


@pytest.mark.parametrize(
    ("other", "shared"),
    [
        ("b", "common steps [1, 2), no common bytes"),
        ("c", "no common steps, 512 B in common"),
        ("v", "tensors of one buffer"),
        ("w", "common steps [0, 2), different arenas"),
    ],
)
def test_shift_click_compares_steps_and_bytes(draw: Draw, other: str, shared: str) -> None:
    rows = (*FOUR, ("v", "activations", 0, 512, 512, 1, 2))
    page = draw(plan_of(rows, bases={"v": "a"}), view="map", selected="a")
    page.keyboard.down("Shift")
    page.mouse.click(*pixel(page, other))
    page.keyboard.up("Shift")
    settle(page)
    assert (data(page)["selected"], data(page)["compared"]) == ("a", other)
    assert page.locator(".status").inner_text().startswith(f"a and {other}: {shared}; ")


def test_wheel_zooms_at_the_cursor(draw: Draw) -> None:
    page = draw(plan_of(), view="map")
    x, y = map(round, pixel(page, "b"))
    point = """([x, y]) => { const b = charts[0].stage.getBoundingClientRect();
                 return charts[0].plane.at(x - b.left, y - b.top); }"""
    before = page.evaluate(point, [x, y])
    page.mouse.move(x, y)
    page.mouse.wheel(0, -300)
    settle(page)
    after = page.evaluate(point, [x, y])
    assert after == pytest.approx(before)
    low, high = map(float, data(page)["window"].split(","))
    assert high - low < 4


@pytest.mark.parametrize("view", ["lifetimes", "slots", "map"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("size", [2048, 2**20 + 7, 2**52])
def test_zoom_ends_at_one_step_and_one_byte(draw: Draw, view: str, transposed: bool, size: int) -> None:
    faults: list[str] = []
    rows = (("a", "activations", 0, 0, 1024, 0, 2), ("b", "activations", 1, 1024, size, 1, 4))
    page = draw(plan_of(rows), view=view, transposed=transposed)
    page.on("pageerror", lambda error: faults.append(str(error)))
    x, y = pixel(page, "b")
    page.mouse.move(x, y)
    for _ in range(60):
        page.mouse.wheel(0, -120)
    for _ in range(40):
        page.mouse.wheel(0, -300)
    settle(page)
    spans = [high - low for low, high in (map(float, data(page)[edge].split(",")) for edge in ("window", "levels"))]
    least = max(1, size / 2**40) if view == "map" else 1  # the finest part of a very large offset in a double
    assert spans == [pytest.approx(1), pytest.approx(least, rel=0.1)]
    assert colour_at(page, x, y)[3] == 255
    assert faults == []


def test_drag_pans_and_double_click_resets(draw: Draw) -> None:
    page = draw(plan_of(), view="map")
    x, y = pixel(page, "b")
    page.mouse.move(x, y)
    page.mouse.wheel(0, -300)
    settle(page)
    zoomed = data(page)["window"]
    page.mouse.down()
    page.mouse.move(x - 60, y, steps=4)
    page.mouse.up()
    settle(page)
    assert data(page)["window"] != zoomed
    assert sent(page, "select") == []
    page.mouse.dblclick(x, y)
    settle(page)
    assert data(page)["window"] == "0,4"


def test_key_before_the_first_drawing_has_no_effect(draw: Draw) -> None:
    page = draw(plan_of(FOUR))
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.evaluate(
        """() => {
             document.body.innerHTML = '<div id="new" style="width:900px"></div>';
             tmmuCanvas.show(document.getElementById("new"), { plan: null, height: 500 }, () => {});
             document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
           }"""
    )
    settle(page)
    assert errors == []


@pytest.mark.parametrize(
    ("arenas", "peak", "drawn"), [(None, 2, "4"), (["activations", "parameters"], 2, "4"), (["activations"], 1, "3")]
)
def test_key_p_goes_to_the_peak_of_the_drawn_arenas(draw: Draw, arenas: Any, peak: int, drawn: str) -> None:
    memory = arenas and {"arenas": arenas, "capacity": None}
    page = draw(plan_of((*FOUR[:3], ("w", "parameters", 0, 0, 1024, 2, 4))), view="map", memory=memory)
    assert data(page)["drawn"] == drawn
    page.get_by_role("button", name="Show all").focus()
    page.keyboard.press("Tab")
    assert page.locator(".stage").evaluate("(stage) => getComputedStyle(stage).boxShadow") != "none"
    page.keyboard.press("p")
    page.wait_for_function("() => sent.some(([event]) => event === 'step')")
    assert sent(page, "step") == [peak]


def test_one_memory_marks_the_bytes_over_the_limit_of_an_arena(draw: Draw) -> None:
    memory, shown = {"arenas": ["parameters", "activations"], "capacity": None}, []
    for capacity in (4096, 3071):
        page = draw(plan_of(capacity=capacity), view="map", memory=memory)
        shown.append("above the limit" in page.locator(".legend").inner_text())
    assert shown == [False, True]


@pytest.mark.parametrize(("keys", "step"), [(["Right"], 2), (["Left"] * 3, 0), (["Up"], 0), (["Down", "Down"], 3)])
def test_arrow_keys_change_the_step(draw: Draw, keys: list[str], step: int) -> None:
    page = draw(plan_of(), view="map", step=1, arena="activations", selected="a")
    page.locator(".stage").focus()
    for key in keys:
        page.keyboard.press(f"Arrow{key}")
    assert page.evaluate("[charts[0].state.step, charts[0].state.selected]") == [step, "a"]


@pytest.mark.parametrize("selected", ["a", "view of a view"])
def test_bracket_keys_walk_the_tenants_of_a_slot(draw: Draw, selected: str) -> None:
    views = (("view of a view", "activations", 0, 0, 1024, 0, 2), ("v", "activations", 0, 0, 1024, 0, 2))
    page = draw(plan_of((*FOUR, *views), bases={"v": "a", "view of a view": "v"}), view="slots", selected=selected)
    page.keyboard.press("]")  # without focus on the drawing
    settle(page)
    assert data(page)["selected"] == "c"
    page.keyboard.press("]")
    page.keyboard.press("[")
    settle(page)
    assert data(page)["selected"] == "a"


def test_slash_searches_and_enter_walks_the_hits(draw: Draw) -> None:
    page = draw(plan_of(), view="map", colour="role")
    page.keyboard.press("/")
    page.keyboard.type("c")
    settle(page)
    assert (data(page)["hits"], data(page)["drawn"]) == ("1", "4")
    assert colour_at(page, *pixel(page, "c"))[:3] == (0x00, 0x72, 0xB2)
    dimmed = colour_at(page, *pixel(page, "b"))
    assert dimmed[3] == 255
    assert min(dimmed[:3]) > 0xA0
    page.keyboard.press("Enter")
    settle(page)
    assert data(page)["selected"] == "c"
    page = draw(plan_of(), view="map", arena="activations", search="w")
    assert page.locator(".count").inner_text() == "0 found, 1 in other arenas"


@pytest.mark.parametrize("text", ["conv", "CONV_00000", "_0000007", "relu_3", "nothing", ":out", "é"])
def test_canvas_and_table_find_the_same_tensors(sheet: Page, text: str) -> None:
    plan, _ = synthetic_plan(300)
    packed = base64.b64encode(pack_plan(plan).data).decode()
    found = sheet.evaluate(
        """([packed, text]) => { const host = document.createElement("div"); document.body.append(host);
             const plan = tmmuCanvas.keep(Uint8Array.from(atob(packed), (c) => c.charCodeAt(0)));
             const chart = tmmuCanvas.show(host, { plan, search: text }, () => {});
             const rows = [...(chart.hitRows ?? [])].sort((a, b) => a - b);
             chart.destroy();
             host.remove();
             return rows; }""",
        [packed, text],
    )
    assert found == np.flatnonzero(matches(plan, text)).tolist()
    assert found == sorted(matching_rows(plan, text).tolist()), "the table below it"


# --- state from the page, and charts together ------------------------------------------------------------------------


def test_chosen_view_stays_until_the_page_changes_it(draw: Draw) -> None:
    page = draw(plan_of(), view="map")
    page.get_by_role("button", name="Slots").click()
    again = """(view) => tmmuCanvas.show(document.getElementById("c0"),
                 { plan: charts[0].pack.token, height: 500, view }, () => {})"""
    page.evaluate(again, "map")
    assert data(page)["view"] == "slots"
    page.evaluate(again, "lifetimes")
    assert data(page)["view"] == "lifetimes"
    assert sent(page, "view") == ["slots"]


def test_selection_from_outside_scrolls_into_view(draw: Draw) -> None:
    page = draw(plan_of(nodes=tuple("bcdefghi")), view="map")
    page.evaluate("() => { Object.assign(charts[0].win, { t0: 5, t1: 8 }); charts[0].windowChanged(); }")
    settle(page)
    assert pixel_in(page.locator(".tmmu-canvas"), "a") is None
    page.evaluate("() => charts[0].update({ selected: 'a' })")
    settle(page)
    assert pixel_in(page.locator(".tmmu-canvas"), "a") is not None


@pytest.mark.parametrize(
    ("field", "act", "older", "newer", "other"),
    [
        ("selected", "(id) => charts[0].select(charts[0].plan.rowOf(id), 'click')", "a", "b", "c"),
        ("step", "(step) => charts[0].goStep(step)", 1, 2, 3),
        ("colour", "(name) => charts[0].choose('colour', name)", "slot", "role", "arena"),
        ("search", "(text) => { charts[0].searchField.value = text; charts[0].input.onSearch(0); }", "n", "n2", "w"),
    ],
)
def test_late_answer_does_not_undo_a_newer_choice(
    draw: Draw, field: str, act: str, older: Any, newer: Any, other: Any
) -> None:
    page = draw(plan_of(), view="map")
    for k, value in enumerate((older, newer), 1):
        page.evaluate(act, value)
        page.wait_for_function("(count) => sent.length === count", arg=k)
    for value, state in ((older, newer), (newer, newer), (other, other)):
        page.evaluate("([field, value]) => charts[0].update({ [field]: value })", [field, value])
        assert page.evaluate("(field) => charts[0].state[field]", field) == state
    for value in (older, newer, older):
        page.evaluate(act, value)
    page.wait_for_timeout(200)
    for value in (older, newer):  # the page omits the value between two equal ones, and changes it later
        page.evaluate("([field, value]) => charts[0].update({ [field]: value })", [field, value])
    assert page.evaluate("(field) => charts[0].state[field]", field) == newer


def test_linked_charts_follow_selection_and_window(draw: Draw) -> None:
    page = draw(plan_of(), places=2, view="map", link="x")
    x, y = pixel(page, "b")
    page.mouse.move(x, y)
    page.mouse.wheel(0, -200)
    page.mouse.click(x, y)
    settle(page)
    shown = page.locator(".tmmu-canvas").evaluate_all("all => all.map((e) => [e.dataset.selected, e.dataset.window])")
    assert shown[0] == shown[1]
    assert shown[0][0] == "b"
    assert shown[0][1] != "0,4"


def test_chart_waits_for_its_plan(draw: Draw) -> None:
    page = draw(plan_of(), view="map")
    page.get_by_label("arena", exact=True).select_option("parameters")  # the next plan has no such arena
    pack = pack_plan(plan_of(FOUR[:2], nodes=("n1", "n2", "n3", "n4")))
    packed = base64.b64encode(pack.data).decode()
    page.evaluate(
        "(token) => tmmuCanvas.show(document.getElementById('c0'), { plan: token, height: 500 }, () => {})", pack.token
    )
    assert page.locator(".tmmu-canvas.waiting").count() == 1
    errors = list[str]()
    page.once("pageerror", lambda error: errors.append(str(error)))
    page.evaluate(
        """(text) => {
             tmmuCanvas.keep(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)));
             charts[0].stage.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));  // before it is drawn
           }""",
        packed,
    )
    settle(page)
    assert errors == []
    assert page.locator(".tmmu-canvas.waiting").count() == 0
    assert (data(page)["drawn"], data(page)["total"]) == ("2", "2")


def test_removed_chart_is_not_kept_and_sends_nothing(draw: Draw) -> None:
    page = draw(plan_of(), view="map")
    page.evaluate("charts[0].zoom(0.5, { t: 1, v: 1 }, { steps: true, levels: true })")
    again = (
        "c0.replaceChildren(); tmmuCanvas.show(c0, { plan: charts[0].pack.token }, () => {}); tmmuCanvas.charts.size"
    )
    assert page.evaluate(again) == 1
    page.wait_for_timeout(500)
    assert sent(page, "zoom") == []


def test_comparison_outlines_differences(draw: Draw) -> None:
    moved = (FOUR[0], ("b", "activations", 1, 1536, 2048, 1, 4), *FOUR[2:])
    page = draw(plan_of(moved), baseline=plan_of(), view="map", colour="change", arena="activations")
    assert "1 of 1 changed tensors of the baseline outlined" in page.locator(".status").inner_text()
    assert legend_of(page)[-6:-4] == ["live bytes of the baseline", "place in the baseline"]
    assert page.evaluate("() => [...charts[0].scene.otherSum.live]") == [1024, 3072, 2560, 2048]
    assert colour_at(page, *pixel(page, "a"))[:3] == (0xA8, 0xAD, 0xB5)
    assert colour_at(page, *pixel(page, "b"))[:3] == (0x00, 0x72, 0xB2)
    page.mouse.move(*pixel(page, "b"))
    page.wait_for_selector(".tip:not([hidden])")
    assert "1,024 (0x400) → 1,536 (0x600)" in page.locator(".tip").inner_text()
    page = draw(plan_of(moved), baseline=plan_of(), view="map", plan_index=1)
    assert "1 of 1 changed tensors of the candidate outlined" in page.locator(".status").inner_text()


def test_offsets_beyond_double_precision_are_exact(draw: Draw) -> None:
    top = 2**60 + 1
    page = draw(
        plan_of((("a", "activations", 0, 0, 2**60, 0, 4), ("b", "activations", 1, top, 2**59 + 1, 0, 4))), view="map"
    )
    page.mouse.move(*pixel(page, "b"))
    page.wait_for_selector(".tip:not([hidden])")
    assert f"{top:,} (0x{top:X})" in page.locator(".tip").inner_text()


def test_overview_shows_the_window_and_moves_it(draw: Draw) -> None:
    plan, _ = synthetic_plan(400)
    page = draw(plan, view="map")
    assert page.evaluate("() => charts[0].overview.plane === null")
    page.evaluate("() => charts[0].zoom(0.2, { t: 2, v: 1000 }, { steps: true, levels: true })")
    settle(page)
    before = [float(edge) for edge in data(page)["window"].split(",")]
    at = page.evaluate(
        """() => { const { rect } = charts[0].overview.plane, box = charts[0].stage.getBoundingClientRect();
             return [box.left + rect.x + 0.9 * rect.w, box.top + rect.y + rect.h / 2]; }"""
    )
    page.mouse.move(*at)
    settle(page)
    assert page.locator(".tip").is_hidden()  # the overview covers a tensor
    page.mouse.click(*at)
    settle(page)
    after = [float(edge) for edge in data(page)["window"].split(",")]
    assert after[0] > before[1]
    assert after[1] - after[0] == pytest.approx(before[1] - before[0])
    assert sent(page, "select") == []
