"""Packing instances as CSV, as MiniMalloc and others write them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given

from tests.planners.packings import problem, problem_with, problems
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.csv.instance_csv import read_csv, write_csv
from tmmu_core.graph.native.document import unpack
from tmmu_core.planners.greedy import greedy
from tmmu_core.planners.problem import Problem, live_parts


def refusal(text: str) -> UnreadableInput:
    with pytest.raises(UnreadableInput) as caught:
        read_csv(text.encode(), "x.csv")
    return caught.value


def test_rows_are_sorted_into_the_normative_order() -> None:
    p = read_csv(b"id,lower,upper,size\nb,1,4,8\na,0,2,4\nc,1,2,16\n").problem
    assert (p.ids, p.birth.tolist(), p.death.tolist(), p.size.tolist()) == (
        ("a", "c", "b"),
        [0, 1, 1],
        [2, 2, 4],
        [4, 16, 8],
    )


def test_offsets_on_all_rows_are_a_finished_plan() -> None:
    instance = read_csv(b"size,offset,id,upper,lower\n8,16,b,4,1\n")
    assert instance.packing is not None
    assert instance.packing.offset.tolist() == [16]
    assert instance.problem.fixed is None


def test_offsets_on_some_rows_are_fixed() -> None:
    instance = read_csv(b"id,lower,upper,size,offset\na,0,4,8,\nb,1,4,8,16\n")
    assert instance.packing is None
    assert instance.problem.fixed is not None
    assert instance.problem.fixed.tolist() == [-1, 16]


def test_byte_order_mark_and_windows_lines_are_read() -> None:
    assert read_csv(unpack(b"\xef\xbb\xbfid,lower,upper,size\r\nb,1,4,8\r\n\r\n")).problem.ids == ("b",)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "line 1"),
        ("id,lower,upper\n", "line 1, column size"),
        ("\n\nid,lower,upper,size,colour\n", "line 3, column colour"),
        ("id,lower,start,upper,size\n", "line 1, column start"),
        ("id,lower,upper,size\na,0,1\n", "line 2"),
        ("id,lower,upper,size\na,0,1,8\na,0,1,8\n", "line 3, column id"),
        ("id,lower,upper,size\na,x,1,8\n", "line 2, column lower"),
        ("id,lower,upper,size\na,-1,1,8\n", "line 2, column lower"),
        pytest.param("id,lower,upper,size\na,0,1," + "9" * 5000, "line 2, column size", id="digits"),
        pytest.param(f"id,lower,upper,size,gaps\na,0,1,8,0-{'9' * 5000}", "line 2, column gaps", id="gap"),
        ("id,lower,upper,size,offset\na,0,1,8,\nb,0,1,8,9223372036854775808\n", "line 3, column offset"),
        ("tensor_id,arena,offset_bytes\n", "line 1, column tensor_id"),
        ('id,lower,upper,size\n"a,0,9,8\n', "line 2"),
    ],
)
def test_error_has_row_and_column(text: str, place: str) -> None:
    fault = refusal(text)
    assert (fault.place, bool(fault.hint)) == (place, True)


def test_fixed_offsets_are_written() -> None:
    text = write_csv(problem((0, 2, 8), (1, 2, 8), fixed=np.array([8, -1])))
    assert text == b"id,lower,upper,size,offset\nt0,0,2,8,8\nt1,1,2,8,\n"


@given(problems())
def test_problem_round_trips(p: Problem) -> None:
    p = problem_with(p, handoff_from=None, must_not_alias=None)
    assume(bool(np.diff(live_parts(p)[0]).all()))
    again = read_csv(write_csv(p)).problem
    assert (again.ids, again.birth.tolist(), again.death.tolist()) == (p.ids, p.birth.tolist(), p.death.tolist())
    assert (again.size.tolist(), again.alignment.tolist()) == (p.size.tolist(), p.alignment.tolist())
    assert (again.gaps or ((),) * len(p)) == (p.gaps or ((),) * len(p))


def test_buffer_with_many_gaps_is_read_back() -> None:
    gaps = tuple((step, step + 1) for step in range(1, 60_000, 2))
    assert read_csv(write_csv(problem((0, 60_001, 8), gaps=(gaps,)))).problem.gaps == (gaps,)


@pytest.mark.parametrize("name", ["a\rb", "a\nb", "a\r\nb", 'a"b', "a,b", "=a"])
def test_id_with_special_characters_round_trips(name: str) -> None:
    p = replace(problem((0, 2, 8)), ids=(name,))
    assert read_csv(write_csv(p)).problem.ids == (name,)


@pytest.mark.parametrize("name", ["", " ", "a ", "\ta", "a\u3000"])
def test_id_that_the_reader_would_change_is_not_written(name: str) -> None:
    with pytest.raises(UnreadableInput, match="a CSV cannot hold the id"):
        write_csv(replace(problem((0, 2, 8)), ids=(name,)))


@given(problems())
def test_plan_round_trips(p: Problem) -> None:
    assume(bool(np.diff(live_parts(p)[0]).all()))
    packing = greedy(p, {})
    again = read_csv(write_csv(p, packing.offset)).packing
    assert (again.offset.tolist() if again is not None else []) == packing.offset.tolist()


HEAD = "id,lower,upper,size,alignment,gaps,offset\n"


@pytest.mark.parametrize(
    ("cells", "place"),
    [
        # The largest value that is read, and the smallest that is not.
        (f"a,0,{2**62},8,,,", ""),
        (f"a,0,{2**62 + 1},8,,,", "upper"),
        (f"a,{2**62},{2**62},8,,,", "upper"),
        (f"a,0,1,{2**64 - 1},,,", ""),
        (f"a,0,1,{2**64},,,", "size"),
        (f"a,0,1,8,{2**63},,", ""),
        (f"a,0,1,8,{2**64},,", "alignment"),
        ("a,0,1,8,0,,", "alignment"),
        ("a,0,1,8,3,,", "alignment"),
        ("a,0,1,8,1,,", ""),
        (f"a,0,1,8,,,{2**64 - 1}", ""),
        (f"a,0,1,8,,,{2**64}", "offset"),
        ("a,0,1,00000000000000000000000000000008,,,", ""),
        ("a,0x0,1.0,1.5 KiB,,,", ""),
        ("a,0,1,²,,,", "size"),
        (" ,0,1,8,,,", "id"),
        ("a,1,1,8,,,", "upper"),
        ("a,1,0,8,,,", "upper"),
        # Gaps are inside of the live range, have a step, do not overlap, and leave a step.
        ("a,2,9,8,,2-3,", ""),
        ("a,2,9,8,,8-9,", ""),
        ("a,2,9,8,,1-3,", "gaps"),
        ("a,2,9,8,,8-10,", "gaps"),
        ("a,2,9,8,,4-4,", "gaps"),
        ("a,2,9,8,,3-5 5-6,", ""),
        ("a,2,9,8,,5-6 3-5,", ""),
        ("a,2,9,8,,3-5 4-6,", "gaps"),
        ("a,2,9,8,,2-9,", "gaps"),
        ("a,2,9,8,,2-5 5-9,", "gaps"),
        ("a,2,9,8,,3-5@0:4,", ""),
        ("a,2,9,8,,3-5@0,", "gaps"),
        ("a,2,9,8,,3-5@0:1:2,", "gaps"),
        ("a,2,9,8,,3-5@,", "gaps"),
        ("a,2,9,8,,35,", "gaps"),
        ("a,2,9,8,,3-x,", "gaps"),
        (f"a,2,9,8,,{'0' * 38}3-5,", ""),
        (f"a,2,9,8,,{'0' * 39}3-5,", "gaps"),
    ],
)
def test_value_at_its_limit_is_read_and_beyond_it_rejected(cells: str, place: str) -> None:
    if place:
        assert refusal(HEAD + cells).place == f"line 2, column {place}"
    else:
        (name,) = read_csv((HEAD + cells).encode()).problem.ids
        assert name == "a"


def large_table(last: str) -> bytes:
    rows = (f"buffer_{k % 7}_{k},{k},{k + 1 + k % 97},{128 * (k % 31) + 128}\n" for k in range(45_000))
    return ("id,lower,upper,size\n" + "".join(rows) + last).encode()


@pytest.mark.parametrize(
    "last", ["buffer_0_0,5,6,1\n", "x,6,5,1\n", "x,5,6\n", "x,5,6,one\n", ",5,6,1\n", "x,5,6,-1\n"]
)
def test_fault_of_a_large_table_is_reported_with_its_line(last: str) -> None:
    with pytest.raises(UnreadableInput, match=r"\w") as raised:
        read_csv(large_table(last))
    assert "45002" in str(raised.value.place).replace(",", "")
