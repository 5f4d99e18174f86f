import cbor2
import msgspec
import pytest
from hypothesis import given

from tests.plans.examples import chain_plan, ledger_plan, solved
from tests.support.same_plan import same_plan
from tests.support.strategies import Case, plannable_cases
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.planfile.trace import read_trace, refusal, to_cbor_sequence, to_json_lines


def lines(trace: bytes) -> list[dict[str, object]]:
    return [msgspec.json.decode(line) for line in trace.splitlines()]


@given(plannable_cases())
def test_trace_round_trips(case: Case) -> None:
    plan = solved(case).plan
    trace = to_json_lines(plan)
    assert same_plan(plan, read_trace(trace).plan) == ()
    assert to_json_lines(read_trace(trace).plan) == trace
    assert same_plan(plan, read_trace(to_cbor_sequence(plan)).plan) == ()


def test_records_begin_with_the_header_and_end_with_the_summary() -> None:
    kinds = [record["record"] for record in lines(to_json_lines(chain_plan(1)))]
    assert kinds == ["allocation_header", "tensor", "tensor", "handoff", "summary"]


def test_header_has_the_request_and_the_hashes() -> None:
    header = lines(to_json_lines(chain_plan(1)))[0]
    assert header["replay_token_prefix"] == str(header["replay_token"])[:16]
    for key in ("ir_hash", "mode", "arenas", "trace_schema", "metric_schema", "tmmu_plan_hash", "execution_order"):
        assert key in header


def test_tensor_record_has_its_own_bytes_and_those_of_its_slot() -> None:
    record = lines(to_json_lines(ledger_plan()))[4]
    assert record["tensor_id"] == "d"
    assert (record["size"], record["bytes"]) == (64, 100)
    assert record["logical_address"] == ["arena", 0]
    assert record["live_range"] == [2, 3]


def test_summary_has_the_figures_of_the_seed() -> None:
    summary = lines(to_json_lines(ledger_plan()))[-1]
    assert summary["peak_bytes_per_arena"] == {"arena": 232}
    assert summary["total_logical_slots"] == 3
    assert summary["reuse_ratio"] == 1 / 4


def test_digest_has_hashes_and_no_tensors() -> None:
    found = read_trace(to_json_lines(chain_plan(3), digest=True))
    assert (found.complete, found.tensor_count, len(found.plan)) == (False, 4, 0)
    assert found.plan.layout_hash == chain_plan(3).layout_hash


def test_trace_without_summary_is_rejected() -> None:
    whole = to_json_lines(chain_plan(1)).splitlines(keepends=True)
    with pytest.raises(UnreadableInput, match="cut off"):
        read_trace(b"".join(whole[:-1]))


def test_trace_with_a_missing_tensor_is_rejected() -> None:
    whole = to_json_lines(chain_plan(1)).splitlines(keepends=True)
    with pytest.raises(UnreadableInput, match="2 tensors, but 1 follow"):
        read_trace(b"".join(whole[:1] + whole[2:]))


@pytest.mark.parametrize(
    ("line", "text", "place"),
    [
        (1, b"{", "line 2"),
        (1, b'{"record":"tensor"}', "line 2"),
        (1, b'{"record":"tensor","record":"tensor"}', "line 2"),
        (1, b'{"record":"tensor","size":18446744073709551616}', "line 2, $.size"),
        (2, b'{"record":"surprise"}', "line 3"),
        (0, b'{"record":"summary"}', "line 1"),
    ],
)
def test_broken_record_is_rejected_at_its_line(line: int, text: bytes, place: str) -> None:
    whole = to_json_lines(chain_plan(1)).splitlines()
    whole[line] = text
    with pytest.raises(UnreadableInput) as refused:
        read_trace(b"\n".join(whole))
    assert refused.value.place == place


def test_digest_with_a_tensor_record_is_rejected() -> None:
    first, last = to_json_lines(chain_plan(), digest=True).splitlines()
    tensor = to_json_lines(chain_plan()).splitlines()[1]
    with pytest.raises(UnreadableInput, match="is a digest, but"):
        read_trace(b"\n".join([first, tensor, last]))


def test_truncated_sequence_is_rejected_at_its_byte() -> None:
    with pytest.raises(UnreadableInput) as refused:
        read_trace(to_cbor_sequence(chain_plan(1))[:-4])
    assert refused.value.place.startswith("byte ")


def test_trace_is_recognised_by_its_first_record() -> None:
    whole = chain_plan(2)
    first, *rest = to_json_lines(whole).splitlines()
    later = msgspec.json.encode({"pad": "x" * 5000, **msgspec.json.decode(first)})
    assert refusal(b"\n".join([later, *rest])) == ""
    assert refusal(b"\n".join([b"", first, *rest])) == ""
    assert refusal(b"\n".join([b'{"a": 1}', first])) != ""
    one = cbor2.dumps({"line\nend": 1, **msgspec.json.decode(first)})
    assert refusal(one + to_cbor_sequence(whole)) == ""
    assert refusal(cbor2.dumps({"pad": "x" * 5000, **msgspec.json.decode(first)})) != ""


@pytest.mark.parametrize("schema", ["tmmu_trace/1.0", "other/1", ""])
def test_trace_of_another_schema_is_rejected(schema: str) -> None:
    first, rest = to_json_lines(chain_plan()).split(b"\n", 1)
    head = msgspec.json.decode(first)
    with pytest.raises(UnreadableInput, match=r"schema .* is not known"):
        read_trace(msgspec.json.encode({**head, "trace_schema": schema}) + b"\n" + rest)
