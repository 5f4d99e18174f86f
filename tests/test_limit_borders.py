"""A limit is what is still allowed: so many are read, and one more is refused by its name."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow.parquet as pq
import pytest

from tests.build import chain, graph, node, tensor
from tests.fuzz.targets import sharded
from tests.importers.test_xla import ASSIGNMENT, LIVE_RANGE
from tmmu_core import limits
from tmmu_core.errors import TmmuError
from tmmu_core.graph import unpacking
from tmmu_core.graph.importers import xla
from tmmu_core.graph.index import index_graph
from tmmu_core.plan.formats import parquet
from tmmu_core.plan.making.engine import plan_graph
from tmmu_core.plan.making.ranks import plan_ranks
from tmmu_core.plan.making.request import PlanRequest

PARQUET = parquet.to_parquet(plan_graph(chain(9)).plan)
META = pq.ParquetFile(io.BytesIO(PARQUET)).metadata
GROUP = META.row_group(0)
COLUMNS = [GROUP.column(k) for k in range(GROUP.num_columns)]
APART = graph(
    [tensor("x", role="input"), tensor("y", must_not_alias=("x", "z")), tensor("z", must_not_alias=("x",))],
    [node("n", "x", "y"), node("m", "y", "z")],
    "x",
    "z",
)


@dataclass(frozen=True)
class Border:
    """What holds so many of something."""

    limit: limits.Limit
    holds: int
    read: Callable[[], object]


BORDERS = {
    "three pairs kept apart": Border(limits.PAIRS, 3, lambda: index_graph(APART)),
    "eight ranks of two axes": Border(
        limits.RANKS, 8, lambda: plan_ranks(sharded(), PlanRequest(shard_spec={"mesh": {"dp": 2, "tp": 4}}))
    ),
    "an allocation of three values": Border(
        limits.ALLOCATION_VALUES, 3, lambda: xla.read((ASSIGNMENT + LIVE_RANGE).encode())
    ),
    "a stream of a thousand bytes": Border(
        limits.UNPACKED_BYTES, 1000, lambda: unpacking.read_stream(io.BytesIO(b"x" * 1000), "pipe")
    ),
    "a parquet plan's values": Border(
        limits.VALUES, sum(column.num_values for column in COLUMNS), lambda: parquet.from_parquet(PARQUET)
    ),
    "a parquet plan's bytes": Border(
        limits.UNPACKED_BYTES,
        sum(column.total_uncompressed_size for column in COLUMNS),
        lambda: parquet.from_parquet(PARQUET),
    ),
}


@pytest.mark.parametrize("border", BORDERS.values(), ids=list(BORDERS))
def test_so_many_are_read_and_one_more_is_refused(border: Border) -> None:
    with limits.raised({border.limit.name: border.holds}):
        assert border.read() is not None
    with limits.raised({border.limit.name: border.holds - 1}), pytest.raises(TmmuError) as caught:
        border.read()
    assert f"--max-{border.limit.name}" in str(caught.value)
    assert f"more than {border.holds - 1} {border.limit.what}" in str(caught.value)
