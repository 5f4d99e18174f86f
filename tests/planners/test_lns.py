"""Large neighbourhood search of exact: destroys and repairs a packing below a capacity with integers only."""

import threading

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
        least = smallest_extent(p)
        model = model_of(p)
        lies = lns_run(model, build_tables(model), 1).run(least, 3_000)
        if lies is not None:
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
    assert one == again
    assert one != other


def test_run_stops_when_the_callback_returns_true_or_raises() -> None:
    model = model_of(problem_of(perfect(60, 5)))
    run = lns_run(model, build_tables(model), 1)
    reported: list[int] = []
    assert run.run(1 << 19, 10**9, lambda turns: bool(reported.append(turns))) is None
    assert len(reported) == 1
    assert run.stop[0] == 1
    assert run.iterations < 10**9
    assert threading.active_count() >= 1

    def broken(turns: int) -> bool:
        raise KeyboardInterrupt

    run = lns_run(model, build_tables(model), 1)
    with pytest.raises(KeyboardInterrupt):
        run.run(1 << 19, 10**9, broken)
    assert run.stop[0] == 1
