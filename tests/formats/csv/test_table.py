"""Tables of other tools: columns under other names, and missing columns."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.cli.main import run
from tmmu_core.base.errors import TmmuError, UnreadableInput
from tmmu_core.formats.csv.instance_csv import columns_of, read_table
from tmmu_core.planners.problem import PlainInstance

ROWS = [
    {"Name": "a", "From": 0, "To": 2, "Bytes": 8, "At": "0x0"},
    {"Name": "b", "From": 1, "To": 3, "Bytes": 4, "At": "0x8"},
]
COLUMNS = {"id": "Name", "lower": "From", "upper": "To", "size": "Bytes", "offset": "At"}
TEXT = "Name,From,To,Bytes,At\na,0,2,8,0x0\nb,1,3,4,0x8\n"


def rows(found: PlainInstance) -> list[tuple[str, int, int, int]]:
    p = found.problem
    return [(p.ids[i], int(p.birth[i]), int(p.death[i]), int(p.size[i])) for i in range(len(p))]


@pytest.mark.parametrize(
    "data", [TEXT, TEXT.replace(",", ";"), TEXT.replace(",", "\t"), json.dumps(ROWS), json.dumps({"rows": ROWS})]
)
def test_columns_of_any_name_are_read(data: str) -> None:
    found = read_table(data.encode(), COLUMNS)
    assert rows(found) == [("a", 0, 2, 8), ("b", 1, 3, 4)]
    assert found.packing is not None
    assert found.packing.offset.tolist() == [0, 8]


def test_missing_columns_have_defaults() -> None:
    found = read_table(b"bytes\n8\n4\n", {"size": "bytes"})
    assert rows(found) == [("row 1", 0, 1, 8), ("row 2", 0, 1, 4)]
    assert found.packing is None
    assert "live at once" in found.notes[0]


@pytest.mark.parametrize("field", ["lower", "upper"])
def test_live_ranges_need_two_columns(field: str) -> None:
    with pytest.raises(UnreadableInput, match="the table has no column"):
        read_table(b"bytes,step\n8,0\n4,1\n", {"size": "bytes", field: "step"})


def test_rows_of_one_alias_are_one_life() -> None:
    found = read_table(b"id,lower,upper,size,alias\na,0,2,8,0x10\nv,1,5,4,0x10\nb,0,1,2,\n0xb,0,1,1,16\n", {})
    assert rows(found) == [("a", 0, 5, 8), ("b", 0, 1, 2), ("0xb", 0, 1, 1)]


@given(st.binary(max_size=80) | st.text(alphabet='size,id\n0x19;{}[]":', max_size=60).map(str.encode))
def test_any_bytes_are_read_or_rejected(data: bytes) -> None:
    with contextlib.suppress(TmmuError):
        read_table(data, {})


def test_convert_writes_an_instance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    existing, out = tmp_path / "table.csv", tmp_path / "instance.csv"
    existing.write_text(TEXT)
    columns = ",".join(f"{field}={own}" for field, own in COLUMNS.items())
    assert run(["convert", str(existing), "--columns", columns, "-o", str(out)]) == 0
    assert out.read_text() == "id,lower,upper,size,offset\na,0,2,8,0\nb,1,3,4,8\n"
    assert run(["plan", str(out)]) == 0
    assert "given" in capsys.readouterr().out


def test_columns_of_a_table_are_listed() -> None:
    for data in (TEXT, TEXT.replace(",", ";"), json.dumps(ROWS), json.dumps({"rows": ROWS})):
        assert columns_of(data.encode()) == ("Name", "From", "To", "Bytes", "At")
    for other in (b"", b"one\n1\n", b"\xff\xfe", b'{"ir_schema": "x", "tensors": [{"id": "a", "shape": [1]}]}', b"[1]"):
        assert columns_of(other) == ()


NAMES = {"id": "name", "lower": "from", "upper": "to"}


@pytest.mark.parametrize(
    ("head", "cells", "sizes"),
    [
        ("size", ["64", "0x40", "64.0"], [64, 64, 64]),
        ("size", ["1_024", "1 024", "1\u00a0024"], [1024, 1024, 1024]),
        ("size", ['"1,024"', '"1,048,576"', "2048 B"], [1024, 1048576, 2048]),
        ("size", ["1.5 MiB", "64kb", "1 GiB"], [1572864, 65536, 1 << 30]),
        ("Size (KiB)", ["1", "1.5", "0x10"], [1024, 1536, 16384]),
        ("size_mb", ["1", "0.25", "0"], [1 << 20, 1 << 18, 0]),
    ],
)
def test_sizes_are_read_with_units(head: str, cells: list[str], sizes: list[int]) -> None:
    lines = [f"name,from,to,{head}", *(f"r{k},0,{k + 1},{cell}" for k, cell in enumerate(cells))]
    found = read_table("\n".join(lines).encode(), {**NAMES, "size": head})
    assert [int(found.problem.size[found.problem.ids.index(f"r{k}")]) for k in range(3)] == sizes
    assert bool(found.notes) == (head != "size")


@pytest.mark.parametrize("cell", ["1.5", "-4", "10h", "1,02", "1,5", "64 XB", "1.5.2", "", "nan", "1e3", "٣.٥"])
def test_size_that_is_no_whole_number_is_rejected_at_its_place(cell: str) -> None:
    with pytest.raises(UnreadableInput, match="not a whole number") as caught:
        read_table(f"name|from|to|B|alias\na|0|1|1|s\n\nb|0|1|1|s\nc|0|1|{cell}|\n".encode(), {**NAMES, "size": "B"})
    assert "(at line 5, column B)." in str(caught.value)


def test_number_of_cells_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMMU_MAX_VALUES", "8")
    with pytest.raises(UnreadableInput, match="more than 8 values"):
        read_table(TEXT.encode(), COLUMNS)
