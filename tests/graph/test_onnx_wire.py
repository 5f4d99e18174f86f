"""ONNX's wire format beside the package's own: numbers, lengths, and where large fields of numbers stand."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tmmu_core.errors import UnreadableInput
from tmmu_core.graph.constants import Held
from tmmu_core.graph.importers import onnx_bytes
from tmmu_core.graph.importers.onnx_bytes import (
    LARGE,
    _after,
    _Folded,
    _plain,
    _read_varint,
    _Reading,
    _Stored,
    _tensors,
    _varint,
    _without_numbers,
)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        *((0, b"\x00"), (1, b"\x01"), (127, b"\x7f"), (128, b"\x80\x01"), (300, b"\xac\x02"), (16383, b"\xff\x7f")),
        *((16384, b"\x80\x80\x01"), ((1 << 63) - 1, b"\xff" * 8 + b"\x7f"), (1 << 63, b"\x80" * 9 + b"\x01")),
    ],
)
def test_a_number_is_seven_bits_a_byte_the_lowest_first(value: int, data: bytes) -> None:
    assert _varint(value) == data
    assert _read_varint(memoryview(data), 0) == (value, len(data))
    assert _read_varint(memoryview(b"\x80" + data + b"\x05"), 1) == (value, len(data) + 1)
    with pytest.raises(UnreadableInput, match="cut off or damaged"):
        _read_varint(memoryview(data[:-1]), 0)


def test_a_number_is_ten_bytes_long_at_most() -> None:
    assert _read_varint(memoryview(b"\x80" * 9 + b"\x00"), 0) == (0, 10)
    with pytest.raises(UnreadableInput):
        _read_varint(memoryview(b"\x80" * 10 + b"\x00"), 0)


@pytest.mark.parametrize(
    ("wire", "room", "after"),
    [
        *((0, 1, 4), (0, 0, None), (1, 8, 11), (1, 9, 11), (1, 7, None), (5, 4, 7), (5, 9, 7), (5, 3, None)),
        *((2, 9, None), (3, 9, None), (4, 9, None), (6, 9, None)),
    ],
)
def test_a_field_without_a_length_is_as_long_as_its_kind_says(wire: int, room: int, after: int | None) -> None:
    view = memoryview(b"???" + bytes(room))
    if after is None:
        with pytest.raises(UnreadableInput):
            _after(view, 3, wire)
    else:
        assert _after(view, 3, wire) == after


def raw(name: str, size: int, **rest: Any) -> TensorProto:
    """Bytes of a known order."""
    data = (np.arange(size) % 251).astype("u1").tobytes()
    return TensorProto(name=name, dims=[size], data_type=TensorProto.UINT8, raw_data=data, **rest)


def typed(name: str, numbers: int) -> TensorProto:
    """Numbers in a field of their own, four bytes each."""
    return helper.make_tensor(name, TensorProto.FLOAT, [numbers], np.arange(numbers, dtype="f4"))


def model() -> onnx.ModelProto:
    """Weights large and small, in the graph, in attributes, in a body and in a function."""
    body = helper.make_graph([], "body", [], [helper.make_tensor_value_info("o", 1, [1])], [raw("inner", LARGE + 2)])
    nodes = [
        helper.make_node("Constant", [], ["c"], value=raw("value", LARGE + 1)),
        helper.make_node("If", ["c"], ["i"], then_branch=body),
        helper.make_node("Many", ["c"], ["m"], several=[raw("first", LARGE + 3), raw("second", 2)], bodies=[body]),
    ]
    weights = [
        *(raw("small", LARGE), raw("large", LARGE + 1, doc_string="of it"), typed("few", LARGE // 4)),
        typed("many", LARGE // 4 + 1),
    ]
    graph = helper.make_graph(nodes, "g", [], [], weights, doc_string="x" * (LARGE + 5))
    function = helper.make_function("d", "F", [], ["f"], nodes[:1], [helper.make_opsetid("", 17)])
    return helper.make_model(graph, functions=[function], producer_name="p" * (LARGE + 1))


def skeleton(data: bytes) -> tuple[onnx.ModelProto, dict[int, tuple[int, int, int]]]:
    places: dict[int, tuple[int, int, int]] = {}
    return onnx.ModelProto.FromString(b"".join(_without_numbers(memoryview(data), "model", 0, 0, places))), places


def large(model: onnx.ModelProto) -> list[str]:
    """Names of tensors with more bytes of numbers than a skeleton keeps."""
    return [each.name for each in _tensors(model) if max(len(each.raw_data), 4 * len(each.float_data)) > LARGE]


def test_what_is_left_is_the_model_without_its_large_fields_and_says_where_they_are() -> None:
    whole = model()
    data = whole.SerializeToString()
    left, places = skeleton(data)
    assert sorted(large(whole)) == ["first", "inner", "inner", "large", "many", "value", "value"]
    assert large(left) == []
    assert len(places) == 7
    for before, after in zip(_tensors(whole), _tensors(left), strict=True):
        assert (before.name, list(before.dims), before.data_type) == (after.name, list(after.dims), after.data_type)
        if after.doc_string:
            field, start, length = places[int(after.doc_string.removeprefix(onnx_bytes.TAG))]
            held = before.raw_data if field == 9 else np.array(before.float_data, "<f4").tobytes()
            assert (field, data[start : start + length]) == (9 if before.raw_data else 4, held)
            after.ClearField("doc_string")
            after.MergeFrom(
                TensorProto(raw_data=before.raw_data) if field == 9 else TensorProto(float_data=before.float_data)
            )
        before.ClearField("doc_string")
    assert left == whole


@pytest.mark.parametrize(("deepest", "kept"), [(1, ["inner", "inner"]), (2, [])])
def test_bodies_are_walked_so_deep_and_no_deeper(
    deepest: int, kept: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_bytes, "DEEPEST", deepest)
    assert large(skeleton(model().SerializeToString())[0]) == kept


@pytest.mark.parametrize("cut", [1, 5, LARGE, 2 * LARGE])
def test_a_model_that_is_cut_off_is_refused(cut: int) -> None:
    data = model().SerializeToString()
    with pytest.raises(UnreadableInput, match="cut off or damaged"):
        skeleton(data[:-cut])
    assert skeleton(data[: len(data)])[1]


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        *((TensorProto.FLOAT, [1.5, -2.0]), (TensorProto.DOUBLE, [1.5, 3.0]), (TensorProto.INT64, [-1, 1 << 40])),
        *((TensorProto.INT32, [-5, 1 << 30]), (TensorProto.INT16, [-5, 7]), (TensorProto.UINT16, [65535, 1])),
        *((TensorProto.INT8, [-5, 7]), (TensorProto.UINT8, [255, 1]), (TensorProto.BOOL, [True, False])),
        *((TensorProto.UINT32, [1 << 31, 3]), (TensorProto.UINT64, [1 << 63, 3]), (TensorProto.FLOAT16, [1.5, 2.0])),
    ],
)
def test_numbers_that_are_written_out_are_the_bytes_of_their_array(kind: int, numbers: list[Any]) -> None:
    proto = helper.make_tensor("t", kind, [2], numbers)
    assert not proto.raw_data
    assert _plain(proto) == numpy_helper.to_array(proto).tobytes()
    assert _plain(TensorProto(data_type=kind, raw_data=b"as it is")) == b"as it is"
    assert _plain(TensorProto(data_type=kind)) == b""


@pytest.mark.parametrize(
    ("said", "found"),
    [
        *(({"offset": "2", "length": "3"}, b"cde"), ({}, b"abcdef"), ({"offset": "4"}, b"ef"), ({"length": "0"}, b"")),
        *(({"offset": "0", "length": "6"}, b"abcdef"), ({"offset": "6"}, b""), ({"offset": "-1"}, None)),
        *(({"length": "-1"}, None), ({"offset": "x"}, None), ({"length": ""}, None)),
    ],
)
def test_external_data_is_a_range_of_its_file(said: dict[str, str], found: bytes | None, tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"abcdef")
    proto = TensorProto(name="w", data_location=TensorProto.EXTERNAL)
    for key, value in {"location": "w.bin", **said}.items():
        proto.external_data.add(key=key, value=value)
    reading = _Reading(b"", tmp_path / "m.onnx", "m.onnx")
    if found is None:
        with pytest.raises(UnreadableInput, match="cut off or damaged"):
            reading._external(proto)
    else:
        assert b"".join(reading._external(proto).chunks()) == found


def test_a_piece_is_a_range_of_the_file_where_there_is_one_else_of_what_is_at_hand(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"..file..")
    numbers = np.array([1.5, 2.5], "<f4").tobytes()
    proto = TensorProto(doc_string=f"{onnx_bytes.TAG}0")

    def piece(stored: _Stored, where: Path | None, data: bytes = b"..held..") -> bytes:
        return b"".join(_Reading(data, where, "", {"0": stored})._piece(proto).chunks())

    stored = _Stored(TensorProto(), 9, 2, 4)
    assert piece(stored, tmp_path / "m.onnx") == b"file"
    assert piece(stored, None) == b"held"
    assert piece(_Stored(TensorProto(data_type=1), 4, 2, 8), None, b".." + numbers + b"..") == numbers
    assert piece(_Stored(TensorProto(raw_data=b"kept")), None) == b"kept"
    assert piece(_Stored(TensorProto(raw_data=b"")), None) == b""
    assert piece(_Stored(TensorProto(data_type=1, float_data=[1.5, 2.5])), None) == numbers


@pytest.mark.parametrize(("length", "computed"), [(1, True), (3, True), (4, False)])
def test_what_was_folded_is_computed_again_so_many_steps_back(
    length: int, computed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_bytes, "DEEPEST", 2)
    names = ["w", *(f"n{k}" for k in range(length))]
    maker = {new: helper.make_node("Neg", [old], [new]) for old, new in pairwise(names)}
    weight = numpy_helper.from_array(np.array([1.0, 2.0], "f4"), "w")
    weight_piece = Held(weight.raw_data)
    folded = _Folded(maker, {}, [helper.make_opsetid("", 17)], lambda proto: weight_piece, {"w": weight})
    made = folded.piece(names[-1])
    if computed:
        sign = -1 if length % 2 else 1
        assert b"".join(made.chunks()) == (sign * np.array([1.0, 2.0], "f4")).tobytes()
    else:
        with pytest.raises(UnreadableInput, match='the constant "n0" is computed in the model'):
            list(made.chunks())
    assert folded.piece("w") is weight_piece
    with pytest.raises(UnreadableInput, match='the constant "nobody" is computed'):
        list(folded.piece("nobody").chunks())


def test_only_a_constant_of_one_value_is_written_down() -> None:
    value = numpy_helper.from_array(np.array([1.0], "f4"), "v")
    nodes = {
        "plain": helper.make_node("Constant", [], ["plain"], value=value),
        "numbers": helper.make_node("Constant", [], ["numbers"], value_floats=[3.0, 4.0]),
        "other": helper.make_node("Other", [], ["other"], value=value),
    }
    folded = _Folded(nodes, {}, [helper.make_opsetid("", 17)], lambda proto: Held(proto.raw_data), {"other": value})
    assert [folded._written(name) is not None for name in (*nodes, "nobody")] == [True, False, True, False]
    assert b"".join(folded.piece("numbers").chunks()) == np.array([3.0, 4.0], "f4").tobytes()


@pytest.mark.parametrize(("shape", "size"), [((2, 3), 6), ((2, "n"), None)])
def test_shapes_that_stand_fast_are_folded(shape: tuple[int | str, ...], size: int | None) -> None:
    nodes = {"s": helper.make_node("Size", ["x"], ["s"]), "h": helper.make_node("Shape", ["x"], ["h"])}
    folded = _Folded(nodes, {"x": shape}, [helper.make_opsetid("", 17)], None, {})
    if size is None:
        with pytest.raises(UnreadableInput, match="is computed in the model"):
            list(folded.piece("s").chunks())
    else:
        assert b"".join(folded.piece("s").chunks()) == np.array(size, "i8").tobytes()
        assert b"".join(folded.piece("h").chunks()) == np.array(shape, "i8").tobytes()
