"""Readers and writers of finished plans: what each says and refuses at its borders, by eye."""

from __future__ import annotations

import io
import pickle
from array import array
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import cbor2
import msgspec
import pyarrow.parquet as pq
import pytest

from tests.plan.examples import chain_plan, ledger_plan, problem_of, views_graph
from tmmu_core import limits
from tmmu_core.errors import UnreadableInput
from tmmu_core.plan.formats import files, pickled, torch_snapshot
from tmmu_core.plan.formats.torch_events import ALLOC, FREE, MAP, NO_STACK, Block, Events, Segment, Snapshot, Stacks
from tmmu_core.plan.making.engine import plan_graph
from tmmu_core.plan.making.instance import plan_problem
from tmmu_core.planners.problem import PlainInstance


def refusal(call: Any) -> UnreadableInput:
    with pytest.raises(UnreadableInput) as caught:
        call()
    return caught.value


# --- PyTorch's allocator -----------------------------------------------------------------------------------------


def part(address: int, *sizes: int, device: int = 0, state: str = "active") -> dict[str, Any]:
    blocks = [{"size": size, "state": state, "frames": []} for size in sizes]
    return {"address": address, "total_size": sum(sizes), "device": device, "blocks": blocks}


def opened(*segments: dict[str, Any], name: str = "s.pickle") -> PlainInstance:
    return torch_snapshot.read(pickle.dumps({"segments": list(segments)}), name)


def test_the_device_of_the_highest_peak_is_shown_and_of_several_the_first() -> None:
    one = opened(part(0, 4, device=1))
    assert (one.name, one.problem.size.tolist(), len(one.notes)) == ("s", [4], 2)
    assert opened(part(0, 4), name="").name == "snapshot"
    for sizes, shown in (((4, 4), 2), ((4, 5), 3), ((5, 4), 2)):
        found = opened(part(0, sizes[1], device=3), part(64, sizes[0], device=2))
        assert found.problem.size.tolist() == [sizes[shown - 2]]
        assert found.notes[0] == f"device {shown} is shown; the snapshot holds device {5 - shown} too"


def test_a_snapshot_of_nothing_is_refused() -> None:
    for segments, message in (
        ([], "the snapshot holds no segment and no allocation."),
        ([part(0, 4, state="inactive")], "nothing is allocated in the snapshot."),
    ):
        refused = refusal(lambda: opened(*segments))  # noqa: B023
        assert (refused.message, refused.source, refused.hint) == (message, "s.pickle", torch_snapshot.HINT)
    many = [part(0, 4, device=k) for k in range(3)]
    with limits.raised({"devices": 3}):
        opened(*many)
    with limits.raised({"devices": 2}):
        assert "more than 2 devices" in refusal(lambda: opened(*many)).message


class Failing(io.BytesIO):
    def __init__(self, error: Exception) -> None:
        super().__init__(b"\x80\x04.")
        self.error = error

    def seek(self, at: int, whence: int = 0) -> int:
        self.read = self.fail  # type: ignore[method-assign]
        return super().seek(at, whence)

    def fail(self, size: int | None = -1) -> bytes:
        raise self.error


def test_what_fails_while_a_snapshot_is_read_is_said_in_our_words() -> None:
    def reading(error: Exception) -> Any:
        return lambda: torch_snapshot.read_file(Failing(error), 3, "s.pickle")

    with pytest.raises(OSError, match="no more"):
        reading(OSError("no more"))()
    kept = refusal(reading(UnreadableInput("it is.", source="its own")))
    assert (kept.message, kept.source) == ("it is.", "its own")
    assert refusal(reading(UnreadableInput("it is."))).source == "s.pickle"
    damaged = refusal(reading(KeyError("x")))
    assert damaged.message == "the snapshot is damaged: it does not hold the values of a snapshot."
    assert (damaged.source, damaged.hint) == ("s.pickle", torch_snapshot.HINT)
    words = {
        EOFError(): "it ends too early",
        EOFError("a\nb"): "a",
        pickled.Damaged("x" * 201): "x" * 200,
        msgspec.DecodeError("odd"): "odd",
        UnicodeDecodeError("utf-8", b"", 0, 1, "odd"): "a text in it is not UTF-8",
        IndexError("odd"): "a value is asked for that is not there",
        TypeError("odd"): "it does not hold the values of a snapshot",
    }
    assert {error: torch_snapshot._what(error) for error in words} == words


def events(*rows: tuple[int, int, int]) -> Events:
    made = Events()
    for action, address, size in rows:
        made.action.append(action)
        made.addr.append(address)
        made.size.append(size)
        made.stack.append(NO_STACK)
    made.count = len(rows)
    return made


LAST = torch_snapshot.LAST_ADDRESS


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        ([(0, 0), (LAST - 1, LAST - 1)], None),
        ([(0, 0), (LAST - 1, LAST - 1), (-1, 3)], (-1, 3)),
        ([(0, 0), (LAST - 1, LAST - 1), (3, -1), (4, -2)], (3, -1)),
        ([(1, 0), (0, 1), (LAST, 3)], (LAST, 3)),
        ([(1, 0), (0, 1), (3, LAST)], (3, LAST)),
    ],
)
def test_the_first_event_that_is_none_is_named(rows: list[tuple[int, int]], wrong: tuple[int, int] | None) -> None:
    snapshot = Snapshot([], [events(), events(*((ALLOC, *row) for row in rows))], Stacks())
    if wrong is None:
        torch_snapshot._check(snapshot, "")
        return
    refused = refusal(lambda: torch_snapshot._check(snapshot, "from"))
    assert refused.message == f"the snapshot is damaged: {wrong[1]} bytes at the address {wrong[0]}."


def test_lives_stand_by_birth_place_and_end_in_all_that_was_ever_mapped() -> None:
    blocks = [Block(4, "active", 40, None, NO_STACK), Block(6, "active", 20, 5, NO_STACK)]
    segments = [Segment(16, 32, 1, [*blocks, Block(8, "inactive", 8)])]
    traced = events((MAP, 96, 8), (ALLOC, 40, 2), (ALLOC, 100, 3), (FREE, 16, 7), (ALLOC, 40, 1), (FREE, 16, 9))
    found = torch_snapshot._lives(Snapshot(segments, [events(), traced], Stacks()), 1, segments)
    columns = (found.birth, found.death, found.size, found.offset)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == [
        (0, 2, 7, 0),
        (0, 4, 9, 0),
        (0, 5, 5, 4),
        (0, 3, 2, 24),
        (1, 5, 3, 36),
        (3, 5, 1, 24),
    ]
    assert (found.reserved, found.held, found.before, found.traced) == (40, 32, 3, True)
    untraced = torch_snapshot._lives(Snapshot(segments, [], Stacks()), 1, segments)
    assert (untraced.reserved, untraced.before, untraced.traced) == (32, 0, False)


def test_lines_that_hold_as_much_at_the_peak_stand_by_name() -> None:
    made = events(*((ALLOC, 8 * k, 4) for k in range(3)))
    made.stack[:] = array("i", (2, 1, 3))
    found = torch_snapshot._lives(Snapshot([], [made], Stacks()), 0, [])
    assert list(torch_snapshot._notes(found, ["", "b", "c", "a"]))[1:] == [
        "of the 12 bytes at the peak (step 2), by line: a 4; b 4; c 4"
    ]


# --- plan files --------------------------------------------------------------------------------------------------


def test_a_plan_file_has_its_keys_in_one_order() -> None:
    for plan in (ledger_plan(), plan_graph(views_graph()).plan):
        keys = list(msgspec.json.decode(files.to_json(plan)))
        assert list(cbor2.loads(files.to_cbor(plan))) == keys
        assert keys[keys.index("arenas") + 1] == "tensors"


def test_an_instance_stands_by_birth_and_bytes_and_ends_behind_its_beginning() -> None:
    blocks = (("a", 0, 2, 50), ("b", 0, 2, 100), ("c", 1, 3, 7), ("d", 0, 1, 50))
    plan = plan_problem(problem_of(*sorted(blocks, key=lambda b: (b[1], -b[3], b[0]))))
    assert [line.split(",")[:4] for line in files.to_instance(plan).decode().splitlines()[1:]] == [
        ["b", "0", "2", "100"],
        ["a", "0", "2", "50"],
        ["d", "0", "1", "50"],
        ["c", "1", "3", "7"],
    ]
    damaged = replace(plan, death=plan.birth)
    assert {tuple(line.split(",")[1:3]) for line in files.to_instance(damaged).decode().splitlines()[1:]} == {
        ("0", "1"),
        ("1", "2"),
    }


def parquet(change: Any) -> bytes:
    table = pq.read_table(io.BytesIO(files.to_parquet(chain_plan(1))))
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({files.HEAD_KEY: change(table.schema.metadata[files.HEAD_KEY])}), sink)
    return sink.getvalue()


def test_the_head_of_a_parquet_file_is_held_to_what_a_document_is() -> None:
    assert len(files.from_parquet(parquet(lambda head: head))) == 2
    long = refusal(
        lambda: files.from_parquet(parquet(lambda head: head[:-1] + b', "odd": ' + b"9" * 30 + b"}"), "from")
    )
    assert long.message == f"{'9' * 30} takes more than 64 bits."
    twice = refusal(lambda: files.from_parquet(parquet(lambda head: head[:-1] + b', "mode": "forward"}'), "from"))
    assert (twice.message, twice.source) == ("an object says this key twice.", "from")


def test_a_parquet_file_is_as_large_as_the_limits_say() -> None:
    """Two groups of rows, of a column of 3 values and 10 bytes and one of 4 and 20."""
    columns = [SimpleNamespace(num_values=3, total_uncompressed_size=10), SimpleNamespace(num_values=4)]
    columns[1].total_uncompressed_size = 20
    group = SimpleNamespace(num_columns=2, column=columns.__getitem__)
    metadata = SimpleNamespace(num_row_groups=2, row_group=[group, group].__getitem__)
    with limits.raised({"values": 14, "unpacked-bytes": 60}):
        files._check_size(metadata, 1, "")
    for name, what in (("values", "values in a document"), ("unpacked-bytes", "bytes that a compressed file")):
        with limits.raised({"values": 14, "unpacked-bytes": 60} | {name: 13 if name == "values" else 59}):
            assert what in refusal(lambda: files._check_size(metadata, 1, "from")).message
    columns[0].num_values = limits.VALUES.default
    files._check_size(metadata, limits.VALUES.default + 4, "")
    refused = refusal(lambda: files._check_size(metadata, limits.VALUES.default + 3, "from"))
    assert f"more than {2 * limits.VALUES.default + 6} values" in refused.message
