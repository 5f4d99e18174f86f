"""Control flow of PyTorch: plans contain the bodies, with the bytes that PyTorch allocates on the CPU."""

import io
import zipfile
from collections.abc import Callable
from typing import Any

import pytest

import tmmu
from tmmu_core.base.limits import overridden
from tmmu_core.formats.pytorch.exported_program.pt2_archive import read_program
from tmmu_core.formats.pytorch.exported_program.pt2_graph import saved_graph
from tmmu_core.formats.pytorch.torch_module import import_torch, read
from tmmu_core.graph.model import Graph
from tmmu_core.judge.verifier.verify import verify_plan

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
WIDTH, ROWS = 128, 1000


def wide(x: Any) -> Any:
    return (x.expand(ROWS, WIDTH) + 1).mean(0)


class Cond(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: wide(x), lambda x: x * 2, (x,))


class Nested(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        def inner(x: Any) -> Any:
            return torch.cond(x.max() > 0, lambda x: wide(x), lambda x: x * 3, (x,))

        return torch.cond(x.sum() > 0, inner, lambda x: x * 2, (x,))


class While(torch.nn.Module):
    def forward(self, i: Any, x: Any) -> Any:
        from torch._higher_order_ops.while_loop import while_loop

        return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, wide(x)), (i, x))


class LearnedWhile(torch.nn.Module):
    """A loop that autograd differentiates: PyTorch exports its results as rows of all iterations."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(WIDTH))

    def forward(self, i: Any, x: Any) -> Any:
        from torch._higher_order_ops.while_loop import while_loop

        return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, wide(x) * self.scale), (i, x))


class Map(torch.nn.Module):
    def forward(self, xs: Any, y: Any) -> Any:
        from torch._higher_order_ops.map import map as each_row

        return each_row(lambda x, y: wide(x) + y, xs, y)


class Scan(torch.nn.Module):
    def forward(self, first: Any, xs: Any) -> Any:
        from torch._higher_order_ops.scan import scan

        return scan(lambda state, x: (wide(state + x), (state * x).relu()), first, xs)


def vector() -> Any:
    return torch.ones(WIDTH)


PROGRAMS: dict[str, tuple[type[Any], Callable[[], tuple[Any, ...]]]] = {
    "cond, first branch": (Cond, lambda: (vector(),)),
    "cond, second branch": (Cond, lambda: (-vector(),)),
    "cond in cond": (Nested, lambda: (vector(),)),
    "while_loop": (While, lambda: (torch.tensor(0), vector())),
    "while_loop, no iteration": (While, lambda: (torch.tensor(9), vector())),
    "while_loop with a weight": (LearnedWhile, lambda: (torch.tensor(0), vector())),
    "map": (Map, lambda: (torch.ones(6, WIDTH), vector())),
    "scan": (Scan, lambda: (vector(), torch.ones(6, WIDTH))),
}


def saved(exported: Any) -> bytes:
    data = io.BytesIO()
    torch.export.save(exported, data)
    return data.getvalue()


def measured_peak(run: Callable[..., Any], inputs: tuple[Any, ...]) -> int:
    """Return the peak bytes of allocated tensors, with the inputs."""
    run(*inputs)  # what is allocated on the first call alone is not part of the step
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        run(*inputs)
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    live = peak = sum(value.nbytes for value in inputs)
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


@pytest.mark.parametrize("name", sorted(PROGRAMS))
@pytest.mark.parametrize("reader", ["traced", "as saved"])
def test_plan_of_control_flow_has_the_bytes_that_pytorch_allocates(name: str, reader: str) -> None:
    module, inputs = PROGRAMS[name]
    exported = torch.export.export(module(), inputs())
    data = saved(exported)
    graph: Graph = read(data, "program.pt2") if reader == "traced" else saved_graph(read_program(data), "program")
    plan = tmmu.plan(graph, planner="exact")
    assert plan.incomplete == ()
    assert verify_plan(plan, graph).ok
    with torch.no_grad():
        measured = measured_peak(exported.module(), inputs())
    wide_bytes = ROWS * WIDTH * 4
    assert measured <= plan.extent_bytes + wide_bytes // 100, "kernels need a few bytes of their own"
    assert wide_bytes <= plan.peak_live_bytes <= wide_bytes + 20 * 4 * WIDTH


def test_both_passes_of_a_conditional_are_planned() -> None:
    class Weighted(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(WIDTH, WIDTH))

        def forward(self, x: Any) -> Any:
            return torch.cond(x.sum() > 0, lambda x: (x @ self.w).sin(), lambda x: x.cos(), (x,))

    graph = import_torch(Weighted(), (torch.ones(4, WIDTH),), train=True)
    assert [node.unplanned for node in graph.nodes if node.unplanned] == []
    assert {node.phase for node in graph.nodes if node.instr == "If.close"} == {"forward", "backward"}
    assert tmmu.plan(graph).verify().ok


def with_operator(data: bytes, name: str) -> bytes:
    """Return the program with its ``cond`` replaced by another operator with bodies."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(out, "w") as written:
        for member in archive.namelist():
            written.writestr(
                member, archive.read(member).replace(b"higher_order.cond", f"higher_order.{name}".encode())
            )
    return out.getvalue()


@pytest.mark.parametrize("operator", ["associative_scan", "flex_attention", "of_a_later_version"])
def test_operator_whose_bodies_have_no_scope_makes_the_plan_incomplete(operator: str) -> None:
    data = saved(torch.export.export(Cond(), (vector(),)))
    assert tmmu.plan(data).incomplete == ()
    graph = read(with_operator(data, operator), "program.pt2")
    (node,) = [node for node in graph.nodes if node.unplanned]
    assert (node.instr, len(node.unplanned)) == (operator, 2)
    plan = tmmu.plan(graph)
    assert plan.incomplete == tuple(arena.name for arena in plan.arenas)
    assert plan.notes["unplanned"] == f"parts that are not planned: {node.node_id} ({', '.join(node.unplanned)})"


@pytest.mark.parametrize("enabled", [True, False])
def test_casts_of_autocast_make_a_saved_plan_incomplete(enabled: bool) -> None:
    class Autocast(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
                return x @ x.t() + 1

    data = saved(torch.export.export(Autocast(), (torch.ones(4, WIDTH),)))
    assert tmmu.plan(data).incomplete == ()
    assert bool(tmmu.plan(saved_graph(read_program(data), "program")).incomplete) == enabled


def test_notes_name_programs_that_pytorch_cannot_trace() -> None:
    notes = {}
    for name in ("cond, first branch", "while_loop"):
        module, inputs = PROGRAMS[name]
        notes[name] = tmmu.plan(saved(torch.export.export(module(), inputs()))).notes.get("read")
    untraced = "PyTorch cannot trace this program: its forward pass is planned as saved."
    assert notes == {"cond, first branch": None, "while_loop": untraced}
    with overridden({"trace-seconds": 1}):
        note = tmmu.plan(saved(torch.export.export(module(), inputs()))).notes.get("read")
    assert str(note).startswith("PyTorch did not trace this program in 1 s (--max-trace-seconds)")
