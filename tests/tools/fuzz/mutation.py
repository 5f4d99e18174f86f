"""Make a hostile file from a valid file: damage its bytes, or replace values of its document."""

import contextlib
import copy
import json
from collections.abc import Iterator
from random import Random
from typing import Any

import cbor2

EDGES: tuple[int, ...] = (
    *(-1, 0, 1, 2, 3, 7, 64, 127, 128, 255, 65_535, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**62, 2**63 - 1, 2**63),
    *(2**64 - 1, 2**64, 2**65, 10**30, 10**400, -(2**31), -(2**63), -(2**64)),
)
"""Integers at and beyond the limits of common integer types."""
WORDS: tuple[str, ...] = (
    *(
        "",
        " ",
        "a",
        "any",
        "none",
        "\x00",
        "\n",
        "é",
        "𝄞",
        "\u202e",
        "=1+1",
        "<img src=x>",
        "../../etc/passwd",
        "/",
        ".",
    ),
    *("0", "-1", "9" * 30, "1e9", "NaN", "x" * 300, "${x}", "%s", "{0}", "\x1b[31m", "zz", "0x", "activations", "n0"),
)
OTHERS: tuple[Any, ...] = (
    *(None, True, False, 0.0, -0.5, 1e308, float("inf"), float("nan"), [], {}, [[]], [{}], {"": ""}, [0], [0, 0]),
    *([-1, 2**64], [[0, 0]], [[0, 2**70]], {"a": {"b": [1]}}, b"", b"\xff"),
)


def values(random: Random) -> Any:
    """Return one hostile value."""
    kind = random.randrange(4)
    if kind < 2:
        return random.choice(EDGES)
    return copy.deepcopy(random.choice(WORDS if kind == 2 else OTHERS))


def places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to every value inside a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*way, key)
        yield from places(inner, (*way, key))


def at(value: Any, way: tuple[Any, ...]) -> Any:
    """Return the value at the end of a path."""
    for key in way:
        value = value[key]
    return value


def changed(document: Any, random: Random) -> Any:
    """Return a copy of a document with one to three replaced values."""
    document = copy.deepcopy(document)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        ways = list(places(document))
        if not ways:
            return values(random)
        way = random.choice(ways)
        holder, key = at(document, way[:-1]), way[-1]
        what = random.randrange(8)
        if what < 4:
            holder[key] = values(random)
        elif what == 4:
            del holder[key]
        elif what == 5:
            holder[key] = copy.deepcopy(at(document, random.choice(ways)))
        elif what == 6 and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(random.choice(holder)))
        elif isinstance(holder, dict):
            word = random.choice(WORDS)
            holder[word] = holder.pop(key) if random.randrange(2) else values(random)
    return document


def damaged(data: bytes, random: Random) -> bytes:
    """Return bytes with one to six damages."""
    out = bytearray(data)
    for _ in range(random.randrange(1, 7)):
        place = random.randrange(len(out) + 1)
        what = random.randrange(7)
        if what < 3 and place < len(out):
            out[place] ^= 1 << random.randrange(8)
        elif what == 3:
            out[place : place + 1] = bytes([random.choice((0, 9, 10, 34, 44, 127, 128, 255))])
        elif what == 4:
            del out[place : place + random.randrange(1, 9)]
        elif what == 5:
            out[place:place] = random.randbytes(random.randrange(1, 5))
        else:
            del out[place:]
    return bytes(out)


def lines_changed(data: bytes, random: Random, separators: bytes = b"\n") -> bytes:
    """Return a text with a line doubled, removed or swapped, or with an extreme number."""
    lines = data.split(separators)
    k = random.randrange(len(lines))
    what = random.randrange(4)
    if what == 0:
        lines.insert(k, random.choice(lines))
    elif what == 1 and len(lines) > 1:
        del lines[k]
    else:
        digits = [i for i, byte in enumerate(lines[k]) if 48 <= byte < 58]
        if digits:
            start = random.choice(digits)
            end = next((i for i in range(start, len(lines[k])) if not 48 <= lines[k][i] < 58), len(lines[k]))
            lines[k] = lines[k][:start] + str(random.choice(EDGES)).encode() + lines[k][end:]
    return separators.join(lines)


def as_json(document: Any) -> bytes:
    """Return a document as JSON, also for values that JSON cannot represent."""
    return json.dumps(document, default=lambda value: value.decode("latin-1"), ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )


def as_cbor(document: Any) -> bytes:
    """Return a document as CBOR, with numbers over 64 bits as bignums."""
    try:
        return cbor2.dumps(document)
    except (cbor2.CBOREncodeError, UnicodeEncodeError):
        return as_json(document)


def words_changed(data: bytes, random: Random) -> bytes:
    """Return little-endian words of which one to four are extreme or copied from another word."""
    out = bytearray(data)
    for _ in range(random.randrange(1, 5)):
        width = random.choice((1, 2, 4, 4, 4, 8))
        place = random.randrange(max(1, len(out) // width)) * width
        what = random.randrange(3)
        if what == 0:
            word = (random.choice(EDGES) % (1 << (8 * width))).to_bytes(width, "little")
        elif what == 1:
            other = random.randrange(max(1, len(out) // width)) * width
            word = bytes(out[other : other + width])
        else:
            here = int.from_bytes(out[place : place + width], "little") + random.choice((-4, -1, 1, 4, 8))
            word = (here % (1 << (8 * width))).to_bytes(width, "little")
        out[place : place + len(word)] = word
    return bytes(out)


def message_changed(data: bytes, kind: Any, random: Random) -> bytes:
    """Return a protobuf message of class ``kind`` with one to three changed fields at any depth."""
    message = kind.FromString(data)
    for _ in range(random.choice((1, 1, 2, 3))):
        fields = list(_fields(message))
        if not fields:
            break
        holder, field = random.choice(fields)
        _change(holder, field, random)
    changed_: bytes = message.SerializeToString()
    return changed_


def _fields(message: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each ``(message, descriptor of a field)`` that is set anywhere in a message."""
    for field, value in message.ListFields():
        yield message, field
        if field.message_type is not None:
            for inner in value if field.is_repeated else (value,):
                yield from _fields(inner)


def _change(holder: Any, field: Any, random: Random) -> None:
    what, name = random.randrange(8), field.name
    if what == 0:
        holder.ClearField(name)
    elif field.is_repeated:
        values = getattr(holder, name)
        if what < 3 and values:
            del values[random.randrange(len(values))]
        elif what < 5 and values:
            values.append(copy.deepcopy(random.choice(values)))
        elif field.message_type is None:
            with contextlib.suppress(ValueError, TypeError, OverflowError):
                values.insert(random.randrange(len(values) + 1), _scalar(field, random))
        elif len(values) > 1:
            one, two = random.choice(values), random.choice(values)
            kept = copy.deepcopy(one)
            one.CopyFrom(two)
            two.CopyFrom(kept)
    elif field.message_type is None:
        with contextlib.suppress(ValueError, TypeError, OverflowError):
            setattr(holder, name, _scalar(field, random))


def _scalar(field: Any, random: Random) -> Any:
    kind = field.cpp_type
    if kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return random.choice((0.0, -1.5, 1e38, float("inf"), float("nan")))
    if kind == field.CPPTYPE_STRING:
        text = random.choice(WORDS)
        return text.encode("utf-8", "surrogatepass") if field.type == field.TYPE_BYTES else text
    return random.choice(EDGES)
