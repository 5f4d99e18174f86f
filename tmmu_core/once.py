"""What is worked out once, whichever thread comes first: a figure of a value, and how values of a type are read.

``cached_property`` locks nothing: up to Python 3.11 the standard library's takes one lock for all instances of a class.
A thread that works one out would have those of all other instances wait, and in a process forked meanwhile the lock
stays taken for ever.
"""

from __future__ import annotations

import functools
from typing import Any, Self, TypeVar, overload

import msgspec

T = TypeVar("T")


class cached_property(functools.cached_property[T]):  # noqa: N801 (as the one that it stands for)
    """Of a frozen value: whoever asks is given the one answer, that of the first thread that had it."""

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
    """Have msgspec learn types, at the end of the module that defines them, which one thread alone runs.

    It learns a type when a value of it is first read otherwise. What one thread has half learned another one reads by,
    and that ends the process.
    """
    for each in types:
        msgspec.json.Decoder(each)
