"""How a valid file is made hostile: its bytes damaged, or its document's values swapped for the worst of their kind."""

from __future__ import annotations

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
"""Whole numbers at and past the ends of what machines count in."""
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
    """One hostile value."""
    kind = random.randrange(4)
    if kind < 2:
        return random.choice(EDGES)
    return copy.deepcopy(random.choice(WORDS if kind == 2 else OTHERS))


def places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value inside a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*way, key)
        yield from places(inner, (*way, key))


def at(value: Any, way: tuple[Any, ...]) -> Any:
    """What stands at the end of a way."""
    for key in way:
        value = value[key]
    return value


def changed(document: Any, random: Random) -> Any:
    """A copy of the document with one to three of its values changed."""
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
    """Bytes with one to six damages."""
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
    """Text with a line doubled, dropped or swapped, or a number in it taken to an edge."""
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
    """A document as JSON, also what JSON has no word for."""
    return json.dumps(document, default=lambda value: value.decode("latin-1"), ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )


def as_cbor(document: Any) -> bytes:
    """A document as CBOR, numbers past 64 bits as bignums."""
    try:
        return cbor2.dumps(document)
    except (cbor2.CBOREncodeError, UnicodeEncodeError):
        return as_json(document)
