"""Errors that the user can fix, as a class tree. The contract is the specification; its §5 defines the error records.

::

    TmmuError                      an error that the user can fix; a bug raises another exception
    ├── UnreadableInput            a file or a setting that cannot be read, or that exceeds a limit
    │   └── MissingExtra           a required package is not installed
    ├── Misuse                     an invalid or unsupported request
    │   └── UnwritableOutput       a file that cannot be written
    ├── StoreFault                 a store that cannot be used, or lacks the requested plan
    └── ContractError              a clause of the contract is violated; one subclass per code

A verdict (lint, verify, compare) is a value, not an error.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar

Scalar = str | int | float | bool | None
Rejection = tuple[str, str]  # name of a reader, and why it rejected the file

U64_MAX = 2**64 - 1

SPEC_VERSION = "UML_OS.TMMU.PrepareMemory_v2"  # the main operator of the specification

OPERATORS: Mapping[str, str] = {
    SPEC_VERSION: "tmmu_core.runtime.apply:prepare_memory",
    "UML_OS.TMMU.PlanMemory_v2": "tmmu_core.plans.making.engine:solve",
    "UML_OS.TMMU.ApplyPlan_v1": "tmmu_core.runtime.apply:apply_plan",
    "UML_OS.Model.AnalyzeLiveness_v1": "tmmu_core.liveness.analyse:analyse",
    "UML_OS.TMMU.AssignLogicalSlots_v1": "tmmu_core.planners.slots:assign_slots",
    "UML_OS.TMMU.MapToVirtualAddresses_v1": "tmmu_core.planners.slots:slot_offsets",
    "UML_OS.TMMU.ZeroTensor_v1": "tmmu_core.runtime.apply:Applied.enter",
    "UML_OS.TMMU.DebugFillTensor_v1": "tmmu_core.runtime.apply:Applied.debug_fill",
    "UML_OS.TMMU.CommitExecution_v1": "tmmu_core.runtime.apply:commit_execution",
    "UML_OS.Error.Emit_v1": "tmmu_core.base.errors:ContractError.record",
}
"""Operator of the specification → its function (TMMU v2 0.G, 0.H). The ``failure_operator`` of a record is a key."""

EXTRA_OF = {"blake3": "draft", "executorch": "executorch", "tflite_micro": "tflm", "torch": "torch"}
EXTRA_OF |= {"dask": "sweep", "distributed": "sweep", "onnxruntime": "run", "sympy": "run", "pandas": "tables"}
EXTRA_OF |= {"pyarrow": "tables", "plotly": "app", "streamlit": "app", "psycopg": "store", "sqlalchemy": "store"}
"""Package → the extra of this product that installs it."""
DISPLAY_NAMES = {"executorch": "ExecuTorch", "torch": "PyTorch"}  # package → its name in messages, if it differs


def escaped_surrogates(value: Any) -> Any:
    """Return a JSON value whose texts can be encoded as UTF-8: a lone surrogate becomes the text ``\\udcff``."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {escaped_surrogates(key): escaped_surrogates(inner) for key, inner in value.items()}
    return [escaped_surrogates(inner) for inner in value] if isinstance(value, list | tuple) else value


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message (a trace may follow it), or the error's type if it has no message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class TmmuError(Exception):
    """An error that the user can fix. ``hint``: how to fix it."""

    code_id: ClassVar[str] = "TMMU_ERROR"
    record_fields: ClassVar[tuple[str, ...]] = ("message", "hint")
    """Attributes in the record after ``code_id``, in this order."""

    def __init__(self, message: str, hint: str = "") -> None:
        self.message, self.hint = message, hint
        super().__init__(message)

    def __str__(self) -> str:
        return " ".join(filter(None, (self.message, self.hint)))

    def record(self) -> dict[str, Any]:
        """Return the error as a JSON-ready mapping, for ``--json``."""
        return {name: escaped_surrogates(getattr(self, name)) for name in ("code_id", *self.record_fields)}


class UnreadableInput(TmmuError):
    """A file, an environment variable or an option cannot be read, or exceeds a limit.

    ``source``: name of the file, variable or option. ``place``: position in the file ("byte 17", "line 3, column 9",
    "$.tensors[4].shape"). ``tried``: the readers that rejected the file, in order.
    """

    code_id = "UNREADABLE_INPUT"
    record_fields = ("message", "source", "place", "tried", "hint")

    def __init__(
        self, message: str, hint: str = "", *, source: str = "", place: str = "", tried: tuple[Rejection, ...] = ()
    ) -> None:
        self.source, self.place, self.tried = source, place, tried
        super().__init__(message, hint)

    @property
    def message_with_place(self) -> str:
        """The message with the place, such as ``this is not a checkpoint (at $.schema).``"""
        return _with_place(self.message, self.place)

    def __str__(self) -> str:
        lines = [(f"{self.source}: " if self.source else "") + self.message_with_place]
        lines += [f"  {reader}: {reason}" for reader, reason in self.tried]
        if self.hint:
            lines.append(self.hint)
        return "\n".join(lines)

    def record(self) -> dict[str, Any]:
        """Return the error as a JSON-ready mapping; ``tried`` is a list of objects with ``reader`` and ``reason``."""
        tried = [{"reader": reader, "reason": reason} for reader, reason in self.tried]
        return super().record() | {"tried": escaped_surrogates(tried)}


def _with_place(message: str, place: str) -> str:
    sentence = message.removesuffix(".")
    return message if place in ("", "$") or place in sentence else f"{sentence} (at {place}){message[len(sentence) :]}"


@contextmanager
def source_of_errors(source: str) -> Iterator[None]:
    """Context manager: set ``source`` in an ``UnreadableInput`` or ``ContractError`` that has no source."""
    try:
        yield
    except UnreadableInput as error:
        error.source = error.source or source
        raise
    except ContractError as error:
        if source:
            error.fill(source=source)
        raise


def open_error(
    error: OSError, source: object, hint: str = "Check the name and the permissions.", what: str = "the file"
) -> UnreadableInput:
    """Return the error for a file that cannot be opened; ``what`` is the subject of its message."""
    why = (error.strerror or str(error)).lower()
    return UnreadableInput(f"{what} cannot be opened: {why}.", source=str(source), hint=hint)


class MissingExtra(UnreadableInput):
    """A required package is not installed; ``hint`` is the command that installs it."""

    code_id = "MISSING_EXTRA"


class Misuse(TmmuError):
    """An invalid or unsupported request."""

    code_id = "USAGE"


class UnwritableOutput(Misuse):
    """An output file cannot be written (no folder, no permission, no space)."""


class StoreFault(TmmuError):
    """A store of plans cannot be used, or lacks the requested plan.

    ``store``: its URL without the password; empty if the error does not depend on the store.
    """

    code_id = "STORE"
    record_fields = ("message", "store", "hint")

    def __init__(self, message: str, *, store: str = "", hint: str) -> None:
        self.store = store
        super().__init__(message, hint)

    def __str__(self) -> str:
        return (f"{self.store}: " if self.store else "") + super().__str__()


class ContractError(TmmuError):
    """A clause of the contract is violated. Each subclass sets the code and its ``required_diagnostics``.

    ``t``: the step, or −1. ``operator``: name of the failed operation in the specification; default: the attribute
    ``operator`` of the class. ``diagnostics``: scalars; callers add further ones with :meth:`fill`.
    """

    numeric_code: ClassVar[int]
    severity: ClassVar[str]
    required_diagnostics: ClassVar[tuple[str, ...]] = ()
    operator: ClassVar[str] = "UML_OS.TMMU.MapToVirtualAddresses_v1"
    subsystem, retryable = "TMMU", False
    record_fields = (
        *("numeric_code", "severity", "subsystem", "t", "rank", "failure_operator", "replay_token"),
        *("message", "retryable", "diagnostics"),
    )

    def __init__(
        self, message: str, *, t: int = -1, operator: str | None = None, hint: str = "", **diagnostics: Scalar
    ) -> None:
        super().__init__(message, hint)
        self.t = t
        self.failure_operator = operator or type(self).operator
        self.diagnostics: dict[str, Scalar] = diagnostics
        self.replay_token: str | None = None
        self.rank = 0

    def __str__(self) -> str:
        source, place = (str(self.diagnostics.get(key, "")) for key in ("source", "path"))
        text = f"{self.code_id} ({self.numeric_code}): {_with_place(self.message, place)}"
        return " ".join(filter(None, (source and f"{source}:", text, self.hint)))

    def fill(self, *, replay_token: str | None = None, rank: int | None = None, **diagnostics: Scalar) -> None:
        """Set the rank if given; set the token and diagnostics only if they are missing or ``"unknown"``."""
        self.replay_token = self.replay_token or replay_token
        self.rank = self.rank if rank is None else rank
        for key, value in diagnostics.items():
            if self.diagnostics.get(key, "unknown") == "unknown":
                self.diagnostics[key] = value

    def record(self) -> dict[str, Any]:
        """Return the error record of §5: missing required diagnostics are ``"unknown"``, the hint is a diagnostic."""
        diagnostics = {**dict.fromkeys(self.required_diagnostics, "unknown"), **self.diagnostics}
        if self.hint:
            diagnostics["hint"] = self.hint
        return super().record() | {"diagnostics": escaped_surrogates(dict(sorted(diagnostics.items())))}


class AlignmentViolation(ContractError):
    """1301: an alignment that is not a power of two ≥ 1, or a misaligned view, offset or address."""

    code_id, numeric_code, severity = "ALIGNMENT_VIOLATION", 1301, "FATAL"
    required_diagnostics = ("arena", "logical_slot")


class AllocationFailure(ContractError):
    """1302: Σ extents exceeds the budget, or the system does not map an arena; nothing was committed."""

    code_id, numeric_code, severity = "TMMU_ALLOCATION_FAILURE", 1302, "FATAL"
    required_diagnostics = ("arena", "peak_required_bytes")
    operator = "UML_OS.TMMU.PrepareMemory_v2"


class AllocationOverflow(ContractError):
    """1303: a size, an offset or a sum exceeds 2^64 − 1."""

    code_id, numeric_code, severity = "ALLOCATION_OVERFLOW", 1303, "FATAL"
    required_diagnostics = ("arena", "offset", "size")


class ArenaTooSmall(ContractError):
    """1304: the extent or a tensor's end exceeds the capacity, or the arena is not declared (capacity 0)."""

    code_id, numeric_code, severity = "ARENA_TOO_SMALL", 1304, "ERROR"
    required_diagnostics = ("arena", "capacity", "required")

    @property
    def is_undeclared(self) -> bool:
        """Whether the arena is not declared: no other ``ArenaTooSmall`` has capacity 0 and names a tensor."""
        return self.diagnostics.get("capacity") == 0 and "tensor" in self.diagnostics


class LivenessCycle(ContractError):
    """1305: a cycle of nodes or views, or an order that reads a tensor before it is written."""

    code_id, numeric_code, severity = "LIVENESS_CYCLE", 1305, "ERROR"
    required_diagnostics = ("ir_hash", "node_id")
    operator = "UML_OS.Model.AnalyzeLiveness_v1"


class InvalidIrShapes(ContractError):
    """1306: a graph, arena configuration or shard spec is invalid; ``diagnostics["reason"]`` is a stable identifier."""

    code_id, numeric_code, severity = "INVALID_IR_SHAPES", 1306, "ERROR"
    required_diagnostics = ("ir_hash", "node_id", "reason")
    operator = "UML_OS.Model.AnalyzeLiveness_v1"


class AddressCollision(ContractError):
    """1307: two live tensors of a finished plan overlap, or two hashed addresses (``blake3_sparse``) are equal."""

    code_id, numeric_code, severity = "ADDRESS_COLLISION", 1307, "FATAL"
    required_diagnostics = ("arena", "logical_slot")


def install_command(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'tmmu-plan-explorer[{extra}]'"


def installed(package: str) -> bool:
    """Return whether the package is installed; it is not imported."""
    try:
        return find_spec(package) is not None
    except ValueError:  # sys.modules maps the name to an object without a module spec
        return False


def missing_package(package: str, what: str) -> MissingExtra:
    """Return the error for a missing package. ``what`` needs the package and is the subject of the message."""
    message = f"{what} needs {DISPLAY_NAMES.get(package, package)}, which is not installed."
    command = install_command(EXTRA_OF[package]) if package in EXTRA_OF else f"pip install {package.replace('_', '-')}"
    return MissingExtra(message, hint=f"Add it: {command}")


def require(package: str, what: str) -> None:
    """Raise ``MissingExtra`` if a package is not installed. The package is not imported."""
    if not installed(package):
        raise missing_package(package, what)


def need(module: str, what: str) -> Any:
    """Import and return a module, such as ``pyarrow.parquet``. Raises ``MissingExtra`` if its package is missing."""
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ImportError as error:
        if error.name is not None and error.name.partition(".")[0] != package:
            raise  # the package is installed; one of its dependencies is not
        raise missing_package(package, what) from error
