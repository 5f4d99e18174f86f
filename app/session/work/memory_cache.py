"""Cache for graphs, plans and derived values, limited in bytes. The least recently used value is evicted first."""

import ctypes
import gc
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import pandas as pd

T = TypeVar("T")
_SAMPLE_SIZE = 64  # measured members of a collection; the others count as the mean of these
_MISSING = object()


def weight_of(value: Any, seen: set[int]) -> float:
    """Return the bytes of a value and of all that it references; skip the ids in ``seen``. Collections are sampled."""
    if value is None or isinstance(value, bool | type) or id(value) in seen:
        return 0
    seen.add(id(value))
    if isinstance(value, str | bytes | int | float):
        return sys.getsizeof(value)
    if isinstance(value, np.ndarray):
        return sys.getsizeof(value) if value.base is None else value.nbytes
    if isinstance(value, pd.DataFrame):
        return float(value.memory_usage(deep=len(value) < 1_000).sum())
    own = float(sys.getsizeof(value, 64))
    if isinstance(value, dict):
        return own + _members_weight(value.keys(), len(value), seen) + _members_weight(value.values(), len(value), seen)
    if isinstance(value, list | tuple | set | frozenset):
        return own + _members_weight(value, len(value), seen)
    attributes = list(getattr(value, "__dict__", {}).values())
    attributes += [getattr(value, name, None) for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ())]
    return own + sum(weight_of(attribute, seen) for attribute in attributes)


def _members_weight(members: Iterable[Any], count: int, seen: set[int]) -> float:
    stride = max(1, count // _SAMPLE_SIZE)
    weights = [weight_of(member, seen) for member in islice(members, 0, stride * _SAMPLE_SIZE, stride)]
    return sum(weights) * count / max(1, len(weights))


class MemoryCache:
    """Values by key, up to ``max_bytes`` in total. A value counts at most half of ``max_bytes``."""

    def __init__(self, max_bytes: int) -> None:
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()  # key → (value, bytes)
        self._lock, self._max_bytes = threading.RLock(), max_bytes
        self._locks: dict[Hashable, threading.Lock] = {}

    def get(self, key: Hashable, default: Any = None) -> Any:
        """Return the value of a key; ``default`` for an unknown key."""
        with self._lock:
            if key not in self._entries:
                return default
            self._entries.move_to_end(key)
            return self._entries[key][0]

    def put(self, key: Hashable, value: Any) -> None:
        """Store a value, and evict the least recently used values while the cache exceeds its limit."""
        weight = min(int(weight_of(value, set())), self._max_bytes // 2)
        with self._lock:
            self._entries.pop(key, None)
            self._entries[key] = value, weight
            while len(self._entries) > 1 and sum(weight for _, weight in self._entries.values()) > self._max_bytes:
                self._entries.popitem(last=False)

    def get_or_make(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value of a key. A missing value is computed once, also if several threads request it."""
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            try:
                if (value := self.get(key, _MISSING)) is _MISSING:
                    value = make()
                    self.put(key, value)
                return value
            finally:
                with self._lock:
                    self._locks.pop(key, None)

    def drop(self, key: Hashable) -> None:
        """Remove a value."""
        with self._lock:
            self._entries.pop(key, None)

    def clear(self) -> None:
        """Remove all values, and return their memory to the operating system."""
        with self._lock:
            self._entries.clear()
        gc.collect()
        with suppress(OSError, AttributeError):  # not every C library has malloc_trim
            ctypes.CDLL(None).malloc_trim(0)
