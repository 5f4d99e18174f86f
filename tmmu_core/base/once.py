"""``functools.cached_property`` without a class-wide lock, and registration of msgspec types at import.

Up to Python 3.11 the standard library's ``cached_property`` holds one lock for all instances of a class: threads wait
for each other, and in a process forked meanwhile the lock is never released.
"""

from __future__ import annotations

import functools
from typing import Any, Self, TypeVar, overload

import msgspec

T = TypeVar("T")


class cached_property(functools.cached_property[T]):  # noqa: N801 (the standard library's name)
    """Property of a frozen value, computed once; all threads get the value of the first one that finishes."""

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> T: ...

    def __get__(self, instance: object, owner: type[Any] | None = None) -> Self | T:
        if instance is None:
            return self
        assert self.attrname is not None
        answer: T = vars(instance).setdefault(self.attrname, self.func(instance))
        return answer


def learned(*types: Any) -> None:
    """Register types with msgspec; called at the end of the module that defines them.

    msgspec otherwise registers a type when it first reads a value of it, which crashes if two threads do so at once.
    """
    for each in types:
        msgspec.json.Decoder(each)
