"""Pickles of plain data, read operation by operation from a file: nothing is looked up, nothing is run.

::

    } MEMOIZE ( h3 h4 h5 K\\x08 … u      the operations push, gather and name values; what a pickle would have looked up
    ─┬─ ─────── ┬ ──────┬──────  ┬       or called has no operation here, and is refused by its name
     dict  its   mark   pairs    into the dict
           number
    e    what is gathered goes into the list below: whoever reads may take it as it comes (:meth:`PlainData.appended`)
         and let go of what the pickle could still call by its number (:meth:`PlainData.let_go`)

So memory goes with what the reader keeps, not with the file. A pickle's number for a value is no larger than the file,
or than a few millions: a table of as many places as it asks for would be 32 GiB for sixty bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, BinaryIO, NoReturn

from tmmu_core.base.errors import UnreadableInput

FIRST = b"\x80"
"""What every pickle since protocol 2 begins with."""
_SMALL = 1 << 22
"""Places of a memo that are no harm in any file."""
_CHUNK = 1 << 20
ROOM = 1 << 13
"""Bytes that lie ahead of every operation, unless the file ends before."""
_TEXTS_KEPT = 1 << 16
"""So many short texts are one value each, however often they are said."""

_NOTHING = object()
"""The place of a number that no value has yet."""
GONE = object()
"""The place of a value that was let go of."""

_U16, _U32, _I32, _U64, _F64 = (struct.Struct(form).unpack_from for form in ("<H", "<I", "<i", "<Q", ">d"))
_SIZES: dict[int, tuple[int, Any]] = {
    **dict.fromkeys(b"UC\x8c\x8a", (1, lambda data, at: data[at])),
    **dict.fromkeys(b"TBX", (4, _U32)),
    **dict.fromkeys(b"\x8b", (4, _I32)),
    **dict.fromkeys(b"\x8d\x8e\x96", (8, _U64)),
}
_ASKS = {
    **dict.fromkeys(b"PQ", "the pickle refers to something outside of it."),
    **dict.fromkeys(
        b"\x82\x83\x84", "the pickle asks for an extension, which is no plain data; nothing of it was run."
    ),
    **dict.fromkeys(
        b"Rob\x81\x92\x97\x98", "the pickle asks for a call, which is no plain data; nothing of it was run."
    ),
}


class Damaged(ValueError):
    """What no pickle of plain data holds."""


class PlainData:
    """One pickle of plain data: dicts, lists, sets, texts, bytes, numbers.

    Tuples become lists: nothing asks for the difference, and the hash of a tuple inside of a tuple, a million deep,
    ends a process.
    """

    def __init__(self, file: BinaryIO, size: int, refused: Callable[[str], UnreadableInput]) -> None:
        self.file, self.size, self.refused = file, size, refused
        self.data, self.at = b"", 0
        self.memo: list[Any] = []
        self.numbers: dict[int, int] = {}
        """By the identity of a dict or list that has a number: its number."""
        self.texts: dict[bytes, str] = {}
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []

    # --- for whoever reads -------------------------------------------------------------------------------------

    def appended(self, into: list[Any], items: list[Any]) -> None:
        """``items``, at least one, go into the list ``into``."""
        into.extend(items)

    def list_at_once(self, data: bytes, at: int) -> int:
        """Take a whole list that begins at ``at``, push it and give where it ends; 0 to have it read as any other."""
        return 0

    def let_go(self, value: Any, instead: Any = GONE) -> None:
        """From now on the pickle's number for ``value`` means ``instead``."""
        number = self.numbers.pop(id(value), None)
        if number is not None:
            self.memo[number] = instead

    def number(self, number: int, value: Any) -> None:
        """The pickle gives ``value`` a number."""
        if number < 0:
            raise Damaged(f"a value has the number {number}")
        missing = number - len(self.memo)
        if missing > 0:
            if number > max(_SMALL, self.size):
                raise self.refused(f"the pickle counts {number:,} values in {self.size:,} bytes.")
            self.memo += [_NOTHING] * missing
        if missing >= 0:
            self.memo.append(value)
        elif self.memo[number] is _NOTHING:
            self.memo[number] = value
        else:
            raise Damaged(f"two values have the number {number}")
        if type(value) is dict or type(value) is list:
            self.numbers[id(value)] = number

    # --- the operations ----------------------------------------------------------------------------------------

    def load(self) -> Any:
        """What the pickle holds. Raises what ``refused`` makes of a sentence; where it is damaged, what Python does."""
        memo, numbers, texts = self.memo, self.numbers, self.texts
        stack, below = self.stack, self.below
        data, at, safe = self.data, self.at, self.at
        while True:
            if at >= safe:
                data, at, safe = self._more(data, at)
            op = data[at]
            at += 1
            if op == 0x68 or op == 0x6A:  # h, j: the value of a number
                if op == 0x68:
                    value = memo[data[at]]
                    at += 1
                else:
                    value = memo[_U32(data, at)[0]]
                    at += 4
                if value is GONE or value is _NOTHING:
                    self._no_value(value)
                stack.append(value)
            elif op == 0x94:  # MEMOIZE
                value = stack[-1]
                if type(value) is dict or type(value) is list:
                    numbers[id(value)] = len(memo)
                memo.append(value)
            elif op == 0x28:  # (
                below.append(stack)
                self.stack = stack = []
            elif op == 0x7D:  # }
                stack.append({})
            elif op == 0x5D:  # ]
                end = self.list_at_once(data, at)
                if end:
                    at = end
                else:
                    stack.append([])
            elif op == 0x4B:  # K
                stack.append(data[at])
                at += 1
            elif op == 0x8A:  # a number of that many bytes
                size = data[at] + 1
                stack.append(int.from_bytes(data[at + 1 : at + size], "little", signed=True))
                at += size
            elif op == 0x75:  # u
                items = stack
                self.stack = stack = below.pop()
                if len(items) & 1:
                    raise Damaged("a key without a value")
                _dict(stack[-1]).update(zip(items[::2], items[1::2], strict=True))
            elif op == 0x65:  # e
                items = stack
                self.stack = stack = below.pop()
                if items:
                    self.appended(_list(stack[-1]), items)
            elif op == 0x4D:  # M
                stack.append(_U16(data, at)[0])
                at += 2
            elif op == 0x4A:  # J
                stack.append(_I32(data, at)[0])
                at += 4
            elif op == 0x8C:  # a short text
                size = data[at] + 1
                raw = data[at + 1 : at + size]
                text = texts.get(raw)
                if text is None:
                    if len(raw) + 1 != size:
                        raise EOFError("it ends in a text")
                    text = raw.decode("utf-8", "surrogatepass")
                    if len(texts) < _TEXTS_KEPT:
                        texts[raw] = text
                stack.append(text)
                at += size
            elif op == 0x95:  # a frame, which says only how much to read at once
                at += 8
            elif op == 0x71:  # q
                self.number(data[at], stack[-1])
                at += 1
            elif op == 0x72:  # r
                self.number(_U32(data, at)[0], stack[-1])
                at += 4
            elif op == 0x2E:  # .
                return stack.pop()
            else:
                self.data, self.at = data, at
                self._rare(op)
                data, at, stack = self.data, self.at, self.stack
                safe = at

    def _rare(self, op: int) -> None:
        """An operation that a snapshot says seldom; it stands at ``self.at``."""
        stack = self.stack
        if op in _SIZES:
            stack.append(self._sized(op))
        elif op in _CONSTANTS:
            stack.append(_CONSTANTS[op])
        elif op in _EMPTY:
            stack.append(_EMPTY[op]())
        elif op == 0x61:  # a
            value = stack.pop()
            self.appended(_list(stack[-1]), [value])
        elif op == 0x73:  # s
            value, key = stack.pop(), stack.pop()
            _dict(stack[-1])[key] = value
        elif op in b"\x85\x86\x87":
            count = op - 0x84
            if len(stack) < count:
                raise Damaged("a tuple of what is not there")
            stack[-count:] = [stack[-count:]]
        elif op in _GATHERED:
            items, self.stack = stack, self.below.pop()
            made = _GATHERED[op](items)
            if made is not None:
                self.stack.append(made)
        elif op == 0x90:  # into a set
            items, self.stack = stack, self.below.pop()
            self.stack[-1].update(items)
        elif op == 0x30:  # 0
            if stack:
                stack.pop()
            else:
                self.stack = self.below.pop()
        elif op == 0x47:  # G
            stack.append(_F64(self.data, self.at)[0])
            self.at += 8
        elif op == 0x80:
            if self.data[self.at] > 5:
                raise Damaged(f"its protocol is {self.data[self.at]}, and 5 is the last that is known")
            self.at += 1
        elif op in b"ILFpg":
            self._of_a_line(op)
        else:
            self._refuse(op)

    def _of_a_line(self, op: int) -> None:
        text = self._line()
        if op == 0x70:  # p
            self.number(int(text), self.stack[-1])
        elif op == 0x67:  # g
            value = self.memo[int(text)] if int(text) >= 0 else _NOTHING
            if value is GONE or value is _NOTHING:
                self._no_value(value)
            self.stack.append(value)
        elif op == 0x46:  # F
            self.stack.append(float(text))
        else:
            truth = {b"00": False, b"01": True}.get(text) if op == 0x49 else None
            self.stack.append(int(text.rstrip(b"L")) if truth is None else truth)

    def _refuse(self, op: int) -> NoReturn:
        if op in _ASKS:
            raise self.refused(_ASKS[op])
        if op in b"ci\x93":
            names = self.stack[-2:] if op == 0x93 else [self._line().decode("utf-8", "replace") for _ in range(2)]
            asked = ".".join(str(name)[:200] for name in names)
            raise self.refused(f"the pickle asks for {asked}, which is no plain data; nothing of it was run.")
        raise Damaged(f"a pickle of plain data has no operation {bytes([op])!r}")

    def _no_value(self, value: object) -> NoReturn:
        if value is GONE:
            raise self.refused("the pickle says one of its events more than once.")
        raise Damaged("a value is asked for that has not been said")

    # --- the bytes ---------------------------------------------------------------------------------------------

    def _more(self, data: bytes, at: int) -> tuple[bytes, int, int]:
        """``(bytes, where in them, up to where an operation has room)`` with what follows in the file."""
        while len(data) - at < ROOM:
            read = self.file.read(_CHUNK)
            if not read:
                break
            data, at = data[at:] + read, 0
        return data, at, len(data) - ROOM if len(data) - at >= ROOM else len(data) + 1

    def _sized(self, op: int) -> Any:
        """A text, bytes or a number that stands behind its length."""
        width, size_of = _SIZES[op]
        size = size_of(self.data, self.at)
        size = size if isinstance(size, int) else size[0]
        self.at += width
        if size < 0 or size > self.size:
            raise Damaged(f"a value of {size:,} bytes in a file of {self.size:,}")
        raw = self._take(size)
        if op in b"X\x8d":
            return raw.decode("utf-8", "surrogatepass")
        if op in b"\x8b":
            return int.from_bytes(raw, "little", signed=True)
        return raw.decode("ascii") if op in b"UT" else raw

    def _take(self, size: int) -> bytes:
        while len(self.data) - self.at < size:
            read = self.file.read(max(_CHUNK, size))
            if not read:
                raise EOFError("it ends in a value")
            self.data, self.at = self.data[self.at :] + read, 0
        raw = self.data[self.at : self.at + size]
        self.at += size
        return raw

    def _line(self) -> bytes:
        end = self.data.find(b"\n", self.at)
        if end == -1:
            raise EOFError("it ends in a line")
        text = self.data[self.at : end]
        self.at = end + 1
        return text


def _dict(value: Any) -> dict[Any, Any]:
    if type(value) is not dict:
        raise Damaged("pairs for what is no dict")
    return value


def _list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise Damaged("items for what is no list")
    return value


_CONSTANTS = {0x4E: None, 0x88: True, 0x89: False}
_EMPTY: dict[int, Callable[[], Any]] = {0x29: list, 0x8F: set}
_GATHERED: dict[int, Callable[[list[Any]], Any]] = {
    0x74: list,
    0x6C: list,
    0x91: frozenset,
    0x31: lambda items: None,
    0x64: lambda items: dict(zip(items[::2], items[1::2], strict=True)),
}
