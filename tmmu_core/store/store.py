"""The store: plans kept once by their content, and the runs that they are of.

Every question is asked of figures that stand beside the plan; a plan is unpacked only where somebody looks at it.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import BigInteger, Engine, Select, and_, case, func, or_, select, type_coerce
from sqlalchemy.dialects import postgresql, sqlite

from tmmu_core.errors import StoreFault
from tmmu_core.limits import UNPACKED_BYTES, ceiling, past
from tmmu_core.names import visible
from tmmu_core.plan.formats.files import from_document, to_cbor
from tmmu_core.plan.model import Plan
from tmmu_core.store import rows
from tmmu_core.store.opening import faults_of, open_engine, writing
from tmmu_core.store.run import Label, Run, run_of, split_reference
from tmmu_core.store.schema import PLANS, RUNS, U64

SHORTEST = 4
"""Characters of a commit's beginning that may stand for it."""


@dataclass(frozen=True)
class Kept:
    """What came of recording one plan."""

    run: Run
    new_run: bool
    """False where the very same run was there."""
    new_plan: bool
    """False where its bytes were there, of this run or another."""


@dataclass(frozen=True)
class Line:
    """A series of runs in the list of models: how it stands, and when its extent last changed. Bytes."""

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
    changed_at: str
    """When the extent became what it is; of a series that never changed, when it began."""
    changed_commit: str
    before_bytes: int | None
    """The extent before that; ``None`` where it never changed."""

    @property
    def change_bytes(self) -> int:
        """By how much the last change made the extent larger."""
        return 0 if self.before_bytes is None else self.extent_bytes - self.before_bytes


@dataclass(frozen=True, eq=False)
class Store:
    """A store that is open. Values in, values out; safe to share between threads."""

    engine: Engine
    name: str
    """Its URL, without a password."""

    @classmethod
    def at(cls, url: str, *, create: bool = False) -> Store:
        """Open ``url`` (``sqlite:///file.db``, ``postgresql://…``), as SQLAlchemy writes them.

        With ``create`` the store is made where there is none. Raises ``StoreFault``.
        """
        return cls(*open_engine(url, create=create))

    def close(self) -> None:
        """Let go of the connections."""
        self.engine.dispose()

    # --- writing -------------------------------------------------------------------------------------------------

    def record(self, plan: Plan, label: Label) -> Kept:
        """Keep a plan as a run. Raises ``StoreFault``."""
        return self.record_all([(plan, label)])[0]

    def record_all(self, labelled: Iterable[tuple[Plan, Label]]) -> tuple[Kept, ...]:
        """Keep plans as runs, all of them or none: one transaction."""
        kept = []
        with faults_of(self.name):
            prepared = [(run, *packed) for run, packed in map(_prepared, labelled)]
            with writing(self.engine) as connection:
                for run, size, data in prepared:
                    row = {"content": run.content, "bytes": size, "packed": data}
                    new_plan = connection.execute(self.unless_there(PLANS).returning(PLANS.c.content), row).first()
                    new_run = connection.execute(self.unless_there(RUNS).returning(RUNS.c.key), _columns(run)).first()
                    kept.append(Kept(run, new_run is not None, new_plan is not None))
        return tuple(kept)

    def unless_there(self, table: Any) -> Any:
        """An insert that leaves a row be that is there already."""
        if self.engine.dialect.name == "postgresql":
            return postgresql.insert(table).on_conflict_do_nothing()
        return sqlite.insert(table).on_conflict_do_nothing()

    # --- reading -------------------------------------------------------------------------------------------------

    def runs(self, model: str, *, last: int | None = None, **where: str) -> tuple[Run, ...]:
        """The runs of a model, oldest first; ``where`` names columns (``branch="main"``, ``planner="slots"``).

        ``last``: that many of the latest alone.
        """
        chosen = select(*_READ).where(RUNS.c.model == model, *(RUNS.c[name] == value for name, value in where.items()))
        return self._read(chosen, last)

    def lines(self, branch: str | None = None) -> tuple[Line, ...]:
        """Every series of every model (on one branch), with its last change; by model, branch, planner, mode, preset.

        O(runs).
        """
        series = [RUNS.c[name] for name in ("model", "branch", "planner", "mode", "preset")]
        # In the order of their index, which holds all that is asked: no row is looked at, nothing is sorted.
        asked = select(*series, RUNS.c.number, type_coerce(RUNS.c.extent_bytes, BigInteger)).order_by(
            *series, RUNS.c.at, RUNS.c.number
        )
        found: dict[tuple[str, ...], _Series] = {}
        with faults_of(self.name), self.engine.connect() as connection:
            key, last = None, 0
            for row in connection.execute(asked if branch is None else asked.where(RUNS.c.branch == branch)):
                *names, number, extent = rows.typed(rows.SeriesRow, row, self.name)
                if names != key:
                    key = names
                    one = found[tuple(names)] = _Series(number)
                elif extent != last:
                    one.changed, one.before = number, last
                one.latest, last = number, extent
                one.runs += 1
            wanted = sorted({number for one in found.values() for number in (one.latest, one.changed)})
            facts = {
                row[0]: row[1:]
                for part in _parts(wanted)
                for row in (
                    rows.typed(rows.FactsRow, found, self.name)
                    for found in connection.execute(_FACTS.where(RUNS.c.number.in_(part)))
                )
            }
        return tuple(_line(key, found[key], facts) for key in sorted(found))

    def resolve(self, reference: str, of: Plan | None = None) -> Run:
        """The run that ``MODEL@COMMIT``, ``MODEL@BRANCH``, ``COMMIT`` or ``BRANCH`` names: the latest such.

        A reference that names no model means the one whose runs plan the graph of ``of``. Of several series the one
        like ``of`` (its planner, mode and preset) is taken where there is one. Raises ``StoreFault``.
        """
        named, point = split_reference(reference)
        model = named or self._model_of(reference, of)
        here = select(*_READ).where(RUNS.c.model == model)
        commit, branch = RUNS.c["commit"], RUNS.c.branch
        beginning = commit.startswith(point, autoescape=True)
        for choice in (commit == point, branch == point, *([beginning] if len(point) >= SHORTEST else [])):
            alike = [] if of is None else [and_(*(RUNS.c[n] == getattr(of, n) for n in ("planner", "mode", "preset")))]
            for narrower in (*alike, None):
                found = self._read(here.where(choice, *([] if narrower is None else [narrower])), 1)
                if found:
                    if choice is beginning:
                        self._only_one(here.where(beginning), model, point)
                    return found[0]
        raise self._not_there(model, point)

    def plan(self, run: Run | bytes) -> Plan:
        """The plan of a run, or of a content hash, as it was recorded."""
        content = run if isinstance(run, bytes) else run.content
        return from_document(self.document(content), f"{self.name}, plan {content.hex()[:12]}")

    def content_of(self, plan: Plan) -> bytes:
        """The content hash under which this very plan is kept; empty where it is not."""
        digest = hashlib.sha256(to_cbor(plan)).digest()
        asked = select(PLANS.c.content).where(PLANS.c.content == digest)
        with faults_of(self.name), self.engine.connect() as connection:
            found = connection.execute(asked).scalar()
        return b"" if found is None else bytes(found)

    def document(self, content: bytes) -> bytes:
        """The plan file (CBOR) of a content hash. Raises ``StoreFault``, also where it is no longer what it was."""
        most = ceiling(UNPACKED_BYTES)
        small = func.length(PLANS.c.packed) <= most
        asked = select(PLANS.c.bytes, case((small, PLANS.c.packed), else_=b"")).where(PLANS.c.content == content)
        with faults_of(self.name), self.engine.connect() as connection:
            found = connection.execute(asked).first()
        if found is None:
            raise StoreFault(f"there is no plan {content.hex()[:12]}.", store=self.name, hint="Record it again.")
        size, data = rows.typed(rows.PlanRow, found, self.name)
        if size > most:
            raise past(UNPACKED_BYTES, f"plan {content.hex()[:12]} of the store", self.name)
        return rows.document(data, size, content, self.name)

    def _read(self, chosen: Select[Any], last: int | None = None) -> tuple[Run, ...]:
        if last is not None:
            chosen = chosen.order_by(RUNS.c.at.desc(), RUNS.c.number.desc()).limit(last)
        else:
            chosen = chosen.order_by(RUNS.c.at, RUNS.c.number)
        with faults_of(self.name), self.engine.connect() as connection:
            found = tuple(_run(row, self.name) for row in connection.execute(chosen))
        return found if last is None else found[::-1]

    def _model_of(self, reference: str, of: Plan | None) -> str:
        if of is None:
            raise StoreFault(f"{reference} names no model.", store=self.name, hint="Write store:MODEL@COMMIT.")
        graph = visible(of.ir_name)
        asked = select(RUNS.c.model).where(or_(RUNS.c.graph == graph, RUNS.c.model == graph)).distinct().limit(20)
        with faults_of(self.name), self.engine.connect() as connection:
            found = sorted(rows.names(connection.execute(asked).scalars(), self.name))
        if graph in found or len(found) == 1:
            return graph if graph in found else found[0]
        how = f"Several models plan it: {', '.join(found)}." if found else "No run plans that graph."
        raise StoreFault(
            f"{reference} names no model, and the graph is {graph!r}.",
            store=self.name,
            hint=f"{how} Write store:MODEL@COMMIT.",
        )

    def _only_one(self, begin: Select[Any], model: str, point: str) -> None:
        asked = begin.with_only_columns(RUNS.c["commit"])
        with faults_of(self.name), self.engine.connect() as connection:
            found = sorted(rows.names(connection.execute(asked.distinct().limit(5)).scalars(), self.name))
        if len(found) > 1:
            raise StoreFault(
                f"{point} begins several commits of {model}.", store=self.name, hint=f"Write more: {', '.join(found)}."
            )

    def _not_there(self, model: str, point: str) -> StoreFault:
        latest = self.runs(model, last=3)
        if not latest:
            asked = select(RUNS.c.model).distinct().limit(20)
            with faults_of(self.name), self.engine.connect() as connection:
                known = sorted(rows.names(connection.execute(asked).scalars(), self.name))
            hint = f"It holds {', '.join(known)}." if known else "It holds no run yet; tmmu record adds one."
            return StoreFault(f"there is no run of the model {model!r}.", store=self.name, hint=hint)
        said = ", ".join(f"{run.commit} on {run.branch}" for run in reversed(latest))
        return StoreFault(
            f"{model} has no run of a commit or branch {point!r}.", store=self.name, hint=f"The latest are {said}."
        )

    def known(self, model: str) -> tuple[Run, ...]:
        """As :meth:`runs` of a model that must be there. Raises ``StoreFault``."""
        found = self.runs(model)
        if not found:
            raise self._not_there(model, "")
        return found


# --- rows --------------------------------------------------------------------------------------------------------

_READ = tuple(RUNS.c[name] for name in Run.__dataclass_fields__)


@dataclass
class _Series:
    """A series while its runs go by: numbers of runs."""

    changed: int
    latest: int = 0
    before: int | None = None
    """As the database has it."""
    runs: int = 0


def _line(key: tuple[str, ...], one: _Series, facts: Mapping[int, tuple[Any, ...]]) -> Line:
    before = U64().process_result_value(one.before, None)
    return Line(*(*key, one.runs, *facts[one.latest], *facts[one.changed][:2], before))


_FACTS = select(
    *(RUNS.c[n] for n in ("number", "at", "commit", "extent_bytes", "peak_live_bytes", "lower_bound_bytes"))
)
_PART = 5_000
"""Numbers that are asked for at a time."""


def _parts(numbers: list[int]) -> list[list[int]]:
    return [numbers[k : k + _PART] for k in range(0, len(numbers), _PART)]


def _run(row: Iterable[Any], store: str) -> Run:
    found = rows.typed(rows.RunRow, row, store)
    return Run(**{**found._asdict(), "arenas": rows.arenas(found.arenas, store)})


def _columns(run: Run) -> dict[str, Any]:
    columns = {name: getattr(run, name) for name in run.__dataclass_fields__}
    return {**columns, "key": run.key, "arenas": msgspec.json.encode(run.arenas).decode()}


def _prepared(labelled: tuple[Plan, Label]) -> tuple[Run, tuple[int, bytes]]:
    plan, label = labelled
    document = to_cbor(plan)
    return run_of(plan, label, hashlib.sha256(document).digest()), (len(document), packed(document))


def packed(document: bytes) -> bytes:
    """Bytes as they lie in the store."""
    return zlib.compress(document, 6)
