"""Plan files and their other encodings; fields, metrics and notes are checked by type and range."""

import io
import math
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import cbor2
import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from app.texts.totals_text import planner_of
from tests.plans.examples import chain_plan, ledger_plan, solved, views_graph
from tests.support.same_plan import same_plan
from tests.support.strategies import Case, plannable_cases
from tests.tools.fuzz.targets import noting_plans
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.c_project.render_plan import build_render_plan
from tmmu_core.formats.csv.instance_csv import read_csv
from tmmu_core.formats.open_file import read_any
from tmmu_core.formats.planfile import plan_file
from tmmu_core.formats.planfile.trace import read_trace, to_json_lines
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.making.instance import plan_problem
from tmmu_core.plans.making.request_options import option_pairs
from tmmu_core.plans.model import Plan, TensorRow

ROUND_TRIPS: dict[str, tuple[Callable[[Plan], bytes], Callable[[bytes], Plan]]] = {
    "json": (plan_file.to_json, plan_file.from_document),
    "cbor": (plan_file.to_cbor, plan_file.from_document),
}

KEYS_OF_THE_CONTRACT = [
    *("schema", "planner", "ir_name", "ir_hash", "mode", "preset", "replay_token", "rank", "world_size"),
    *("shard_spec_hash", "arena_config_hash", "execution_order_hash", "tmmu_plan_hash", "layout_hash", "steps"),
    *("execution_order", "arenas", "tensors", "handoffs", "metrics"),
]
ROW_OF_THE_CONTRACT = [
    *("tensor_id", "arena", "logical_slot", "offset_bytes", "size_bytes", "alignment", "birth", "death", "generation"),
    *("role", "dtype", "shape", "alias_group_id", "base_tensor_uid"),
]
ARENA_OF_THE_CONTRACT = [
    *("capacity_bytes", "alignment_bytes", "page_size", "extent_bytes", "committed_bytes", "peak_live_bytes"),
    *("slots", "max_live"),
]


def changed(plan: Plan, change: Callable[[dict[str, Any]], object]) -> bytes:
    """Return the plan file with a changed document."""
    document = msgspec.json.decode(plan_file.to_json(plan))
    change(document)
    return msgspec.json.encode(document)


def test_document_has_the_fields_of_the_plan_model_in_order() -> None:
    assert (
        list(msgspec.json.decode(plan_file.to_json(chain_plan()))["tensors"][0])
        == [field.name for field in fields(TensorRow)][:-1]
    )


@pytest.mark.slow
@pytest.mark.parametrize("spelling", ROUND_TRIPS)
@given(case=plannable_cases())
def test_plan_file_round_trips(spelling: str, case: Case) -> None:
    write, read = ROUND_TRIPS[spelling]
    plan = solved(case).plan
    again = read(write(plan))
    assert same_plan(plan, again) == ()
    assert write(again) == write(plan)


def test_document_has_the_keys_of_the_contract() -> None:
    document = msgspec.json.decode(plan_file.to_json(plan_graph(views_graph()).plan))
    assert [key for key in document if key in KEYS_OF_THE_CONTRACT] == KEYS_OF_THE_CONTRACT
    assert list(document["tensors"][0]) == ROW_OF_THE_CONTRACT
    arena = document["arenas"]["activations"]
    assert [key for key in arena if key in ARENA_OF_THE_CONTRACT] == ARENA_OF_THE_CONTRACT


def test_unknown_keys_are_ignored() -> None:
    data = changed(chain_plan(), lambda document: document.update(colour="blue"))
    assert same_plan(chain_plan(), plan_file.from_document(data)) == ()


@pytest.mark.parametrize(
    ("keys", "value", "place"),
    [
        (["schema"], "tmmu_plan/9", "$.schema"),
        (["ir_hash"], "abc", "$.ir_hash"),
        (["replay_token"], "zz" * 32, "$.replay_token"),
        (["tensors", 1, "birth"], "0", "$.tensors[1].birth"),
        (["tensors", 1, "birth"], -1, "$.tensors[1].birth"),
        (["tensors", 2, "offset_bytes"], 2**64, "$.tensors[2].offset_bytes"),
        (["tensors", 2, "alignment"], 0, "$.tensors[2].alignment"),
        (["tensors", 2, "shape"], [4, -1], "$.tensors[2].shape[1]"),
        (["tensors", 1, "arena"], "nowhere", "$.tensors[1].arena"),
        (["tensors", 1, "tensor_id"], "t0", "$.tensors[1].tensor_id"),
        (["arenas", "activations", "extent_bytes"], -5, "$.arenas.activations.extent_bytes"),
        (["steps"], -1, "$.steps"),
    ],
)
def test_wrong_field_is_rejected_at_its_path(keys: list[str | int], value: object, place: str) -> None:
    def change(document: Any) -> None:
        for key in keys[:-1]:
            document = document[key]
        document[keys[-1]] = value

    with pytest.raises(UnreadableInput) as refused:
        plan_file.from_document(changed(chain_plan(), change), "plan.json")
    assert refused.value.place == place
    assert refused.value.source == "plan.json"


def test_cbor_value_that_json_cannot_have_is_rejected() -> None:
    document = msgspec.json.decode(plan_file.to_json(chain_plan()))
    for value in (math.nan, -math.inf, b"bytes", {b"key": 1}):
        with pytest.raises(UnreadableInput) as refused:
            plan_file.from_document(cbor2.dumps(document | {"notes": {"arena": {"note": value}}}))
        assert refused.value.place.startswith("$.notes.arena.note")


def test_exported_instance_has_the_same_packing() -> None:
    plan = ledger_plan()
    found = read_csv(plan_file.to_instance(plan))
    again = plan_problem(replace(found, problem=replace(found.problem, arena_alignment=64)))
    assert again.arenas[0].extent_bytes == plan.arenas[0].extent_bytes
    assert {r.tensor_id: r.offset_bytes for r in again.rows()} == {r.tensor_id: r.offset_bytes for r in plan.rows()}


def test_instance_holds_one_arena() -> None:
    plan = plan_graph(views_graph()).plan
    assert plan_file.to_instance(plan, "parameters").decode().splitlines()[1:] == ["w,0,3,32,128,0"]
    with pytest.raises(UnreadableInput, match="one arena"):
        plan_file.to_instance(plan)


def test_duplicate_key_of_a_trace_record_is_rejected() -> None:
    lines = to_json_lines(chain_plan()).replace(b'"record":"summary",', b'"record":"summary","notes":{"a":{}},')
    with pytest.raises(UnreadableInput, match="contains the key"):
        read_trace(lines)


def test_parquet_file_holds_every_row() -> None:
    plan = plan_graph(views_graph()).plan
    table = pq.read_table(io.BytesIO(plan_file.to_parquet(plan)))
    assert table["tensor_id"].to_pylist() == list(plan.tensor_ids)
    assert table["offset_bytes"].to_pylist() == plan.offset.tolist()
    assert [tuple(shape) for shape in table["shape"].to_pylist()] == list(plan.shapes)


def test_parquet_file_is_rejected_with_a_hint() -> None:
    with pytest.raises(UnreadableInput, match="Parquet") as refused:
        read_any(plan_file.to_parquet(chain_plan()), "plan.parquet")
    assert "plan.json" in refused.value.hint


# --- metrics and notes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("figure", "value"),
    [
        *(("memory_reuse_ratio", value) for value in (2**63, 10**9, 1e9, 1e300, "1", True)),
        *(("allocation_failures", value) for value in (2**63, -1, "0")),
        *(("totals", value) for value in ("none", {"peak_step": "a"}, {"peak_step": 2**64})),
        ("allocation_time_ns", "soon"),
    ],
)
def test_metric_out_of_range_is_rejected(figure: str, value: Any) -> None:
    data = changed(chain_plan(), lambda document: document["metrics"].update({figure: value}))
    with pytest.raises(UnreadableInput) as caught:
        plan_file.from_document(data)
    assert caught.value.place in (f"$.metrics.{figure}", f"$.metrics.{figure}.peak_step")


@pytest.mark.parametrize("figure", ["slots", "extent_bytes", "max_live"])
def test_figures_that_sum_past_64_bits_are_rejected(figure: str) -> None:
    plan = next(plan for plan in noting_plans() if len(plan.arenas) > 1)

    def change(document: dict[str, Any]) -> None:
        for arena in document["arenas"].values():
            arena[figure] = 2**63

    with pytest.raises(UnreadableInput, match=figure) as caught:
        plan_file.from_document(changed(plan, change))
    assert caught.value.place == "$.arenas"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("said_by", value) for value in (5, [], {"order": "x"}, {"order": [1]})),
        *(("spills", value) for value in (None, "x", [{"storage": "x"}], [[]])),
        *(("alignment", value) for value in (0, "16", None)),
        *(("memory", value) for value in (7, None, ...)),
        *(("role", value) for value in ("activation", {})),
        *(("course", value) for value in ("quickly", [1], [[0, 9]], [[0, 9, "8"]], [[0, -9, -10]])),
        *(("picked", ["greedy"]), ("sharing_pairs", "many"), ("origin", -1), ("start", 3)),
    ],
)
def test_unknown_note_on_an_arena_is_rejected(key: str, value: Any) -> None:
    plan = noting_plans()[0]
    arena = plan.arenas[0].name
    data = changed(plan, lambda document: document["notes"][arena].update({key: None if value is ... else value}))
    with pytest.raises(UnreadableInput) as caught:
        plan_file.from_document(data.replace(b'"memory":null,', b"") if value is ... else data)
    assert caught.value.place.startswith(f"$.notes.{arena}")


@pytest.mark.parametrize("value", [3, [1], {"bits": "48"}, {"kind": 1}])
def test_malformed_note_on_addresses_is_rejected(value: Any) -> None:
    data = changed(noting_plans()[1], lambda document: document["notes"].update(addressing=value))
    with pytest.raises(UnreadableInput) as caught:
        plan_file.from_document(data)
    assert caught.value.place.startswith("$.notes.addressing")


def test_remark_is_no_note_on_an_arena_of_its_name() -> None:
    plan = chain_plan()
    named = replace(plan, arenas=(replace(plan.arenas[0], name="read"), *plan.arenas[1:]), notes={"read": "a text"})
    assert planner_of(named, "read") == "slots"
    assert build_render_plan(named).all_arenas[0].role == "scratch"


def test_notes_of_planners_are_read() -> None:
    for plan in noting_plans():
        assert same_plan(plan, plan_file.from_document(plan_file.to_json(plan))) == ()
        plan_file.to_csv(plan_file.from_document(plan_file.to_json(plan)))


@pytest.mark.parametrize("text", ["fit", "", "=3", " =3"])
def test_option_needs_a_name_and_a_value(text: str) -> None:
    with pytest.raises(ValueError, match="is not of the form KEY=VALUE"):
        option_pairs([text])
    nested = "[" * 9_000
    texts = ["a=1", "b=x=y", " c = [2] ", f"d={nested}"]
    assert option_pairs(texts) == {"a": 1, "b": "x=y", "c": [2], "d": nested}
    with pytest.raises(ValueError, match="'a' occurs twice"):
        option_pairs(["a=1", "a=2"])
