"""Write ExecuTorch programs by hand: flatbuffers with the fields that the reader uses."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import flatbuffers

Call = tuple[Any, list[int]] | int
"""``(operator, arguments)`` of a kernel (a number is an index), or the target instruction of a jump."""


@dataclass(frozen=True)
class Scalar:
    """A field inside its table: one, two or four bytes."""

    kind: str
    value: int


@dataclass(frozen=True)
class Placed:
    """A field that is already written."""

    place: int


Field = Scalar | Placed | str | list[Any] | dict[int, Any]
"""A number, a text, a list of numbers or of tables, or a table (field → value)."""


def tensor(offset: int, shape: Sequence[int], memory: int = 1, kind: int = 6) -> dict[int, Field]:
    """Return an ``EValue``: a tensor at an offset of a memory; ``kind``: scalar type (6: float32)."""
    place = {0: Scalar("Uint32", memory), 1: Scalar("Uint32", offset)}
    return {0: Scalar("Uint8", 5), 1: {0: Scalar("Int8", kind), 2: list(shape), 6: place}}


def method(
    name: str, values: list[Any], inputs: list[int], outputs: list[int], calls: Sequence[Call]
) -> dict[int, Field]:
    """Return an ``ExecutionPlan``."""
    operators = sorted({call[0] for call in calls if not isinstance(call, int) and isinstance(call[0], str)})
    chain = {2: [_instruction(call, operators) for call in calls]}
    called = [dict(zip((0, 1), each.split("."), strict=False)) for each in operators]
    return {0: name, 2: values, 3: inputs, 4: outputs, 5: [chain], 6: called}


def program(values: list[Any], inputs: list[int], outputs: list[int], calls: Sequence[Call]) -> bytes:
    """Return a file with the single method ``forward``."""
    return file([method("forward", values, inputs, outputs, calls)])


def file(methods: list[dict[int, Field]]) -> bytes:
    """Return a file with several methods."""
    builder = flatbuffers.Builder(1024)
    builder.Finish(table(builder, {0: Scalar("Uint32", 1), 1: methods}), file_identifier=b"ET12")
    return bytes(builder.Output())


def bomb(times: int) -> bytes:
    """Return a file of a few hundred bytes in which nested lists share a list, so that it has ``times``³ arguments."""
    builder = flatbuffers.Builder(1024)
    operators = [{0: "aten::neg", 1: "out"}]
    call = table(builder, {0: Scalar("Uint8", 1), 1: {0: Scalar("Int32", 0), 1: [0] * times}})
    chain = table(builder, {2: Placed(tables_vector(builder, [call] * times))})
    plan = table(builder, {5: Placed(tables_vector(builder, [chain] * times)), 6: operators})
    builder.Finish(table(builder, {1: Placed(tables_vector(builder, [plan] * times))}), file_identifier=b"ET12")
    return bytes(builder.Output())


def _instruction(call: Call, operators: list[str]) -> dict[int, Field]:
    if isinstance(call, int):
        return {0: Scalar("Uint8", 4), 1: {0: Scalar("Int32", 0), 1: Scalar("Int32", call)}}
    index = operators.index(call[0]) if isinstance(call[0], str) else call[0]
    return {0: Scalar("Uint8", 1), 1: {0: Scalar("Int32", index), 1: call[1]}}


def table(builder: Any, fields: dict[int, Any]) -> int:
    places = {number: written(builder, value) for number, value in fields.items() if not isinstance(value, Scalar)}
    builder.StartObject(max(fields, default=-1) + 1)
    for number, value in fields.items():
        if isinstance(value, Scalar):
            getattr(builder, f"Prepend{value.kind}Slot")(number, value.value, None)
        else:
            builder.PrependUOffsetTRelativeSlot(number, places[number], 0)
    return int(builder.EndObject())


def written(builder: Any, value: Field) -> int:
    if isinstance(value, Placed):
        return value.place
    if isinstance(value, dict):
        return table(builder, value)
    if isinstance(value, str):
        return int(builder.CreateString(value))
    assert isinstance(value, list)
    if value and isinstance(value[0], dict):
        return tables_vector(builder, [table(builder, each) for each in value])
    builder.StartVector(4, len(value), 4)
    for each in reversed(value):
        builder.PrependInt32(each)
    return int(builder.EndVector())


def tables_vector(builder: Any, tables: list[int]) -> int:
    builder.StartVector(4, len(tables), 4)
    for place in reversed(tables):
        builder.PrependUOffsetTRelative(place)
    return int(builder.EndVector())
