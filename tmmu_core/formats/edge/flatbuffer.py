"""Read a flatbuffer field by field with every offset checked, for untrusted files.

A table's fields are identified by their numbers in the schema. The ``flatbuffers`` package checks no offset. A file may
contain at most as many elements as it has bytes: otherwise vectors that share their tables make a small file expensive.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from tmmu_core.base.errors import TmmuError


class Damaged(TmmuError):
    """An offset outside of the file, or more elements than the file has bytes."""


_U8: Final = struct.Struct("<B")
_U16: Final = struct.Struct("<H")
_I32: Final = struct.Struct("<i")
_U32: Final = struct.Struct("<I")
_I64: Final = struct.Struct("<q")


class Flat:
    """The bytes of one file, and how many more elements may be read from it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.left = len(data)

    def root(self) -> Table:
        """Return the root table. Raises :class:`Damaged`, as every method here."""
        return Table(self, self.number(_U32, 0))

    def number(self, kind: struct.Struct, at: int) -> int:
        """Return the number of this kind at byte ``at``."""
        if at < 0 or at + kind.size > len(self.data):
            raise Damaged(f"byte {at} is outside of its {len(self.data)} bytes.")
        value: int = kind.unpack_from(self.data, at)[0]
        return value

    def spend(self, elements: int) -> None:
        """Count elements against the limit."""
        self.left -= elements
        if self.left < 0:
            raise Damaged(f"it contains more elements than its {len(self.data)} bytes allow.")


@dataclass(frozen=True)
class Table:
    """One table at a byte of the file."""

    flat: Flat
    at: int

    def _field(self, number: int) -> int:
        """Return a field's byte; 0 if it is absent."""
        vtable = self.at - self.flat.number(_I32, self.at)
        slot = 4 + 2 * number
        if slot >= self.flat.number(_U16, vtable):
            return 0
        relative = self.flat.number(_U16, vtable + slot)
        return self.at + relative if relative else 0

    def byte(self, number: int) -> int:
        """Return a field of one byte; 0 if it is absent."""
        place = self._field(number)
        return self.flat.number(_U8, place) if place else 0

    def integer(self, number: int) -> int:
        """Return a signed field of four bytes; 0 if it is absent."""
        place = self._field(number)
        return self.flat.number(_I32, place) if place else 0

    def unsigned(self, number: int) -> int:
        """Return an unsigned field of four bytes; 0 if it is absent."""
        place = self._field(number)
        return self.flat.number(_U32, place) if place else 0

    def table(self, number: int) -> Table | None:
        """Return a table field; ``None`` if it is absent."""
        place = self._field(number)
        self.flat.spend(1)
        return Table(self.flat, place + self.flat.number(_U32, place)) if place else None

    def union(self, number: int) -> tuple[int, Table | None]:
        """Return the type and the table of a union field."""
        return self.byte(number), self.table(number + 1)

    def text(self, number: int) -> str:
        """Return a text field; empty if it is absent."""
        start, length = self._vector(number, 1)
        return self.flat.data[start : start + length].decode("utf-8", "replace")

    def integers(self, number: int) -> list[int]:
        """Return a vector of signed numbers of four bytes."""
        start, length = self._vector(number, 4)
        return [value for (value,) in _I32.iter_unpack(self.flat.data[start : start + 4 * length])]

    def long_integers(self, number: int) -> list[int]:
        """Return a vector of signed numbers of eight bytes."""
        start, length = self._vector(number, 8)
        return [value for (value,) in _I64.iter_unpack(self.flat.data[start : start + 8 * length])]

    def tables(self, number: int) -> list[Table]:
        """Return a vector of tables."""
        start, length = self._vector(number, 4)
        return [Table(self.flat, at + self.flat.number(_U32, at)) for at in range(start, start + 4 * length, 4)]

    def _vector(self, number: int, width: int) -> tuple[int, int]:
        place = self._field(number)
        start = length = 0
        if place:
            at = place + self.flat.number(_U32, place)
            start, length = at + 4, self.flat.number(_U32, at)
            self.flat.spend(length)
            if start + length * width > len(self.flat.data):
                raise Damaged(f"a list at byte {at} ends after its {len(self.flat.data)} bytes.")
        return start, length
