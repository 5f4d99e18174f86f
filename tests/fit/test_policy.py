"""A fitted PyTorch step as a checkpoint policy: which calls keep their results. ``test_policy_runs.py`` runs it."""

from __future__ import annotations

import msgspec

from tests.fit.test_recompute import B, F, T, choice_with, step
from tmmu_core.fit.policy import checkpoint_policy, is_from_torch, kept_calls
from tmmu_core.fit.recompute.write import written
from tmmu_core.graph.model import View

STEP = step(
    F("r0", "relu", "x", "a"),
    F("m0", "mul.Tensor", "a a", "b"),
    F("v", "view", "b", "bv"),
    F("r1", "relu", "bv", "c"),
    B("t", "tangent", "c", "gc"),
    B("b1", "mul.Tensor", "gc c bv", "gb"),
    B("b0", "mul.Tensor", "gb a", "gx"),
    tensors=[*map(T, "xabc"), T("bv", view=View("b")), *(T(name, role="gradient") for name in ("gc", "gb", "gx"))],
    outputs=("gx",),
)


def test_what_the_backward_pass_reads_is_kept_call_by_call_through_views() -> None:
    assert kept_calls(STEP.graph, STEP.graph) == {"mul": (0,), "relu": (0, 1)}


def test_what_is_recomputed_is_not_kept() -> None:
    model, choice = choice_with(STEP, ("b", "r1"))
    assert kept_calls(STEP.graph, written(model, choice)) == {"relu": (0, 1)}


def test_the_policy_names_operators_and_calls() -> None:
    source = checkpoint_policy(msgspec.structs.replace(STEP.graph, name="a step"), STEP.graph, "mine")
    assert "What a step keeps" in source
    assert "    'relu': {0, 1},\n" in source
    assert "from mine import checkpointed" in source
    compile(source, "mine.py", "exec")


def test_a_joint_graph_is_known_by_its_tangent() -> None:
    assert is_from_torch(STEP.graph)
    assert not is_from_torch(msgspec.structs.replace(STEP.graph, nodes=STEP.graph.nodes[:4]))
