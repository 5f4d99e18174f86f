"""The store: plans by content hash, the runs that they belong to, and the files opened in the explorer."""

import hashlib
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Any, Self

import msgspec
from sqlalchemy import ColumnElement, Connection, Engine, Select, or_, select
from sqlalchemy.dialects import postgresql, sqlite

from tmmu_core.base.errors import StoreFault
from tmmu_core.base.escaping import visible
from tmmu_core.base.limits import UNPACKED_BYTES, ceiling, limit_error
from tmmu_core.formats.planfile.plan_file import from_document, to_cbor
from tmmu_core.plans.model import Plan
from tmmu_core.store.open_store import FILES, PLANS, RUNS, faults_of, open_engine
from tmmu_core.store.runs import Label, Run, instant, run_of, split_reference

MIN_PREFIX = 4  # minimum number of characters of an abbreviated commit
MAX_FILE_BYTES = 1 << 29  # default limit on the size of an opened file
_READ = tuple(RUNS.c[name] for name in Run.__dataclass_fields__)


@dataclass(frozen=True)
class RecordResult:
    """A recorded run, and whether the run and its plan are new in the store."""

    run: Run
    new_run: bool
    new_plan: bool


@dataclass(frozen=True)
class RunSeries:
    """A series of runs: its latest figures and its last change, in bytes."""

    model: str
    branch: str
    planner: str
    mode: str
    preset: str
    runs: int
    at: str
    commit: str
    extent_bytes: int
    peak_live_bytes: int
    lower_bound_bytes: int
    changed_at: str  # time of the last change of the extent; the time of the first run if it never changed
    changed_commit: str
    before_bytes: int | None  # the extent before the change; ``None`` if it never changed

    @property
    def change_bytes(self) -> int:
        """Growth of the extent by the last change."""
        return 0 if self.before_bytes is None else self.extent_bytes - self.before_bytes


@dataclass(frozen=True, eq=False)
class Store:
    """An open store; safe to share between threads."""

    engine: Engine
    name: str  # its URL without the password

    @classmethod
    def at(cls, url: str, *, create: bool = False) -> Self:
        """Open ``url`` (``sqlite:///file.db``, ``postgresql://…``), or ``create`` it. Raises ``StoreFault``."""
        return cls(*open_engine(url, create=create))

    def close(self) -> None:
        """Close the connections."""
        self.engine.dispose()

    def record(self, plan: Plan, label: Label) -> RecordResult:
        """Record a plan as a run, in one transaction. Raises ``StoreFault``."""
        with faults_of(self.name):
            document = to_cbor(plan)
            content = hashlib.sha256(document).digest()
            run = run_of(plan, label, content)
        plan_row = {"content": content, "bytes": len(document), "packed": zlib.compress(document)}
        run_row = {**vars(run), "key": run.key, "arenas": msgspec.json.encode(run.arenas).decode()}
        with self.writing() as connection:
            new_plan = connection.execute(self.insert_missing(PLANS).returning(PLANS.c.content), plan_row).first()
            new_run = connection.execute(self.insert_missing(RUNS).returning(RUNS.c.key), run_row).first()
        return RecordResult(run, new_run is not None, new_plan is not None)

    def insert_missing(self, table: Any) -> Any:
        """Return an insert that keeps existing rows."""
        dialect = postgresql if self.engine.dialect.name == "postgresql" else sqlite
        return dialect.insert(table).on_conflict_do_nothing()

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open a transaction that writes: commit at its end, roll back on an error. Raises ``StoreFault``."""
        with faults_of(self.name), self.engine.execution_options(tmmu_writes=True).begin() as connection:
            yield connection

    def rows(self, statement: Select[Any]) -> list[Any]:
        """Return the rows of a statement. Raises ``StoreFault``."""
        with faults_of(self.name), self.engine.connect() as connection:
            return list(connection.execute(statement).all())

    def runs(self, model: str, *, last: int | None = None, **where: str) -> tuple[Run, ...]:
        """Return the ``last`` runs of a model (``None``: all), oldest first; ``where``: filters such as ``branch``."""
        chosen = select(*_READ).where(RUNS.c.model == model, *(RUNS.c[name] == value for name, value in where.items()))
        return self._read(chosen, last)

    def series(self) -> tuple[RunSeries, ...]:
        """Return every series of runs with its last change, sorted. O(runs)."""
        series_fields = ("model", "branch", "planner", "mode", "preset")
        figures = ("at", "commit", "extent_bytes", "peak_live_bytes", "lower_bound_bytes")
        chosen = select(*(RUNS.c[name] for name in (*series_fields, *figures)))
        chosen = chosen.order_by(*(RUNS.c[name] for name in series_fields), RUNS.c.at, RUNS.c.number)
        rows: list[dict[str, Any]] = []
        for _, runs_of_series in groupby(self.rows(chosen), lambda row: tuple(row[: len(series_fields)])):
            runs = list(runs_of_series)
            changes = [k for k in range(1, len(runs)) if runs[k].extent_bytes != runs[k - 1].extent_bytes]
            last_change = changes[-1] if changes else 0
            changed = {"changed_at": runs[last_change].at, "changed_commit": runs[last_change].commit}
            before_bytes = runs[last_change - 1].extent_bytes if last_change else None
            latest = dict(zip((*series_fields, *figures), runs[-1], strict=True))
            rows.append({**latest, **changed, "runs": len(runs), "before_bytes": before_bytes})
        with faults_of(self.name):
            return tuple(sorted(msgspec.convert(rows, tuple[RunSeries, ...]), key=attrgetter(*series_fields)))

    def resolve(self, reference: str, like: Plan | None = None) -> Run:
        """Return the latest run of a reference; ``like`` gives default model and settings. Raises ``StoreFault``."""
        model, name = split_reference(reference)
        while model and "@" in model[1:] and not self.runs(model, last=1):  # the name of a branch may contain @
            model, _, start = model.rpartition("@")
            name = f"{start}@{name}"
        if model is None:
            if like is None:
                raise StoreFault(f"{reference} names no model.", store=self.name, hint="Write store:MODEL@COMMIT.")
            graph = visible(like.ir_name)
            statement = select(RUNS.c.model).where(or_(RUNS.c.graph == graph, RUNS.c.model == graph))
            models = self._distinct(statement, 20)
            if len(models) != 1:
                why = f"Several models have it: {', '.join(models)}." if models else "No run has a graph of that name."
                what = f"{reference} names no model, and the graph is {graph!r}."
                raise StoreFault(what, store=self.name, hint=f"{why} Write store:MODEL@COMMIT.")
            model = models[0]
        for column in (RUNS.c.commit, RUNS.c.branch):
            if latest := self._latest(like, RUNS.c.model == model, column == name):
                return latest[0]
        commits: list[str] = []
        if len(name) >= MIN_PREFIX:
            has_prefix = RUNS.c.commit.startswith(name, autoescape=True)
            candidates = self._distinct(select(RUNS.c.commit).where(RUNS.c.model == model, has_prefix), 20)
            commits = [commit for commit in candidates if commit.startswith(name)]  # the database may ignore case
        if len(commits) > 1:
            what = f"{name} is ambiguous: several commits of {model} start with it."
            raise StoreFault(what, store=self.name, hint=f"Give more characters: {', '.join(commits[:5])}.")
        if not commits:
            raise self._missing_run(model, name)
        return self._latest(like, RUNS.c.model == model, RUNS.c.commit == commits[0])[0]

    def _latest(self, like: Plan | None, *where: ColumnElement[bool]) -> tuple[Run, ...]:
        """Return the latest run that fulfils ``where``, preferring the settings of ``like``; ``()`` if none does."""
        chosen = select(*_READ).where(*where)
        settings = [RUNS.c[name] == visible(getattr(like, name)) for name in ("planner", "mode", "preset") if like]
        return self._read(chosen.where(*settings), 1) or self._read(chosen, 1)

    def plan(self, run: Run | bytes) -> Plan:
        """Return the plan of a run or a content hash."""
        content = run if isinstance(run, bytes) else run.content
        return from_document(self.document(content), f"{self.name}, plan {content.hex()[:12]}")

    def content_of(self, plan: Plan) -> bytes:
        """Return the content hash of a recorded plan; empty if it is not recorded."""
        digest = hashlib.sha256(to_cbor(plan)).digest()
        return digest if self.rows(select(PLANS.c.content).where(PLANS.c.content == digest)) else b""

    def document(self, content: bytes) -> bytes:
        """Return the plan file (CBOR) of a content hash. Raises ``StoreFault`` and ``UnreadableInput``."""
        stored = self.rows(select(PLANS.c.bytes, PLANS.c.packed).where(PLANS.c.content == content))
        if not stored:
            raise StoreFault(f"no plan {content.hex()[:12]} is recorded.", store=self.name, hint="Record it again.")
        size, data = stored[0]
        if size > ceiling(UNPACKED_BYTES):
            raise limit_error(UNPACKED_BYTES, f"plan {content.hex()[:12]} of the store", self.name)
        document = unpacked(data, size)
        if document is None or hashlib.sha256(document).digest() != content:
            what, hint = f"plan {content.hex()[:12]} is damaged.", "Restore a backup, or record it again."
            raise StoreFault(what, store=self.name, hint=hint)
        return document

    def _read(self, statement: Select[Any], last: int | None = None) -> tuple[Run, ...]:
        """Return the ``last`` runs that ``statement`` selects (``None``: all), oldest first."""
        rows = self.rows(statement.order_by(RUNS.c.at.desc(), RUNS.c.number.desc()).limit(last))
        with faults_of(self.name):
            runs = [dict(zip(Run.__dataclass_fields__, row, strict=True)) for row in reversed(rows)]
            decoded = [{**run, "arenas": msgspec.json.decode(run["arenas"])} for run in runs]
            return msgspec.convert(decoded, tuple[Run, ...], builtin_types=(bytes,))

    def _distinct(self, statement: Select[Any], limit: int) -> list[str]:
        return sorted([text for (text,) in self.rows(statement.distinct().limit(limit))])

    def _missing_run(self, model: str, commit_or_branch: str) -> StoreFault:
        latest = self.runs(model, last=3)
        if not latest:
            models = self._distinct(select(RUNS.c.model), 20)
            hint = f"Recorded models: {', '.join(models)}." if models else "The store is empty; tmmu record adds a run."
            return StoreFault(f"no run of the model {model!r} is recorded.", store=self.name, hint=hint)
        hint = f"Latest runs: {', '.join(f'{run.commit} on {run.branch}' for run in reversed(latest))}."
        what = f"the model {model!r} has no run of a commit or branch {commit_or_branch!r}."
        return StoreFault(what, store=self.name, hint=hint)

    def recorded_runs(self, model: str) -> tuple[Run, ...]:
        """Return the runs of a model. Raises ``StoreFault`` if there are none."""
        runs = self.runs(model)
        if not runs:
            raise self._missing_run(model, "")
        return runs

    # --- opened files, by the key of their link, so that links survive a restart of the server -----------------------

    def keep_file(self, key: str, file: tuple[str, bytes], at: datetime) -> None:
        """Store ``(name, bytes)`` under ``key``; an existing file is kept."""
        name, data = file
        self._refuse_large(name, len(data))
        with self.writing() as connection:
            connection.execute(self.insert_missing(FILES), _file_row(key, name, data, at))

    def file(self, key: str) -> tuple[str, bytes] | None:
        """Return ``(name, bytes)``; ``None`` if there is no such file. Raises ``StoreFault`` if it is damaged."""
        stored = self.rows(select(FILES.c.name, FILES.c.bytes, FILES.c.packed).where(FILES.c.digest == key))
        if not stored:
            return None
        return visible(stored[0][0]), self._unpacked_file(*stored[0])

    def _unpacked_file(self, name: str, size: int, packed: bytes) -> bytes:
        self._refuse_large(name, size)
        data = unpacked(packed, size)
        if data is None:
            hint = "Open it again, or restore the store from a backup."
            raise StoreFault(f"the file {visible(name)} is damaged.", store=self.name, hint=hint)
        return data

    def change_file(self, key: str, name: str, edit: Callable[[bytes], bytes], at: datetime) -> bytes:
        """Apply ``edit`` to a file (``b""`` if missing), atomically; return the new bytes. Raises ``StoreFault``."""
        is_file = FILES.c.digest == key
        with self.writing() as connection:
            connection.execute(self.insert_missing(FILES), _file_row(key, name, b"", at))
            locked_row = select(FILES.c.bytes, FILES.c.packed).where(is_file).with_for_update()
            size, packed = connection.execute(locked_row).one()
            data = edit(self._unpacked_file(name, size, packed))
            self._refuse_large(name, len(data))
            connection.execute(FILES.update().where(is_file).values(bytes=len(data), packed=zlib.compress(data)))
        return data

    def drop_file(self, key: str) -> None:
        """Delete a file."""
        with self.writing() as connection:
            connection.execute(FILES.delete().where(FILES.c.digest == key))

    def _refuse_large(self, name: str, size: int) -> None:
        limit = ceiling(UNPACKED_BYTES, MAX_FILE_BYTES)
        if size > limit:
            raise limit_error(UNPACKED_BYTES, visible(name), self.name, limit)


def _file_row(key: str, name: str, data: bytes, at: datetime) -> dict[str, Any]:
    sizes = {"bytes": len(data), "packed": zlib.compress(data)}
    return {"digest": key, "name": visible(name), "at": instant(at), **sizes}


def unpacked(data: bytes, size: int) -> bytes | None:
    """Return the ``size`` bytes that ``data`` decompresses to; ``None`` for damaged data or another size."""
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(data, size + 1)
    except zlib.error:
        return None
    return plain if stream.eof and len(plain) == size else None  # zlib compares its checksum at the end of the stream
