"""Read samples, opened files and plans of this server's store; keep the opened files; make error cards of files."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

import streamlit as st

from app.session.work import tasks, visitors
from app.session.work.jobs import Job, job_table
from tmmu_core.base.app_package import project_path
from tmmu_core.base.errors import ArenaTooSmall, StoreFault, TmmuError, UnreadableInput, require
from tmmu_core.base.escaping import visible
from tmmu_core.base.limits import SHELF_BYTES, ceiling
from tmmu_core.formats.open_file import read_any
from tmmu_core.formats.planfile.trace import Trace
from tmmu_core.formats.pytorch.snapshot.torch_snapshot import snapshot_files
from tmmu_core.formats.xla import xla_dump
from tmmu_core.graph.model import Graph, StorageOrigin
from tmmu_core.graph.native.document import read_whole
from tmmu_core.planners.problem import PlainInstance, Problem, Progress
from tmmu_core.plans.model import Plan

if TYPE_CHECKING:
    from tmmu_core.store.runs import Run
    from tmmu_core.store.store import Store

T = TypeVar("T")
MIN_BYTES_FOR_WORKER = 1 << 23  # minimum bytes of a file that a worker reads, so that reading can be cancelled
STORE_ENV = "TMMU_STORE"  # environment variable; the URL of this server's store (``--store``)
STORE_KIND = "store"  # source of a stored plan: store:<SHA-256 of its file, in hex>
GALLERY_ENV = "TMMU_GALLERY"  # environment variable; the value ``shared`` lists the files of all visitors
MOVES = ".moves.json"  # suffix of files that list the changes of a fitted plan; no list of opened files shows them
MAX_NAME_LENGTH = 255
WAIT_SECONDS = 0.4  # seconds that a page waits for a file before it shows the progress
SAMPLES = project_path("sample_graphs")


@dataclass(frozen=True)
class Sample:
    """A sample of the gallery."""

    name: str  # file name without extensions, used in links
    title: str
    path: Path
    teaches: str  # what the sample demonstrates, as text
    group: str


@dataclass(frozen=True, eq=False)
class Opened:
    """The content of a file: a graph, packing problems without a graph, or a finished plan."""

    source: str
    name: str
    graph: Graph | None = None
    instance: PlainInstance | None = None  # the packing problems, one per arena
    plan: Plan | None = None
    trace: Trace | None = None

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems of the instance; () without an instance."""
        return () if self.instance is None else self.instance.problems

    @property
    def producers(self) -> Mapping[str, StorageOrigin]:
        """Storage of the instance → its producer, if the file states it."""
        return {} if self.instance is None else self.instance.origins


def open_job(source: str) -> Job[Opened]:
    """Return the job that reads a source. A new job first gets :data:`WAIT_SECONDS` seconds to end."""
    job = job_table().job(("open", source), "reading", lambda report: read_bytes(*content_of(source), source, report))
    job.wait(max(0.0, job.began + WAIT_SECONDS - time.monotonic()))
    return job


def open_source(source: str) -> Opened:
    """Read a source. Raises the reader's errors, and ``UnreadableInput`` for an unknown source."""
    return open_job(source).result()


def label_of(source: str) -> tuple[str, int]:
    """Return ``(file name, size in bytes)`` of a source; ``(source, 0)`` if it cannot be read."""
    try:
        data, name = content_of(source)
    except TmmuError:
        return source, 0
    return name, len(data)


def is_gone(source: str) -> bool:
    """Return whether a source is a file that is no longer on this server."""
    return source.startswith("file:") and shelf().get(source) is None


def content_of(source: str) -> tuple[bytes, str]:
    """Return ``(bytes, name)`` of a sample, opened file or stored plan. Raises ``UnreadableInput``."""
    kind, _, name = source.partition(":")
    if kind == STORE_KIND:
        try:
            server_store, digest = store(), bytes.fromhex(name)
            if server_store is None:
                raise StoreFault("this server has no store.", hint="Start it with tmmu explore --store URL.")
            return server_store.document(digest), f"{name[:12]}.plan.cbor"
        except ValueError:
            message = f"{name[:80]!r} is not the hash of a stored plan."
            raise UnreadableInput(message, hint="Open the plan from Compare, History.") from None
        except TmmuError as error:
            raise UnreadableInput(error.message, source=f"{kind}:{name[:12]}", hint=error.hint) from error
    if kind != "sample":
        stored = shelf().get(source)
        if stored is None:
            hint = "Open the file, or paste a link of the explorer. Without a store, links to uploads end at a restart."
            raise UnreadableInput("there is no such file on this server.", source=source, hint=hint)
        return stored[1], stored[0]
    path = next((sample.path for sample in samples() if sample.name == name), None)
    if path is None:
        raise UnreadableInput(f"there is no sample {name!r}.", "Choose a sample, or open a file.", source=source)
    return path.read_bytes(), path.name


def store_url() -> str:
    """Return the URL of this server's store; ``""`` without a store."""
    return os.environ.get(STORE_ENV, "")


def store() -> Store | None:
    """Return the open store; ``None`` without a store. Raises ``TmmuError`` if it cannot be opened."""
    if not store_url():
        return None
    require("sqlalchemy", "a store")
    return _opened_store(store_url())


@lru_cache(maxsize=4)
def _opened_store(url: str) -> Store:
    from tmmu_core.store.store import Store

    return Store.at(url, create=True)


def with_store(operation: Callable[[Store], T]) -> T | None:
    """Return ``operation(store)``; ``None`` without a store, or if the store cannot be used."""
    with suppress(TmmuError):
        if (server_store := store()) is not None:
            return operation(server_store)
    return None


def source_of(run: Run) -> str:
    """Return the source of a run's plan for links."""
    return f"{STORE_KIND}:{run.content.hex()}"


def files_at(path: Path) -> list[tuple[str, bytes]]:
    """Return ``(name, bytes)`` of a file; of a folder, its snapshots, else its XLA modules. Raises ``OSError``."""
    if not os.path.isdir(path):
        return [(path.name, read_whole(path))]
    if snapshots := snapshot_files(path):
        return [(file.name, read_whole(file)) for _, file in snapshots]
    modules = xla_dump.modules(xla_dump.sizes_in(path))
    return [(f"{name}.txt", b"\n".join(read_whole(path / file) for file in modules[name])) for name in modules]


def read_bytes(data: bytes, name: str, source: str, progress: Progress) -> Opened:
    """Read bytes of any format. Raises ``TmmuError``."""
    is_small = len(data) < MIN_BYTES_FOR_WORKER
    content = read_any(data, name) if is_small else job_table().run_task(progress, tasks.read, data, name)
    if isinstance(content, Graph):
        return Opened(source, content.name or name, graph=content)
    if isinstance(content, Trace):
        return Opened(source, name, plan=content.plan, trace=content)
    if isinstance(content, Plan):
        return Opened(source, content.ir_name or name, plan=content)
    return Opened(source, content.name, instance=content)


@st.cache_resource(show_spinner=False)
def samples() -> tuple[Sample, ...]:
    """Return the samples in the order of ``index.json``; none if the file is missing or damaged."""
    try:
        index = json.loads((SAMPLES / "index.json").read_bytes())
    except (OSError, ValueError):
        return ()
    return tuple(
        Sample(Path(e["file"]).name.split(".")[0], e["title"], SAMPLES / e["file"], e.get("teaches", ""), e["group"])
        for kind in ("samples", "instances")
        for e in index.get(kind, ())
    )


class Shelf:
    """Opened files by key, limited in bytes. Uploaded files have secret keys, and a store also keeps these files."""

    def __init__(self, max_bytes: int | None = None) -> None:
        self._files: OrderedDict[str, tuple[str, str, bytes]] = OrderedDict()  # key → (owner, name, content)
        self._lock, self._max_bytes = Lock(), ceiling(SHELF_BYTES) if max_bytes is None else max_bytes
        self._secret = secrets.token_bytes(32)

    def put(self, name: str, data: bytes, owner: str | None = None) -> str:
        """Add a file of ``owner`` (default: this visitor) and return its source; evict the oldest files if needed."""
        owner = visitors.visitor() if owner is None else owner
        base_name = visible(name.replace("\\", "/").rpartition("/")[2])[-MAX_NAME_LENGTH:]  # without folders
        name = "file" if base_name.strip(". ") == "" else base_name
        digest = hashlib.sha256(data).digest()
        key = digest.hex()[:16]  # not secret for a file of the server, so that its link works after a restart
        if owner != visitors.SERVER:
            key = hmac.new(self._secret, digest + owner.encode(), "sha256").hexdigest()[:32]
            with_store(lambda store: store.keep_file(key, (name, data), datetime.now(UTC)))
        self._add(key, name, data, owner)
        return f"file:{key}"

    def _add(self, key: str, name: str, data: bytes, owner: str) -> None:
        with self._lock:
            self._files[key] = owner, name, data
            self._files.move_to_end(key)
            while len(self._files) > 1 and sum(len(file[2]) for file in self._files.values()) > self._max_bytes:
                self._files.popitem(last=False)

    def get(self, source: str) -> tuple[str, bytes] | None:
        """Return ``(name, bytes)`` of an opened file, from the store if needed; ``None`` for an unknown source."""
        key = source.removeprefix("file:")
        if key not in self._files and (stored := with_store(lambda store: store.file(key))) is not None:
            self._add(key, *stored, visitors.visitor())
        file = self._files.get(key)
        return None if file is None else file[1:]

    def drop(self, source: str) -> None:
        """Remove a file, also from the store."""
        key = source.removeprefix("file:")
        with self._lock:
            self._files.pop(key, None)
        with_store(lambda store: store.drop_file(key))

    def names(self) -> list[tuple[str, str]]:
        """Return ``(source, name)`` of the opened files to list for this visitor, newest first."""
        owners = {visitors.SERVER, visitors.visitor()}
        is_shared = os.environ.get(GALLERY_ENV) == "shared"
        with self._lock:
            files = [(key, name) for key, (owner, name, _) in self._files.items() if is_shared or owner in owners]
        return [(f"file:{key}", name) for key, name in reversed(files) if not name.endswith(MOVES)]


@st.cache_resource(show_spinner=False)
def shelf() -> Shelf:
    """Return the opened files of this server."""
    return Shelf()


def lacks_arenas(error: TmmuError) -> bool:
    """Return whether the error is about an undeclared arena that the graph uses."""
    return isinstance(error, ArenaTooSmall) and error.is_undeclared


def card_of(error: TmmuError, title: str, source: str = "") -> dict[str, Any]:
    """Return the fields of an error card. ``source``: file of the error, if the error does not name it."""
    record: dict[str, Any] = error.record()
    source = record.get("source") or source
    return {"title": title, "message": record["message"], "source": source, "hint": error.hint, "record": record}
