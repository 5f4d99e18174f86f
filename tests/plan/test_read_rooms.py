"""What is recognised, tables of any tool, and plans that are read back: each room beside a table by eye."""

from __future__ import annotations

from random import Random
from typing import Any

import cbor2
import msgspec
import numpy as np
import pytest

from tests.plan.examples import chain_plan, views_graph
from tmmu_core import limits
from tmmu_core.errors import U64_MAX, UnreadableInput
from tmmu_core.plan.formats import building, files, given, reading, sniff, table, trace, xla_report
from tmmu_core.plan.making.engine import plan_graph

# --- what is recognised ------------------------------------------------------------------------------------------

NEITHER = "it begins neither like a JSON object nor like a CBOR map"
EMPTY = "the file is empty"
NO_HEADER = 'its first record is no "allocation_header"'
NO_PLAN = 'its "schema" is not "tmmu_plan/1"'
HEADER = trace.to_json_lines(chain_plan(1)).partition(b"\n")[0] + b"\n"
RECORDS = trace.to_cbor_sequence(chain_plan(1))
PLAN, PACKED = files.to_json(chain_plan(1)), files.to_cbor(chain_plan(1))


@pytest.mark.parametrize(
    ("known", "data", "why"),
    [
        (sniff.not_trace, b"", EMPTY),
        (sniff.not_trace, b"text", NEITHER),
        (sniff.not_trace, HEADER, ""),
        (sniff.not_trace, HEADER.rstrip(), ""),
        (sniff.not_trace, RECORDS, ""),
        (sniff.not_trace, b'{"record": "tensor"}\n' + HEADER, NO_HEADER),
        (sniff.not_trace, b'{"record": "tensor", "name": "allocation_header"}\n', NO_HEADER),
        (sniff.not_trace, b'{"a": 1}', NO_HEADER),
        (sniff.not_trace, b'{"record": "allocation_header", "x', ""),
        (sniff.not_trace, b'{"x": "' + b"y" * 300 + b'", "record": "allocation_header", "x', NO_HEADER),
        (sniff.not_trace, RECORDS[:200], ""),
        (sniff.not_trace, cbor2.dumps({"a": "allocation_header"}), NO_HEADER),
        (sniff.not_trace, cbor2.dumps({"a": "x" * 4090, "record": "allocation_header"}), NO_HEADER),
        (sniff.not_plan, b"", EMPTY),
        (sniff.not_plan, b"text", NEITHER),
        (sniff.not_plan, PLAN, ""),
        (sniff.not_plan, PACKED, ""),
        (sniff.not_plan, b'{"a": 1}', NO_PLAN),
        (sniff.not_plan, b'{"a": "tmmu_plan/1"}', NO_PLAN),
        (sniff.not_plan, b'{"schema": "tmmu_plan/1", "x', ""),
        (sniff.not_plan, b'{"x": "' + b"y" * 300 + b'", "schema": "tmmu_plan/1", "x', NO_PLAN),
        (sniff.not_checkpoint, b"", EMPTY),
        (sniff.not_checkpoint, PLAN, "it does not begin like a CBOR map"),
        (sniff.not_checkpoint, PACKED, 'its "schema" is not "tmmu_checkpoint/1"'),
        (sniff.not_checkpoint, cbor2.dumps({"schema": "tmmu_checkpoint/1"}), ""),
        (sniff.not_checkpoint, cbor2.dumps({"a": "tmmu_checkpoint/1"}), 'its "schema" is not "tmmu_checkpoint/1"'),
        (sniff.not_parquet, b"PAR1", ""),
        (sniff.not_parquet, b"PAR2", "it does not begin with PAR1"),
        (sniff.not_instance, b"", EMPTY),
        (sniff.not_instance, b"{}", "it begins like a JSON object or a CBOR map"),
        (sniff.not_instance, b"id,lower,upper,size\n", ""),
        (sniff.not_instance, b'\r\n "Lower" ,SIZE', ""),
        (sniff.not_instance, b"\xef\xbb\xbfsize,id", ""),
        (sniff.not_instance, b"size,x\n", "its first line does not name the columns"),
        (sniff.not_instance, b"id;lower;upper;size\n", "its first line parts the columns by semicolons, not by commas"),
        (sniff.not_instance, b"id\tsize\n", "its first line parts the columns by tabs, not by commas"),
        (sniff.not_instance, b"\xff,size,id", "it is not text"),
        (sniff.not_instance, b"tensor_id,arena,logical_slot,offset_bytes", "it holds the rows of a plan without"),
        (sniff.not_instance, b"x" * 4088 + b",id,size\n", ""),
        (sniff.not_instance, b"x" * 4089 + b",id,size\n", "its first line does not name the columns"),
        (sniff.not_executorch, b"", EMPTY),
        (sniff.not_executorch, b"1234ET1", "it is too short"),
        (sniff.not_executorch, b"1234ET12", ""),
        (sniff.not_executorch, b"1234ETx2", "bytes 4 to 8 are not ET12"),
        (sniff.not_executorch, b"1234EX12", "bytes 4 to 8 are not ET12"),
        (sniff.not_torch_snapshot, b"", EMPTY),
        (sniff.not_torch_snapshot, b"text", "it begins neither like a pickle nor like a JSON object"),
        (sniff.not_torch_snapshot, b"\x80\x04segments", ""),
        (sniff.not_torch_snapshot, b"\x80\x04device_traces", ""),
        (sniff.not_torch_snapshot, b"\x80\x04total_size blocks", ""),
        (sniff.not_torch_snapshot, b"\x80\x04total_size", "the pickle has no segments"),
        (sniff.not_torch_snapshot, b"\x80\x04blocks", "the pickle has no segments"),
        (sniff.not_torch_snapshot, b' [{"total_size": 1, "blocks": []}]', ""),
        (
            sniff.not_torch_snapshot,
            b'[{"total_size": 1}]',
            NEITHER.replace("a JSON object nor like a CBOR map", "a pickle"),
        ),
        (sniff.not_torch_snapshot, b'[{"blocks": 1}]', "it begins neither like a pickle"),
        (sniff.not_torch_snapshot, b'{"device_traces": []}', ""),
        (sniff.not_torch_snapshot, b'{"segments": [{"blocks": 1}]}', ""),
        (sniff.not_torch_snapshot, b'{"segments": []}', 'it has no "segments" with blocks'),
        (sniff.not_torch_snapshot, b'{"blocks": []}', 'it has no "segments" with blocks'),
    ],
)
def test_what_a_file_is_not_is_said_and_why(known: Any, data: bytes, why: str) -> None:
    found = known(data)
    assert found.startswith(why)
    assert bool(found) == bool(why)


# --- tables ------------------------------------------------------------------------------------------------------


def refusal(ask: Any) -> UnreadableInput:
    with pytest.raises(UnreadableInput) as caught:
        ask()
    return caught.value


@pytest.mark.parametrize(
    ("text", "unit", "number"),
    [
        ("7", "", "7"),
        ("7", "k", "7168"),
        ("1,048,576", "", "1048576"),
        ("1 000", "", "1000"),
        ("1_000", "m", str(1000 << 20)),
        ("12,34", "", "12,34"),
        ("64.0", "", "64"),
        ("64.5", "", "64.5"),
        ("1.5 MiB", "", str(3 << 19)),
        ("1.5 MiB", "k", "1.5 MiB"),
        ("2kb", "", "2048"),
        ("2 GB", "", str(2 << 30)),
        ("2TiB", "", str(2 << 40)),
        ("3 b", "", "3"),
        ("3 bytes", "", "3"),
        ("0.3k", "", "0.3k"),
        ("0.5", "k", "512"),
        ("x", "k", "x"),
        ("", "", ""),
        ("-1", "", "-1"),
    ],
)
def test_a_number_is_read_as_people_write_it(text: str, unit: str, number: str) -> None:
    assert table._plain(text, unit) == number


def test_a_columns_name_may_end_with_its_unit() -> None:
    said = {
        "Size (KiB)": "k",
        "size_mb": "m",
        "GB": "g",
        " bytes[MiB] ": "m",
        "a/kb": "k",
        "skb": "",
        "kb x": "",
        "": "",
    }
    assert {column: table.unit_of(column) for column in said} == said


def test_a_cell_is_text_hexadecimal_or_said_by_default() -> None:
    named = {"id": "N", "lower": "A", "upper": "B", "size": "S", "alias": "X"}
    row = {"N": None, "S": " 0X1F ", "X": 5}
    assert table._fields(row, named, {"N", "S", "X"}, 4) == {
        "id": "",
        "lower": "0",
        "upper": "1",
        "size": "31",
        "alias": "5",
    }
    assert table._fields({}, named, set(), 0) == {"id": "row 1", "lower": "0", "upper": "1", "size": "", "alias": ""}
    hexes = {"0x": False, "0x0": True, "0x" + "f" * 38: True, "0x" + "f" * 39: False, "0xG": False, "0xAb": True}
    assert {text: table._is_hex(text) for text in hexes} == hexes
    for text, read in (("0x10", "16"), ("0x", "0x"), ("1e", "1e"), ("0xg", "0xg")):
        assert table._fields({"S": text}, {"size": "S"}, {"S"}, 0) == {"size": read}
    decimals = {"1,5": "1.5", "12,345 KiB": "12.345 KiB", "1,5,6": "1,5,6", "x,5": "x,5"}
    assert {text: table._decimal(text, ";") for text in decimals} == decimals
    assert [table._decimal(value, delimiter) for value, delimiter in (("1,5", ","), (None, ";"), (7, ";"))] == [
        "1,5",
        None,
        7,
    ]


def test_rows_of_one_alias_live_from_the_first_to_the_last() -> None:
    def cell(alias: str, lower: int, upper: int, size: int) -> dict[str, str]:
        return {"alias": alias, "lower": str(lower), "upper": str(upper), "size": str(size)}

    random = Random(3)
    for _ in range(100):
        drawn = [
            (random.choice(("", "", "a", "b")), random.randint(0, 12), random.randint(0, 12), random.randint(0, 12))
            for _ in range(random.randint(0, 6))
        ]
        expected: list[dict[str, str]] = []
        for k, (alias, *_) in enumerate(drawn):
            same = [other for other in drawn if other[0] == alias] if alias else [drawn[k]]
            if not alias or all(other[0] != alias for other in drawn[:k]):
                expected.append(cell(alias, min(x[1] for x in same), max(x[2] for x in same), max(x[3] for x in same)))
        assert table._merged([cell(*each) for each in drawn], "") == expected
    bad = [cell("a" * 99, 1, 2, 3), {**cell("a" * 99, 1, 2, 3), "size": "x"}]
    said = refusal(lambda: table._merged(bad, "from"))
    assert (said.message, said.source) == (f'the rows of the alias "{"a" * 80}" hold what is no whole number.', "from")


def test_rows_are_objects_or_lines_parted_by_what_is_there_most(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(text: str) -> list[dict[str, Any]]:
        return list(table._rows(text.encode(), "from"))

    for sep in ",;\t|":
        assert rows(f"a{sep}b{sep}c\n1{sep}2{sep}3\n") == [{"a": "1", "b": "2", "c": "3"}]
    assert rows(" a ;b,b;c\n1,5;2;3\n") == [{"a": "1.5", "b,b": "2", "c": "3"}]
    assert rows("\ufeff a,b\n1,2,3\n") == [{"a": "1", "b": "2"}]
    assert rows(' {"x": 1, "y": [], "z": [{"a": 1}]}') == []
    assert rows(' [{"a": 1}, {"b": 2}]') == [{"a": 1}, {"b": 2}]
    for bad in ('{"x": 1}', "[1]", '[{"a": 1}, 2]', "{}"):
        assert "the JSON holds no list of objects." in str(refusal(lambda: rows(bad)))  # noqa: B023
    assert "the table is not JSON" in str(refusal(lambda: rows("[1")))
    assert "no CSV" in str(refusal(lambda: rows('a,b\n"1,2')))
    assert refusal(lambda: list(table._rows(b"ab\xff", ""))).place == "byte 2"
    monkeypatch.setattr(table, "MOST_ROWS", 2)
    assert len(rows("a,b\n1,2\n3,4\n")) == 2
    assert "more than 2 rows" in str(refusal(lambda: rows("a,b\n1,2\n3,4\n5,6\n")))


def test_columns_are_named_where_all_of_two_or_more_can_be_seen() -> None:
    cases: dict[bytes, tuple[str, ...]] = {
        b"a,b\n1,2\n": ("a", "b"),
        b"a\n1\n": (),
        b"a,\n1,2\n": (),
        b"a,b\x07,c\n1,2,3\n": (),
        b"a,b\n": (),
        b'{"tensors": [{"a": 1, "b": 2}]}': (),
        b'{"rows": [{"a": 1, "b": 2}]}': ("a", "b"),
        b' {"rows": [{"a": 1}]}': (),
        b"[" * 9000: (),
        b"\xff": (),
    }
    assert {data: table.columns_of(data) for data in cases} == cases


def test_a_table_tells_what_it_was_read_as() -> None:
    text = b"name,size_kb,alias,at\na,1,s,0\nb,2,s,4\nc,3,,8\n"
    found = table.read(text, {"id": "name", "size": "size_kb", "offset": "at"}, "C:\\logs/my.csv.gz")
    assert (found.name, found.problem.size.tolist()) == ("my", [3072, 2048])
    assert found.packing is not None
    assert sorted(found.packing.offset.tolist()) == [0, 8]
    assert list(found.notes)[-3:] == [
        '"size_kb" is read as KiB, by its name',
        "1 rows are the same bytes as others, by their alias",
        "the table says no lives: all rows are alive at once",
    ]
    names = {"": "table", "x": "x", "a/.b": ".b", "a.b.csv": "a.b"}
    assert {name: table.read(b"size,id\n1,a\n", {}, name).name for name in names} == names
    lives = table.read(b"size,lower,upper\n1,0,2\n", {})
    assert not any("says no lives" in note for note in lives.notes)
    for text, columns, why in (
        (b"size\n1\n", {"sizes": "size"}, 'there is no field "sizes"'),
        (b"b,a\n1,2\n", {}, 'the table has no column "size": it has a, b.'),
        (b"size,a\n1,2\n", {"id": "name"}, 'the table has no column "name": it has a, size.'),
        (b"size,a\n", {}, "there is no row."),
    ):
        assert refusal(lambda: table.read(text, columns)).message.startswith(why)  # noqa: B023
    assert any("says no lives" in note for note in table.read(b"size,lower\n1,0\n", {}).notes)


# --- plans that are read back ------------------------------------------------------------------------------------


def document_of(**changes: Any) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(files.to_json(plan_graph(views_graph()).plan))
    return document | changes


def read(document: dict[str, Any]) -> Any:
    return files.from_document(msgspec.json.encode(document), "from")


@pytest.mark.parametrize(
    "field", ["logical_slot", "generation", "offset_bytes", "size_bytes", "alignment", "birth", "death"]
)
def test_a_column_is_of_63_or_64_bits(field: str) -> None:
    most = U64_MAX if field in ("offset_bytes", "size_bytes", "alignment") else 2**63 - 1
    for value, fine in ((0, True), (most, True), (most + 1, False), (-1, False)):
        document = document_of()
        document["tensors"].reverse()
        document["tensors"][1][field] = value
        if fine:
            read(document)
            continue
        if value > U64_MAX:  # no integer of the document's at all
            refusal(lambda: read(document))  # noqa: B023
            continue
        said = refusal(lambda: read(document))  # noqa: B023
        assert said.message == f"{value} is not between 0 and {most}."
        assert (said.place, said.source) == (f"$.tensors[1].{field}", "from")


@pytest.mark.parametrize("field", ["rank", "world_size", "steps"])
def test_a_number_of_the_head_is_within_its_bits(field: str) -> None:
    most = 2**63 - 1 if field == "steps" else U64_MAX
    for value in (0, most):
        assert getattr(read(document_of(**{field: value})), field) == value
    assert building._within(most, field, "", most) == most
    limit = "2^63 − 1" if field == "steps" else "2^64 − 1"
    for value in (-1, most + 1):
        said = refusal(lambda: building._within(value, field, "from", most))  # noqa: B023
        assert (said.message, said.place) == (f"{value} is not between 0 and {limit}.", f"$.{field}")


def test_what_a_plan_file_says_of_itself_is_held_to_what_it_has() -> None:
    for changes, why, place in (
        ({"schema": "tmmu_plan/9"}, 'the schema "tmmu_plan/9" is not known.', "$.schema"),
        ({"places": "odd"}, 'what it places, "odd", is not known.', "$.places"),
        ({"ir_hash": "zz" * 99}, f"ir_hash is {('zz' * 40)!r}, not 64", "$.ir_hash"),
        ({"layout_hash": "00" * 31}, "layout_hash is", "$.layout_hash"),
    ):
        said = refusal(lambda: read(document_of(**changes)))  # noqa: B023
        assert said.message.startswith(why)
        assert said.place == place
    document = document_of()
    document["tensors"].append(document["tensors"][0])
    said = refusal(lambda: read(document))
    assert said.place == f"$.tensors[{len(document['tensors']) - 1}].tensor_id"
    document = document_of()
    document["tensors"][2]["arena"] = "odd"
    said = refusal(lambda: read(document))
    assert (said.place, said.hint) == ("$.tensors[2].arena", "Its arenas are: activations, parameters.")
    with limits.raised({"arenas": 2}):
        read(document_of())
    with limits.raised({"arenas": 1}):
        assert "--max-arenas N" in refusal(lambda: read(document_of())).hint


def test_storages_are_numbered_by_arena_slot_and_generation() -> None:
    random = Random(1)
    for _ in range(100):
        n = random.randint(0, 8)
        keys = [tuple(random.randint(0, 2) for _ in range(3)) for _ in range(n)]
        columns = [np.array([key[k] for key in keys], np.int64) for k in range(3)]
        order = sorted(set(keys))
        assert building.storage_numbers(*columns).tolist() == [order.index(key) for key in keys]


def test_what_an_older_file_leaves_out_is_worked_out() -> None:
    plan = chain_plan(2)
    document = msgspec.json.decode(files.to_json(plan))
    for hands, kept in (((True, True), (True, True)), ((True, False), (True, False)), ((None, True), None)):
        document["handoffs"] = [
            {**each, "taken": taken} for each, taken in zip(document["handoffs"], hands, strict=True)
        ]
        assert building._taken(msgspec.convert(document, building.HeadDocument)) == (kept or ())
    order = document["execution_order"]
    for steps, nodes, begins in (
        (len(order) + 1, order, True),
        (len(order), order, False),
        (1, [], False),
        (0, [], False),
    ):
        head = msgspec.convert(
            {**document, "steps": steps, "execution_order": nodes, "has_inputs_step": None}, building.HeadDocument
        )
        assert building._has_inputs_step(head) is begins
        for said in (True, False):
            assert building._has_inputs_step(msgspec.structs.replace(head, has_inputs_step=said)) is said
    views = plan_graph(views_graph()).plan
    whole = document_of()
    for gone in (["activations"], ["parameters"], ["activations", "parameters"]):
        older = document_of()
        for name in gone:
            del older["arenas"][name]["storages"]
        assert [arena.storages for arena in read(older).arenas] == [arena.storages for arena in views.arenas]
    assert [arena.storages for arena in read(whole).arenas] == [arena.storages for arena in views.arenas]


def test_bytes_of_no_format_are_no_graph_at_any_size() -> None:
    with pytest.raises(UnreadableInput):
        reading.read_within(b"nothing", {})


@pytest.mark.parametrize(
    ("rows", "fine"),
    [
        ((), True),
        (((given.LAST_BYTE, 0),), True),
        (((given.LAST_BYTE - 1, 1), (0, 1)), True),
        (((0, 1), (given.LAST_BYTE, 1)), False),
        (((given.LAST_BYTE, 1), (0, 1)), False),
        (((0, given.LAST_BYTE - 1), (0, 1)), True),
        (((0, given.LAST_BYTE), (0, 1)), False),
    ],
)
def test_lives_that_are_columns_end_before_the_last_byte_one_by_one_and_together(rows: Any, fine: bool) -> None:
    columns = [np.array([row[k] for row in rows], np.int64) for k in (0, 1)]
    ones = np.ones(len(rows), np.int64)
    lives = given.Lives([f"v{k}" for k in range(len(rows))], 0 * ones, ones, columns[1], columns[0])
    if fine:
        assert len(given.instance_of_columns("it", lives).problem.ids) == len(rows)
    else:
        assert "all lives together are more" in str(refusal(lambda: given.instance_of_columns("it", lives)))


def test_a_rounded_size_is_of_its_unit() -> None:
    units = {"KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}
    assert {unit: xla_report._size("1.5", unit, "") for unit in units} == {
        unit: (3 << power >> 1, False) for unit, power in units.items()
    }
    assert xla_report._size("7", "B", "") == (7, True)
