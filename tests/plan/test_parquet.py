"""A Parquet plan is read in a process of its own: whatever it does there, what asked for it goes on, and says why."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.plan.examples import chain_plan
from tmmu_core import child, limits
from tmmu_core.errors import UnreadableInput
from tmmu_core.plan.formats import parquet, parquet_child
from tmmu_core.plan.formats.documents import RowDocument

DATA = Path(__file__).resolve().parents[1] / "data" / "fuzz"


def refusal(data: bytes) -> UnreadableInput:
    with pytest.raises(UnreadableInput) as caught:
        parquet.from_parquet(data, "it.parquet")
    assert caught.value.source == "it.parquet"
    return caught.value


def stored(table: Any, **how: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **how)
    return sink.getvalue()


def rows_of(plan: Any) -> Any:
    return pq.read_table(io.BytesIO(parquet.to_parquet(plan)))


@pytest.mark.parametrize("name", ["histogram", "histogram_of_levels"])
def test_a_file_that_ends_its_reader_is_refused_and_nothing_else_ends(name: str) -> None:
    data = (DATA / f"{name}.parquet").read_bytes()
    asked = ["60", str(1 << 30), str(1 << 20), str(1 << 28)]
    alone = child.answer_of(parquet_child.__name__, asked, data, 60)
    assert (alone.returncode < 0, alone.stdout) == (True, b"")  # else this file shows nothing any more
    said = refusal(data)
    assert "level histogram size mismatch" in said.message
    assert said.hint.startswith("Copy the file again")


def padded(number: int, length: int) -> bytes:
    """A Thrift whole number, written longer than it need be."""
    number <<= 1
    return bytes([number >> 7 * k & 127 | (128 if k + 1 < length else 0) for k in range(length)])


def test_a_page_that_says_it_is_small_takes_no_more_than_the_limit() -> None:
    """What a column comes to is what its file says; the page itself may come to more than all memory."""
    size = 1 << 27
    table = pa.table({"tensor_id": pa.array(["a" * size], pa.large_string())})
    how = {"compression": "zstd", "use_dictionary": False, "write_statistics": False}
    data = stored(table.replace_schema_metadata({parquet_child.HEAD_KEY: b"{}"}), **how)
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    (column,) = [pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0).column(0)]
    real = column.total_uncompressed_size
    says = next(padded(real, n) for n in (4, 5) if padded(real, n) in data[footer:])
    lies = data[:footer] + data[footer:].replace(says, padded(1000, len(says)))
    assert pq.ParquetFile(io.BytesIO(lies)).metadata.row_group(0).column(0).total_uncompressed_size == 1000
    with limits.raised({"read-bytes": size // 2}):
        said = refusal(lies)
    assert "this parquet file: more than 67108864 bytes of address space" in said.message
    assert "--max-read-bytes N" in said.hint
    assert "is not a plan" in refusal(lies).message  # with room for it, it is what it is


def test_a_row_that_is_none_is_named_by_its_number_in_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_child, "AT_A_TIME", 2)
    table = rows_of(chain_plan(6))
    assert table.num_rows > 5
    for bad in range(6):
        names = [None if k == bad else name for k, name in enumerate(table["tensor_id"].to_pylist())]
        data = stored(table.set_column(0, "tensor_id", pa.array(names, pa.string())))
        found = parquet_child.answer(data, 10**6, 10**6)
        assert (found.word, found.rows) == ("no plan", [])
        assert found.why.endswith(f"at `$[{bad}].tensor_id`")
    whole = parquet_child.answer(stored(table), 10**6, 10**6)
    assert whole.rows == msgspec.convert(table.to_pylist(), list[RowDocument])


def test_a_row_that_is_none_is_said_of_the_file() -> None:
    table = rows_of(chain_plan(2)).drop_columns(["arena"])
    assert refusal(stored(table)).message == (
        "this parquet file is not a plan: Object missing required field `arena` - at `$[0]`."
    )


def test_what_is_no_parquet_inside_is_refused_in_its_readers_words() -> None:
    assert re.match("this parquet file cannot be read: .*footer", refusal(b"PAR1" * 4).message)


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        ((-6, b"", b"terminate called\n  what():  the end\nmore"), "cannot be read: the end"),
        ((-6, b"", b"  what():  \x1b[31m" + b"x" * 300), "cannot be read: \\x1b[31m" + "x" * 195),
        ((-11, b"", b""), "cannot be read: its reader, pyarrow, ended with signal 11"),
        ((1, b"", b"Traceback: what"), "cannot be read: its reader, pyarrow, ended with code 1"),
        ((0, b"\x00", b""), "cannot be read: its reader, pyarrow, ended with code 0"),
        ((-24, b"", b"what(): x"), ": more than 60 seconds of processor time"),
        ((-9, b"", b""), ": more than 60 seconds of processor time"),
    ],
)
def test_how_a_reader_ended_is_said(
    monkeypatch: pytest.MonkeyPatch, ended: tuple[int, bytes, bytes], said: str
) -> None:
    asked = []

    def answer_of(module: str, arguments: list[str], data: bytes, *_: object) -> subprocess.CompletedProcess[bytes]:
        asked.append((module, arguments, data))
        return subprocess.CompletedProcess([], *ended)

    monkeypatch.setattr(parquet, "answer_of", answer_of)
    message = refusal(b"data" * (1 << 23)).message
    assert message.startswith("this parquet file")
    assert said in message
    assert not said.endswith("x") or message.endswith("x" * 195)
    memory, values = 32 * 4 << 23, 2 * 4 << 23
    assert asked == [
        ("tmmu_core.plan.formats.parquet_child", ["60", str(memory), str(values), str(1 << 28)], b"data" * (1 << 23))
    ]


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (subprocess.TimeoutExpired([], 1), "more than 7 seconds of processor time"),
        (OSError("no room"), "cannot be read: no process could be started (no room)"),
    ],
)
def test_a_reader_that_does_not_come_or_end_is_said(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, said: str
) -> None:
    waits = []

    def answer_of(_: str, _a: list[str], _d: bytes, wait: float, *_rest: object) -> None:
        waits.append(wait)
        raise raised

    monkeypatch.setattr(parquet, "answer_of", answer_of)
    with limits.raised({"read-seconds": 7}):
        assert said in refusal(b"PAR1").message
    assert waits == [32]


@pytest.mark.parametrize(
    ("word", "limit"), [("values", "values"), ("unpacked", "unpacked-bytes"), ("memory", "read-bytes")]
)
def test_what_is_past_a_limit_names_it(monkeypatch: pytest.MonkeyPatch, word: Any, limit: str) -> None:
    answer = msgspec.msgpack.encode(parquet_child.Answer(word))
    monkeypatch.setattr(parquet, "answer_of", lambda *_: subprocess.CompletedProcess([], 0, answer, b""))
    assert f"--max-{limit} N" in refusal(b"PAR1").hint


# --- a process of its own ----------------------------------------------------------------------------------------


def test_a_child_is_given_bytes_and_bounds_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import resource, sys; from tmmu_core import child\n"
        "before = child.address_space(); child.bound(50, before + 2**28)\n"
        "print(resource.getrlimit(resource.RLIMIT_CPU), resource.getrlimit(resource.RLIMIT_CORE)[0])\n"
        "print(resource.getrlimit(resource.RLIMIT_AS) == (before + 2**28,) * 2 and before > 2**22)\n"
        "child.bound(60, 2**60); print(resource.getrlimit(resource.RLIMIT_CPU)[0])\n"
        "try: bytearray(2**29)\n"
        "except MemoryError: print('no room')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == ["(50, 50) 0", "True", "50", "no room", ""]
    monkeypatch.setitem(sys.modules, "resource", None)
    child.bound(0, 0)  # nothing happens


@pytest.mark.parametrize("text", ["", "x 1"])
def test_a_system_that_does_not_say_how_much_is_held(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(Path, "read_text", lambda _: text)
    assert child.address_space() == 0
