"""Cache for graphs, plans and derived values, limited in bytes.

The least recently used entry is evicted first. An entry that belongs to visitors is evicted soon after its last visitor
has left, because other visitors rarely request it.
"""

import ctypes
import gc
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import pandas as pd

T = TypeVar("T")
AFTER = 10.0  # seconds that an entry is kept after its last visitor has left
_SAMPLED = 64  # members of a collection that are measured; their mean is used for the others


def weight_of(value: Any, seen: set[int]) -> float:
    """Return the bytes of a value with all that it refers to, except ids in ``seen``; large collections are sampled."""
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
        return own + _sampled(value.keys(), len(value), seen) + _sampled(value.values(), len(value), seen)
    if isinstance(value, list | tuple | set | frozenset):
        return own + _sampled(value, len(value), seen)
    attributes = list(getattr(value, "__dict__", {}).values())
    attributes += [getattr(value, name, None) for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ())]
    return own + sum(weight_of(attribute, seen) for attribute in attributes)


def _sampled(members: Iterable[Any], count: int, seen: set[int]) -> float:
    stride = max(1, count // _SAMPLED)
    weights = [weight_of(member, seen) for member in islice(members, 0, stride * _SAMPLED, stride)]
    return sum(weights) * count / max(1, len(weights))


@dataclass
class _Entry:
    value: Any
    weight: int
    owners: set[str] = field(default_factory=set)  # visitors; empty for a public value
    left_at: float | None = None


class MemoryCache:
    """Values by key, up to ``most`` bytes."""

    def __init__(self, most: int, is_connected: Callable[[str], bool], after: float = AFTER) -> None:
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._lock = threading.RLock()
        self._locks: dict[Hashable, threading.Lock] = {}
        self._most, self._is_connected, self._after = most, is_connected, after

    def get(self, key: Hashable) -> Any:
        """Return the value of a key; ``None`` for an unknown key."""
        entry = self._entry(key)
        return None if entry is None else entry.value

    def _entry(self, key: Hashable) -> _Entry | None:
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
            return self._entries.get(key)

    def put(self, key: Hashable, value: Any, owners: Iterable[str] = ()) -> None:
        """Store a value, and evict the least recently used values while the cache exceeds its limit."""
        entry = _Entry(value, min(int(weight_of(value, set())), self._most // 2), set(owners))
        with self._lock:
            self._entries[key] = entry
            self._entries.move_to_end(key)
            weight = sum(entry.weight for entry in self._entries.values())
            while weight > self._most and len(self._entries) > 1:
                weight -= self._entries.popitem(last=False)[1].weight

    def get_or_make(self, key: Hashable, make: Callable[[], T], owners: Callable[[], Iterable[str]]) -> T:
        """Return the value of a key; compute a missing one once, also for concurrent callers; then add ``owners()``."""
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            try:
                if (entry := self._entry(key)) is None:
                    value = make()
                    self.put(key, value, owners())
                    return value
            finally:
                with self._lock:
                    self._locks.pop(key, None)
        self.add_owners(key, owners())
        return entry.value

    def add_owners(self, key: Hashable, owners: Iterable[str]) -> None:
        """Add owners of a value; no effect for a missing or public value."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None and entry.owners:
                entry.owners |= set(owners)
                entry.left_at = None

    def drop(self, key: Hashable) -> None:
        """Remove a value."""
        with self._lock:
            self._entries.pop(key, None)

    def evict_left(self) -> None:
        """Evict the values whose visitors have all left at least :data:`AFTER` seconds ago."""
        evicted_bytes = 0
        with self._lock:
            for key, entry in list(self._entries.items()):
                if not entry.owners or any(map(self._is_connected, entry.owners)):
                    entry.left_at = None
                elif entry.left_at is None:
                    entry.left_at = time.monotonic()
                elif time.monotonic() - entry.left_at > self._after:
                    evicted_bytes += self._entries.pop(key).weight
        if evicted_bytes > 1 << 24:  # the allocator keeps freed memory: return it to the operating system
            gc.collect()
            with suppress(OSError, AttributeError):
                ctypes.CDLL(None).malloc_trim(0)
