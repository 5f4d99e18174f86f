from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.texts import markup, tensor_text
from tests.app.small import chain
from tmmu_core.plans.model import ArenaSummary


def arena(**changes: object) -> ArenaSummary:
    values: dict[str, object] = {
        "name": "a",
        "capacity_bytes": 2**64 - 1,
        "alignment_bytes": 1,
        "page_size": 0,
        "extent_bytes": 150,
        "committed_bytes": 150,
        "peak_live_bytes": 100,
        "slots": 2,
        "max_live": 2,
        "storages": 4,
    }
    return ArenaSummary(**{**values, **changes})  # type: ignore[arg-type]


@given(st.text())
def test_foreign_text_is_escaped(text: str) -> None:
    assert "<" not in markup.esc(text)
    assert '"' not in markup.esc(text)


def test_strip_has_bound_extent_gap_and_reuse() -> None:
    strip = markup.strip([arena()], {})
    for said in ("100 B", "150 B", "50 %", "unlimited", "no limit", "2 <span class=soft>(minimum)</span>"):
        assert said in strip


def test_bars_have_one_byte_scale() -> None:
    strip = markup.strip([arena(), arena(name="b", extent_bytes=300, peak_live_bytes=300)], {})
    assert "0 … 300 B" in strip
    assert 'class="live" style="left:0;width:33.33%"' in strip
    assert 'class="live" style="left:0;width:100.00%"' in strip


def test_error_card_has_code_place_readers_and_hint() -> None:
    card = {
        "title": "x.json was not opened",
        "code": "LIVENESS_CYCLE",
        "number": 1305,
        "message": "a cycle.",
        "place": "$.nodes[1]",
        "tried": [("onnx", "not protobuf")],
        "hint": "Break it.",
    }
    html = markup.error_card(card)
    for said in ("x.json was not opened", "LIVENESS_CYCLE 1305", "$.nodes[1]", "not protobuf", "Break it."):
        assert said in html


def test_details_name_producer_readers_and_end() -> None:
    solution = chain()
    card = tensor_text.details(solution.plan, solution, "h0")
    for said in ("#1 n0", "#2 n1", "reuses its memory", "[1, 2)", "slot", "0 (0x0)"):
        assert said in card


def test_neighbours_are_the_tenants_before_and_after() -> None:
    plan = chain().plan
    assert tensor_text.neighbours(plan, "x") == tensor_text.Neighbours(None, "h0", 4)
    assert tensor_text.neighbours(plan, "h1") == tensor_text.Neighbours("h0", "h2", 4)
