"""The memory snapshot of PyTorch's allocator as a finished plan; nothing in a pickle is executed."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from app.cli.main import run
from tmmu_core.base import limits
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.open_file import read_any
from tmmu_core.formats.pytorch.snapshot.torch_snapshot import History
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.planners.problem import PlainInstance
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.request import PlanRequest

BASE = 0x7F00_0000_0000
USER = {"name": "forward", "filename": "/home/me/train.py", "line": 17}
TORCH = {"name": "linear", "filename": "/site-packages/torch/nn/functional.py", "line": 9}
KERNEL = {"name": "at::empty", "filename": "??", "line": 0}


def event(action: str, offset: int, size: int = 512, *frames: dict[str, Any]) -> dict[str, Any]:
    return {"action": action, "addr": BASE + offset, "size": size, "stream": 0, "frames": list(frames)}


def segment(offset: int, size: int, *blocks: tuple[int, str], device: int = 0) -> dict[str, Any]:
    listed = [{"size": n, "requested_size": n, "state": state, "frames": []} for n, state in blocks]
    return {"address": BASE + offset, "total_size": size, "device": device, "segment_type": "small", "blocks": listed}


EVENTS = [
    event("segment_alloc", 0, 2048),
    event("alloc", 0, 1024, KERNEL, TORCH, USER),
    event("alloc", 1024, 512, KERNEL, TORCH),
    event("free_requested", 0, 1024),
    event("free_completed", 0, 1024),
    event("alloc", 0, 512, KERNEL, USER),
    event("free_requested", 1024, 512),
    event("free_completed", 1024, 512),
]
SNAPSHOT = {
    "segments": [segment(0, 2048, (512, "active_allocated"), (1536, "inactive"))],
    "device_traces": [EVENTS],
    "allocator_settings": {"expandable_segments": False},
}


def opened(snapshot: Any, protocol: int = 4) -> PlainInstance:
    found = read_any(pickle.dumps(snapshot, protocol), "snapshot.pickle")
    assert isinstance(found, PlainInstance)
    return found


def rows(found: PlainInstance) -> list[tuple[str, int, int, int, int]]:
    assert found.packing is not None
    problem = found.problem
    return [
        (name, int(problem.birth[i]), int(problem.death[i]), int(problem.size[i]), int(found.packing.offset[i]))
        for i, name in enumerate(problem.ids)
    ]


def test_life_runs_from_alloc_to_free_completed_at_its_offset() -> None:
    assert rows(opened(SNAPSHOT)) == [
        ("train.py:17 forward #0", 0, 2, 1024, 0),
        ("functional.py:9 linear #0", 1, 4, 512, 1024),
        ("train.py:17 forward #1", 3, 5, 512, 0),
    ]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_pickle_protocol_and_json_give_the_same(protocol: int) -> None:
    as_json = read_any(json.dumps(SNAPSHOT).encode("utf-8-sig"), "snapshot.json")  # with a byte order mark
    assert isinstance(as_json, PlainInstance)
    with_tuples = [{**each, "frames": tuple(each["frames"])} for each in EVENTS]
    segments = [each | {"address": each["address"] + (1 << 64) - BASE - 4096} for each in SNAPSHOT["segments"]]
    high = [{**each, "addr": each["addr"] + (1 << 64) - BASE - 4096} for each in EVENTS]
    assert rows(opened({"segments": segments, "device_traces": [high]}, protocol)) == rows(as_json)
    for events in (EVENTS, with_tuples):
        assert rows(opened({**SNAPSHOT, "device_traces": [events]}, protocol)) == rows(as_json)


def test_given_plan_verifies_and_can_be_planned_again() -> None:
    found = opened(SNAPSHOT)
    theirs = make_plan(found, PlanRequest()).plan
    ours = make_plan(found, PlanRequest(planner="portfolio")).plan
    assert verify_plan(theirs).ok
    assert theirs.planner == "given"
    assert (theirs.arenas[0].extent_bytes, ours.arenas[0].extent_bytes) == (2048, 1536)  # theirs: the bytes reserved


def test_allocation_before_the_trace_lives_from_its_start() -> None:
    traced = [event("alloc", 512), event("free_completed", 0, 256)]
    found = opened(
        {"segments": [segment(0, 2048, (512, "inactive"), (512, "active_allocated"))], "device_traces": [traced]}
    )
    assert rows(found) == [("unknown line #0", 0, 2, 512, 512), ("before the trace #0", 0, 1, 256, 0)]
    assert any("1 allocations (256 B) are from before the trace" in line for line in found.notes)


@pytest.mark.parametrize("first", ["alloc", "free_completed"])
def test_second_free_of_a_block_is_left_out_with_a_note(first: str) -> None:
    traced = [event(first, 0), event("free_completed", 0), event("free_completed", 0)]
    found = opened({"segments": [segment(0, 2048, (2048, "inactive"))], "device_traces": [traced]})
    assert [row[1:] for row in rows(found)] == [(0, 1, 512, 0)]
    assert f"{1 + (first != 'alloc')} frees of blocks that are already free are omitted" in found.notes


def test_text_not_in_utf_8_is_rejected() -> None:
    frame = {"filename": "?.py", "name": "f", "line": 1}
    events = [
        {"action": "alloc", "addr": 0, "size": 512, "frames": [frame]},
        {"action": "free_completed", "addr": 0, "size": 512},
    ]
    whole = json.dumps({"segments": [], "device_traces": [events]}).encode()
    found = read_any(whole, "s.json")
    assert isinstance(found, PlainInstance)
    assert found.problem.size.tolist() == [512]
    for mark in (b"?.py", b"alloc"):
        with pytest.raises(UnreadableInput):
            read_any(whole.replace(mark, b"\xff" + mark[1:]), "s.json")


def test_lines_with_the_most_bytes_at_the_peak_are_listed() -> None:
    found = opened(SNAPSHOT).recorded
    assert isinstance(found, History)
    totals = [(total.name, total.size, total.count) for total in found.totals("line", found.peak[0])]
    assert totals == [("train.py:17 forward", 1024, 1), ("functional.py:9 linear", 512, 1)]


class Evil:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("evil"),))


@pytest.mark.parametrize("protocol", [2, 4])
def test_nothing_in_a_pickle_is_executed(protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnreadableInput, match="which was not run") as caught:
        opened({"segments": [Evil()]}, protocol)
    assert list(tmp_path.iterdir()) == []
    assert "_dump_snapshot" in caught.value.hint


@pytest.mark.parametrize(
    "wrong",
    [
        {"segments": 3},
        {"segments": [segment(1 << 99_999, 5)]},
        {"segments": [segment(1 << 62, 5)]},
        {"segments": [segment(0, 1 << 70)]},
        {"segments": [segment(k, (1 << 62) - 1) for k in range(3)], "device_traces": [[event("alloc", 0)]]},
        {"device_traces": [[event("alloc", 0), *(event("segment_free", k, (1 << 62) - 1) for k in range(2))]]},
        {"segments": [], "device_traces": []},
        {"segments": [], "device_traces": [[event("alloc", 0, -1)]]},
        {"segments": [], "device_traces": [[{"addr": 1}]]},
        {"segments": [], "device_traces": [[{**event("alloc", 0), "frames": [3]}]]},
        *(
            {"segments": [segment(0, 2048) | {"blocks": [{"size": 512, "state": "active_allocated", **wrong}]}]}
            for wrong in ({"size": -1}, {"requested_size": -(1 << 31)}, {"address": -1}, {"size": 1 << 63})
        ),
    ],
)
def test_damaged_snapshot_is_rejected_with_a_hint(wrong: Any) -> None:
    with pytest.raises(UnreadableInput, match=r"(?s)^.{,3000}\Z") as caught:
        opened(wrong)
    assert caught.value.hint


def test_command_line_plans_it_as_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(SNAPSHOT))
    assert run(["plan", str(path)]) == 0
    out = capsys.readouterr().out
    assert "given" in out.splitlines()[0]
    assert "hint: auto needs 1.50 KiB, 25 % less: add --planner auto" in out
    assert "reserved: at most 2.00 KiB" in out


def test_pickle_that_repeats_its_events_is_rejected() -> None:
    row = [event("alloc", 0)] * 1000
    for document in (
        {"segments": [], "device_traces": [row] * 1000},
        {"segments": [], "device_traces": (tuple(row),) * 1000},
        {"segments": [segment(0, 1 << 20) | {"blocks": row}] * 1000, "device_traces": []},
        {"segments": [segment(0, 1 << 20)] * 1000, "device_traces": []},
    ):
        with pytest.raises(UnreadableInput, match="many times"):
            read_any(pickle.dumps(document), "bomb.pickle")


@pytest.mark.parametrize(
    "bad", [b"]2.", b"(.", b"}h\x07.", b"]p-1\n.", b"]q\0q\0]q\0.", b"K\1K\2}e.", b"X\xff\xff\xff\x7f."]
)
def test_misplaced_operation_is_rejected(bad: bytes) -> None:
    with pytest.raises(UnreadableInput):
        read_any(b"\x80\x04" + bad + b"segments", "it.pickle")


def test_damaged_file_is_rejected_by_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "it.pickle"
    path.write_bytes(pickle.dumps(SNAPSHOT)[:-100])
    assert run(["plan", str(path)]) == 2
    err = capsys.readouterr().err
    assert "it.pickle: the snapshot is damaged" in err
    assert "_dump_snapshot" in err


def test_block_without_state_keeps_its_stack() -> None:
    parts = [{**segment(0, 512), "blocks": [{"size": 512, "frames": [USER]}, {"size": 8, "state": "active_allocated"}]}]
    assert opened({"segments": parts}).problem.ids == ("unknown line #0",)
    parts[0]["blocks"][0]["state"] = "active_allocated"
    assert opened({"segments": parts[:1]}).problem.ids == ("train.py:17 forward #0", "unknown line #0")
    with pytest.raises(UnreadableInput, match="damaged"):
        opened({"segments": [{**segment(0, 512), "blocks": [{"size": 512, "frames": "x"}]}]})


BOTH = pytest.mark.parametrize(
    "write", [pickle.dumps, lambda value: json.dumps(value).encode()], ids=["pickle", "JSON"]
)


@BOTH
def test_list_of_segments_opens(write: Any) -> None:
    """``torch.cuda.memory_snapshot()`` is a list."""
    found = read_any(write([segment(0, 1024, (512, "active_allocated"), (512, "inactive"))]), "segments")
    assert isinstance(found, PlainInstance)
    assert [row[1:] for row in rows(found)] == [(0, 1, 512, 0)]


@BOTH
def test_expandable_segments_are_one_address_space(write: Any) -> None:
    """Parts of expandable segments are mapped and unmapped; a failed allocation has no live range."""
    events = [
        *(event("segment_map", 0, 2048), event("alloc", 0), event("alloc", 512, 1024)),
        {"action": "oom", "device_free": 99, "size": 1 << 40, "stream": 0, "frames": []},
        *(event("free_requested", 512, 1024), event("free_completed", 512, 1024), event("segment_unmap", 1024, 1024)),
        *(event("segment_map", 2048, 2048), event("alloc", 2048, 1024)),
    ]
    parts = [{**segment(0, 4096, (512, "active_allocated"), (3584, "inactive")), "is_expandable": True}]
    found = read_any(write({"segments": parts, "device_traces": [events]}), "grown")
    assert isinstance(found, PlainInstance)
    assert [row[1:] for row in rows(found)] == [(0, 4, 512, 0), (1, 2, 1024, 512), (3, 4, 1024, 2048)]
    assert any("reserved: at most 4.00 KiB" in line for line in found.notes)


def test_block_awaiting_free_lives_to_the_end() -> None:
    parts = [segment(0, 1024, (512, "active_awaiting_free"), (512, "inactive"))]
    events = [event("alloc", 0), event("free_requested", 0), event("alloc", 512), event("free_completed", 512)]
    found = opened({"segments": parts, "device_traces": [events]})
    assert sorted(row[1:] for row in rows(found)) == [(0, 3, 512, 0), (1, 2, 512, 512)]


def test_number_of_devices_is_limited() -> None:
    whole = {**SNAPSHOT, "segments": [segment(4096 * k, 2048, (2048, "active_allocated"), device=k) for k in range(3)]}
    with limits.overridden({"devices": 3}):
        opened(whole)
    with limits.overridden({"devices": 2}), pytest.raises(UnreadableInput, match="devices"):
        opened(whole)


@pytest.mark.parametrize("write", [pickle.dumps, lambda value: json.dumps(value).encode()])
def test_missing_stream_and_pool_are_the_default_ones(write: Any) -> None:
    events = [{"action": "alloc", "addr": 0, "size": 512, "stream": None, "pool_id": None}]
    held = segment(0, 512, (512, "active_allocated")) | {"stream": None, "segment_pool_id": None}
    found = read_any(write({"segments": [held], "device_traces": [events]}), "s.json")
    assert isinstance(found, PlainInstance)
    assert isinstance(found.recorded, History)
    assert [total.name for total in found.recorded.totals("pool", 0)] == ["stream 0"]


def test_huge_memo_index_is_rejected() -> None:
    with pytest.raises(UnreadableInput, match="more memory than is available"):
        read_any(b"\x80\x04}\x8c\x08segmentsr\xff\xff\xff\x7f]s.", "s.pickle")
