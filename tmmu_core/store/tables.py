"""Tables of the store.

::

    plans    content ─────────┐      compressed CBOR plan file; one row for all runs with this plan
    runs     …, content ──────┘      figures of a commit's plan, so that lists decompress no plan
    sweeps   ── sweep_points         the request, and the rows of each finished point
    files                            files opened in the explorer, so that links survive a restart
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
)

VERSION = "0001"
"""Version of the tables that this code reads and writes. A changed table needs a new one, and code that upgrades."""


class U64(TypeDecorator[int]):
    """Integers 0 … 2^64 − 1 in a signed 64-bit column: those above 2^63 − 1 are stored as negative numbers."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: Any) -> int | None:
        """Return the stored value."""
        return value if value is None or value < 2**63 else value - 2**64

    def process_result_value(self, value: int | None, dialect: Any) -> int | None:
        """Return the value of a stored one."""
        return value + 2**64 if value is not None and value < 0 else value


METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    }
)

NUMBER = BigInteger().with_variant(Integer, "sqlite")
"""Auto-increment column; SQLite requires ``INTEGER``."""

VERSIONS = Table("alembic_version", METADATA, Column("version_num", String(32), primary_key=True))
"""One row; earlier versions created the tables with Alembic."""

PLANS = Table(
    "plans",
    METADATA,
    Column("content", LargeBinary, primary_key=True),
    Column("bytes", BigInteger, nullable=False),
    Column("packed", LargeBinary, nullable=False),
)


def _columns(kind: Any, names: str) -> list[Column[Any]]:
    """Return required columns of one type."""
    return [Column(name, kind, nullable=False) for name in names.split()]


RUNS = Table(
    "runs",
    METADATA,
    Column("number", NUMBER, primary_key=True, autoincrement=True),
    Column("key", LargeBinary, nullable=False, unique=True),
    *_columns(String, "model commit branch at planner mode preset graph"),
    *_columns(U64, "steps extent_bytes peak_live_bytes"),
    Column("peak_step", BigInteger, nullable=False),
    Column("lower_bound_bytes", U64, nullable=False),
    *_columns(LargeBinary, "layout_hash tmmu_plan_hash"),
    Column("content", LargeBinary, ForeignKey("plans.content"), nullable=False),
    Column("arenas", Text, nullable=False),
    Index(None, "model", "branch", "planner", "mode", "preset", "at", "number", "extent_bytes"),
    Index(None, "model", "at", "number"),
    Index(None, "model", "commit"),
    Index(None, "graph", "model"),
)

SWEEPS = Table(
    "sweeps",
    METADATA,
    Column("sweep", String, primary_key=True),
    Column("at", String, nullable=False),
    Column("asked", Text, nullable=False),
    Column("points", BigInteger, nullable=False),
)

SWEEP_POINTS = Table(
    "sweep_points",
    METADATA,
    Column("sweep", String, ForeignKey("sweeps.sweep"), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("failed", Integer, nullable=False),
    Column("row", Text, nullable=False),
)

FILES = Table(
    "files",
    METADATA,
    Column("digest", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("at", String, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("packed", LargeBinary, nullable=False),
)
