"""Resource limits for untrusted input, each with a name and a default that the user can replace.

Input above a limit is rejected with an error that names the limit. Exceptions: if a trace exceeds ``TRACE_*``, the
forward pass in the PyTorch file is planned instead; above ``*_WORKERS``, the explorer delays tasks; above
``KEPT_BYTES`` and ``SHELF_BYTES``, it evicts cached values and files. ``--max-NAME N`` on the command line and
``TMMU_MAX_NAME`` in the environment set a limit; a caller of the library uses :func:`overridden`.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from tmmu_core.base import strict
from tmmu_core.base.errors import UnreadableInput


@dataclass(frozen=True)
class Limit:
    """The maximum of one quantity."""

    name: str  # the ``NAME`` of ``--max-NAME``
    default: int
    unit: str  # the counted unit, in the plural
    highest: int = 1 << 62  # highest value of the limit; a greater one is reduced to it

    @property
    def variable(self) -> str:
        """The environment variable that sets the limit."""
        return f"TMMU_MAX_{self.name.replace('-', '_').upper()}"


_MAX_SECONDS = 10**5  # The parent process waits up to 10 times as long, and a wait must be below 2^31 milliseconds.
UNPACKED_BYTES = Limit("unpacked-bytes", 1 << 28, "bytes")
VALUES = Limit("values", 1 << 23, "values")
ALLOCATION_VALUES = Limit("allocation-values", 1 << 15, "values")
ARENAS = Limit("arenas", 1 << 10, "arenas")
PAIRS = Limit("pairs", 1 << 20, "pairs of tensors that must not share a byte")
DEVICES = Limit("devices", 1 << 10, "devices")
INLINED_NODES = Limit("inlined-nodes", 1 << 18, "nodes")
RANKS = Limit("ranks", 1 << 20, "ranks")
SHARES = Limit("shares", 1 << 12, "combinations of share sizes")
TRACE_SECONDS = Limit("trace-seconds", 120, "seconds for tracing a program with PyTorch", _MAX_SECONDS)
TRACE_BYTES = Limit("trace-bytes", 1 << 33, "bytes of address space for tracing a program with PyTorch")
RUN_SECONDS = Limit("run-seconds", 60, "seconds of processor time for a run of onnxruntime (0: no run)", _MAX_SECONDS)
RUN_BYTES = Limit("run-bytes", 12 << 30, "bytes of address space for a run of onnxruntime")
WORKER_BYTES = Limit("worker-bytes", 1 << 33, "bytes of address space for a task of the explorer")
SESSION_WORKERS = Limit("session-workers", 3, "tasks at a time for one visitor of the explorer")
SERVER_WORKERS = Limit("server-workers", 8, "tasks at a time for all visitors of the explorer")
KEPT_BYTES = Limit("kept-bytes", 1 << 30, "bytes of graphs and plans that the explorer caches")
SHELF_BYTES = Limit("shelf-bytes", 1 << 29, "bytes of files that visitors of the explorer opened")

LIMITS: tuple[Limit, ...] = tuple(value for value in tuple(globals().values()) if isinstance(value, Limit))
"""All limits, in this order."""

SWITCH = ("", "0", "1")
SETTINGS: dict[str, tuple[str, ...] | None] = {}
SETTINGS |= dict.fromkeys(("TMMU_STORE", "TMMU_BASE_PATH", "TMMU_TOKEN", "TMMU_PROXY_HEADER"))
SETTINGS |= {"TMMU_STAND_BACK": SWITCH, "TMMU_NATIVE": SWITCH, "TMMU_GALLERY": ("", "shared")}
SETTINGS |= dict.fromkeys(limit.variable for limit in LIMITS)
"""Environment variable → its allowed values; ``None``: any text or, for a limit, a whole number."""

_overrides: ContextVar[Mapping[str, int] | None] = ContextVar("limits", default=None)


def ceiling(limit: Limit, default: int | None = None) -> int:
    """Return the value from :func:`overridden`, else the variable, else ``default``, else ``limit.default``."""
    refuse_unknown_settings()
    if limit.name in overrides():
        return min(overrides()[limit.name], limit.highest)
    text = os.environ.get(limit.variable, "")
    if text:
        return min(whole_number(text, limit.variable), limit.highest)
    return limit.default if default is None else default


def whole_number(text: str, source: str) -> int:
    """Parse ``text`` as a limit; ``source`` is its option or variable. Raises ``UnreadableInput``."""
    try:
        return strict.whole_number(text)
    except ValueError as error:
        hint = f"Write digits, such as {UNPACKED_BYTES.default}."
        raise UnreadableInput(str(error), source=source, hint=hint) from None


def refuse_unknown_settings() -> None:
    """Raise ``UnreadableInput`` for an unknown environment variable ``TMMU_*``, and for one with an invalid value."""
    for name, value in os.environ.items():
        if not name.startswith("TMMU_"):
            continue
        if name not in SETTINGS:
            hint = strict.closest_hint(name, SETTINGS)
            raise UnreadableInput("unknown environment variable.", source=name, hint=hint)
        if value and name.startswith("TMMU_MAX_"):
            whole_number(value, name)
        allowed = SETTINGS[name]
        if allowed is not None and value not in allowed:
            message = f"the value {strict.shown(value)} is not allowed."
            raise UnreadableInput(message, source=name, hint=strict.closest_hint(value, filter(None, allowed)))


def overrides() -> Mapping[str, int]:
    """Return the limits that :func:`overridden` has set. Pass them to a worker process, which does not inherit them."""
    return _overrides.get() or {}


@contextmanager
def overridden(values: Mapping[str, int]) -> Iterator[None]:
    """Return a context manager that sets limits: name → value. Other limits keep their values."""
    token = _overrides.set({**overrides(), **values})
    try:
        yield
    finally:
        _overrides.reset(token)


def limit_error(limit: Limit, subject: str, source: str = "", allowed: int | None = None) -> UnreadableInput:
    """Return the error for ``subject`` above ``limit``; ``allowed``: its value, by default :func:`ceiling`."""
    number = f"{ceiling(limit) if allowed is None else allowed:,}"
    message = f"{subject} has more than {number} {limit.unit}."
    hint = f"If the input is correct, set a limit above {number}: --max-{limit.name} N, or {limit.variable}=N."
    return UnreadableInput(message, source=source, hint=hint)
