"""How an answer is told: plain, in one line, with a digest where it is long."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, is_dataclass
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np

from tmmu_core.errors import TmmuError

LONG = 150
_HIDDEN: ContextVar[tuple[tuple[str, str], ...]] = ContextVar("hidden", default=())


@contextmanager
def hidden(*texts: tuple[object, str]) -> Iterator[None]:
    """Inside, these texts, which are others at every run, are told by other ones."""
    token = _HIDDEN.set((*((str(text), by) for text, by in texts), *_HIDDEN.get()))
    try:
        yield
    finally:
        _HIDDEN.reset(token)


@contextmanager
def folder() -> Iterator[Path]:
    """A folder of its own, told as ``…``."""
    with tempfile.TemporaryDirectory() as made, hidden((Path(made).resolve(), "…"), (made, "…")):
        yield Path(made)


@dataclass(frozen=True)
class Kind:
    """Inputs of one kind: how many there are, and what is said of the one that a random state makes."""

    count: int
    say: Callable[[Random, int], Any]


def plain(value: Any) -> Any:
    """A value as lists, texts and numbers; what is in no order is put into one."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, msgspec.Struct):
        return [type(value).__name__, *(plain(getattr(value, name)) for name in value.__struct_fields__)]
    if is_dataclass(value) and not isinstance(value, type):
        return [type(value).__name__, *(plain(getattr(value, each.name)) for each in fields(value))]
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(plain, value), key=repr)
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    return value if isinstance(value, str | int | float | bool | type(None)) else repr(value)


def digest(value: Any) -> str:
    """Enough of the hash of all that a value holds to know it again."""
    return sha256(json.dumps(plain(value)).encode()).hexdigest()[:10]


def line(value: Any) -> str:
    """A value in one line, printable: as it is where that is short, else its beginning and a digest of it all."""
    text = value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False)
    for hidden_text, by in _HIDDEN.get():
        text = text.replace(hidden_text, by)
    text = text.encode("utf-8", "backslashreplace").decode().replace("\n", "⏎")
    return text if len(text) <= LONG else f"{text[: LONG - 12]}… {sha256(text.encode()).hexdigest()[:10]}"


def refusal(error: TmmuError) -> str:
    """All that a refusal says."""
    record = error.record()  # type: ignore[attr-defined]
    return f"✗ {record['code_id']} {record['message']} {json.dumps(record, ensure_ascii=False, sort_keys=True)}"


def said(ask: Callable[[], Any]) -> str:
    """What comes of asking: the answer, or the refusal, in one line."""
    try:
        return line(ask())
    except TmmuError as error:
        return line(refusal(error))
