"""A plan as Parquet: its rows as columns, everything else in the metadata. Bytes in, :class:`Plan` out, and back.

It is written here and read by :mod:`.parquet_child`, in a process of its own.
"""

from __future__ import annotations

import io
import signal
import subprocess

import msgspec

from tmmu_core import limits
from tmmu_core.child import answer_of
from tmmu_core.errors import UnreadableInput
from tmmu_core.extras import installed, missing, need
from tmmu_core.graph import document
from tmmu_core.names import visible
from tmmu_core.plan.formats.building import from_head
from tmmu_core.plan.formats.documents import HeadDocument, head_document
from tmmu_core.plan.formats.parquet_child import HEAD_KEY, Answer
from tmmu_core.plan.model import Plan

WAIT = 4
"""How much longer than the processor's seconds the clock's are waited for: others work on the machine, too."""
PER_BYTE = 32
"""Bytes of memory that a byte of a large file may take."""
WITHOUT_RESERVES = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
"""The pool that takes memory as it is needed."""


def to_parquet(plan: Plan) -> bytes:
    """The rows as parquet; the head of the plan file, as JSON, under the metadata key ``tmmu_plan``."""
    pa, pq = need("pyarrow", "a Parquet file"), need("pyarrow.parquet", "a Parquet file")
    names = pa.array([arena.name for arena in plan.arenas], pa.string())
    table = pa.table(
        {
            "tensor_id": pa.array(plan.tensor_ids, pa.string()),
            "arena": pa.DictionaryArray.from_arrays(pa.array(plan.arena), names),
            "logical_slot": plan.logical_slot,
            "offset_bytes": plan.offset,
            "size_bytes": plan.size,
            "alignment": plan.alignment,
            "birth": plan.birth,
            "death": plan.death,
            "generation": plan.generation,
            "role": pa.array(plan.roles, pa.string()),
            "dtype": pa.array(plan.dtypes, pa.string()),
            "shape": pa.array([list(shape) for shape in plan.shapes], pa.list_(pa.uint64())),
            "alias_group_id": pa.array(plan.alias_group_ids, pa.string()),
            "base_tensor_uid": pa.array(plan.base_tensor_uids, pa.string()),
        }
    )
    head = msgspec.json.encode(head_document(plan))
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({HEAD_KEY: head}), sink, compression="zstd")
    return sink.getvalue()


def from_parquet(data: bytes, source: str = "") -> Plan:
    """Read a parquet file that :func:`to_parquet` wrote. Raises ``UnreadableInput`` for any other."""
    if not installed("pyarrow"):
        raise missing("pyarrow", "a Parquet file", source)
    found = _answer(data, source)
    if found.head is None:
        raise UnreadableInput(
            "this parquet file is not a plan: it has no head.",
            source=source,
            place=f"metadata key {HEAD_KEY.decode()!r}",
            hint='Write plans with "tmmu plan … -o plan.parquet".',
        )
    try:
        document.refuse_long_numbers(found.head, source)
        head = msgspec.json.decode(found.head, type=HeadDocument)
        document.refuse_repeated_keys(found.head, source)
        return from_head(head, found.rows, source)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableInput(f"this parquet file is not a plan: {error}.", source=source) from error


def _answer(data: bytes, source: str) -> Answer:
    """The child's answer: rows. Raises ``UnreadableInput`` for any other, and where it ended without one."""
    seconds = limits.ceiling(limits.READ_SECONDS)
    memory = limits.ceiling(limits.READ_BYTES, max(limits.READ_BYTES.default, PER_BYTE * len(data)))
    values, unpacked = limits.values_of(len(data), packed=True), limits.ceiling(limits.UNPACKED_BYTES)
    asked = [str(number) for number in (seconds, memory, values, unpacked)]
    try:
        child = answer_of("tmmu_core.plan.formats.parquet_child", asked, data, WAIT * seconds + WAIT, WITHOUT_RESERVES)
    except subprocess.TimeoutExpired as error:
        raise limits.past(limits.READ_SECONDS, "this parquet file", source) from error
    except OSError as error:
        raise _unreadable(f"no process could be started ({error})", source) from error
    if -child.returncode in (signal.SIGXCPU, signal.SIGKILL):
        raise limits.past(limits.READ_SECONDS, "this parquet file", source)
    try:
        found = msgspec.msgpack.decode(child.stdout, type=Answer)
    except msgspec.DecodeError as error:
        raise _unreadable(_last_words(child), source) from error
    if found.word == "values":
        raise limits.past(limits.VALUES, "the columns", source, values)
    if found.word == "unpacked":
        raise limits.past(limits.UNPACKED_BYTES, "the columns", source)
    if found.word == "memory":
        raise limits.past(limits.READ_BYTES, "this parquet file", source, memory)
    if found.word == "no plan":
        raise UnreadableInput(f"this parquet file is not a plan: {found.why}.", source=source)
    if found.word == "unreadable":
        raise _unreadable(found.why, source)
    return found


def _last_words(child: subprocess.CompletedProcess[bytes]) -> str:
    """Why a process ended that gave no answer: what C++ says of its last exception, or how."""
    said = child.stderr.decode("utf-8", "replace").strip().rpartition("what():")[2 if b"what():" in child.stderr else 1]
    how = f"signal {-child.returncode}" if child.returncode < 0 else f"code {child.returncode}"
    return visible(said.strip().partition("\n")[0][:200]) or f"its reader, pyarrow, ended with {how}"


def _unreadable(why: str, source: str) -> UnreadableInput:
    hint = 'Copy the file again, or write it anew: "tmmu plan … -o plan.parquet".'
    return UnreadableInput(f"this parquet file cannot be read: {why}", source=source, hint=hint)
