"""The tables. A change here comes with a revision under ``migrations/versions`` (a test holds the two together).

::

    plans    content ─────────┐      the plan file as CBOR, packed; once, however many runs it is of
    runs     …, content ──────┘      what a commit's plan came to; figures stand beside it, so a list opens no plan
    sweeps   ── sweep_points         what was asked, and a row per point as it came
    files                            what people opened, so that links outlive a server
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

HEAD = "0001"
"""The revision that this version reads and writes."""


class U64(TypeDecorator[int]):
    """0 … 2^64 − 1 in the 64 bits that databases have: what is past 2^63 − 1, and nothing else, is stored negative."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: Any) -> int | None:
        """Into the database."""
        return value if value is None or value < 2**63 else value - 2**64

    def process_result_value(self, value: int | None, dialect: Any) -> int | None:
        """Out of it; what is no number is left to who types the row."""
        return value + 2**64 if isinstance(value, int) and value < 0 else value


METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    }
)

NUMBER = BigInteger().with_variant(Integer, "sqlite")
"""What counts up by itself; in SQLite that is an ``INTEGER`` alone."""

PLANS = Table(
    "plans",
    METADATA,
    Column("content", LargeBinary, primary_key=True),
    Column("bytes", BigInteger, nullable=False),
    Column("packed", LargeBinary, nullable=False),
)

RUNS = Table(
    "runs",
    METADATA,
    Column("number", NUMBER, primary_key=True, autoincrement=True),
    Column("key", LargeBinary, nullable=False, unique=True),
    Column("model", String, nullable=False),
    Column("commit", String, nullable=False),
    Column("branch", String, nullable=False),
    Column("at", String, nullable=False),
    Column("planner", String, nullable=False),
    Column("mode", String, nullable=False),
    Column("preset", String, nullable=False),
    Column("graph", String, nullable=False),
    Column("steps", U64, nullable=False),
    Column("extent_bytes", U64, nullable=False),
    Column("peak_live_bytes", U64, nullable=False),
    Column("peak_step", BigInteger, nullable=False),
    Column("lower_bound_bytes", U64, nullable=False),
    Column("layout_hash", LargeBinary, nullable=False),
    Column("tmmu_plan_hash", LargeBinary, nullable=False),
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
