"""Each limit of the gate at its border."""

from dataclasses import replace
from fractions import Fraction

import pytest

from tests.plans.examples import ledger_plan
from tests.support.build import graph, node, tensor
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.plans.analysis.gate import ALL, GROWTH, Limit, Measure, changed_settings, gate
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.model import Plan


def two_arenas() -> Plan:
    """Return a plan with parameters ``w`` (400 B) and activations ``x`` (64 B) and ``y`` (32 B), 128 B apart."""
    tensors = [tensor("x", 16, role="input"), tensor("w", 100, role="parameter"), tensor("y", 8)]
    return plan_graph(graph(tensors, [node("n", "x w", "y", inplace="none")], "x", "y")).plan


def ok(plan: Plan, what: Measure, amount: Fraction | int, arena: str = ALL, before: Plan | None = None) -> bool:
    (check,) = gate(plan, [Limit(what, Fraction(amount), arena)], before)
    return check.ok


@pytest.mark.parametrize(
    ("what", "arena", "value", "of"),
    [
        ("extent", ALL, 400 + 160, 1),
        ("extent", "activations", 160, 1),
        ("peak live bytes", ALL, 400 + 96, 1),
        ("peak live bytes", "parameters", 400, 1),
        ("gap", "parameters", 0, 400),
        ("reuse", "activations", 0, 2),
    ],
)
def test_figure_is_that_of_its_arena_or_of_all(what: Measure, arena: str, value: int, of: int) -> None:
    (check,) = gate(two_arenas(), [Limit(what, Fraction(1), arena)])
    assert (check.what, check.arena, check.value, check.denominator, check.limit) == (what, arena, value, of, 1)


def test_plan_below_its_lower_bound_fails_the_gap_limit() -> None:
    plan = two_arenas()
    assert ok(plan, "gap", 1)
    low = replace(plan, arenas=tuple(replace(a, extent_bytes=1) if a.name == "parameters" else a for a in plan.arenas))
    assert [ok(low, "gap", 9, arena) for arena in (ALL, "parameters", "activations")] == [False, False, True]


def test_growth_is_measured_per_arena_and_from_zero_for_a_new_arena() -> None:
    before, after = ledger_plan(), two_arenas()
    grown = gate(after, [Limit("extent growth", Fraction(160))], before)
    assert [(c.arena, c.value, c.denominator, c.ok) for c in grown] == [
        ("activations", 160, 1, True),
        ("arena", -232, 1, True),
        ("parameters", 400, 1, False),
    ]
    again = gate(after, [Limit("extent growth", Fraction(1, 4), relative=True)], after)
    assert [(c.value, c.limit, c.ok) for c in again] == [(0, 40, True), (0, 100, True)]


@pytest.mark.parametrize("grown", GROWTH)
def test_each_growth_measure_has_a_row_of_its_own(grown: Measure) -> None:
    before = ledger_plan()
    fields = {"peak growth": "peak_live_bytes", "extent growth": "extent_bytes"}
    field = fields.get(grown, "lower_bound_bytes")
    (arena,) = before.arenas
    after = replace(before, arenas=(replace(arena, **{field: getattr(arena, field) + 1}),))  # type: ignore[arg-type]
    checks = gate(after, [Limit(what, Fraction(0)) for what in GROWTH], before)
    assert {check.what: check.ok for check in checks} == {what: what != grown for what in GROWTH}


def test_peak_of_several_arenas_together_is_checked_too() -> None:
    checks = gate(two_arenas(), [Limit("peak growth", Fraction(0))], two_arenas())
    assert [check.arena for check in checks] == ["activations", "parameters", ALL]


def test_settings_that_differ_from_the_baseline_are_named() -> None:
    g = graph([tensor("x", 16, role="input"), tensor("y", 8)], [node("n", "x", "y")], "x", "y")
    one, same, other = (plan_graph(g, planner=name).plan for name in ("slots", "slots", "greedy"))
    assert changed_settings(one, same) == ()
    assert changed_settings(other, one) == ("planner slots → greedy",)
    aligned = plan_graph(g, planner="slots", arenas={"activations": {"alignment_bytes": 4}}).plan
    assert changed_settings(aligned, one) == ("alignment of activations 128 → 4",)
    trained = plan_graph(g, planner="slots", mode="forward").plan
    assert "mode inference → forward" in changed_settings(trained, one)


def test_unknown_arena_is_rejected_by_name() -> None:
    with pytest.raises(UnreadableInput, match="no arena 'nowhere'"):
        gate(two_arenas(), [Limit("extent", Fraction(1), "nowhere")])
