"""A reader returns a value or raises a typed error for any damaged file. Valid files of every format get random bit
flips, bytes set, removed or inserted, and cuts. Graphs that are read are also ordered, and instances planned.
"""

import contextlib
import json
import pickle
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.formats.onnx.test_onnx_scopes import CASES
from tests.formats.pytorch.test_torch_snapshot import SNAPSHOT
from tests.formats.xla.test_xla import ASSIGNMENT, LIVE_RANGE
from tests.plans.examples import chain_plan
from tests.support.build import chain
from tests.support.paths import DATA, SAMPLES
from tmmu_core.base.errors import TmmuError, UnreadableInput
from tmmu_core.formats.open_file import Reader, read_any
from tmmu_core.formats.planfile import plan_file
from tmmu_core.formats.planfile.trace import to_json_lines
from tmmu_core.graph.model import Graph
from tmmu_core.graph.native import document, native_file
from tmmu_core.liveness.timeline import build_timeline
from tmmu_core.planners.problem import PlainInstance
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.request import PlanRequest

GRAPH = native_file.decode((SAMPLES / "in_place.tmmu.json").read_bytes())
ONNX = {f"onnx, {case.name}": case.model.SerializeToString() for case in CASES if case.name in ("nested", "a scan")}
FILES: dict[str, bytes] = {
    "native JSON": native_file.encode_json(GRAPH),
    "native CBOR": native_file.encode_cbor(GRAPH),
    "gzip": document.pack(native_file.encode_cbor(GRAPH)),
    "node-centric": (SAMPLES / "node_centric.json").read_bytes(),
    "tflite": (DATA / "tflite" / "hello_world_int8.tflite").read_bytes(),
    **ONNX,
    "xla": (ASSIGNMENT + LIVE_RANGE).encode(),
    "instance": b"id,lower,upper,size,offset\na,0,3,4,0\nb,1,2,8,4\n",
    "plan": plan_file.to_json(chain_plan()),
    "trace": to_json_lines(chain_plan()),
}
FINISHED = {path.name: path.read_bytes() for path in sorted((DATA / "given").iterdir()) if path.suffix != ".py"}
"""Finished plans of other tools."""
FINISHED |= {f"snapshot {protocol}": pickle.dumps(SNAPSHOT, protocol) for protocol in (2, 4)}
FINISHED["snapshot JSON"] = json.dumps(SNAPSHOT).encode()


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """Draw a file with one to six damages."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        kind = draw(st.sampled_from(["flip", "flip", "flip", "set", "remove", "insert", "cut"]))
        if kind == "flip":
            data[at : at + 1] = bytes(byte ^ (1 << draw(st.integers(0, 7))) for byte in data[at : at + 1])
        elif kind == "set":
            data[at : at + 1] = bytes([draw(st.sampled_from([0, 10, 34, 127, 128, 255]))])
        elif kind == "remove":
            del data[at : at + draw(st.integers(1, 8))]
        elif kind == "insert":
            data[at:at] = draw(st.binary(min_size=1, max_size=4))
        else:
            del data[at:]
    return bytes(data)


def opened(data: bytes) -> None:
    """Read bytes, then order the graph or plan the instance; a refusal is a valid result."""
    with contextlib.suppress(TmmuError):
        found = read_any(data, "given")
        if isinstance(found, Graph):
            build_timeline(found, "inference", "inference")
        elif isinstance(found, PlainInstance):
            make_plan(found, PlanRequest())


@pytest.mark.parametrize("name", FILES)
@settings(suppress_health_check=list(HealthCheck))
@given(st.data())
def test_damaged_file_is_read_or_rejected(name: str, data: st.DataObject) -> None:
    opened(data.draw(damaged(FILES[name])))


@settings(suppress_health_check=list(HealthCheck), max_examples=200)
@given(st.sampled_from(sorted(FINISHED)), st.data())
def test_damaged_plan_of_another_tool_is_read_or_rejected(name: str, data: st.DataObject) -> None:
    opened(data.draw(damaged(FINISHED[name])))


@given(st.binary(max_size=64))
def test_any_bytes_are_read_or_rejected(data: bytes) -> None:
    opened(data)


@pytest.mark.parametrize("name", FILES)
def test_undamaged_file_is_read(name: str) -> None:
    read_any(FILES[name], name)


def test_deeply_nested_document_is_read_or_rejected() -> None:
    opened(native_file.encode_json(chain(2)).replace(b"{", b'{"x": ' * 4000, 1))


def test_values_that_are_nested_too_deeply_for_their_reader_are_rejected() -> None:
    nested: Any = []
    for _ in range(5000):  # the JSON decoders of later versions of Python create such values
        nested = [nested]
    reader = Reader("notes", "notes", "plan", (), ".planfile.plan_document:check_plain")
    with pytest.raises(UnreadableInput, match="nested too deeply"):
        reader.read(nested, "$")
