"""PyTorch's allocator snapshot as a finished plan: lives, places, lines; and nothing in a pickle is run."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.cli.main import run
from tests.importers.test_hostile import damaged
from tmmu_core import limits
from tmmu_core.errors import TmmuError, UnreadableInput
from tmmu_core.judge.verifier import verify_plan
from tmmu_core.library import requests
from tmmu_core.plan.formats import pickled, torch_events, torch_snapshot, torch_text
from tmmu_core.plan.formats.reading import read_any
from tmmu_core.plan.making.make import make_plan
from tmmu_core.plan.making.request import PlanRequest
from tmmu_core.planners.problem import PlainInstance

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


def test_a_life_runs_from_alloc_to_free_completed_at_its_place_in_the_segment() -> None:
    assert rows(opened(SNAPSHOT)) == [
        ("train.py:17 forward #0", 0, 2, 1024, 0),
        ("at::empty #0", 1, 4, 512, 1024),
        ("train.py:17 forward #1", 3, 5, 512, 0),
    ]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_protocol_and_json_give_the_same(protocol: int) -> None:
    as_json = read_any(json.dumps(SNAPSHOT).encode(), "snapshot.json")
    assert isinstance(as_json, PlainInstance)
    assert rows(opened(SNAPSHOT, protocol)) == rows(as_json)


def test_the_given_plan_is_verified_and_planned_anew() -> None:
    found = opened(SNAPSHOT)
    theirs = make_plan(found, PlanRequest()).plan
    ours = make_plan(found, PlanRequest(planner="portfolio")).plan
    assert verify_plan(theirs).ok
    assert theirs.planner == "given"
    assert (theirs.arenas[0].extent_bytes, ours.arenas[0].extent_bytes) == (1536, 1536)


def test_what_was_there_before_the_trace_lives_from_its_start() -> None:
    traced = [event("alloc", 512), event("free_completed", 0, 256)]
    found = opened(
        {"segments": [segment(0, 2048, (512, "inactive"), (512, "active_allocated"))], "device_traces": [traced]}
    )
    assert rows(found) == [("unknown line #1", 0, 2, 512, 512), ("unknown line #0", 0, 1, 256, 0)]
    assert any("1 allocations began before the trace" in line for line in found.notes)


def test_without_a_trace_it_is_one_moment() -> None:
    found = opened(
        {"segments": [segment(0, 2048, (512, "active_allocated"), (512, "inactive"), (8, "active_allocated"))]}
    )
    assert [row[1:] for row in rows(found)] == [(0, 1, 512, 0), (0, 1, 8, 1024)]
    assert any("no trace" in line for line in found.notes)


def test_segments_far_apart_are_laid_one_behind_the_other() -> None:
    far = 1 << 40
    parts = [segment(0, 512, (512, "active_allocated")), segment(far, 512, (512, "active_allocated"))]
    assert [row[4] for row in rows(opened({"segments": parts}))] == [0, 512]


def test_the_device_with_the_highest_peak_is_shown_and_the_others_are_told() -> None:
    small, large = event("alloc", 0, 8), event("alloc", 0, 512)
    found = opened({"segments": [], "device_traces": [[small], [large]]})
    assert [row[3] for row in rows(found)] == [512]
    assert found.notes[0] == "device 1 is shown; the snapshot holds device 0 too"


def test_a_device_before_the_first_has_no_trace() -> None:
    parts = [segment(0, 512, (512, "active_allocated"), device=device) for device in (-1, -(1 << 70))]
    found = opened({"segments": parts, "device_traces": [[event("alloc", 0, 8)]]})
    assert [row[3] for row in rows(found)] == [512]


def test_text_that_is_no_utf_8_is_refused_wherever_it_stands() -> None:
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


def test_the_lines_that_hold_most_at_the_peak_are_told() -> None:
    note = opened(SNAPSHOT).notes[-1]
    assert note == "of the 1,536 bytes at the peak (step 1), by line: train.py:17 forward 1,024; at::empty 512"


class Evil:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("evil"),))


@pytest.mark.parametrize("protocol", [2, 4])
def test_nothing_in_a_pickle_is_run(protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnreadableInput, match="nothing of it was run") as caught:
        opened({"segments": [Evil()]}, protocol)
    assert list(tmp_path.iterdir()) == []
    assert "_dump_snapshot" in caught.value.hint


@pytest.mark.parametrize(
    "wrong",
    [
        {"segments": 3},
        {"segments": [{"address": "x", "total_size": 1}]},
        {"segments": [segment(0, -5)]},
        {"segments": [segment(0, 1 << 70)]},
        {"segments": [], "device_traces": []},
        {"segments": [], "device_traces": [[event("alloc", 0, -1)]]},
        {"segments": [], "device_traces": [[{"addr": 1}]]},
        {"segments": [], "device_traces": [[{**event("alloc", 0), "frames": [3]}]]},
    ],
)
def test_a_damaged_snapshot_is_refused_with_the_way_out(wrong: Any) -> None:
    with pytest.raises(UnreadableInput) as caught:
        opened(wrong)
    assert caught.value.hint


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from([pickle.dumps(SNAPSHOT, 2), pickle.dumps(SNAPSHOT, 4), json.dumps(SNAPSHOT).encode()]), st.data()
)
def test_any_damage_is_read_or_refused(whole: bytes, data: st.DataObject) -> None:
    try:
        found = read_any(data.draw(damaged(whole)), "given")
        if isinstance(found, PlainInstance):
            make_plan(found, PlanRequest())
    except TmmuError:
        pass


def test_the_command_line_plans_it_as_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(SNAPSHOT))
    assert run(["plan", str(path)]) == 0
    out, err = capsys.readouterr()
    assert "given" in out.splitlines()[0]
    assert "theirs 1.50 KiB (1,536 B) · ours 1.50 KiB (1,536 B) · bound 1.50 KiB (1,536 B)" in out
    assert "the allocator held 2,048 bytes" in err


def _memo(operation: bytes) -> bytes:
    """A pickle with nothing in it but a number for one of its values."""
    return b"\x80\x04}(\x8c\x08segments]" + operation + b"\x8c\x0ddevice_traces]u."


@pytest.mark.parametrize(
    "operation",
    [
        b"r" + bytes([255, 255, 255, 127]),
        b"r" + bytes(3) + b"\x10",
        b"p99999999\n",
        b"p+9_999_9999\n",
        b"p000099999999\n",
    ],
)
def test_a_pickle_cannot_ask_for_a_table_larger_than_itself(operation: bytes) -> None:
    with pytest.raises(UnreadableInput, match="the pickle counts"):
        read_any(_memo(operation), "bomb.pickle")


def test_a_small_pickle_may_count_to_four_million_and_no_further() -> None:
    def read(number: int) -> None:
        read_any(_memo(b"r" + number.to_bytes(4, "little")), "small.pickle")

    with pytest.raises(UnreadableInput, match="holds no segment"):
        read(1 << 22)
    with pytest.raises(UnreadableInput, match="the pickle counts"):
        read((1 << 22) + 1)


@pytest.mark.parametrize("wrong", [{"size": -1}, {"requested_size": -(1 << 31)}, {"address": -1}, {"size": 1 << 63}])
def test_a_block_of_a_negative_size_or_past_63_bits_is_refused(wrong: dict[str, int]) -> None:
    whole = segment(0, 2048, (512, "active_allocated"))
    whole["blocks"][0] |= wrong
    with pytest.raises(UnreadableInput, match="damaged"):
        read_any(pickle.dumps({"segments": [whole], "device_traces": []}), "it.pickle")


@pytest.mark.parametrize("odd", [5, {"addr": BASE}, [], "alloc"])
def test_what_is_no_event_is_refused_at_any_place_of_a_trace(odd: Any) -> None:
    for trace in ([odd], [EVENTS[1], odd], [odd, EVENTS[1]]):
        with pytest.raises(UnreadableInput, match="trace holds what is no event"):
            opened({"segments": [segment(0, 2048)], "device_traces": [trace]})


def test_an_event_that_says_no_size_is_of_no_bytes_and_one_without_an_address_begins_at_0() -> None:
    after = [event("alloc", 512, 512), event("free_completed", 512, 512)]
    for action in ("alloc", "segment_alloc"):
        silent = {"action": action, "addr": BASE, "frames": []}
        found = opened({"segments": [segment(0, 2048)], "device_traces": [[silent, *after]]})
        assert [row[3] for row in rows(found)] == [512]
    nowhere = {"action": "alloc", "size": 512, "frames": []}
    found = opened({"segments": [segment(0, 2048)], "device_traces": [[nowhere, *after]]})
    assert sorted(row[1] for row in rows(found)) == [0, 1]


def test_a_pickle_that_says_its_events_a_thousand_times_is_refused() -> None:
    row = [event("alloc", 0)] * 1000
    for document in (
        {"segments": [], "device_traces": [row] * 1000},
        {"segments": [], "device_traces": (tuple(row),) * 1000},
        {"segments": [segment(0, 1 << 20) | {"blocks": row}] * 1000, "device_traces": []},
        {"segments": [segment(0, 1 << 20)] * 1000, "device_traces": []},
    ):
        with pytest.raises(UnreadableInput, match="more than once"):
            read_any(pickle.dumps(document), "bomb.pickle")


def _load(data: bytes) -> Any:
    def refused(what: str) -> UnreadableInput:
        return UnreadableInput(what)

    return pickled.PlainData(io.BytesIO(data), len(data), refused).load()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_operation_that_a_pickler_writes_is_read(protocol: int) -> None:
    values: list[Any] = [None, True, 1, 255, 70_000, -1, 1 << 80, 1.5, "é", "x" * 300, (), (1,), (1, 2, 3, 4), {1: 2}]
    values += ["\ud800", 1 << 2100, {}, {str(k): k for k in range(3000)}, list(range(3000))]
    values += [b"b", b"b" * 300] if protocol > 2 else []
    values += [{1, 2}, frozenset({1})] if protocol > 3 else []
    values += [b"c" * 70_000, bytearray(b"c")] if protocol > 4 else []
    many = [[str(k)] for k in range(300)]  # more than a memo of one byte counts
    data = pickle.dumps([values, many, many], protocol=protocol)
    found = _load(data)
    assert found == [[list(v) if isinstance(v, tuple) else v for v in values], many, many]
    assert found[1] is found[2]


def test_a_protocol_0_number_in_a_later_pickle_is_read() -> None:
    assert _load(b"\x80\x02(I5\nI01\nI00\nL7L\nF1.5\nl.") == [5, True, False, 7, 1.5]


def test_what_a_protocol_0_memo_gives_back_is_the_same_value() -> None:
    found = _load(b"\x80\x02(]p0\nK\x05ag0\nl.")
    assert found == [[5], [5]]
    assert found[0] is found[1]


@pytest.mark.parametrize(
    "bad", [b"]2.", b"(.", b"}h\x07.", b"]p-1\n.", b"]q\0q\0]q\0.", b"K\1K\2}e.", b"X\xff\xff\xff\x7f."]
)
def test_an_operation_out_of_place_is_a_typed_error(bad: bytes) -> None:
    with pytest.raises(UnreadableInput):
        read_any(b"\x80\x04" + bad + b"segments", "it.pickle")


def test_tuples_a_million_deep_end_nothing() -> None:
    deep = b"\x80\x04})" + b"\x85" * 1_000_000 + b"K\x01s."
    with pytest.raises(UnreadableInput, match="does not hold the values of a snapshot"):
        read_any(deep + b"segments", "deep.pickle")


class _Dribble(io.BytesIO):
    """A file that gives few bytes at a time, as a pipe may."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(7, size) if size and size > 0 else size)


def test_a_file_is_read_as_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pickle.dumps(SNAPSHOT)
    whole = torch_snapshot.read(data, "it")
    assert rows(torch_snapshot.read_file(_Dribble(data), len(data), "it")) == rows(whole)
    for chunk in (1, 40, 300):
        monkeypatch.setattr(torch_text, "_CHUNK", chunk)
        text = json.dumps(MANY).encode()
        assert rows(torch_snapshot.read(text, "it")) == rows(torch_snapshot.read(pickle.dumps(MANY), "it"))


def _many(events: int) -> dict[str, Any]:
    """Events that take and give back in turn, of three stacks, on two devices."""
    stacks = [[KERNEL, TORCH, {**USER, "line": k}] for k in range(3)]
    trace = []
    for k in range(0, events, 2):
        taken = {
            "action": "alloc",
            "addr": BASE + 512 * (k % 5),
            "size": 512,
            "stream": 0,
            "frames": list(stacks[k % 3]),
        }
        trace += [taken, {**taken, "action": "free_completed"}]
    return {"segments": [segment(0, 4096)], "device_traces": [trace, [], [dict(each) for each in trace[:2]]]}


MANY = _many(40)


def test_what_is_kept_of_a_pickle_goes_with_its_stacks_and_not_with_its_events() -> None:
    data = pickle.dumps(_many(20_000))
    reading = torch_events._Pickled(io.BytesIO(data), len(data), UnreadableInput)
    found = reading.load()
    events = found["device_traces"][0][0]
    assert events.count == 20_000
    assert len(reading.stacks.lines) == 4  # and the one that nobody recorded
    assert [type(value).__name__ for value in reading.memo].count("dict") < 10
    assert sum(value is pickled.GONE for value in reading.memo) >= 20_000


@pytest.mark.parametrize("layout", [{}, {"indent": 1}, {"separators": (",", ":")}, {"sort_keys": True}])
def test_json_is_read_however_it_is_laid_out(layout: dict[str, Any]) -> None:
    text = json.dumps(MANY, **layout).encode()
    assert rows(torch_snapshot.read(text, "it")) == rows(opened(MANY))


def test_json_is_not_cut_inside_a_text() -> None:
    odd = json.loads(json.dumps(MANY))
    odd["device_traces"][0][3]["frames"][0]["name"] = '}],[{"action": "alloc", \\"device_traces": [}]]'
    odd["device_traces"][0][3]["frames"][2]["filename"] = '"device_traces": [[{'
    text = json.dumps(odd).encode()
    assert rows(torch_snapshot.read(text, "it")) == rows(opened(odd))


def test_traces_of_another_key_are_not_taken_for_the_snapshots() -> None:
    other = {"segments": [{**segment(0, 512, (512, "active_allocated")), "device_traces": [EVENTS]}]}
    assert rows(torch_snapshot.read(json.dumps(other).encode(), "it")) == rows(opened(other))


def test_a_stack_that_is_said_anew_each_time_is_kept_once() -> None:
    """As of a snapshot that went through JSON: no frame is shared."""
    data = pickle.dumps(json.loads(json.dumps(_many(2000))))
    reading = torch_events._Pickled(io.BytesIO(data), len(data), UnreadableInput)
    reading.load()
    assert len(reading.frames) == 5
    assert not any(type(value) is dict and "filename" in value for value in reading.memo)


def test_a_stack_of_more_frames_than_a_pickler_says_at_once_is_one() -> None:
    deep = [dict(KERNEL) for _ in range(2500)]
    taken = {"action": "alloc", "addr": BASE, "size": 512, "frames": [*deep, *deep, USER]}
    found = opened({"segments": [], "device_traces": [[taken]]})
    assert found.problem.ids == ("train.py:17 forward #0",)


@pytest.mark.parametrize("write", [pickle.dumps, lambda value: json.dumps(value).encode()])
def test_a_path_is_read_as_a_stream_to_the_same(write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "it.pickle"
    path.write_bytes(write(MANY))
    whole = opened(MANY)
    monkeypatch.setattr(requests, "read_whole", None)  # nobody asks for all of its bytes
    found = requests.opened(path)
    assert isinstance(found, PlainInstance)
    assert rows(found) == rows(whole)


def test_a_damaged_file_is_refused_by_its_name_also_as_a_stream(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "it.pickle"
    path.write_bytes(pickle.dumps(MANY)[:-100])
    assert run(["plan", str(path)]) == 2
    err = capsys.readouterr().err
    assert "it.pickle: the snapshot is damaged" in err
    assert "_dump_snapshot" in err


def test_a_block_of_few_words_still_has_its_stack() -> None:
    parts = [{**segment(0, 512), "blocks": [{"size": 512, "frames": [USER]}, {"size": 8, "state": "active_allocated"}]}]
    assert opened({"segments": parts}).problem.ids == ("unknown line #0",)
    parts[0]["blocks"][0]["state"] = "active_allocated"
    assert opened({"segments": parts[:1]}).problem.ids == ("train.py:17 forward #0", "unknown line #0")
    with pytest.raises(UnreadableInput, match="a stack is str"):
        opened({"segments": [{**segment(0, 512), "blocks": [{"size": 512, "frames": "x"}]}]})


BOTH = pytest.mark.parametrize(
    "write", [pickle.dumps, lambda value: json.dumps(value).encode()], ids=["pickle", "JSON"]
)


@BOTH
def test_segments_alone_open_as_torch_gives_them(write: Any) -> None:
    """``torch.cuda.memory_snapshot()`` is a list."""
    found = read_any(write([segment(0, 1024, (512, "active_allocated"), (512, "inactive"))]), "segments")
    assert isinstance(found, PlainInstance)
    assert [row[1:] for row in rows(found)] == [(0, 1, 512, 0)]


@BOTH
def test_traces_alone_open_and_no_traces_are_none(write: Any) -> None:
    found = read_any(write({"device_traces": [[event("alloc", 0), event("free_completed", 0)]]}), "traces")
    assert isinstance(found, PlainInstance)
    assert [row[1:] for row in rows(found)] == [(0, 1, 512, 0)]
    none = {"segments": [segment(0, 512, (512, "active_allocated"))], "device_traces": None}
    moment = read_any(write(none), "moment")
    assert isinstance(moment, PlainInstance)
    assert any("no trace" in line for line in moment.notes)


@BOTH
def test_segments_that_grow_and_are_mapped_later_are_one_address_space(write: Any) -> None:
    """Expandable segments: pieces are mapped and unmapped, and what did not fit says so and takes nothing."""
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
    assert any("4,096 bytes in segments at the end" in line for line in found.notes)


def test_what_waits_for_its_stream_is_held_to_the_end() -> None:
    parts = [segment(0, 1024, (512, "active_awaiting_free"), (512, "inactive"))]
    events = [event("alloc", 0), event("free_requested", 0), event("alloc", 512), event("free_completed", 512)]
    found = opened({"segments": parts, "device_traces": [events]})
    assert sorted(row[1:] for row in rows(found)) == [(0, 3, 512, 0), (1, 2, 512, 512)]


def test_the_events_of_json_are_taken_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """In pieces of a few events, without the way round that decodes the whole text."""
    monkeypatch.setattr(torch_text, "_CHUNK", 300)
    two = {**MANY, "device_traces": [MANY["device_traces"][0], EVENTS]}
    found = torch_text._Text(io.BytesIO(json.dumps(two).encode())).snapshot()
    assert [trace.count for trace in found.traces] == [len(MANY["device_traces"][0]), len(EVENTS)]


def test_a_snapshot_may_hold_as_many_devices_as_the_limit_and_no_more() -> None:
    whole = {**SNAPSHOT, "segments": [segment(4096 * k, 2048, (2048, "active_allocated"), device=k) for k in range(3)]}
    with limits.raised({"devices": 3}):
        opened(whole)
    with limits.raised({"devices": 2}), pytest.raises(UnreadableInput, match="devices"):
        opened(whole)


@pytest.mark.parametrize("write", [pickle.dumps, lambda snapshot: json.dumps(snapshot).encode()])
def test_an_event_that_says_neither_place_nor_size_has_none(write: Any) -> None:
    bare = {**SNAPSHOT, "device_traces": [[{"action": "alloc"}, *EVENTS]]}
    said = torch_snapshot._decoded(io.BytesIO(write(bare)), len(write(bare)), "bare").traces[0]
    assert [column[0] for column in (said.addr, said.size)] == [0, 0]


def test_five_lines_are_told_the_largest_first() -> None:
    events = [
        event("alloc", 512 * k, 512 * (1 + k % 2), {"name": f"f{k}", "filename": "/a/b.py", "line": k})
        for k in range(7)
    ]
    whole = {**SNAPSHOT, "segments": [segment(0, 8192)], "device_traces": [events]}
    held = opened(whole).notes[-1].partition("by line: ")[2]
    assert held == "b.py:1 f1 1,024; b.py:3 f3 1,024; b.py:5 f5 1,024; b.py:0 f0 512; b.py:2 f2 512"


@pytest.mark.parametrize("chunk", [1, 2, 5, 64, 10_000])
@pytest.mark.parametrize("ahead", [24, 64])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_is_the_same_in_pieces_of_any_size(
    chunk: int, ahead: int, protocol: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    value: dict[str, Any] = {
        "a": list(range(-3, 300, 17)),
        "b": {"c": "x" * 300, "d": b"y" * 70, "e": 2.5},
        "long": "z" * 5000,
        "big": 2**70,
        "less": -(2**40),
        "no": None,
        "yes": [True, False],
        "f": [[], {}],
    }
    if protocol == 2:  # which has no bytes
        del value["b"]["d"]
    value["again"] = value["b"]
    data = pickle.dumps(value, protocol)
    monkeypatch.setattr(pickled, "_CHUNK", chunk)
    monkeypatch.setattr(pickled, "ROOM", ahead)
    found = pickled.PlainData(_Dribble(data), len(data), UnreadableInput).load()
    assert found == value
    assert found["again"] is found["b"]
    for end in range(len(data) - 1, len(data) - 40, -3):
        with pytest.raises((EOFError, IndexError, pickled.struct.error)):
            pickled.PlainData(_Dribble(data[:end]), len(data), UnreadableInput).load()


def test_a_value_has_one_number_and_a_number_one_value() -> None:
    reader = pickled.PlainData(io.BytesIO(), 10, UnreadableInput)
    values: list[Any] = [[], {}, "text", 7]
    for number, value in ((2, values[0]), (0, values[1]), (3, values[2]), (1, values[3])):
        reader.number(number, value)
    assert reader.memo == [values[1], 7, values[0], "text"]
    assert reader.numbers == {id(values[0]): 2, id(values[1]): 0}
    for number, why in ((-1, "the number -1"), (0, "two values"), (3, "two values")):
        with pytest.raises(pickled.Damaged, match=why):
            reader.number(number, "again")
    reader.let_go(values[0])
    reader.let_go(values[0], "nobody")  # it has no number any more
    reader.let_go(values[1], "instead")
    assert reader.memo == ["instead", 7, pickled.GONE, "text"]
    assert reader.list_at_once(b"", 0) == 0


@pytest.mark.parametrize("past", [0, 1])
@pytest.mark.parametrize("size", [10, 30])
def test_a_number_is_no_larger_than_the_file_or_what_is_no_harm(
    size: int, past: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pickled, "_SMALL", 20)
    reader = pickled.PlainData(io.BytesIO(), size, UnreadableInput)
    number = max(20, size) + past
    if past:
        with pytest.raises(UnreadableInput, match="the pickle counts"):
            reader.number(number, 1)
    else:
        reader.number(number, 1)
        assert len(reader.memo) == number + 1


@pytest.mark.parametrize(
    ("tail", "why"),
    [
        (b"h\x00.", "has not been said|out of range"),
        (b"]r\x02\x00\x00\x00h\x01.", "has not been said"),
        (b"]q\x00]q\x00.", "two values"),
        (b"\x8b\xff\xff\xff\xff.", "a value of -1 bytes"),
        (b"X\xff\x00\x00\x00.", "a value of 255 bytes"),
    ],
)
def test_a_pickle_that_names_what_is_not_there_is_damaged(tail: bytes, why: str) -> None:
    data = b"\x80\x02" + tail
    with pytest.raises((pickled.Damaged, IndexError), match=why):
        pickled.PlainData(io.BytesIO(data), len(data), UnreadableInput).load()


def test_a_number_of_thousands_of_digits_is_not_written_out() -> None:
    most = (1 << 128) - 1
    assert [torch_snapshot._shown(n) for n in (0, most, -most)] == ["0", str(most), str(-most)]
    assert {torch_snapshot._shown(n) for n in (most + 1, -most - 1, 10**5000)} == {"2^128 or more"}
