"""The first tables: plans, runs, sweeps and their points, files."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Types as they were when this was released: a later version's are its own revision's to change.
NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def _needed(name: str, kind: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False)


def upgrade() -> None:
    """From nothing."""
    op.create_table(
        "plans",
        _needed("content", sa.LargeBinary()),
        _needed("bytes", sa.BigInteger()),
        _needed("packed", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("content", name="pk_plans"),
    )
    texts = ("model", "commit", "branch", "at", "planner", "mode", "preset", "graph")
    figures = ("steps", "extent_bytes", "peak_live_bytes", "peak_step", "lower_bound_bytes")
    op.create_table(
        "runs",
        sa.Column("number", NUMBER, nullable=False, autoincrement=True),
        _needed("key", sa.LargeBinary()),
        *(_needed(name, sa.String()) for name in texts),
        *(_needed(name, sa.BigInteger()) for name in figures),
        *(_needed(name, sa.LargeBinary()) for name in ("layout_hash", "tmmu_plan_hash", "content")),
        _needed("arenas", sa.Text()),
        sa.PrimaryKeyConstraint("number", name="pk_runs"),
        sa.UniqueConstraint("key", name="uq_runs_key"),
        sa.ForeignKeyConstraint(["content"], ["plans.content"], name="fk_runs_content"),
    )
    series = ["model", "branch", "planner", "mode", "preset", "at", "number", "extent_bytes"]
    for columns in (series, ["model", "at", "number"], ["model", "commit"], ["graph", "model"]):
        op.create_index(f"ix_runs_{'_'.join(columns)}", "runs", columns)
    op.create_table(
        "sweeps",
        *(_needed(name, sa.String()) for name in ("sweep", "at")),
        _needed("asked", sa.Text()),
        _needed("points", sa.BigInteger()),
        sa.PrimaryKeyConstraint("sweep", name="pk_sweeps"),
    )
    op.create_table(
        "sweep_points",
        _needed("sweep", sa.String()),
        _needed("number", sa.BigInteger()),
        _needed("failed", sa.Integer()),
        _needed("row", sa.Text()),
        sa.PrimaryKeyConstraint("sweep", "number", name="pk_sweep_points"),
        sa.ForeignKeyConstraint(["sweep"], ["sweeps.sweep"], name="fk_sweep_points_sweep"),
    )
    op.create_table(
        "files",
        *(_needed(name, sa.String()) for name in ("digest", "name", "at")),
        _needed("bytes", sa.BigInteger()),
        _needed("packed", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("digest", name="pk_files"),
    )


def downgrade() -> None:
    """Back to nothing."""
    for table in ("files", "sweep_points", "sweeps", "runs", "plans"):
        op.drop_table(table)
