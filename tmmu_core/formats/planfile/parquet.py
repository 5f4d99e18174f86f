"""Write a plan as Parquet: rows as columns, the head in the metadata. Parquet plans are not read back."""

from __future__ import annotations

import io

import msgspec

from tmmu_core.base.extras import need
from tmmu_core.formats.planfile.plan_document import head_document
from tmmu_core.plans.model import Plan

HEAD_KEY = b"tmmu_plan"
"""Metadata key of the head."""


def to_parquet(plan: Plan) -> bytes:
    """Return the rows as Parquet; the head of the plan file is JSON under the metadata key ``tmmu_plan``."""
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
    if plan.categories:
        table = table.append_column("category", pa.array(plan.categories, pa.string()))
    head = msgspec.json.encode(head_document(plan))
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({HEAD_KEY: head}), sink, compression="zstd")
    return sink.getvalue()
