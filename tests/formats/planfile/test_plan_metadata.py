"""Metrics and notes of a plan file are checked by type and range."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.plans.examples import chain_plan
from tests.support.same_plan import same_plan
from tests.tools.fuzz.targets import noting_plans
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.planfile import plan_file
from tmmu_core.plans.making.request_options import option_pairs
from tmmu_core.plans.model import Plan


def with_changed(plan: Plan, change: Callable[[dict[str, Any]], None]) -> bytes:
    document = msgspec.json.decode(plan_file.to_json(plan))
    change(document)
    return msgspec.json.encode(document)


@pytest.mark.parametrize(
    ("figure", "value"),
    [
        *(("memory_reuse_ratio", value) for value in (2**63, 10**9, 1e9, 1e300, "1", True)),
        *(("allocation_failures", value) for value in (2**63, -1, "0")),
        *(("totals", value) for value in ("none", {"peak_step": "a"}, {"peak_step": 2**64})),
        ("allocation_time_ns", "soon"),
    ],
)
def test_metric_out_of_range_is_rejected(figure: str, value: Any) -> None:
    data = with_changed(chain_plan(), lambda document: document["metrics"].update({figure: value}))
    with pytest.raises(UnreadableInput) as caught:
        plan_file.from_document(data)
    assert caught.value.place in (f"$.metrics.{figure}", f"$.metrics.{figure}.peak_step")


@pytest.mark.parametrize("figure", ["slots", "extent_bytes", "max_live"])
def test_figures_that_sum_past_64_bits_are_rejected(figure: str) -> None:
    plan = next(plan for plan in noting_plans() if len(plan.arenas) > 1)

    def change(document: dict[str, Any]) -> None:
        for arena in document["arenas"].values():
            arena[figure] = 2**63

    with pytest.raises(UnreadableInput, match=figure) as caught:
        plan_file.from_document(with_changed(plan, change))
    assert caught.value.place == "$.arenas"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("said_by", value) for value in (5, [], {"order": "x"}, {"order": [1]})),
        *(("spills", value) for value in (None, "x", [{"storage": "x"}], [[]])),
        *(("alignment", value) for value in (0, "16", None)),
        *(("memory", value) for value in (7, None)),
        *(("role", value) for value in ("activation", {})),
        *(("picked", ["greedy"]), ("sharing_pairs", "many"), ("origin", -1), ("start", 3)),
    ],
)
def test_unknown_note_on_an_arena_is_rejected(key: str, value: Any) -> None:
    plan = noting_plans()[0]
    arena = plan.arenas[0].name
    data = with_changed(plan, lambda document: document["notes"][arena].update({key: value}))
    with pytest.raises(UnreadableInput) as caught:
        plan_file.from_document(data)
    assert caught.value.place == f"$.notes.{arena}"


@pytest.mark.parametrize("value", [3, [1], {"bits": "48"}, {"kind": 1}])
def test_malformed_note_on_addresses_is_rejected(value: Any) -> None:
    data = with_changed(noting_plans()[1], lambda document: document["notes"].update(addressing=value))
    with pytest.raises(UnreadableInput) as caught:
        plan_file.from_document(data)
    assert caught.value.place == "$.notes.addressing"


def test_notes_of_planners_are_read() -> None:
    for plan in noting_plans():
        assert same_plan(plan, plan_file.from_document(plan_file.to_json(plan))) == ()
        plan_file.to_csv(plan_file.from_document(plan_file.to_json(plan)))


@pytest.mark.parametrize("text", ["fit", "", "=3", " =3"])
def test_option_needs_a_name_and_a_value(text: str) -> None:
    with pytest.raises(ValueError, match="is not of the form KEY=VALUE"):
        option_pairs([text])
    assert option_pairs(["a=1", "b=x=y", " c = [2] "]) == {"a": 1, "b": "x=y", "c": [2]}
