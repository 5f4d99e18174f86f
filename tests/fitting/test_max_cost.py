"""``fit`` within a maximum cost returns the lowest peak that the cost allows."""

from functools import cache
from itertools import pairwise

import pytest

from tests.support import build
from tests.support.build import graph, node, tensor
from tests.support.paths import SAMPLES, read_graph_file
from tmmu_core.fitting.problem.answer import Allowed, Capacity, Fitted
from tmmu_core.fitting.problem.planner_calls import Candidate, initial_candidate
from tmmu_core.fitting.search.fit_search import fit
from tmmu_core.fitting.search.overviews import curve
from tmmu_core.plans.making.request import PlanRequest

MIB = 1 << 20
GPT2 = "gpt2_small_train_b1_s1024.tmmu.cbor.gz"
TRAINING_STEP = "training_step.tmmu.json"


@cache
def start_of(sample: str) -> Candidate:
    return initial_candidate(read_graph_file(SAMPLES / sample), PlanRequest())


def fitted(sample: str, capacity: int, percent: float) -> Fitted:
    """``fit`` by order, in-place reuse and recomputation, with at most ``percent`` more operations."""
    kinds = frozenset({"planner", "order", "inplace", "recompute"})
    return fit(start_of(sample), Capacity(capacity), Allowed(kinds, max_cost=int(percent * 1000)))


def percent_of(answer: Fitted) -> float:
    return 100 * answer.best.cost.extra_flops / answer.flops


@pytest.mark.slow
def test_unreachable_capacity_returns_peak_below_a_cheaper_one() -> None:
    """2,600 MiB costs 0.057 %, so at 1 % the answer for 1,900 MiB is at most 2,600 MiB."""
    cheap, low = fitted(GPT2, 2600 * MIB, 1), fitted(GPT2, 1900 * MIB, 1)
    assert cheap.answer == "fits"
    assert percent_of(cheap) < 0.1
    assert low.best.extent_bytes < cheap.best.extent_bytes
    assert percent_of(low) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("percent", [0, 2, 30])
def test_no_capacity_within_the_cost_is_below_the_lowest_peak(percent: float) -> None:
    lowest = fitted(TRAINING_STEP, 1, percent).best.extent_bytes
    start = start_of(TRAINING_STEP).extent_bytes
    for capacity in range(lowest // 2, start, start // 40):
        answer = fitted(TRAINING_STEP, capacity, percent)
        assert percent_of(answer) <= percent
        assert answer.best.extent_bytes >= lowest or answer.answer != "fits"


@cache
def chain(count: int = 6, sizes: tuple[int, ...] = (64, 4096, 256, 1024), planner: str | None = None) -> Candidate:
    """``h0 → h1 → …`` of changing sizes; the backward pass reads each of them."""
    tensors = [tensor("x", 256, role="input")]
    nodes = []
    for k in range(count):
        tensors += [tensor(f"h{k}", sizes[k % len(sizes)]), tensor(f"g{k}", 256, role="gradient")]
        nodes.append(node(f"f{k}", f"h{k - 1}" if k else "x", f"h{k}", instr="Relu", phase="forward", inplace="none"))
    for k in reversed(range(count)):
        reads = f"h{k}" + (f" g{k + 1}" if k < count - 1 else "")
        nodes.append(node(f"b{k}", reads, f"g{k}", instr="Mul", phase="backward", inplace="none"))
    return initial_candidate(
        graph(tensors, nodes, "x", "g0"), PlanRequest(planner=planner, one_memory=True, alignment=64)
    )


def test_lowest_peak_within_a_cost_is_that_of_the_curve() -> None:
    kinds = frozenset({"planner", "recompute"})
    points = curve(chain(), Allowed(kinds))
    assert len(points) > 4
    for cheaper, dearer in pairwise(points):
        assert cheaper.cost.key <= dearer.cost.key
        assert cheaper.extent_bytes > dearer.extent_bytes
    flops = fit(chain(), Capacity(1), Allowed(kinds)).flops
    for point in points[1::2]:
        percent = -(-100_000 * point.cost.extra_flops // flops)
        lowest = fit(chain(), Capacity(1), Allowed(kinds, max_cost=percent)).best
        assert lowest.cost.extra_flops * 100_000 <= percent * flops
        assert lowest.extent_bytes <= 1.005 * point.extent_bytes


def test_search_within_a_cost_ends_for_tensors_of_few_bytes() -> None:
    start = initial_candidate(build.chain(6), PlanRequest(mode="backward", planner="auto", alignment=4))
    found = fit(start, Capacity(start.extent_bytes - 16), Allowed(frozenset({"recompute"}), max_cost=1))
    assert (found.answer, found.best.extent_bytes) == ("open", 128)


@pytest.mark.parametrize("sizes", [(1024, 972, 8, 228, 24), (64, 64, 1000, 1024, 4040), (4076, 4096, 4068, 980, 200)])
def test_point_of_the_curve_as_the_capacity_costs_no_more(sizes: tuple[int, ...]) -> None:
    """The last storage of an arena needs no padding, so an extent may be below the sum of aligned sizes."""
    start, allowed = chain(7, sizes, "auto"), Allowed(frozenset({"recompute"}))
    points = curve(start, allowed)
    assert len(points) > 4
    for point in points:
        found = fit(start, Capacity(point.extent_bytes), allowed)
        assert found.answer == "fits"
        assert found.best.cost.key <= point.cost.key
