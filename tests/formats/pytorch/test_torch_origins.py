"""Nodes of a traced module keep the module and line that made them, in forward and backward."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def test_operator_and_its_gradient_have_the_module_and_line() -> None:
    from tmmu_core.formats.pytorch.torch_module import import_torch

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = torch.nn.Linear(8, 8)

        def forward(self, x):  # type: ignore[no-untyped-def]
            return x + torch.relu(self.up(x))

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.h = torch.nn.ModuleList([Block(), Block()])

        def forward(self, x):  # type: ignore[no-untyped-def]
            for block in self.h:
                x = block(x)
            return x.sum()

    net = Net()
    graph = import_torch(net, (torch.zeros(2, 8),))
    by_instr = {(n.phase, n.instr.split(".")[0]): graph.origins.get(n.node_id) for n in graph.nodes}
    forward = {n.node_id for n in graph.nodes if n.phase == "forward"}
    assert forward <= set(graph.origins)
    modules = {graph.origins[name].module for name in forward}
    assert modules == {("h", "0"), ("h", "0", "up"), ("h", "1"), ("h", "1", "up"), ()}
    undone = by_instr["backward", "threshold_backward"]
    assert undone is not None
    assert undone.module == ("h", "0")  # the last one that runs undoes the first block
    lines = {origin.source for origin in graph.origins.values()}
    assert all(line.startswith("pytorch/test_torch_origins.py:") for line in lines)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in net.modules())
