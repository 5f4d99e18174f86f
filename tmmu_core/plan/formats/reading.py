"""Any file that can be opened, by content: a graph, a plain instance, a plan, a trace, a checkpoint.

The one place where the command line and the explorer open files. Each format is asked in turn why the bytes are *not*
its own; the first with nothing to say reads them, and when all have something to say, the refusal names them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np

from tmmu_core.errors import UnreadableInput
from tmmu_core.graph import document
from tmmu_core.graph.importers import READERS, xla
from tmmu_core.graph.model import Graph
from tmmu_core.plan.formats import checkpoint, files, trace
from tmmu_core.plan.formats.trace import Trace
from tmmu_core.plan.model import PLAN_SCHEMA, Plan
from tmmu_core.planners import instances
from tmmu_core.planners.problem import Packing, PlainInstance, Problem

PARQUET_MAGIC = b"PAR1"


Opened = Graph | PlainInstance | Plan | Trace


@dataclass(frozen=True)
class Format:
    """One format: how it is told from the others, and how it is read."""

    name: str
    title: str
    endings: tuple[str, ...]
    refuses: Callable[[bytes], str]
    """Why these (unpacked) bytes are not of this format; ``""`` when they are."""
    read: Callable[[bytes, str], Opened]


def _not_trace(data: bytes) -> str:
    no_header = 'its first record is no "allocation_header"'
    kind = document.kind(data)
    if not kind:
        return "it begins neither like a JSON object nor like a CBOR map" if data else "the file is empty"
    if kind == "cbor":
        if b"allocation_header" not in data[:4096]:
            return no_header
    elif b"allocation_header" not in data[: data.find(b"\n") + 1 or len(data)]:
        return no_header
    try:
        return "" if trace.is_trace(data) else no_header
    except UnreadableInput:
        # Damaged in its first record, which says what it was meant to be: let the reader name the place.
        return "" if b"allocation_header" in data[:256] else no_header


def _not_plan(data: bytes) -> str:
    if document.kind(data) == "":
        return "it begins neither like a JSON object nor like a CBOR map" if data else "the file is empty"
    no_schema = f'its "schema" is not "{PLAN_SCHEMA}"'
    if b"tmmu_plan/" not in data:
        return no_schema
    try:
        return "" if files.is_plan(data) else no_schema
    except (UnreadableInput, msgspec.DecodeError):
        # Damaged, but it says what it was meant to be near its beginning: let the reader name the place.
        return "" if b"tmmu_plan/" in data[:256] else no_schema


def _not_checkpoint(data: bytes) -> str:
    if document.kind(data) != "cbor":
        return "it does not begin like a CBOR map" if data else "the file is empty"
    no_schema = f'its "schema" is not "{checkpoint.CHECKPOINT_SCHEMA}"'
    if b"tmmu_checkpoint/" not in data:
        return no_schema
    try:
        return "" if checkpoint.is_checkpoint(data) else no_schema
    except UnreadableInput:
        # The schema is the last key of a checkpoint: a damaged one is still recognised by it.
        return "" if b"tmmu_checkpoint/" in data[-256:] else no_schema


def _not_parquet(data: bytes) -> str:
    return "" if data[:4] == PARQUET_MAGIC else f"it does not begin with {PARQUET_MAGIC.decode()}"


def _not_instance(data: bytes) -> str:
    if not data:
        return "the file is empty"
    if document.kind(data):
        return "it begins like a JSON object or a CBOR map"
    line = data.removeprefix(document.BYTE_ORDER_MARK).lstrip(b"\r\n").split(b"\n", 1)[0][:4096]
    try:
        cells = [cell.strip().strip('"').lower() for cell in line.decode().split(",")]
    except UnicodeDecodeError:
        return "it is not text"
    if cells[:3] == ["tensor_id", "arena", "logical_slot"]:
        return "it holds the rows of a plan without its head, which cannot be read back; keep plans as JSON or CBOR"
    known = {instances.NAMES[cell] for cell in cells if cell in instances.NAMES}
    if len(known) < 2:
        return f"its first line does not name the columns {', '.join(instances.NEEDED)}"
    return ""


def _stem(name: str) -> str:
    """A file's name without its folder, so that a plan is called the same wherever its instance lies."""
    return name.replace("\\", "/").rpartition("/")[2].removesuffix(".gz")


def _read_instance(data: bytes, name: str) -> PlainInstance:
    found = instances.read_csv(data, source=name)
    packing = None if found.offset is None else Packing(offset=found.offset)
    return PlainInstance(_stem(name).removesuffix(".csv"), found.problem, packing, found.notes)


def _read_xla(data: bytes, name: str) -> PlainInstance:
    dump = xla.read(data, name)
    row_of = {buffer.id: i for i, buffer in enumerate(dump.buffers)}

    def column(field: str) -> list[int]:
        return [getattr(buffer, field) for buffer in dump.buffers]

    problem = Problem(
        arena="arena",
        ids=tuple(row_of),
        birth=np.array(column("birth"), np.int64),
        death=np.array(column("death"), np.int64),
        size=np.array(column("size"), np.uint64),
        alignment=np.ones(len(row_of), np.uint64),
        handoff_from=np.array([row_of.get(buffer.takes_over, -1) for buffer in dump.buffers], np.int64),
        roles=tuple([buffer.role for buffer in dump.buffers]),
    )
    packing = Packing(offset=np.array(column("offset"), np.uint64))
    return PlainInstance(_stem(name).removesuffix(".txt"), problem, packing, dump.told)


FORMATS: tuple[Format, ...] = (
    Format("trace", "trace", (".jsonl", ".cborseq", ".gz"), _not_trace, trace.read_trace),
    Format("plan", "plan file", (".json", ".cbor", ".gz"), _not_plan, files.from_document),
    Format("checkpoint", "checkpoint", (".cbor", ".gz"), _not_checkpoint, checkpoint.restore),
    Format("parquet", "plan as parquet", (".parquet",), _not_parquet, files.from_parquet),
    *(Format(r.name, r.title, r.endings, r.refuses, r.read) for r in READERS if r.name != "onnx"),
    Format("xla", "XLA buffer assignment with its live ranges", (".txt", ".gz"), xla.refuses, _read_xla),
    Format("instance", "packing instance", (".csv", ".gz"), _not_instance, _read_instance),
    # Last: its protobuf begins like many a text.
    *(Format(r.name, r.title, r.endings, r.refuses, r.read) for r in READERS if r.name == "onnx"),
)
"""Every format, in the order in which they are asked."""


def endings() -> tuple[str, ...]:
    """The usual endings of all formats, each once, for upload dialogs."""
    return tuple(dict.fromkeys(ending for format_ in FORMATS for ending in format_.endings))


def read_any(data: bytes, name: str = "") -> Opened:
    """What a file's bytes hold, gzipped or not; ``name`` is the file's, for errors and for what has no name itself.

    Gives a :class:`Graph`, a :class:`PlainInstance`, a :class:`Plan` (from a plan file or a checkpoint) or a
    :class:`Trace`. Raises ``UnreadableInput`` naming every reader tried with its reason, and what the reader that
    takes the bytes raises.
    """
    plain = document.unpack(data, name)
    tried: list[tuple[str, str]] = []
    for format_ in FORMATS:
        reason = format_.refuses(plain)
        if reason:
            tried.append((format_.name, reason))
            continue
        try:
            return format_.read(plain, name)
        except UnreadableInput as error:
            error.source = error.source or name
            error.tried = error.tried or (*tried, (format_.name, error.message))
            raise
    raise UnreadableInput(
        "the file is empty." if not plain else "no reader knows this content.",
        source=name,
        tried=tuple(tried),
        hint="Give one of: " + ", ".join(format_.title for format_ in FORMATS) + ".",
    )
