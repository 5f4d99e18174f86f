"""A memory planning pass for ExecuTorch: what it gives the program, and that its runtime computes the same."""

from __future__ import annotations

import sys
from collections import namedtuple
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

import tmmu
from tmmu_core.base.errors import MissingExtra


@dataclass(eq=False)
class Spec:
    """A tensor specification of ExecuTorch, as far as planning reads it."""

    bytes: int
    lifetime: list[int]
    mem_id: int | None = None
    storage_base: Spec | None = None
    storage_base_offset: int = 0
    allocated_memory: int = 0

    def realign(self, alignment: int) -> None:
        self.allocated_memory = -(-self.bytes // alignment) * alignment


@dataclass
class Result:
    spec_dict: dict[Spec, Any]
    bufsizes: list[int] = field(default_factory=list)


@pytest.fixture
def algorithm(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the planning algorithm of the pass, without ExecuTorch."""
    planning = SimpleNamespace(
        MemoryPlanningAlgorithmSuite=lambda algorithms: algorithms[0],
        MemoryAlgoResult=Result,
        SpecAllocResult=namedtuple("SpecAllocResult", "mem_id mem_obj_id mem_offset"),
    )
    passes = SimpleNamespace(MemoryPlanningPass=lambda memory_planning_algo, **options: memory_planning_algo)
    for name in ("executorch", "executorch.exir"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(__path__=[]))  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "executorch.exir.memory_planning", planning)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "executorch.exir.passes", passes)  # type: ignore[arg-type]
    return tmmu.executorch_pass()


def test_live_ranges_include_their_last_node(algorithm: Any) -> None:
    specs = [Spec(100, [0, 1]), Spec(100, [1, 2]), Spec(100, [2, 3])]
    found = algorithm(16, specs, SimpleNamespace(), None, 0)
    assert [found.spec_dict[spec] for spec in specs] == [(1, 0, 0), (1, 0, 112), (1, 0, 0)]
    assert found.bufsizes == [0, 224]


def test_memories_are_planned_apart_at_any_alignment(algorithm: Any) -> None:
    specs = [Spec(10, [0, 3]), Spec(10, [0, 3], mem_id=3), Spec(5, [1, 2], mem_id=3)]
    found = algorithm(12, specs, SimpleNamespace(), None, 0)
    assert found.bufsizes == [0, 12, 0, 24]
    assert sorted(found.spec_dict[spec][2] for spec in specs[1:]) == [0, 12]


def test_bodies_of_control_flow_and_padding_keep_their_bytes(algorithm: Any) -> None:
    spec = Spec(16, [0, 1])
    found = algorithm(16, [spec], SimpleNamespace(input_mem_buffer_sizes=[0, 48]), None, 64)
    assert found.spec_dict[spec] == (1, 0, 48)
    assert found.bufsizes == [0, 48 + 16 + 64]


def test_a_tensor_inside_another_follows_it(algorithm: Any) -> None:
    first, base = Spec(32, [0, 9]), Spec(64, [0, 9])
    middle = Spec(32, [1, 2], storage_base=base, storage_base_offset=16)
    inner = Spec(16, [1, 2], storage_base=middle, storage_base_offset=16)
    found = algorithm(16, [inner, middle, first, base], SimpleNamespace(), None, 0)
    assert found.spec_dict[inner][2] - found.spec_dict[base][2] == 32
    assert found.bufsizes == [0, 96]


def test_missing_executorch_is_named_with_the_way_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "executorch", None)
    with pytest.raises(MissingExtra, match="ExecuTorch") as caught:
        tmmu.executorch_pass()
    assert "[executorch]" in caught.value.hint


# --- in the runtime itself ----------------------------------------------------------------------------------------


@pytest.mark.runtimes
@pytest.mark.parametrize("alignment", [16, 64])
def test_runtime_computes_the_same_in_the_offsets_of_the_plan(alignment: int) -> None:
    """Two memories, a state that is kept, a split and a branch."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("executorch", reason="ExecuTorch is not installed: pip install '.[executorch]'")
    from executorch.exir import ExecutorchBackendConfig, to_edge
    from executorch.exir.passes import MemoryPlanningPass
    from executorch.runtime import Runtime

    class Pools(MemoryPlanningPass):
        def run(self, graph_module: Any, graph_signature: Any = None) -> Any:
            for node in graph_module.graph.nodes:
                if node.target is torch.ops.aten.sin.out:
                    node.meta["spec"].mem_id = 2
            return super().run(graph_module, graph_signature)

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("state", torch.zeros(4, 4))

        def forward(self, x: Any) -> Any:
            a, b = torch.cat([x.sin(), x.sin().cos(), x * 2], 1).split(6, 1)
            self.state.add_(x)
            branch = torch.cond(x.sum() > 0, lambda y: y.repeat(1, 3).exp(), lambda y: y.repeat(1, 3).neg(), (x + 1,))
            return a @ b.T + self.state, branch

    torch.set_grad_enabled(False)
    given = (torch.rand(4, 4),)
    algorithms = (None, tmmu.executorch_pass(alignment=alignment).memory_planning_algo)
    outputs, programs = [], []
    for algorithm in algorithms:
        config = ExecutorchBackendConfig(memory_planning_pass=Pools(algorithm, alignment=alignment))
        made = to_edge(torch.export.export(Net(), given)).to_executorch(config)
        method = Runtime.get().load_program(made.buffer).load_method("forward")
        outputs.append([each.clone() for _ in range(2) for each in method.execute(list(given))])
        programs.append(made)
    assert all(torch.equal(a, b) for a, b in zip(*outputs, strict=True))
    greedy, ours = (made.executorch_program.execution_plan[0].non_const_buffer_sizes for made in programs)
    assert len(ours) == 3
    assert sum(ours) <= sum(greedy)
    plan = tmmu.plan(tmmu.read(programs[1].buffer))
    values = [value.val for value in programs[1].executorch_program.execution_plan[0].values]
    places = [value.allocation_info for value in values if getattr(value, "allocation_info", None)]
    found = zip(plan.arena.tolist(), plan.offset.tolist(), strict=True)
    assert {(plan.arenas[arena].name, offset) for arena, offset in found} == {
        (f"memory {place.memory_id}", place.memory_offset_low) for place in places
    }
