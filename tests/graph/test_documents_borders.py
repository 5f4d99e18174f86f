"""Files as bytes at their borders: what kind they are, what is too much, what is cut, and where a fault is told."""

from __future__ import annotations

import gzip
import io
import os
import threading
import zlib
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import cbor2
import pytest

from tmmu_core import limits
from tmmu_core.errors import InvalidIrShapes, UnreadableInput
from tmmu_core.graph import document, sidecar, unpacking
from tmmu_core.graph.constants import Constants
from tmmu_core.graph.model import Graph, Tensor
from tmmu_core.graph.quantities import parse_bytes, parse_percent


def refusal(call: Callable[[], Any]) -> UnreadableInput:
    with pytest.raises(UnreadableInput) as caught:
        call()
    return caught.value


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        *((b"", ""), (b"{", "json"), (b" \t\r\n{", "json"), (b"\xef\xbb\xbf {", "json"), (b"[", ""), (b"x{", "")),
        *((b"\x9f", ""), (b"\xa0", "cbor"), (b"\xbf\xff", "cbor"), (b"\xc0", ""), (b"\xd9\xd9\xf7\xa0", "cbor")),
        *((b"\xd9\xd9\xf7", ""), (b"\xd9\xd9\xf7\x9f", ""), (b"\xa0{", "cbor")),
        *((b"\xff\xfe", "json"), (b"\xfe\xff", "json"), (" {".encode("utf-16-le"), "json")),
        *(
            (" {".encode("utf-16-be"), "json"),
            (" x".encode("utf-16-le"), ""),
            ((" " * 31 + "{").encode("utf-16-le"), "json"),
        ),
    ],
)
def test_what_a_file_begins_like(data: bytes, kind: str) -> None:
    assert document.kind(data) == kind


@pytest.mark.parametrize(
    ("data", "allowed"),
    [
        (b"[1,2,3,4,5,6]", 6),  # five commas and a bracket
        (b'{"a": {}}\n\n' + b" " * 9, 4),
        (b'{"a":"' + b"x" * 90 + b'"}', 1),
        (b"\xa1\x61a\x88" + bytes(8), 3 + 2),  # a quarter of twelve bytes, a map and a list
        (b"\xa0\x80\xbf\xa0\x80\xbf", 1 + 6),  # as many as may begin a list or a map, and more than bytes
        (b"\xa0\xc0\x7f\x80", 1 + 2),
    ],
)
def test_values_are_counted_by_what_parts_them(data: bytes, allowed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    most = allowed
    monkeypatch.setattr(limits, "values_of", lambda *_: most)
    document.refuse_many_values(data)
    most = min(allowed, len(data)) - 1
    assert f"more than {most} " in str(refusal(lambda: document.refuse_many_values(data, "name")))
    most = len(data)  # of which each is a value at most
    document.refuse_many_values(data)


def test_what_holds_a_nul_near_its_beginning_is_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "values_of", lambda *_: 10)
    document.refuse_many_values(b"[" * 1023 + b"\0")
    refusal(lambda: document.refuse_many_values(b"[" * 1024 + b"\0"))


def test_how_many_values_there_may_be_hangs_on_what_was_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(limits, "values_of", lambda stored, packed: asked.append((stored, packed)) or 99)
    document.refuse_many_values(b"[1]")
    document.refuse_many_values(b"[1]", packed=1)
    document.refuse_many_values(b"[1]", packed=7)
    assert asked == [(3, False), (1, True), (7, True)]


def nested(depth: int, inner: bytes = b"1") -> bytes:
    return b"[" * depth + inner + b"]" * depth


@pytest.mark.parametrize("before", [b"", b" ", b'{"a":'])
def test_a_document_may_be_nested_so_deeply_and_no_deeper(before: bytes) -> None:
    after, more = (b"}", 1) if b"{" in before else (b"", 0)
    beside = b"[" + b",".join([nested(30), nested(25), b'"]]]]\\"[[["', b"{}"] * 3)
    for depth in (100, 199):
        document.refuse_nested(before + beside + b"," + nested(depth - more) + b"]" + after)
    assert "too deeply" in str(
        refusal(lambda: document.refuse_nested(before + beside + b"," + nested(200 - more) + b"]" + after, "name"))
    )
    document.refuse_nested(before + nested(150) + b'"' + b"[" * 300)  # a text that never ends
    document.refuse_nested(before + nested(20, b'"'))


def test_what_is_no_text_of_lists_or_objects_is_not_looked_at_for_depth() -> None:
    document.refuse_nested(b"x" + nested(300))
    document.refuse_nested(b"\xa1" + nested(300))
    refusal(lambda: document.refuse_nested(b"\xef\xbb\xbf" + b'{"a":' * 201 + b"1" + b"}" * 201))


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (2**64 - 1, ""),
        (2**64, "18446744073709551616 takes"),
        (-(2**63), ""),
        (-(2**63) - 1, "-9223372036854775809 takes"),
        (10**39, "1" + "0" * 39 + " takes"),
        (10**40, "10000000000000000000… (41 digits) takes"),
        (1.5, ""),
    ],
)
def test_a_whole_number_has_64_bits(number: float, said: str) -> None:
    text = b'{"x": [7, {"y": %s}], "z": "99999999999999999999"}' % str(number).encode()
    if not said:
        document.refuse_long_numbers(text, "name")
    elif number == -(2**63) - 1:  # nineteen digits are passed over
        document.refuse_long_numbers(b'{"x": %d}' % number, "name")
        assert refusal(lambda: document.refuse_long_numbers(text, "name")).place == "$.x[1].y"
    else:
        found = refusal(lambda: document.refuse_long_numbers(text, "name"))
        assert (found.place, said in str(found), found.source) == ("$.x[1].y", True, "name")


@pytest.mark.parametrize(
    ("data", "words", "place"),
    [
        (b'{"a": 1,\n "\xc3\xa4": x}', "not JSON: ", "line 2, column 7, byte 16"),
        (b'{"a": [1, 2', "ends in the middle of a value", "line 1, column 12, byte 11"),
        (b'\n{"a" x', "not JSON: ", "line 2, column 6, byte 6"),
        (b' {"a"', "ends in the middle of a value", "line 1, column 6, byte 5"),
        (b'{"a":\n "b\xff"}', "not UTF-8", "line 2, column 4, byte 9"),
        (b'{"a":\n "\xff\\n"}', "not UTF-8", "line 1, column 1, byte 0"),
    ],
)
def test_where_a_text_is_no_json_is_said(data: bytes, words: str, place: str) -> None:
    found = refusal(lambda: document._decode_json(data, dict[str, Any], "name"))
    assert (words in str(found), found.place, found.source) == (True, place, "name")


def test_an_empty_text_is_called_empty() -> None:
    assert "the file is empty" in str(refusal(lambda: document._decode_json(b" \n", Any, "")))
    assert "is UTF-16" in str(refusal(lambda: document._decode_json("{}".encode("utf-16"), Any, "")))


def test_cbor_that_is_cut_or_goes_on_is_told_with_its_byte() -> None:
    whole = cbor2.dumps({"a": [1, 2]})
    for lead in (b"", b"\xd9\xd9\xf7"):
        data = lead + whole
        assert document._load_cbor(data, "name") == {"a": [1, 2]}
        assert refusal(lambda data=data: document._load_cbor(data[:-1], "name")).place == f"byte {len(data) - 1}"  # type: ignore[misc]
        found = refusal(lambda data=data: document._load_cbor(data + b"\0\0", "name"))  # type: ignore[misc]
        assert (found.place, "2 bytes follow" in str(found)) == (f"byte {len(data)}", True)


def test_a_map_of_cbor_says_a_key_once_and_the_fault_is_told_in_the_words_of_who_found_it() -> None:
    assert "byte" in refusal(lambda: document._load_cbor(b"\xa2\x61a\x01\x61a\x02", "name")).place
    assert "holds a tag" in str(refusal(lambda: document._load_cbor(b"\xc1\x01", "name")))
    outer, inner = ValueError("outer"), ValueError("inner")
    assert document.fault_text(outer) == "outer"
    outer.__cause__ = inner
    assert document.fault_text(outer) == "inner"


def test_a_document_that_was_looked_into_is_taken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, load = [], document._load_cbor
    monkeypatch.setattr(document, "_load_cbor", lambda data, source: loaded.append(data) or load(data, source))
    data, other = cbor2.dumps({"a": 1, b"b": 3}), cbor2.dumps({"a": 1, b"b": 4})
    assert document.fields(data) == {"a": 1}
    assert document._taken(data, "") == {"a": 1, b"b": 3}
    assert loaded == [data]
    assert document._taken(data, "") == {"a": 1, b"b": 3}
    assert document.fields(data) == {"a": 1}
    assert document._taken(other, "") == {"a": 1, b"b": 4}
    assert loaded == [data, data, data, other]
    assert document.fields(cbor2.dumps([1])) == {}


@pytest.mark.parametrize("write", [cbor2.dumps, lambda plain: repr(plain).replace("'", '"').encode()])
@pytest.mark.parametrize(
    ("plain", "reason", "path", "named"),
    [
        (
            {"tensors": [{"id": "a"}, {"id": "b", "role": "none"}]},
            "unknown_value",
            "$.tensors[1].role",
            ("tensor", "b"),
        ),
        ({"nodes": [{"node_id": "n", "phase": "none"}]}, "unknown_value", "$.nodes[0].phase", ("node_id", "n")),
        ({"tensors": [{"id": "b", "role": 5}]}, "wrong_type", "$.tensors[0].role", ("tensor", "b")),
        ({"nodes": [{"id": "n"}]}, "unknown_field", "$.nodes[0]", ("node_id", None)),
        ({"nodes": [7]}, "wrong_type", "$.nodes[0]", ("node_id", None)),
        ({"nodes": [{"node_id": 5}]}, "wrong_type", "$.nodes[0].node_id", ("node_id", None)),
        ({"replan_policy": "none"}, "unknown_value", "$.replan_policy", ("tensor", None)),
        ({"frob": 1}, "unknown_field", "$", ("tensor", None)),
        ({"tensors": [{}]}, "missing_field", "$.tensors[0]", ("tensor", None)),
    ],
)
def test_a_wrong_field_is_told_with_its_path_and_whose_it_is(
    plain: dict[str, Any], reason: str, path: str, named: tuple[str, str | None], write: Callable[[Any], bytes]
) -> None:
    with pytest.raises(InvalidIrShapes) as caught:
        document.decode(write(plain), Graph, "name", "thing")
    found = caught.value.diagnostics
    assert (found["reason"], found["path"], found.get(named[0]), found["document"]) == (reason, path, named[1], "thing")
    assert found["source"] == "name"
    hints = {"$.tensors[1].role": "activation", "$.nodes[0].phase": "backward", "$.replan_policy": "ABORT"}
    assert hints.get(path, "JSON Schema" if reason == "wrong_type" else "") in caught.value.hint
    begins = {"unknown_field": "object contains", "missing_field": "object missing", "unknown_value": "invalid enum"}
    assert f": {begins.get(reason, 'expected ')}" in caught.value.message


# -- unpacking ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("chunk", "at_once"), [(1, 1), (2, 7), (7, 2), (30, 3), (1 << 16, 5), (3, 1 << 24)])
def test_what_is_unpacked_in_pieces_of_any_size_is_what_was_packed(
    chunk: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "CHUNK", chunk)
    monkeypatch.setattr(unpacking, "AT_ONCE", at_once)
    first, second = b"a" * 100 + bytes(range(40)), b"second" * 20
    for members in ([], [b""], [first], [first, second], [second, b"", first]):
        packed = b"".join(map(gzip.compress, members))
        assert unpacking.unpack(packed) == b"".join(members)
        if members:
            assert unpacking.unpack(packed + b"\0\0rest") == b"".join(members)
            cut = refusal(lambda packed=packed: unpacking.unpack(packed[:-1], "name"))  # type: ignore[misc]
            assert (cut.place, "cut off" in str(cut)) == (f"byte {len(packed) - 1}", True)
    damaged = bytearray(gzip.compress(first))
    damaged[-5] ^= 1
    assert "is damaged" in str(refusal(lambda: unpacking.unpack(bytes(damaged), "name")))


def test_as_many_bytes_are_unpacked_as_the_limit_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "f.gz"
    file.write_bytes(gzip.compress(b"x" * 60) + gzip.compress(b"y" * 40))
    for most, fine in ((101, True), (100, True), (99, False), (60, False), (59, False)):
        monkeypatch.setattr(limits, "ceiling", lambda *_, most=most: most)
        if fine:
            assert unpacking.unpack(file.read_bytes()) == bytes(unpacking.unpacked_file(file)) == b"x" * 60 + b"y" * 40
        else:
            refusal(lambda: unpacking.unpack(file.read_bytes()))
            refusal(lambda: unpacking.unpacked_file(file))
    file.write_bytes(gzip.compress(b""))
    assert unpacking.unpacked_file(file) == b""


def test_what_is_packed_is_gzip_of_no_time_and_no_name() -> None:
    for data in (b"", b"x", b"abc" * 999):
        packed = unpacking.pack(data)
        assert gzip.decompress(packed) == data
        assert packed[:10] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff"
        deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
        assert packed[10:-8] == deflate.compress(data) + deflate.flush()


def test_the_limit_of_a_stream_is_none_of_a_plain_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "LONGEST_STREAM", 10)
    plain, pipe = tmp_path / "plain", tmp_path / "pipe"
    plain.write_bytes(b"x" * 11)
    assert unpacking.read_whole(plain) == b"x" * 11
    assert unpacking.read_stream(io.BytesIO(b"x" * 10), "name") == b"x" * 10
    refusal(lambda: unpacking.read_stream(io.BytesIO(b"x" * 11), "name"))
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(b"x" * 11))
    writer.start()
    refusal(lambda: unpacking.read_whole(pipe))
    writer.join()


# -- quantities --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("", None), (" ", None), ("0", 0), ("1,024 ", 1024), ("0x10", 16), ("1_000", 1000), ("7B", 7), ("7 b", 7)),
        *(("1k", 2**10), ("1KB", 2**10), ("1 KiB", 2**10), ("2M", 2**21), ("1G", 2**30), ("1t", 2**40)),
        *(("1PiB", 2**50), ("1e", 2**60), (".5k", 512), ("1.k", 1024), ("1.5 MiB", 3 * 2**19), ("0.0005k", 0)),
        *(("2.3", 2), ("1" * 64, int("1" * 64)), ("1" * 65, "no"), ("k", "no"), ("1x", "no"), ("1.2.3", "no")),
        *(
            ("1i", "no"),
            ("1 ib", "no"),
            ("1ki", 1024),
            ("1kii", "no"),
            ("-1", "no"),
            ("1kk", "no"),
            (".", "no"),
            ("0xg", "no"),
            ("²", "no"),
        ),
    ],
)
def test_a_size_is_bytes_or_a_number_with_a_unit(text: str, expected: int | str | None) -> None:
    if expected == "no":
        with pytest.raises(ValueError, match="is not a size"):
            parse_bytes(text)
    else:
        assert parse_bytes(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("0", Fraction(0)), ("5", Fraction(1, 20)), ("+2.5 %", Fraction(1, 40)), (".5", Fraction(1, 200))),
        *(
            ("5.", Fraction(1, 20)),
            ("1/3", Fraction(1, 300)),
            ("1e2", Fraction(1)),
            (str(2**64 - 1), Fraction(2**64 - 1, 100)),
        ),
        *((str(2**64), None), ("-1", None), ("1/0", None), ("", None), ("%", None), ("nan", None), ("1e999", None)),
        *(("inf", None), ("5 5", None), ("1e30", None)),
    ],
)
def test_a_percentage_is_a_ratio_of_no_more_than_64_bits(text: str, expected: Fraction | None) -> None:
    if expected is None:
        with pytest.raises(ValueError, match="is not a percentage"):
            parse_percent(text)
    else:
        assert parse_percent(text) == expected


def test_a_constant_of_no_bytes_lies_in_the_sidecar_at_its_place_and_none_lies_behind_its_end(tmp_path: Path) -> None:
    graph = Graph((Tensor("e", (0,), role="constant"), Tensor("w", (1,), role="constant")), sidecar="s")
    (tmp_path / "s").write_bytes(b"".join(sidecar.written(graph, Constants.of({"e": b"", "w": b"abcd"}))))
    found = sidecar.constants(graph, tmp_path / "graph.json")
    assert (found["e"], found["w"]) == (b"", b"abcd")
    (tmp_path / "s").write_bytes((tmp_path / "s").read_bytes()[:-1])
    with pytest.raises(UnreadableInput, match="bytes 0 to 4 of 3"):
        sidecar.constants(graph, tmp_path / "graph.json")
