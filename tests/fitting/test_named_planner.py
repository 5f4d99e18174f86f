"""A graph that names its planner."""

import msgspec

from tests.support.build import chain
from tmmu_core.graph.native import native_file
from tmmu_core.plans.canonical import ir_hash
from tmmu_core.plans.making.engine import plan_graph


def test_named_planner_is_used_unless_another_is_given() -> None:
    ir = msgspec.structs.replace(chain(3), planner="naive")
    assert (plan_graph(ir).plan.planner, plan_graph(ir, planner="greedy").plan.planner) == ("naive", "greedy")


def test_name_of_the_planner_is_written_and_hashed() -> None:
    ir = msgspec.structs.replace(chain(3), planner="auto")
    assert native_file.decode(native_file.encode(ir, "g.json")).planner == "auto"
    assert ir_hash(ir) != ir_hash(chain(3))
    assert b"planner" not in native_file.encode(chain(3), "g.json")
