import json
from collections.abc import Callable

import pytest

from tests.plans.examples import chain_plan
from tests.support.build import chain
from tmmu_core.base.errors import TmmuError, UnreadableInput
from tmmu_core.formats.open_file import READERS, read_any
from tmmu_core.formats.planfile import plan_file, trace
from tmmu_core.formats.planfile.plan_file import checkpoint
from tmmu_core.formats.planfile.trace import Trace
from tmmu_core.graph.model import Graph
from tmmu_core.graph.native import document, native_file
from tmmu_core.planners.problem import PlainInstance
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.model import Plan

REFUSES = {reader.name: reader.refusal for reader in READERS}


def _checkpoint() -> bytes:
    solution = plan_graph(chain(2))
    return checkpoint(solution.plan, solution.liveness)


KINDS: dict[str, tuple[Callable[[], bytes], type]] = {
    "plan as JSON": (lambda: plan_file.to_json(chain_plan()), Plan),
    "plan as CBOR": (lambda: plan_file.to_cbor(chain_plan()), Plan),
    "plan gzipped": (lambda: document.pack(plan_file.to_json(chain_plan())), Plan),
    "checkpoint": (_checkpoint, Plan),
    "trace as lines": (lambda: trace.to_json_lines(chain_plan()), Trace),
    "trace as sequence": (lambda: trace.to_cbor_sequence(chain_plan()), Trace),
    "digest": (lambda: trace.to_json_lines(chain_plan(), digest=True), Trace),
    "graph as JSON": (lambda: native_file.encode_json(chain(2)), Graph),
    "graph as CBOR": (lambda: native_file.encode_cbor(chain(2)), Graph),
    "instance": (lambda: b"id,lower,upper,size\na,0,1,2\n", PlainInstance),
    "instance of another tool": (lambda: b"\xef\xbb\xbfbuffer,start,end,size\r\na,0,1,2\r\n", PlainInstance),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["", "model.onnx", "plan.json"])
def test_file_is_recognised_by_its_content(kind: str, name: str) -> None:
    make, expected = KINDS[kind]
    assert isinstance(read_any(make(), name), expected)


@pytest.mark.parametrize("data", [b"hello, world\n", b"\x00\x01\x02\xff" * 9, b'{"a": 1}', b"[]", b"id\n"])
def test_unknown_content_is_rejected_by_every_reader(data: bytes) -> None:
    with pytest.raises(UnreadableInput) as refused:
        read_any(data, "model.onnx")
    assert [reader for reader, _ in refused.value.tried] == [reader.name for reader in READERS]
    assert all(reason for _, reason in refused.value.tried)
    record = json.loads(json.dumps(refused.value.record()))
    assert [entry["reader"] for entry in record["tried"]] == list(REFUSES)
    assert record["source"] == "model.onnx"
    assert record["hint"]


def test_empty_file_is_rejected() -> None:
    with pytest.raises(UnreadableInput, match="the file is empty"):
        read_any(b"", "model.onnx")


def test_csv_rows_of_a_plan_are_rejected_with_the_reason() -> None:
    with pytest.raises(UnreadableInput) as refused:
        read_any(plan_file.to_csv(chain_plan()))
    assert "without its other fields" in dict(refused.value.tried)["instance"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if "instance" not in kind and "gzipped" not in kind])
def test_truncated_file_is_rejected(kind: str) -> None:
    data = KINDS[kind][0]()
    for cut in range(1, len(data) - 1, max(1, len(data) // 40)):
        with pytest.raises(TmmuError, match=r"cut|damaged|not JSON|not CBOR|unknown field|cannot be read"):
            read_any(data[:cut], "cut")


@pytest.mark.parametrize(
    ("opening", "marks", "needed"),
    [
        (b"\x80", (b"segments", b"device_traces", b"total_size", b"blocks"), ({0}, {1}, {2, 3})),
        (b" [", (b'"total_size"', b'"blocks"', b'"segments"'), ({0, 1},)),
        (b"{", (b'"device_traces"', b'"segments"', b'"blocks"', b'"total_size"'), ({0}, {1, 2})),
        (b"x", (b'"device_traces"', b'"segments"', b'"blocks"', b'"total_size"'), ()),
    ],
)
def test_snapshot_is_recognised_by_its_keys_together(
    opening: bytes, marks: tuple[bytes, ...], needed: tuple[set[int], ...]
) -> None:
    for chosen in range(1 << len(marks)):
        existing = {k for k in range(len(marks)) if chosen >> k & 1}
        data = opening + b" ".join(marks[k] for k in sorted(existing))
        assert (not REFUSES["torch-snapshot"](data)) is any(words <= existing for words in needed), data
