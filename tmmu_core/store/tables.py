"""Tables of the store.

::

    plans    content ─────────┐      compressed CBOR plan file; one row for all runs with this plan
    runs     …, content ──────┘      figures of a commit's plan, so that lists decompress no plan
    sweeps   ── sweep_points         the request, and the rows of each finished point
    files                            files opened in the explorer, so that links survive a restart
"""

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


METADATA = MetaData()

NUMBER = BigInteger().with_variant(Integer, "sqlite")
"""Auto-increment column; SQLite requires ``INTEGER``."""

VERSIONS = Table("alembic_version", METADATA, Column("version_num", String(32), primary_key=True))
"""One row; earlier versions created the tables with Alembic."""


def _columns(kind: Any, names: str) -> list[Column[Any]]:
    """Return required columns of one type."""
    return [Column(name, kind, nullable=False) for name in names.split()]


PLANS = Table(
    "plans",
    METADATA,
    Column("content", LargeBinary, primary_key=True),
    *_columns(BigInteger, "bytes"),
    *_columns(LargeBinary, "packed"),
)

RUNS = Table(
    "runs",
    METADATA,
    Column("number", NUMBER, primary_key=True, autoincrement=True),
    Column("key", LargeBinary, nullable=False, unique=True),
    *_columns(String, "model commit branch at planner mode preset graph"),
    *_columns(U64, "steps extent_bytes peak_live_bytes"),
    *_columns(BigInteger, "peak_step"),
    *_columns(U64, "lower_bound_bytes"),
    *_columns(LargeBinary, "layout_hash tmmu_plan_hash"),
    Column("content", LargeBinary, ForeignKey("plans.content"), nullable=False),
    *_columns(Text, "arenas"),
    Index("ix_runs_series", "model", "branch", "planner", "mode", "preset", "at", "number", "extent_bytes"),
    Index("ix_runs_model_at", "model", "at", "number"),
    Index("ix_runs_model_commit", "model", "commit"),
    Index("ix_runs_graph_model", "graph", "model"),
)

SWEEPS = Table(
    "sweeps",
    METADATA,
    Column("sweep", String, primary_key=True),
    *_columns(String, "at"),
    *_columns(Text, "asked"),
    *_columns(BigInteger, "points"),
)

SWEEP_POINTS = Table(
    "sweep_points",
    METADATA,
    Column("sweep", String, ForeignKey("sweeps.sweep"), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    *_columns(Integer, "failed"),
    *_columns(Text, "row"),
)

FILES = Table(
    "files",
    METADATA,
    Column("digest", String, primary_key=True),
    *_columns(String, "name at"),
    *_columns(BigInteger, "bytes"),
    *_columns(LargeBinary, "packed"),
)
