import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.canvas.component import matches, pack_plan
from tests.app.canvas.plans import FOUR, plan_of
from tmmu_core.formats.planfile.compare_plans import compare
from tmmu_core.judge.verifier.finished_plan import conflicting_rows, verify_finished


class Read:
    """The bytes of a pack, read by code of its own from the layout that the packer's docstring states."""

    def __init__(self, data: bytes) -> None:
        self.base, self.data = 8 + int.from_bytes(data[:8], "little"), data
        self.header = json.loads(data[8 : self.base])

    def array(self, triple: list[Any]) -> list[int]:
        kind, start, count = triple
        at = self.base + start
        assert at % 8 == 0
        if kind == "json":
            return list(json.loads(self.data[at : at + count]))
        dtype = np.dtype("<" + kind)
        return np.frombuffer(self.data[at : at + count * dtype.itemsize], dtype).tolist()


def test_columns_round_trip() -> None:
    plan = plan_of()
    read = Read(pack_plan(plan).data)
    packed = read.header["plans"][0]
    for name, column in (
        ("birth", plan.birth),
        ("death", plan.death),
        ("offset", plan.offset),
        ("size", plan.size),
        ("slot", plan.logical_slot),
        ("generation", plan.generation),
        ("arena", plan.arena),
    ):
        assert read.array(packed["columns"][name]) == column.tolist(), name


@pytest.mark.parametrize(("top", "kind"), [(255, "u1"), (256, "u2"), (65_536, "u4"), (2**32, "u8"), (2**63, "u8")])
def test_column_has_the_narrowest_type(top: int, kind: str) -> None:
    plan = plan_of((("a", "activations", 0, top, 0, 0, 1),), nodes=())
    read = Read(pack_plan(plan).data)
    triple = read.header["plans"][0]["columns"]["offset"]
    assert triple[0] == kind
    assert read.array(triple) == [top]


def test_conflicts_are_listed_for_invalid_plans_only() -> None:
    plan = plan_of()
    assert Read(pack_plan(plan).data).header["plans"][0]["arrays"]["conflict"] is None
    stacked = verify_finished(replace(plan, offset=plan.offset * 0)).plan
    read = Read(pack_plan(stacked).data)
    conflict = read.array(read.header["plans"][0]["arrays"]["conflict"])
    assert conflict == conflicting_rows(stacked).tolist()
    assert any(conflict)


def test_changes_are_those_of_compare() -> None:
    before = plan_of()
    after = plan_of((("a", "activations", 0, 128, 1024, 0, 2), *FOUR[1:3], ("x", "parameters", 0, 0, 4096, 0, 4)))
    read = Read(pack_plan(after, baseline=before).data)
    kinds, (candidate, baseline) = read.header["kinds"], [packed["arrays"] for packed in read.header["plans"]]
    comparison = compare(before, after)
    expected = dict(zip(comparison.ids, comparison.kinds.tolist(), strict=True))
    assert dict(zip("abcx", read.array(candidate["changes"]), strict=True)) == {i: expected[i] for i in "abcx"}
    assert dict(zip("abcw", read.array(baseline["changes"]), strict=True)) == {i: expected[i] for i in "abcw"}
    assert read.array(candidate["changes"])[0] == 1 << kinds.index("moved")
    assert read.array(candidate["twin"]) == [1, 2, 3, 0]


def test_search_finds_ids_and_writers() -> None:
    plan = plan_of()
    assert matches(plan, "B").tolist() == [False, True, False, False]
    assert matches(plan, "N1").tolist() == [False, True, False, False]  # b is written at #1 n1
    assert not matches(plan, "").any()


@given(st.lists(st.text(max_size=6), min_size=1, max_size=8, unique=True))
def test_names_round_trip(names: list[str]) -> None:
    rows = tuple((name, "activations", k, 4 * k, 4, 0, 1) for k, name in enumerate(names))
    plan = plan_of(rows, nodes=())
    read = Read(pack_plan(plan).data)
    assert tuple(read.array(read.header["plans"][0]["arrays"]["ids"])) == plan.tensor_ids
