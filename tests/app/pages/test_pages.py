"""Every page, run by Streamlit without a browser."""

import re
from pathlib import Path

import pytest
import streamlit as st

from app.session import opening, planning, review
from app.session.review import Note, Review
from app.session.view_state import Choice
from app.texts.palette import CATEGORIES
from tests.app.pages.run_page import BROKEN, PAGES, drawings, html, opened, title
from tests.support.build import chain
from tests.support.paths import DATA, ROOT
from tmmu_core.formats.planfile import plan_file
from tmmu_core.formats.pytorch import torch_module
from tmmu_core.plans.making.engine import plan_graph


def test_list_has_the_colours_of_the_map() -> None:
    card = html(opened(colour="operator", graph="sample:resnet50")).split("Largest at the peak")[1]
    swatches = re.findall(r'swatch" style="background:(#\w+)"></span> .*?<code>([^<]*)</code>', card)
    assert swatches == [(CATEGORIES[1], "r11"), (CATEGORIES[0], "r12"), (CATEGORIES[1], "r13")]
    assert "all arenas at #14" in html(opened("device")).split("Largest at the peak")[1]
    assert " in all arenas at " in title(opened("peak", graph="sample:resnet50", arena="*"))
    assert " in arena 'parameters' at " in title(opened("peak", graph="sample:resnet50", tensor="gpu_0/pred_w_0"))


@pytest.mark.parametrize(
    ("page", "shown_text"),
    [
        ("peak", "in arena 'activations' at the peak, #14"),
        ("fragmentation", "of the arena 'activations' are unused; largest share: slot rounding"),
        ("compare", "Choose a baseline"),
        ("planners", " best: "),
        ("graph", "resnet50: 176 nodes, 445 tensors, 177 steps; mode: inference"),
        ("report", "Export resnet50"),
    ],
)
def test_page_has_its_claim(page: str, shown_text: str) -> None:
    assert shown_text in title(opened(page, graph="sample:resnet50", tensor="r12"))


def test_note_of_the_reader_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_module, "installed", lambda _: False)
    source = opening.shelf().put("m.pt2", (DATA / "torch" / "tied.pt2").read_bytes())
    assert "is planned as saved." in html(opened(graph=source))


@pytest.mark.parametrize(
    ("field", "query_key", "text", "message"),
    [
        ("limit", "capacity", "a lot", "is not a size"),
        ("limit", "capacity", "gradients=1MiB", "The plan has no arena &#39;gradients&#39;"),
        ("page_size", "page", "a lot", "is not a size"),
    ],
)
def test_malformed_size_is_reported_and_kept_in_its_field(field: str, query_key: str, text: str, message: str) -> None:
    at = opened(graph="sample:resnet50")
    at.text_input(key=f"w.{field}").input(text).run()
    assert message in html(at)
    assert query_key not in at.query_params
    assert at.text_input(key=f"w.{field}").value == text
    at.button(key="open.sample:mixed_sizes").click().run()
    assert at.text_input(key=f"w.{field}").value == ""


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("18446744073709551615", "18,446,744,073,709,551,615 B"),
        ("activations=8,388,608 B,parameters=1", "activations=8 MiB, parameters=1 B"),
    ],
)
def test_limit_is_exact_in_its_field(text: str, limit: str) -> None:
    assert opened(graph="sample:resnet50", capacity=text).text_input(key="w.limit").value == limit


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("cycle.tmmu.json", "LIVENESS_CYCLE 1305"),
        ("unknown_tensor.tmmu.json", "INVALID_IR_SHAPES 1306"),
        ("overflow.tmmu.json", "ALLOCATION_OVERFLOW 1303"),
        ("text.onnx", "UNREADABLE_INPUT"),
        ("truncated.onnx", "UNREADABLE_INPUT"),
    ],
)
def test_damaged_upload_is_a_card_and_keeps_the_model(name: str, code: str) -> None:
    at = opened()
    before = title(at)
    at.file_uploader(key="upload.0").upload(name, (BROKEN / name).read_bytes()).run()
    page = html(at)
    assert f"{name} was not opened" in page
    assert code in page
    assert title(at) == before
    at.button(key="dismiss").click().run()
    assert code not in html(at)


def test_review_file_as_argument_shows_its_plan_and_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = planning.make_plan(Choice(source="sample:residual_block", planner="exact"))
    file, link = tmp_path / "block.tmmu-review.json", "graph=sample%3Aresidual_block&planner=exact"
    file.write_bytes(review.to_json(shown, "fits", Review(notes=(Note("Why r1?"),)), link))
    monkeypatch.setattr("sys.argv", [str(ROOT / "app" / "main.py"), str(file)])
    st.cache_resource.clear()
    at = opened()
    st.cache_resource.clear()  # the other tests open no file
    assert all(part in str(at.query_params) for part in ("residual_block", "exact"))
    assert "**plan**: Why r1?" in [text.value for text in at.markdown]


def test_review_file_is_shown_among_other_uploads() -> None:
    shown = planning.make_plan(Choice(source="sample:residual_block"))
    data = review.to_json(shown, "fits", Review(notes=(Note("Why r1?"),)), "graph=sample%3Aresidual_block")
    chain = (opening.SAMPLES / "linear_chain.tmmu.json").read_bytes()
    files = [(name, data, "application/json") for name, data in (("chain.tmmu.json", chain), ("a.json", data))]
    at = opened()
    at.file_uploader(key="upload.0").set_value(files).run()
    assert "**plan**: Why r1?" in [text.value for text in at.markdown]


def test_two_uploads_are_compared() -> None:
    at = opened()
    names = ("linear_chain", "in_place")
    files = [(f"{n}.tmmu.json", (opening.SAMPLES / f"{n}.tmmu.json").read_bytes(), "application/json") for n in names]
    at.file_uploader(key="upload.0").set_value(files).run()
    at.switch_page("pages/compare/page.py").run()
    assert all(name in title(at) for name in names)


def test_compare_names_baseline_and_candidate_and_swaps() -> None:
    at = opened("compare", baseline="planner:naive")
    assert title(at) == "resnet50, naive → slots: activations 144 MiB → 9.19 MiB (−135 MiB)"
    next(button for button in at.button if button.label == "Swap").click().run()
    assert title(at) == "resnet50, slots → naive: activations 9.19 MiB → 144 MiB (+135 MiB)"
    assert at.selectbox(key="w.baseline").label == "Candidate"
    assert title(opened("compare", capacity="1GiB", baseline="link:?graph=sample:resnet50")).startswith(
        "resnet50, slots → slots, in one memory: total reserved 107 MiB → "
    )
    presets = {"preset": "remat_enabled", "baseline": "preset:train_full"}
    assert "activations 896 KiB → 640 KiB" in title(opened("compare", graph="sample:remat", mode="backward", **presets))


@pytest.mark.parametrize(
    ("before", "after", "arena"), [("slots", "greedy", "activations"), ("greedy", "auto", "parameters")]
)
def test_compare_opens_the_arena_whose_size_changed(before: str, after: str, arena: str) -> None:
    at = opened("compare", graph="sample:mobilenet_v2", planner=after, baseline=f"planner:{before}")
    assert f" of {arena}, in order of" in html(at)


def test_first_difference_names_a_tensor_of_one_plan_only() -> None:
    names = ("ir_buffer", "other")
    files = [opening.shelf().put(f"{name}.csv", f"id,lower,upper,size\n{name},0,1,8\n".encode()) for name in names]
    assert "<td>tensor ir_buffer</td>" in html(opened("compare", graph=files[1], baseline=files[0]))


def test_finished_plan_explains_why_it_cannot_change() -> None:
    at = opened(graph=opening.shelf().put("p.json", plan_file.to_json(plan_graph(chain(3)).plan)))
    mode = at.selectbox(key="w.mode")
    assert mode.disabled
    assert "A plan file keeps its settings" in mode.help
    at.switch_page("pages/fix/page.py").run()
    assert "Fix cannot change a plan file" in html(at)


def test_digest_is_a_card_without_drawing() -> None:
    from tmmu_core.formats.planfile import trace
    from tmmu_core.plans.making.engine import plan_graph

    graph = opening.open_source("sample:linear_chain").graph
    assert graph is not None
    source = opening.shelf().put("d.jsonl", trace.to_json_lines(plan_graph(graph).plan, digest=True))
    at = opened(graph=source)
    assert "A digest has no tensors to draw" in html(at)
    assert "executed" not in html(at)
    at = opened("peak", graph=source)
    assert "A digest has no tensors to draw" in html(at)
    at = opened("compare", graph="sample:linear_chain", baseline=source)
    assert "✓ identical" in html(at)
    assert "A digest has no tensors to draw" in html(at)


def test_invalid_plan_is_red_and_claims_nothing() -> None:
    source = opening.shelf().put("two.csv", b"id,lower,upper,size,offset\na,0,3,64,0\nb,1,4,64,0\n")
    shown_text = html(opened(graph=source))
    assert "failed" in shown_text
    assert '<tr class="invalid">' in shown_text
    assert 'class="optimal"' not in shown_text
    assert "impossible" in shown_text
    assert "✗ the baseline is invalid" in html(opened("compare", graph="sample:linear_chain", baseline=source))


def test_chosen_step_is_kept_between_pages() -> None:
    at = opened("peak")
    at.number_input(key="w.step").set_value(40).run()
    at.segmented_control(key="w.tab").set_value("fragmentation").run()
    assert "At #40, " in title(at)


def test_hostile_names_are_text() -> None:
    graph = (
        '{"ir_schema":"uml_model_ir/1","name":"<img src=x onerror=alert(1)>","tensors":[{"id":"<b>x</b>","shape":[4],'
        '"role":"input"},{"id":"y","shape":[4]}],"nodes":[{"node_id":"<i>n</i>","instr":"RELU","inputs":["<b>x</b>"],'
        '"outputs":["y"]}],"inputs":["<b>x</b>"],"outputs":["y"]}'
    )
    source = opening.shelf().put("h.json", graph.encode())
    for page in PAGES:
        at = opened(page, graph=source, tensor="<b>x</b>")
        assert "<img src=x" not in html(at)
        assert "<b>x" not in html(at)
        assert not at.markdown  # Streamlit draws the string statements of a page script


def test_two_drawings_share_a_byte_scale_and_mark_their_own_rows() -> None:
    at = opened("compare", baseline="sample:residual_block", marked="witness", arena="activations")
    at.segmented_control(key="w.how").set_value("Side by side").run()
    states = drawings(at, "plan_index")
    plans = [planning.make_plan(Choice(source=f"sample:{name}")).plan for name in ("residual_block", "resnet50")]
    arenas = [plan.arena_of["activations"] for plan in plans]
    assert [state["reach"] for state in states] == [max(arena.extent_bytes for arena in arenas)] * 2
    for plan, arena, state in zip(plans, arenas, states, strict=True):
        assert {plan.row_of[name] for name in arena.witness} <= set(state["marked"]) <= set(range(len(plan)))


def test_planners_are_compared_at_their_minimum_on_fix_and_not_on_compare() -> None:
    at = opened("planners", graph="sample:mixed_sizes", planner="exact", capacity="activations=8MiB")
    for name in ("exact", "auto"):
        one = planning.minimising(Choice(source="sample:mixed_sizes", capacities={"activations": 8 << 20}), name)
        assert one.options == {"minimise": True}
    assert "exact (minimise=True)" in html(at)
    at.switch_page("pages/compare/page.py").run()
    names = [name for box in at.selectbox for name in box.options if name.startswith("planner")]
    assert {"planner auto, stops when the plan fits", "planner greedy"} <= set(names)


def test_bare_address_shows_a_plan_over_its_limit_that_one_click_fits() -> None:
    at = opened()
    assert title(at) == "resnet50 does not fit: activations need 9.19 MiB, 1.19 MiB over the limit of 8.00 MiB."
    assert "r13 does not reuse r12" in html(at)
    assert at.query_params["capacity"] == "activations=8388608"
    assert at.query_params["colour"] == "operator"
    at.button(key="next-best").click().run()
    assert title(at) == "resnet50 needs 105 MiB, within the limits (activations 8.00 MiB)."


def test_required_overwrite_is_on_the_card() -> None:
    assert "required: its last reader overwrites it" in html(opened(graph="sample:loop", tensor="loop/state"))
