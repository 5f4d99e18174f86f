"""Large neighbourhood search of exact: destroys and repairs a packing below a capacity with integers only."""

from unittest.mock import Mock

import pytest

from benchmarks.variants import perfect, problem_of
from tests.planners.brute_force import made
from tests.planners.packings import faults, offsets, problem_with, smallest_extent
from tmmu_core.planners.columns import columns
from tmmu_core.planners.exact import exact, lns
from tmmu_core.planners.exact.lns import lns_run
from tmmu_core.planners.exact.search_model import Model, search_model, units_of
from tmmu_core.planners.exact.search_tables import build_tables
from tmmu_core.planners.problem import Problem


def model_of(p: Problem) -> Model:
    cols = columns(p)
    return search_model(cols, units_of(cols, ()) or ())


def test_complete_repair_is_a_packing_below_the_capacity() -> None:
    found = 0
    for seed in range(80):
        p = problem_with(made(seed, 6), handoff_from=None)
        least, model = smallest_extent(p), model_of(p)
        if (lies := lns_run(model, build_tables(model), 1).run(least, 3_000)) is not None:
            found += 1
            assert faults(p, lies) == []
            assert max(at + int(size) for at, size in zip(lies, p.size, strict=True)) <= least
        assert lns_run(model, build_tables(model), 1).run(least - 1, 300) is None
    assert found > 70


def test_run_that_omits_units_reports_the_fewest() -> None:
    model = model_of(problem_of(perfect(60, 5)))
    run = lns_run(model, build_tables(model), 1)
    assert run.run(1 << 19, 400) is None  # half of what there is to be packed
    assert (run.iterations, 0 < run.fewest_omitted < 60) == (400, True)


def test_long_runs_bisect_for_as_long_as_they_succeed() -> None:
    schedule, extent, tried = lns.run_schedule(100, 1, 10, 116), 116, list[int]()
    at, iterations, _ = next(schedule)
    while iterations:
        tried.append(at)
        is_found = iterations > 100 and at > 101
        extent = at if is_found else extent
        at, iterations, _ = schedule.send((extent, not is_found))
    assert (tried, extent) == ([108, 108, 112, 112, 100, 100, 100, 108, 104, 102, 101, 100], 102)


def test_handoff_to_a_fixed_offset_overlaps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lns, "MIN_UNITS", 1)
    monkeypatch.setattr(lns, "NEAR_FRACTION", 1)
    turns = 0
    for seed in range(1150, 1400):
        p = made(seed, 14)
        if p.fixed is not None and p.handoff_from is not None:
            packing = exact(p, {"budget": 1})
            turns += packing.notes.get("turns", 0)
            assert faults(p, offsets(packing)) == [], seed
    assert turns


def test_run_is_deterministic_per_number() -> None:
    model = model_of(problem_of(perfect(60, 5)))
    one, again, other = (lns_run(model, build_tables(model), number).run(1 << 20, 100_000) for number in (1, 1, 2))
    assert one == again != other


def test_run_stops_when_the_callback_returns_false_or_raises() -> None:
    model = model_of(problem_of(perfect(60, 5)))
    run = lns_run(model, build_tables(model), 1)
    assert run.run(1 << 19, 10**9, watch := Mock(return_value=False)) is None
    assert (watch.call_count, run.stop[0], run.iterations < 10**9) == (1, 1, True)
    run = lns_run(model, build_tables(model), 1)
    with pytest.raises(KeyboardInterrupt):
        run.run(1 << 19, 10**9, Mock(side_effect=KeyboardInterrupt))
    assert run.stop[0] == 1
