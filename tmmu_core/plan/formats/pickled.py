"""Pickles of plain data: whatever they would have to look up is refused, and so is a memo that is larger than the file.

The interpreter's unpickler keeps what it has read in a table of as many places as the greatest number that the pickle
gives to one: sixty bytes can ask for 32 GiB. So the operations are walked first. Almost all of them are of a fixed
length and match one expression in one go; the others are looked at one by one.
"""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn

from tmmu_core.errors import UnreadableInput

FIRST = b"\x80"
"""What every pickle since protocol 2 begins with."""
_SMALL = 1 << 22
"""Places of a memo that are no harm in any file."""

_ALONE = rb"[()012NQR\]abdelostu}\x81\x85-\x89\x8f-\x94\x97\x98]"
_FIXED = rb"[Khq\x80\x82].|M..|[Jj]....|r..[\x00-\x3f]\x00|[G\x95].{8}"
_SIZED = {b"X": 4, b"B": 4, b"T": 4, b"U": 1, b"C": 1, b"\x8a": 1, b"\x8b": 4, b"\x8d": 8, b"\x8e": 8, b"\x96": 8}
_LINES = {b"I": 1, b"L": 1, b"S": 1, b"V": 1, b"F": 1, b"g": 1, b"p": 1, b"P": 1, b"c": 2, b"i": 2}
_OTHER = {b"\x83": 2, b"\x84": 4, b"r": 4}


def load(data: bytes, refused: Callable[[str], UnreadableInput]) -> Any:
    """What a pickle holds. Raises what ``refused`` makes of a sentence; of a damaged one, whatever Python does."""
    greatest = _greatest_memo(data)
    if greatest > max(_SMALL, len(data)):
        raise refused(f"the pickle counts {greatest:,} values in {len(data):,} bytes.")
    return _PlainData(io.BytesIO(data), refused).load()


class _PlainData(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, refused: Callable[[str], UnreadableInput]) -> None:
        super().__init__(file)
        self.refused = refused

    def find_class(self, module: str, name: str) -> NoReturn:
        raise self.refused(f"the pickle asks for {module}.{name}, which is no plain data; nothing of it was run.")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise self.refused("the pickle refers to something outside of it.")


@cache
def _run() -> re.Pattern[bytes]:
    """As many operations as stand alone, have a fixed length, or are a short text behind its length."""
    texts = b"|".join(b"%s.{%d}" % (re.escape(bytes([n])), n) for n in range(256))
    return re.compile(rb"(?>%s|%s|\x8c(?:%s))*+" % (_ALONE, _FIXED, texts), re.DOTALL)


def _greatest_memo(data: bytes) -> int:
    """The greatest number that an operation gives to a value, of those that one run does not match; 0 for none."""
    at, greatest = 0, 0
    while at < len(data):
        match = _run().match(data, at)
        at = match.end() if match else at
        operation = data[at : at + 1]
        if operation in _SIZED:
            width = _SIZED[operation]
            at += 1 + width + int.from_bytes(data[at + 1 : at + 1 + width], "little")
        elif operation in _LINES:
            end = at
            for _ in range(_LINES[operation]):
                end = data.find(b"\n", end + 1)
                if end < 0:
                    return greatest  # cut short: the unpickler says so before it gets there
            if operation == b"p":
                digits = re.sub(rb"^0+|\D", b"", data[at + 1 : end])
                greatest = max(greatest, int(digits[:20] or b"0"))
            at = end + 1
        elif operation in _OTHER:
            if operation == b"r":
                greatest = max(greatest, int.from_bytes(data[at + 1 : at + 5], "little"))
            at += 1 + _OTHER[operation]
        else:
            return greatest  # the end, or what no unpickler goes beyond
    return greatest
