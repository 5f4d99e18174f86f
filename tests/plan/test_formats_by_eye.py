"""Readers and writers of finished plans: what each says and refuses at its borders, by eye."""

from __future__ import annotations

import io
import pickle
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import cbor2
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.build import graph, node, tensor
from tests.fuzz import flat_program as flat
from tests.plan.examples import chain_plan, ledger_plan, problem_of, views_graph
from tmmu_core import limits
from tmmu_core.errors import InvalidIrShapes, UnreadableInput
from tmmu_core.graph import document, sidecar, unpacking
from tmmu_core.graph.importers import xla, xla_program
from tmmu_core.graph.model import Dim, Graph
from tmmu_core.plan.formats import (
    constants,
    documents,
    executorch,
    files,
    flatbuffer,
    given,
    parquet,
    parquet_child,
    pickled,
    places,
    reading,
    sniff,
    table,
    torch_snapshot,
    xla_folder,
    xla_report,
)
from tmmu_core.plan.formats.given import LAST_BYTE
from tmmu_core.plan.formats.held import APART
from tmmu_core.plan.formats.reading import Reader
from tmmu_core.plan.formats.torch_events import ALLOC, FREE, MAP, NO_STACK, Block, Events, Segment, Snapshot, Stacks
from tmmu_core.plan.making.engine import plan_graph
from tmmu_core.plan.making.instance import plan_problem
from tmmu_core.plan.model import CHANGED, UNHELD, UNSAID, Plan
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


def changed(change: Any) -> bytes:
    table = pq.read_table(io.BytesIO(parquet.to_parquet(chain_plan(1))))
    head = change(table.schema.metadata[parquet_child.HEAD_KEY])
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({parquet_child.HEAD_KEY: head}), sink)
    return sink.getvalue()


def test_the_head_of_a_parquet_file_is_held_to_what_a_document_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "_answer", lambda data, source: parquet_child.answer(data, 1 << 20, 1 << 20))

    def read(more: bytes) -> Any:
        return lambda: parquet.from_parquet(changed(lambda head: head[:-1] + more + b"}"), "from")

    assert len(read(b"")()) == 2
    long = refusal(read(b', "odd": ' + b"9" * 30))
    assert long.message == f"{'9' * 30} takes more than 64 bits."
    twice = refusal(read(b', "mode": "forward"'))
    assert (twice.message, twice.source) == ("an object says this key twice.", "from")


def test_the_texts_of_a_parquet_file_are_validated_before_they_are_taken_out() -> None:
    table = pq.read_table(io.BytesIO(parquet.to_parquet(chain_plan(1))))
    texts = pa.array(["t0", "t1"], pa.string())
    broken = pa.StringArray.from_buffers(2, texts.buffers()[1], pa.py_buffer(b"t\xfft1"))
    sink = io.BytesIO()
    pq.write_table(table.set_column(0, "tensor_id", broken), sink)
    found = parquet_child.answer(sink.getvalue(), 1 << 20, 1 << 20)
    assert found.word == "unreadable"
    assert "codec" not in found.why, "Python came to decode it"


def test_a_parquet_file_is_as_large_as_the_limits_say() -> None:
    """Two groups of rows, of a column of 3 values and 10 bytes and one of 4 and 20."""
    columns = [SimpleNamespace(num_values=n, total_uncompressed_size=size) for n, size in ((3, 10), (4, 20))]
    group = SimpleNamespace(num_columns=2, column=columns.__getitem__)
    metadata = SimpleNamespace(num_row_groups=2, row_group=[group, group].__getitem__)
    for values, unpacked, word in ((14, 60, ""), (13, 60, "values"), (14, 59, "unpacked"), (13, 59, "values")):
        assert parquet_child.past(metadata, values, unpacked) == word


# --- any file ----------------------------------------------------------------------------------------------------


def reader(begins: bytes, **rest: Any) -> Reader:
    """Takes what begins so, and gives it back with its name."""
    held = {"read": lambda data, name: (begins, data, name), **rest}
    return Reader(
        *(begins.decode(), f"the format {begins.decode()}", "graph", (".x", f".{begins.decode()}")),
        refuses=lambda data: "" if data.startswith(begins) else f"it is no {begins.decode()}",
        **held,
    )


def test_values_are_counted_unless_a_snapshot_is_read_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[bytes, str, int]] = []
    monkeypatch.setattr(document, "refuse_many_values", lambda *given: asked.append(given))
    takes = (reader(b""),)
    packed = unpacking.pack(b"text")
    snapshot = pickle.dumps({"segments": []})
    strange = pickle.dumps({"segments": ["allocation_header"]})
    for data, plain in ((b"text", b"text"), (packed, b"text"), (snapshot, snapshot), (strange, strange)):
        found: Any = reading.read_any(data, "its name", takes)
        assert found == (b"", plain, "its name")
    assert asked == [(b"text", "its name", 0), (b"text", "its name", len(packed)), (strange, "its name", 0)]


def test_the_first_reader_that_takes_a_file_reads_it_or_says_what_all_others_said() -> None:
    def fails(data: bytes, name: str) -> Any:
        raise UnreadableInput("damaged.", source="its own" if data == b"bb" else "")

    every = (reader(b"a"), reader(b"b", read=fails), reader(b"c"), reader(b""))
    found: Any = reading.read_any(b"ab", "n", every)
    assert found == (b"a", b"ab", "n")
    refused = refusal(lambda: reading.read_any(b"bc", "n", every))
    others = (("a", "it is no a"), ("b", "damaged."), ("c", "it is no c"), ("", "another reader took it"))
    assert (refused.source, refused.tried) == ("n", others)
    assert refusal(lambda: reading.read_any(b"bb", "n", every)).source == "its own"
    unknown = refusal(lambda: reading.read_any(b"x", "n", every[:3]))
    assert (unknown.message, unknown.source) == ("no reader knows this content.", "n")
    assert unknown.tried == (("a", "it is no a"), ("b", "it is no b"), ("c", "it is no c"))
    assert unknown.hint == "Give one of: the format a, the format b, the format c."
    assert refusal(lambda: reading.read_any(b"", "n", every[:3])).message == "the file is empty."
    deep = b"[" * 300 + b"]" * 300
    assert refusal(lambda: reading.read_any(deep, "n", every[:1])).tried == (("a", "it is nested too deeply"),)


def test_a_file_is_read_as_it_comes_where_its_reader_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    streams = reader(b"a", stream=lambda file, size, name: (file.read(), size, name))
    monkeypatch.setattr(reading, "_STREAMED", (reader(b"b"), streams, reader(b"")))
    paths = {name: tmp_path / name for name in ("abc", "bc", "c", "gone")}
    for name in ("abc", "bc", "c"):
        paths[name].write_text(name)
    assert {name: reading.read_streamed(path, "n") for name, path in paths.items()} == {
        "abc": (b"abc", 3, "n"),
        "bc": None,
        "c": None,
        "gone": None,
    }
    assert reading.read_streamed(tmp_path, "n") is None
    monkeypatch.setattr(reading, "_STREAMED", (streams,))
    assert reading.read_streamed(paths["c"], "n") is None

    @contextmanager
    def without_size(path: Path) -> Iterator[tuple[Any, None]]:
        with path.open("rb") as file:
            yield file, None

    monkeypatch.setattr(unpacking, "of_one_moment", without_size)
    assert reading.read_streamed(paths["abc"], "n") is None


DIMS = {"A": Dim(1, 4), "B": Dim(2, 8)}


def test_a_graph_is_read_within_other_envelopes_of_its_own_dimensions(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def within(data: bytes, name: str, envelopes: Any) -> Graph:
        asked.append((data, name, envelopes))
        return Graph(dims=DIMS, assumed={"A": 2, "B": 2})

    read = lambda data, name: Graph(dims=DIMS, assumed={"A": 2}, name=name)  # noqa: E731
    monkeypatch.setattr(
        reading, "GRAPH_READERS", (reader(b"a", read=read), reader(b"b", within=within), reader(b"c", read=read))
    )
    wider = {"A": Dim(1, 99)}
    foreign = reading.read_within(unpacking.pack(b"b"), wider, "n")
    assert asked == [(b"b", "n", wider)]
    assert (foreign.dims, foreign.assumed) == (DIMS | wider, {"B": 2})
    own = reading.read_within(b"c", wider, "n")
    assert (own.dims, own.assumed, own.name, len(asked)) == (DIMS | wider, {}, "n", 1)
    with pytest.raises(InvalidIrShapes, match='names no dimension "Q"') as caught:
        reading.read_within(b"c", {"A": Dim(1, 2), "Q": Dim(1, 2)}, "n")
    assert (caught.value.hint, caught.value.diagnostics["path"]) == ("It names A, B.", "$.dims.Q")
    monkeypatch.setattr(reading, "GRAPH_READERS", (reader(b"a", read=lambda data, name: Graph()),))
    with pytest.raises(InvalidIrShapes) as caught:
        reading.read_within(b"a", {"Q": Dim(1, 2)}, "n")
    assert caught.value.hint == "All its shapes are fixed."
    assert refusal(lambda: reading.read_within(b"x", {}, "n")).message == "no reader knows this content."


def test_a_graph_is_read_once_more_only_where_a_point_leaves_what_was_assumed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(reading, "read_within", lambda *given: asked.append(given) or "again")
    graph = Graph(dims=DIMS | {"C": Dim(1, 1), "Z": Dim(1, 1)}, assumed={"A": 2, "B": 2, "Z": 1})
    for point in ({}, {"A": 1, "B": 8}, {"A": 4, "B": 2}, {"C": 99}, {"A": -1}):
        assert reading.read_at(graph, point, b"x", "n") is graph
    cases = {
        (("A", 5),): {"A": Dim(5, 5)},
        (("A", 0),): {"A": Dim(0, 0)},
        (("B", 1), ("A", 4), ("C", 99)): {"B": Dim(1, 1), "A": Dim(4, 4)},
    }
    for items, envelopes in cases.items():
        asked.clear()
        assert reading.read_at(graph, dict(items), b"x", "n") == "again"  # type: ignore[comparison-overlap]
        assert asked == [(b"x", envelopes, "n")]


def test_a_graph_that_is_not_there_is_refused_with_the_way_out(tmp_path: Path) -> None:
    refused = refusal(lambda: reading.read_graph_file(tmp_path / "gone.json"))
    assert refused.message == "the file cannot be opened: no such file or directory."
    assert (refused.source, refused.hint) == (str(tmp_path / "gone.json"), "Check the name and the rights.")


def test_what_takes_over_nothing_in_a_dump_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    def buffer(name: str, takes_over: str) -> SimpleNamespace:
        return SimpleNamespace(id=name, takes_over=takes_over, birth=0, death=1, size=4, offset=0, role="activation")

    dump = SimpleNamespace(buffers=[buffer("a", ""), buffer("b", "a")], notes=("n",), made=None)
    monkeypatch.setattr(xla, "read", lambda data, name: dump)
    found = reading._read_xla(b"", "C:\\x\\it.txt.gz")
    assert found.problem.handoff_from.tolist() == [-1, 0]
    assert (found.name, found.notes) == ("it", ("n",))


# --- XLA's report ------------------------------------------------------------------------------------------------

COLUMNS = "  cumulative_size;       size;       offset; used_by_n_values; shapes_list"


def place(size: str, offset: int, shapes: str) -> str:
    return f"     8.0KiB( 80%);     {size};    {offset};    2; {shapes}"


def report(*lines: str) -> bytes:
    return "\n".join(["Memory Space: default (color=0)", *lines]).encode()


HINT = "dump" + xla_report.HINT[4:]
NO_LIVES = f"the report says no lives: all places are taken to be there at once; {HINT}"


def test_a_report_is_read_allocation_by_allocation() -> None:
    data = report(
        "Total bytes: 2000 (2.0KiB)",
        COLUMNS,
        "  ------",
        place("1.0KiB", 0, "f32[256]"),
        place("10.0B", 1024, " u8[10] "),
        place("1.0KiB", 512, "pred[3], " + "x" * 130),
        "",
        "Total bytes: 48 (48.0B)",
        COLUMNS,
        place("0.0B", 7, "u8[0]"),
        place("2.0B", 8, "u8[2]"),
    )
    found = xla_report.read(data, "a/it-memory-usage-report.txt")
    assert found.packing is not None
    assert list(zip(found.problem.ids, found.problem.size.tolist(), found.packing.offset.tolist(), strict=True)) == [
        ("allocation 1: f32[256]", 1024, 0),
        (f"allocation 1: pred[3], {'x' * 111}", 1024, 512),
        ("allocation 1: u8[10]", 10, 1024),
        ("allocation 2: u8[2]", 2, 1544),
    ]
    total = "the report's total is 2,048 bytes, its places end at 1,546"
    assert list(found.notes) == [NO_LIVES, total, "1 sizes are as the report rounds them"]
    exact = xla_report.read(report(COLUMNS, place("2.0B", 0, "u8[2]")))
    assert (exact.name, len(exact.notes)) == ("xla", 2)
    assert found.name == "it"
    assert [life[1:] for life in zip(found.problem.birth.tolist(), found.problem.death.tolist(), strict=True)] == [
        (1,)
    ] * 4


def test_a_line_of_a_report_is_a_place_of_an_allocation() -> None:
    fine = place("2.0B", 0, "u8[2]")
    for lines, number, line in (
        ([fine], 2, fine),
        ([COLUMNS, fine, " odd;" + "x" * 90], 4, " odd;" + "x" * 90),
        ([COLUMNS, place("4.0B", LAST_BYTE - 3, "u8[4]")], 3, place("4.0B", LAST_BYTE - 3, "u8[4]")),
    ):
        refused = refusal(lambda: xla_report.read(report(*lines), "from"))  # noqa: B023
        assert refused.message == f"this is no line of a memory usage report: {line.strip()[:80]!r}."
        assert (refused.place, refused.source, refused.hint) == (f"line {number}", "from", xla_report.HINT)
    xla_report.read(report(COLUMNS, place("4.0B", LAST_BYTE - 4, "u8[4]")))
    empty = refusal(lambda: xla_report.read(report(COLUMNS, place("0.0B", 0, "u8[0]")), "from"))
    assert empty.message == "the report holds no place."
    assert xla_report.refuses(b"") == "the file is empty"
    assert xla_report.refuses(b"\n  Memory Space: x") == ""
    assert xla_report.refuses(b"x Memory Space:") == "it does not begin with Memory Space:"


@pytest.mark.parametrize(
    ("digits", "unit", "shapes", "size"),
    [
        ("1.0", "KiB", "", (1024, False)),
        ("1.", "KiB", "", (1024, False)),
        ("1.0.0", "KiB", "f32[256]", (0, False)),
        ("10.5", "B", "u8[1]", (10, True)),
        ("1.0", "KiB", "u8[1000], u8[1024], u8[1076]", (1024, True)),
        ("1.0", "KiB", "c64[64]", (1024, True)),
        ("1.0", "KiB", "s4[2047]", (1024, True)),
        ("1.0", "KiB", "s4[2048]", (1024, True)),
        ("1.0", "KiB", "pred[1024]", (1024, True)),
        ("1.0", "KiB", "token[]", (1024, False)),
        ("1.0", "KiB", "bf16[2,256]{1,0}", (1024, True)),
        ("1.0", "KiB", "f8e4m3fn[8,,128]", (1024, True)),
    ],
)
def test_a_size_of_a_report_is_that_of_a_shape_where_one_rounds_to_it(
    digits: str, unit: str, shapes: str, size: tuple[int, bool]
) -> None:
    assert xla_report._size(digits, unit, shapes) == size


# --- constants of any file ---------------------------------------------------------------------------------------


def test_the_bytes_of_constants_are_looked_for_by_how_a_file_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def finder(kind: str) -> Any:
        def find(data: Any, graph: Any, where: Any, name: str) -> str:
            asked.append((bytes(data[:]), where, name))
            return kind

        return find

    for kind in ("onnx", "tflite", "torch", "none"):
        monkeypatch.setattr(constants, f"_{kind}", finder(kind))
    beside = finder("sidecar")
    monkeypatch.setattr(sidecar, "constants", lambda graph, where, name: beside(b"", graph, where, name))
    graph = Graph()
    model = b"\x08\x01:\x00"
    for data, kind in (
        (b"PK\x03\x04more", "torch"),
        (b"PK\x03\x05more", "none"),
        (b"1234TFL3", "tflite"),
        (b"1234TFL3more", "tflite"),
        (b"1234TFL4", "none"),
        (model, "onnx"),
        (b'{"a": 1}', "none"),
        (b"\xa2\x01\x00:\x00", "none"),  # a model's training information, or a map of CBOR
        (b"\xa3", "none"),
    ):
        packed = unpacking.pack(data)
        for written in (data, packed):
            asked.clear()
            assert constants.constants_in(written, graph, "n") == kind
            assert asked == [(data, None, "n")]
            path = tmp_path / "it"
            path.write_bytes(written)
            asked.clear()
            assert constants.constants_of(path, graph) == kind
            bare = written is data and kind == "torch"
            assert asked == [(b"" if bare else data, path if written is data else None, "it")]
    asked.clear()
    named = Graph(sidecar="w.safetensors")
    assert (constants.constants_in(model, named, "n"), constants.constants_of(path, named)) == ("sidecar", "sidecar")
    assert asked == [(b"", None, "n"), (b"", path, "it")]
    refused = refusal(lambda: constants.constants_of(tmp_path / "gone", graph))
    assert refused.message == "the file cannot be opened: no such file or directory."
    assert refused.source == str(tmp_path / "gone")


# --- documents, dumps and logs -----------------------------------------------------------------------------------


def test_what_is_claimed_is_all_that_has_no_hash_of_its_own() -> None:
    plan = replace(ledger_plan(), notes={UNSAID: "x", UNHELD: "y", CHANGED: "z", "other": 1})
    arenas, said = documents.claims(documents.unsealed(plan))
    assert set(arenas) == {"arena"}
    assert set(said) == set(documents.HeadDocument.__struct_fields__) - set(APART)
    assert said["notes"] == {CHANGED: "z", "other": 1}
    odd = replace(plan, notes={UNSAID: {"a": 1}, UNHELD: 3})
    assert documents.claims(documents.unsealed(odd))[1]["notes"] == {UNSAID: {"a": 1}, UNHELD: 3}


def test_a_module_is_offered_by_its_size_and_a_large_program_left_out() -> None:
    def files_of(stem: str, size: int, program: int | None = None) -> dict[str, int]:
        sizes = {stem + xla.ASSIGNMENT_ENDING: size, stem + xla.RANGES_ENDING: 1}
        return sizes if program is None else sizes | {stem + xla_program.PROGRAM_ENDING: program}

    most = xla_folder.MOST_PROGRAM
    listed = files_of("a", 1) | files_of("b", 3, most) | files_of("c", 3, most + 1) | {"d" + xla.ASSIGNMENT_ENDING: 9}
    found = xla_folder.modules(listed)
    assert [(each.name, each.size, each.program) for each in found] == [
        ("b", 3, "b" + xla_program.PROGRAM_ENDING),
        ("c", 3, ""),
        ("a", 1, ""),
    ]
    assert xla_folder.only(found[:1], "dump") is found[0]
    assert refusal(lambda: xla_folder.only((), "dump")).message == "the folder holds no module of an XLA dump."
    for count in (2, xla_folder.LISTED, xla_folder.LISTED + 1, xla_folder.LISTED + 2):
        many = xla_folder.modules({name: size for k in range(count) for name, size in files_of(f"m{k:02}", 9).items()})
        refused = refusal(lambda: xla_folder.only(many, "dump"))  # noqa: B023
        assert refused.message == f"the dump holds {count} modules."
        first, *offered = refused.hint.splitlines()
        assert first == "Name one of them, the largest first, or open the folder with tmmu explore:"
        names = [f"  dump/m{k:02}{xla.ASSIGNMENT_ENDING}" for k in range(min(count, xla_folder.LISTED))]
        more = count - xla_folder.LISTED
        assert offered == names + ([f"  and {more} smaller ones"] if more > 0 else [])
    alone = [("graph.json", b"{}"), ("x", b"")]
    assert xla_folder.joined(alone) == alone


def test_what_is_placed_follows_from_offsets_that_rise_with_the_numbers() -> None:
    """Plainly: no second tenant, and in each arena the lowest offsets of the numbers never fall."""
    random = Random("places")
    met = set()
    for _ in range(600):
        n = random.randint(0, 6)
        arena, slot, offset = ([random.randrange(most) for _ in range(n)] for most in (2, 3, 3))
        generation = [int(random.random() < 0.05) for _ in range(n)]
        lowest: dict[tuple[int, int], int] = {}
        for key, at in zip(zip(arena, slot, strict=True), offset, strict=True):
            lowest[key] = min(at, lowest.get(key, at))
        keys = sorted(lowest)
        rises = all(one[0] != other[0] or lowest[one] <= lowest[other] for one, other in pairwise(keys))
        rows = places.Addresses(
            arena,
            np.array(slot, np.int64),
            np.array(generation, np.int64),
            np.array(offset, np.uint64),
            np.zeros(n, np.int64),
        )
        assert places._numbered_by_offset(rows) == (rises and not any(generation))
        met.add((rises, any(generation), n > 3))
    assert len(met) > 6


def life(name: str, birth: int = 0, size: int = 4) -> given.Life:
    return given.Life(name, birth, birth + 1, size, 0)


def test_lives_of_one_name_get_the_first_number_that_is_free() -> None:
    random = Random("apart")
    for _ in range(400):
        names = [random.choice(("a", "b", "a #2", "a #3", "a #2 #2")) for _ in range(random.randint(0, 7))]
        expected: list[str] = []
        for name in names:
            spellings = [name, *(f"{name} #{k}" for k in range(2, 99))]
            expected.append(next(each for each in spellings if each not in expected))
        assert [each.id for each in given.apart(map(life, names))] == expected


def test_lives_stand_by_birth_bytes_and_name_however_they_are_held() -> None:
    random = Random("order")
    for _ in range(300):
        rows = [(random.randint(0, 2), random.randint(1, 2), name) for name in random.sample("abcdefg", 5)]
        rows = rows[: random.randint(0, 5)]
        expected = [name for _, _, name in sorted(rows, key=lambda row: (row[0], -row[1], row[2]))]
        lives = [life(name, birth, size) for birth, size, name in rows]
        assert list(given.instance_of("", lives).problem.ids) == expected
        birth, size = (np.array([row[k] for row in rows], np.int64) for k in (0, 1))
        columns = given.Lives([row[2] for row in rows], birth, birth + 1, size, np.zeros(len(rows), np.int64))
        assert list(given.instance_of_columns("", columns).problem.ids) == expected


def test_a_log_is_text_for_people_and_a_stem_its_name_without_its_end() -> None:
    for data, fine in (
        (b"", True),
        (b"text", True),
        (b"\x00", False),
        (b"x" * 1023 + b"\0", False),
        (b"x" * 1024 + b"\0", True),
        (b"{}", False),
        (b"\xa0", False),
        (b"\x08text", False),
        (b"x\x08", True),
    ):
        assert given.is_log(data) is fine
    stems = {"": "", "a": "a", "a.b": "a", ".b": ".b", "x/a.b.gz": "a", "C:\\x\\a.b.c": "a.b", "a.gz": "a"}
    assert {name: given.stem_of(name) for name in stems} == stems


# --- plans that are read back ------------------------------------------------------------------------------------

KIB = 1024


def older(**arena: Any) -> dict[str, Any]:
    """A file of the first version: b, of 1 KiB, is handed on to c, which lies elsewhere; then b counted no more."""
    tensors = [tensor("a", 1, "input"), tensor("b", KIB // 4, "input"), tensor("c", KIB // 4)]
    tensors.append(tensor("w", 4, "parameter"))
    plan = plan_graph(graph(tensors, [node("n0", "a w", ""), node("n1", "b", "c")], "a b", "c"), planner="naive").plan
    assert (plan.taken, [each.peak_live_bytes for each in plan.arenas]) == ((False,), [2 * KIB, 16])
    document: dict[str, Any] = msgspec.json.decode(files.to_json(plan))
    del document["metrics"]["totals"], document["digests"]
    document["arenas"]["activations"] |= {"peak_live_bytes": KIB + 4, "max_live": 2, "lower_bound_bytes": None} | arena
    return document


def read_back(document: dict[str, Any]) -> Plan:
    return files.from_document(msgspec.json.encode(document), "from")


@pytest.mark.parametrize(
    ("said", "peak", "bound"),
    [
        ({}, 2 * KIB, KIB + 4),
        ({"peak_live_bytes": 7}, 7, KIB + 4),
        ({"max_live": 3}, KIB + 4, KIB + 4),
        ({"extent_bytes": 100}, 2 * KIB, 100),
        ({"lower_bound_bytes": 5}, 2 * KIB, 5),
        ({"lower_bound_bytes": 0}, 2 * KIB, 0),
    ],
)
def test_a_figure_of_the_first_version_is_counted_anew_where_it_was_right_then(
    said: dict[str, int], peak: int, bound: int
) -> None:
    activations, parameters = read_back(older(**said)).arenas
    assert (activations.peak_live_bytes, activations.lower_bound_bytes) == (peak, bound)
    assert activations.max_live == said.get("max_live", 2)
    assert (parameters.peak_live_bytes, parameters.max_live, parameters.lower_bound_bytes) == (16, 1, 16)


def test_what_is_of_today_or_has_no_rows_is_left_as_it_is() -> None:
    today = older()
    today["metrics"]["totals"] = {}
    assert [(a.peak_live_bytes, a.lower_bound_bytes) for a in read_back(today).arenas] == [(KIB + 4, None), (16, 16)]
    empty = older() | {"tensors": [], "handoffs": []}
    assert [(a.peak_live_bytes, a.lower_bound_bytes) for a in read_back(empty).arenas] == [(KIB + 4, None), (16, 16)]
    assert "totals" not in read_back(empty).metrics
    assert "totals" in read_back(older()).metrics


def test_an_arena_is_as_the_file_says_and_counted_where_it_does_not() -> None:
    for said, storages, proven in (
        ({"storages": 0}, 0, None),
        ({"storages": None}, 3, None),
        ({"storages": 7, "proven_bytes": 9}, 7, 9),
        ({"proven_bytes": None}, 3, None),
    ):
        activations = read_back(older(**said)).arenas[0]
        assert (activations.storages, activations.proven_bytes) == (storages, proven)
    for own, found in ((None, False), (True, True), (False, False)):
        assert read_back(older() | {"own_arenas": own}).own_arenas is found
        assert read_back(older() | {"own_arenas": own, "planner": "helia"}).own_arenas is (own is not False)
    document = older()
    with limits.raised({"arenas": 2}):
        read_back(document)
    with limits.raised({"arenas": 1}):
        assert "more than 1 arenas" in refusal(lambda: read_back(document)).message


def test_the_first_value_that_is_out_of_range_is_named() -> None:
    document = older()
    document["tensors"][0]["birth"], document["tensors"][1]["birth"] = 2**63 - 1, 2**63
    refused = refusal(lambda: read_back(document))
    assert (refused.message, refused.place) == (f"{2**63} is not between 0 and {2**63 - 1}.", "$.tensors[1].birth")


def test_what_was_changed_in_a_plan_file_is_noted() -> None:
    def note(*path: Any, value: Any) -> tuple[str, bool]:
        document: Any = msgspec.json.decode(files.to_json(ledger_plan()))
        inner = document
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
        notes = read_back(document).notes
        return notes.get(CHANGED, ""), UNHELD in notes

    rows = "the offsets, sizes or alignments of arena are not those that were written"
    beside = "what is said of the plan beside its rows is not what was written"
    assert note("mode", value=ledger_plan().mode) == ("", False)
    assert note("tensors", 1, "size_bytes", value=7) == (rows, False)
    assert note("preset", value="odd") == (beside, False)
    assert note("digests", value=None) == ("", True)


# --- tables of any tool ------------------------------------------------------------------------------------------


def test_a_table_is_a_list_of_objects_with_a_size_each() -> None:
    for data, columns, message in (
        (b"[" * 300 + b"]" * 300, {}, "this JSON is nested too deeply"),
        (b"id\n", {"size": ""}, "there is no row."),
        (b'[{"size": 1}, 3]', {}, "the JSON holds no list of objects."),
        (b'{"a": 1}', {}, "the JSON holds no list of objects."),
    ):
        refused = refusal(lambda: table.read(data, columns, "from"))  # noqa: B023
        assert refused.message.startswith(message), refused.message
    lives = "the table says no lives: all rows are alive at once"
    for text, noted in (
        (b"size,lower,upper\n1,0,2\n", False),
        (b"size,lower\n1,0\n", True),
        (b"size,upper\n1,2\n", True),
    ):
        assert (lives in table.read(text, {}).notes) is noted


# --- ExecuTorch --------------------------------------------------------------------------------------------------

UNPLACED = {0: flat.Scalar("Uint8", 5), 1: {0: flat.Scalar("Int8", 6), 2: [1]}}


def of_program(*methods: Any, name: str = "p.pte") -> PlainInstance:
    return executorch.read(flat.file(list(methods)), name)


def called(name: str, *values: Any, calls: Any = ()) -> Any:
    return flat.method(name, list(values), [0], [], calls)


def test_the_method_of_the_highest_peak_is_shown_where_any_has_a_place() -> None:
    one = of_program(called("a", flat.tensor(0, (4,))))
    assert (one.name, one.problem.size.tolist()) == ("p", [16])
    assert not any("the method" in note for note in one.notes)
    assert of_program(called("a", flat.tensor(0, (4,))), name="").name == "a"
    both = of_program(called("a", UNPLACED), called("b", flat.tensor(0, (4,))), called("c", flat.tensor(0, (2,))))
    assert both.notes[0] == 'the method "b" is shown; the program holds a, c too'
    refused = refusal(lambda: of_program(called("a", UNPLACED)))
    assert refused.message == "no value of the program has a place: its memory was not planned."


def test_values_without_a_table_or_a_bound_shape_have_no_place() -> None:
    unbound = flat.tensor(64, (4,))
    unbound[1][8] = flat.Scalar("Int8", executorch.UNBOUND)  # type: ignore[index]
    bounded = flat.tensor(64, (4,))
    bounded[1][8] = flat.Scalar("Int8", 1)  # type: ignore[index]
    bounded[1][9] = {1: "mine"}  # type: ignore[index]
    values = [flat.tensor(0, (4,)), {0: flat.Scalar("Uint8", 1)}, unbound, bounded]
    found = executorch.read(flat.program(values, [0, 1, 2, 3], [], []))
    assert found.problem.ids == ("input 0 @0", "mine @3")


def test_memories_are_as_large_as_the_program_says(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [0, 64]
    monkeypatch.setattr(flatbuffer.Table, "long_integers", lambda self, number: sizes if number == 8 else [])
    data = flat.program([flat.tensor(0, (4,)), flat.tensor(0, (2,), 2)], [0, 1], [], [])
    found = executorch.read(data)
    assert found.packing is not None
    assert found.packing.offset.tolist() == [0, 64]
    assert found.notes[0] == "the program asks for 64 bytes (memory 1: 64 bytes)"
    sizes[1] = LAST_BYTE - 8
    assert executorch.read(data).packing is not None
    sizes[1] = LAST_BYTE - 7
    refused = refusal(lambda: executorch.read(data, "from"))
    assert refused.message == f"the program is cut off or damaged: its memories are {LAST_BYTE + 1} bytes."
    assert (refused.source, refused.hint) == ("from", executorch.HINT)


def test_an_operator_is_one_of_those_there_are() -> None:
    values = [flat.tensor(0, (4,)), flat.tensor(16, (4,))]
    for index, fine in ((0, True), (1, False), (-1, False)):
        data = flat.program(values, [0], [1], [("aten::neg.out", [0, 1]), (index, [0, 1])])
        if fine:
            executorch.read(data)
        else:
            refused = refusal(lambda: executorch.read(data))  # noqa: B023
            assert refused.message.endswith(f"instruction 1 calls operator {index} of 1.")


def test_only_a_jump_back_is_a_loop() -> None:
    values = [flat.tensor(0, (4,)), flat.tensor(16, (4,))]
    for target, loops in ((0, True), (1, True), (2, False), (3, False), (-1, False)):
        data = flat.program(values, [0], [1], [("aten::neg.out", [0, 1]), target])
        with limits.raised({"values": 1}):
            if loops:
                assert "each over all its values" in refusal(lambda: executorch.read(data)).message  # noqa: B023
            else:
                executorch.read(data)


def test_lists_that_are_named_again_and_again_are_counted() -> None:
    listed = {0: flat.Scalar("Uint8", 10), 1: {0: [0, 0, 0]}}
    data = flat.program([flat.tensor(0, (4,)), listed], [0], [], [("a", [1, 0]), ("a", [1, 0])])
    with limits.raised({"values": 6}):
        executorch.read(data)
    with limits.raised({"values": 5}):
        assert "that its instructions name" in refusal(lambda: executorch.read(data)).message


def test_a_life_is_called_by_eight_names_at_most() -> None:
    """A value and nine views of it, which nobody writes."""
    values = [flat.tensor(0, (4,)) for _ in range(11)]
    calls = [("a", [k, 10]) for k in range(1, 10)]
    values[10] = flat.tensor(64, (4,))
    found = executorch.read(flat.program(values, [0], [], calls))
    assert found.problem.ids[0] == "+".join(["input 0", *(f"#{k}" for k in range(1, 8))]) + " @0"


# --- what is recognised ------------------------------------------------------------------------------------------


def test_a_trace_is_known_by_its_first_bytes_or_line() -> None:
    word = "allocation_header"
    for end in (4095, 4096, 4097):
        blanks = "x" * (end - len(cbor2.dumps({"a": "x" * 3000, "record": word})) + 3000)
        data = cbor2.dumps({"a": blanks, "record": word})
        assert data.index(word.encode()) + len(word) == end
        assert (sniff.not_trace(data) == "") == (end <= 4096)
    assert sniff.not_trace(b'{"a\n{"record": "allocation_header"}\n') == 'its first record is no "allocation_header"'
    assert sniff.not_executorch_trace(b"") == "the file is empty"
    assert sniff.not_executorch_trace(b"[]") == "it does not begin like a JSON object"
