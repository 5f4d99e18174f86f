"""A graph whose tensors name arenas that nobody declared is refused without planning it once for each of them."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.build import chain
from tmmu_core.errors import ArenaTooSmall
from tmmu_core.plan.making import engine


def test_arenas_that_nobody_declared_are_all_looked_at_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the first of them needs is asked with every other there: not by one more plan for each."""
    graph = chain(40)
    tensors = tuple(structs.replace(tensor, arena=f"a{k}") for k, tensor in enumerate(graph.tensors))
    planned, made = engine._planned, []

    def counted(*given: object) -> object:
        made.append(given)
        return planned(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(engine, "_planned", counted)
    with pytest.raises(ArenaTooSmall) as refused:
        engine.plan_graph(structs.replace(graph, tensors=tensors))
    assert refused.value.diagnostics["required"] == 16
    assert len(made) == 2
