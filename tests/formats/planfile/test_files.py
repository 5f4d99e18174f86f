import io
from collections.abc import Callable
from dataclasses import fields

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from tests.plans.examples import chain_plan, ledger_plan, solved, views_graph
from tests.support.same_plan import same_plan
from tests.support.strategies import Case, plannable_cases
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.csv.instance_csv import read_csv
from tmmu_core.formats.open_file import read_any
from tmmu_core.formats.planfile import plan_file
from tmmu_core.formats.planfile.plan_document import ArenaDocument
from tmmu_core.formats.planfile.trace import read_trace, to_json_lines
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.making.instance import plan_problem
from tmmu_core.plans.model import ArenaSummary, Plan, TensorRow

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


def changed(plan: Plan, change: Callable[[dict[str, object]], None]) -> bytes:
    """The plan file with one thing changed in the document."""
    document = msgspec.json.decode(plan_file.to_json(plan))
    change(document)
    return msgspec.json.encode(document)


def test_document_has_the_fields_of_the_plan_model_in_order() -> None:
    assert list(ArenaDocument.__struct_fields__) == [field.name for field in fields(ArenaSummary)][1:]
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


def _set(*path: str | int, value: object) -> Callable[[dict[str, object]], None]:
    def change(document: dict[str, object]) -> None:
        at: object = document
        for key in path[:-1]:
            at = at[key]  # type: ignore[index]
        at[path[-1]] = value  # type: ignore[index]

    return change


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (_set("schema", value="tmmu_plan/9"), "$.schema"),
        (_set("ir_hash", value="abc"), "$.ir_hash"),
        (_set("replay_token", value="zz" * 32), "$.replay_token"),
        (_set("tensors", 1, "birth", value="0"), "$.tensors[1].birth"),
        (_set("tensors", 1, "birth", value=-1), "$.tensors[1].birth"),
        (_set("tensors", 2, "offset_bytes", value=2**64), "$.tensors[2].offset_bytes"),
        (_set("tensors", 1, "arena", value="nowhere"), "$.tensors[1].arena"),
        (_set("tensors", 1, "tensor_id", value="t0"), "$.tensors[1].tensor_id"),
        (_set("arenas", "activations", "extent_bytes", value=-5), "$.arenas.activations.extent_bytes"),
        (_set("steps", value=-1), "$.steps"),
    ],
)
def test_wrong_field_is_rejected_at_its_path(change: Callable[[dict[str, object]], None], place: str) -> None:
    with pytest.raises(UnreadableInput) as refused:
        plan_file.from_document(changed(chain_plan(), change), "plan.json")
    assert refused.value.place == place
    assert refused.value.source == "plan.json"


def test_exported_instance_has_the_same_packing() -> None:
    plan = ledger_plan()
    found = read_csv(plan_file.to_instance(plan), alignment=64)
    assert found.packing is not None
    again = plan_problem(found)
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
    with pytest.raises(UnreadableInput, match="cannot be opened") as refused:
        read_any(plan_file.to_parquet(chain_plan()), "plan.parquet")
    assert "plan.json" in refused.value.hint
