"""Charts of search progress in the benchmarks."""

import re

from benchmarks.curves import LEFT, TOP, Curve, drawn


def test_curve_steps_down_and_ends_at_the_used_nodes() -> None:
    picture = drawn([Curve("one", [[0, 200, 100], [10, 150, 100], [1000, 120, 120]], 1000, 0.0)])
    extent = re.findall(r'class="e" d="M([\d.]+) ([\d.]+)((?:H[\d.]+V[\d.]+)+)"', picture)
    ((x, y, steps),) = extent
    assert (float(x), float(y)) == (LEFT, TOP)
    places = [(float(a), float(b)) for a, b in re.findall(r"H([\d.]+)V([\d.]+)", steps)]
    inner = 3 * (places[0][0] - LEFT)  # one decade of nodes, then three
    assert [round((a - LEFT) / inner, 2) for a, _ in places] == [0.33, 1.0, 1.0]
    assert [round((b - TOP) / 110, 2) for _, b in places] == [0.5, 0.8, 0.8]
    assert "one: proven the least" in picture


def test_open_gap_is_labelled() -> None:
    assert "two: 50.00 % open" in drawn([Curve("two", [[0, 200, 100], [5, 150, 100]], 7, 0.0)])
