"""Lint rules of TMMU v2 (VII.A) by name, and the warnings of the contract."""

from dataclasses import replace

import pytest

from tests.judge.faults import changed, refigured, rehashed
from tests.support.build import chain, graph, node, residual, tensor, view
from tmmu_core.graph.model import Graph
from tmmu_core.judge.finding import Finding
from tmmu_core.judge.lint import RULES, lint_verdict
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.model import Plan


def lint_plan(plan: Plan, graph: Graph | None = None) -> tuple[Finding, ...]:
    return lint_verdict(plan, graph).findings


@pytest.mark.parametrize("model", [residual(), chain(2, "any")], ids=["without reuse", "declared reuse"])
def test_valid_plan_has_no_finding(model: Graph) -> None:
    assert lint_plan(plan_graph(model).plan, model) == ()


def test_handoff_by_an_undeclared_default_is_a_warning() -> None:
    verdict = lint_verdict(plan_graph(chain(2)).plan, chain(2))
    assert verdict.ok
    assert [(f.rule, f.severity, f.tensor, f.other) for f in verdict.findings] == [
        ("undeclared_inplace", "warning", "t0", "t1"),
        ("undeclared_inplace", "warning", "t1", "t2"),
    ]


def test_synthesised_step_inherits_the_declaration_of_its_forward_node() -> None:
    g = chain(2)
    found = lint_plan(plan_graph(g, mode="backward", preset="train_full").plan, g)
    assert any(f.rule == "undeclared_inplace" and "@grad" in f.message for f in found)


def test_node_named_like_a_backward_step_declares_itself() -> None:
    tensors = [tensor("x", role="input"), tensor("y"), tensor("z")]
    shown_text = [node("n", "x", "y", inplace="none"), node("m@grad", "y", "z")]
    g = graph(tensors, shown_text, "x", "z")
    assert [(f.rule, f.tensor, f.other) for f in lint_plan(plan_graph(g).plan, g)] == [("undeclared_inplace", "y", "z")]


def test_shortened_range_breaks_the_lifetimes_rule() -> None:
    g = residual()
    plan = plan_graph(g).plan
    short = rehashed(refigured(changed(plan, "death", plan.row_of["x"], 4)))
    assert {f.rule for f in lint_plan(short, g) if f.severity == "error"} == {"lifetimes"}


def test_backward_plan_without_a_saved_tensor_breaks_the_lifetimes_rule() -> None:
    g = chain(3, "none")
    plan = plan_graph(g, mode="backward", preset="train_full").plan
    row = plan.row_of["t1"]
    forgotten = rehashed(refigured(changed(plan, "death", row, 3)))
    assert "lifetimes" in {f.rule for f in lint_plan(forgotten, g)}


def test_wrong_hash_breaks_the_addresses_rule() -> None:
    plan = plan_graph(residual()).plan
    assert {f.rule for f in lint_plan(replace(plan, layout_hash=bytes(32)))} == {"addresses"}


def test_every_rule_has_a_statement() -> None:
    assert all(statement.endswith(".") for statement in RULES.values())
    assert lint_verdict(plan_graph(residual()).plan, residual()).checked == tuple(RULES)


def scoped(order: tuple[str, ...], inner: str = "loop") -> Graph:
    """Return ``x → open → body → close``, a scope, and ``aside``, which reads only the input."""
    inside, deeper = {"scope": "loop"}, {"scope": inner}
    nodes = [
        node("open", "x", "s", inplace="none", **inside),
        node("body", "s", "h", inplace="none", **deeper),
        node("close", "h s", "y", inplace="none", **inside),
        node("aside", "x", "z", inplace="none"),
    ]
    tensors = [tensor("x", role="input"), *(tensor(name) for name in "shyz")]
    return graph(tensors, nodes, "x", "y z", execution_order=order)


@pytest.mark.parametrize("inner", ["loop", "loop/inner"])
def test_node_inside_a_foreign_scope_is_a_warning(inner: str) -> None:
    model = scoped(("open", "body", "aside", "close"), inner)
    found = lint_plan(plan_graph(model).plan, model)
    assert [(f.rule, f.severity, f.step) for f in found] == [("split_scope", "warning", 3)]
    assert "aside" in found[0].message


@pytest.mark.parametrize("order", [("aside", "open", "body", "close"), ("open", "body", "close", "aside")])
def test_contiguous_scope_is_no_finding(order: tuple[str, ...]) -> None:
    model = scoped(order)
    assert lint_plan(plan_graph(model).plan, model) == ()


@pytest.mark.parametrize("invalid", [None, graph([view("t0", "missing"), *chain(2).tensors[1:]], [*chain(2).nodes])])
def test_rules_that_need_the_graph_are_skipped_without_a_valid_one(invalid: Graph | None) -> None:
    plan, skipped = plan_graph(chain(2)).plan, {"undeclared_inplace", "split_scope"}
    assert lint_verdict(plan, invalid).checked == tuple(rule for rule in RULES if rule not in skipped)
