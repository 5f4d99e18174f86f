"""Options of planner, order and token, the best plan, given plans and the certificate on the pages."""

from app.session import planning
from app.session.view_state import Choice
from app.texts import tensor_text
from tests.app.pages.run_page import html, opened, title
from tmmu_core.planners.helia import options_of


def test_option_is_in_the_plan_and_the_link() -> None:
    at = opened(graph="sample:mixed_sizes", planner="greedy")
    at.selectbox(key="w.option.order").set_value("area").run()
    assert at.query_params["options"] == '{"order":"area"}'
    assert "planner greedy (order=area)" in html(at)


def test_optional_options_can_be_set_and_removed() -> None:
    at = opened(graph="sample:mixed_sizes", planner="exact")
    at.number_input(key="w.option.max_nodes").set_value(1000).run()
    at.selectbox(key="w.option.minimise").set_value(False).run()
    assert at.query_params["options"] == '{"max_nodes":1000,"minimise":false}'
    at.selectbox(key="w.option.minimise").set_value(None).run()
    assert at.query_params["options"] == '{"max_nodes":1000}'
    at.number_input(key="w.option.max_nodes").set_value(None).run()
    assert "options" not in at.query_params
    assert not at.exception


def test_malformed_memories_are_reported_and_kept() -> None:
    at = opened(graph="sample:mixed_sizes", planner="helia")
    before = title(at)
    at.text_area(key="w.option.memories").input("[{]").run()
    assert "not JSON" in html(at)
    assert "line 1, column 3" in html(at)
    assert at.text_area(key="w.option.memories").value == "[{]"
    assert title(at) == before


def test_memories_become_arenas() -> None:
    at = opened(graph="sample:mixed_sizes", planner="helia")
    at.text_area(key="w.option.memories").input('[{"name": "DTCM", "max_size": 4096}, {"name": "SRAM"}]').run()
    assert "scratch@SRAM" in html(at)


def test_best_plan_is_found_with_one_click() -> None:
    at = opened()
    at.button(key="next-best").click().run()
    assert title(at).startswith("resnet50 needs 105 MiB")
    assert "auto chose exact" in html(at)
    assert not [button for button in at.button if button.key == "next-best"]


def test_best_plan_is_minimised_despite_a_capacity() -> None:
    at = opened(graph="sample:mixed_sizes", capacity="activations=1000000", planner="auto")
    assert "needs 268 KiB" in title(at)
    at.button(key="next-best").click().run()
    assert "needs 264 KiB" in title(at)
    assert at.query_params["options"] == '{"minimise":true}'


def test_given_offsets_are_planned_again_and_compared() -> None:
    at = opened(graph="sample:xla_transformer_step")
    assert "These offsets are from the file" in html(at)
    at.button(key="again").click().run()
    assert title(at) == ("xla_transformer_step, given → auto: arena 2.37 MiB → 2.25 MiB (−128 KiB)")


def test_given_offsets_over_a_limit_are_not_invalid() -> None:
    page = html(opened(graph="sample:xla_transformer_step", capacity="1MiB"))
    assert "over the limit of 1.00 MiB" in page
    assert "nvalid" not in page


def test_other_planner_keeps_the_given_plan_as_baseline() -> None:
    at = opened(graph="sample:iree_first")
    at.selectbox(key="w.planner").select("greedy").run()
    assert at.query_params["baseline"] == "planner:given"


def test_witness_can_be_marked() -> None:
    other = html(opened(graph="sample:must_not_alias"))
    assert "2 buffers live at #2 work1 and 1 more; no two may share bytes" in other
    at = opened()
    assert "3 buffers live at #13 n12" in html(at)
    at.button(key="witness").click().run()
    assert at.query_params["marked"] == "witness"
    at.button(key="witness").click().run()
    assert "marked" not in at.query_params


def test_board_sets_memories_and_the_card_names_the_rule() -> None:
    at = opened(graph="sample:mixed_sizes", planner="helia")
    at.selectbox(key="w.board").set_value("STM32H743").run()
    assert '"name":"DTCM"' in at.query_params["options"]
    shown = planning.make_plan(Choice(source="sample:mixed_sizes", planner="helia", options=options_of("STM32H743")))
    assert "DTCM, placed by the order of the memories" in tensor_text.details(
        shown.plan, None, shown.plan.tensor_ids[0]
    )


def test_table_has_the_rule_and_the_next_better_memory() -> None:
    at = opened(
        graph="sample:mixed_sizes",
        planner="helia",
        options='{"memories": [{"name": "A", "max_size": 8192}, {"name": "B"}]}',
        arena="*",
    )
    table = next(frame.value for frame in at.dataframe if "placed by" in frame.value.columns)
    assert set(table["placed by"]) >= {"the order of the memories"}
    plain = opened(graph="sample:mixed_sizes")
    assert all("placed by" not in frame.value.columns for frame in plain.dataframe)
