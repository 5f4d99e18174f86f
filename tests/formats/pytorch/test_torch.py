"""Tracing PyTorch modules: small modules with known joint graphs. Needs the extra ``torch``."""

import io
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from tests.support import step_checks
from tests.support.paths import DATA

pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

import torch
from torch import nn

from tests.fitting.test_torch_kinds import Saved
from tests.formats.pytorch.test_pt2 import HOSTILE
from tests.support.paths import read_graph_file
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.open_file import read_graph, read_within
from tmmu_core.formats.pytorch.exported_program import pt2_graph, pt2_operators
from tmmu_core.formats.pytorch.exported_program.pt2_archive import read_program
from tmmu_core.formats.pytorch.torch_module import fake_tensors, import_torch
from tmmu_core.graph.index import index_graph
from tmmu_core.graph.model import Dim, Graph, Node, Tensor
from tmmu_core.graph.operators import operator_of
from tmmu_core.plans.making.engine import plan_graph

pytestmark = pytest.mark.torch
SAVED_PROGRAM = DATA / "torch" / "two_layers.pt2"


class TwoLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x))).sum()


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(words)).sum()


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x).sum()


def step(module: nn.Module | None = None, **options: object) -> Graph:
    return import_torch(module or TwoLayers(), (torch.zeros(2, 8),), **options)  # type: ignore[arg-type]


def tensor(graph: Graph, name: str) -> Tensor:
    return next(each for each in graph.tensors if each.id == name)


def node(graph: Graph, name: str) -> Node:
    return next(each for each in graph.nodes if each.node_id == name)


def test_backward_begins_at_the_first_tangent() -> None:
    phases = [each.phase for each in step().nodes]
    assert phases == sorted(phases, key=["forward", "backward"].index)
    assert next(each for each in step().nodes if each.phase == "backward").instr == "tangent"


def test_tensors_read_by_backward_are_saved() -> None:
    graph = step()
    assert [each.id for each in graph.tensors if each.saved_for_backward] == ["x", "relu", "detach"]


def test_operator_that_returns_its_input_is_a_view() -> None:
    class Batched(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x @ torch.ones(8, 8)).relu()  # a product of three axes ends in _unsafe_view

    graph = import_torch(Batched(), (torch.zeros(2, 3, 8),), train=False)
    made = next(each for each in graph.nodes if each.instr == "_unsafe_view")
    view = tensor(graph, made.outputs[0]).view
    assert view is not None
    assert view.base_tensor_uid == made.inputs[0]


def test_every_parameter_has_a_gradient_output() -> None:
    graph = step()
    gradients = [f"{layer}.{kind}.grad" for layer in ("first", "second") for kind in ("weight", "bias")]
    assert list(graph.outputs) == ["sum_1", *gradients]
    assert {tensor(graph, name).role for name in gradients} == {"gradient"}


def test_tied_weights_have_one_gradient() -> None:
    graph = import_torch(Tied(), (torch.zeros(3, dtype=torch.long),))
    assert [each.id for each in graph.tensors if each.role == "parameter"] == ["embed.weight"]
    assert graph.outputs[1:] == ("embed.weight.grad",)
    assert node(graph, "embed.weight.grad_sum").instr == "add.Tensor"


def test_gradient_that_is_an_input_or_of_another_parameter_is_copied() -> None:
    class Added(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = (nn.Parameter(torch.zeros(2, 8)) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Saved.apply(self.a, x) + ((self.b + self.c) * x).sum()

    graph = step(Added())
    assert graph.inputs == ("x",)
    assert graph.outputs[1:] == ("a.grad", "b.grad", "c.grad")
    assert {each.outputs for each in graph.nodes if each.instr == "clone"} == {("a.grad",), ("c.grad",)}


def test_running_mean_is_written_in_place() -> None:
    graph = import_torch(Normed(), (torch.zeros(3, 4),))
    written = [
        (each.inputs[i], tensor(graph, each.outputs[o]).role) for each in graph.nodes for i, o in each.in_place_write
    ]
    assert sorted(written) == [
        (f"norm.{name}", "buffer") for name in ("num_batches_tracked", "running_mean", "running_var")
    ]
    assert plan_graph(graph).plan.arena_of["parameters"].storages == 5


def test_expanded_view_spans_fewer_bytes_than_its_shape() -> None:
    view = tensor(step(), "expand").view
    assert view is not None
    assert (view.byte_length, view.stride_desc) == (4, (0, 0))


def test_only_elementwise_operators_list_reuse_pairs() -> None:
    permits = {each.instr: each.inplace for each in step().nodes}
    assert permits["relu"] == ((0, 0),)
    assert permits["addmm"] == permits["mm"] == permits["t"] == "none"


def test_operand_in_another_layout_is_not_reused() -> None:
    class Transposed(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return (x * 2).t() + (y * 2)

    graph = import_torch(Transposed(), (torch.zeros(4, 4), torch.zeros(4, 4)), train=False)
    assert node(graph, "add").inputs == ("t", "mul_1")
    assert node(graph, "add").inplace == ((0, 0),)  # the sum is laid out like its first operand


def test_inference_saves_nothing_and_has_no_backward() -> None:
    graph = step(train=False)
    assert {each.phase for each in graph.nodes} == {"forward"}
    assert step_checks.saved_bytes(graph) == 0


def test_dropout_is_traced_in_training_only() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))
    assert "native_dropout" in {each.instr for each in step(module).nodes}
    assert "native_dropout" not in {each.instr for each in step(module, train=False).nodes}
    assert module.training


def test_input_slice_is_a_view_of_its_storage() -> None:
    graph = import_torch(nn.ReLU(), (torch.zeros(4, 8)[1:3],), train=False)
    assert tensor(graph, "input.storage").shape == (4 * 8 * 4,)
    assert index_graph(graph).graph is graph
    assert plan_graph(graph).plan.arena_of["activations"].peak_live_bytes == 4 * 8 * 4 + 2 * 8 * 4


@pytest.mark.parametrize("reader", ["traced", "as saved"])
def test_slice_of_an_empty_tensor_is_empty(reader: str) -> None:
    class Sliced(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat([x, x[:0].exp()[:, 4:].reshape(0, 8)])

    data = saved(Sliced())
    graph = read_graph(data, "p.pt2") if reader == "traced" else pt2_graph.saved_graph(read_program(data), "p")
    assert plan_graph(graph).plan.arena_of["activations"].peak_live_bytes == 2 * 2 * 8 * 4


def test_branch_on_data_is_rejected_with_a_hint() -> None:
    class Branch(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    with fake_tensors(), pytest.raises(UnreadableInput, match="cannot be traced without data") as caught:
        import_torch(Branch(), (torch.zeros(2),), train=False)
    assert "must not depend on the values" in caught.value.hint


class Classifier(nn.Module):
    """A module whose loss and new tensors fail on a device without memory if they are traced as written."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.layer(x) + torch.arange(4), torch.zeros(2, dtype=torch.long))


def test_module_on_the_meta_device_is_traced() -> None:
    with torch.device("meta"):
        module, x = Classifier(), torch.zeros(2, 4)
    weight = module.layer.weight
    graph = import_torch(module, (x,))
    assert graph == import_torch(Classifier(), (torch.zeros(2, 4),))
    assert module.layer.weight is weight


def test_module_and_inputs_of_two_fake_modes_are_traced() -> None:
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        module = TwoLayers()
    with FakeTensorMode():
        x = torch.zeros(2, 8)
    assert import_torch(module, (x,)) == step()


def test_layers_copied_under_fake_tensors_are_traced() -> None:
    with fake_tensors():
        module = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2)
    assert {node.phase for node in import_torch(module, (torch.zeros(3, 2, 8),)).nodes} == {"forward", "backward"}


def test_fake_module_keeps_its_weights_tied_in_another_dtype() -> None:
    with fake_tensors():
        module = Tied().to(torch.bfloat16)
    assert module.head.weight is module.embed.weight
    assert module.head.weight.dtype is torch.bfloat16


def test_rejection_sampled_initialisation_is_skipped() -> None:
    with fake_tensors():
        assert nn.init.trunc_normal_(torch.empty(3)).shape == (3,)


def test_value_read_while_a_fake_model_is_built_is_rejected() -> None:
    with pytest.raises(UnreadableInput, match=r'reads a value(.|\n)*torch.device\("meta"\)'), fake_tensors():
        torch.linspace(0, 1, 3).tolist()
    with torch.device("meta"):
        module = nn.Linear(2, 2)
    assert import_torch(module, (torch.zeros(3, 2),)).nodes


def test_tensors_in_a_returned_object_are_outputs() -> None:
    class Cache:
        def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
            self.layers = [{"keys": keys, "values": values}]

    class Cached(nn.Module):
        def forward(self, x: torch.Tensor) -> object:
            return {"logits": x.exp(), "past": Cache(x.sin(), x.cos())}

    graph = import_torch(Cached(), (torch.zeros(2),), train=False)
    assert graph.outputs == ("exp", "sin", "cos")


def test_non_tensor_inputs_are_ignored() -> None:
    class Flagged(nn.Module):
        def forward(self, x: torch.Tensor, double: bool = False, kind: str = "") -> torch.Tensor:
            return x * 2 if double else x

    graph = import_torch(Flagged(), {"x": torch.zeros(2), "double": True, "kind": "a"}, train=False)
    assert graph.inputs == ("x",)


def test_compiled_module_is_unwrapped() -> None:
    assert import_torch(torch.compile(TwoLayers()), (torch.zeros(2, 8),)).nodes == step().nodes


class FirstPass(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.sizes: tuple[list[int], ...] = ([],)
        self.counts = Counter(passes=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.sizes[0].append(len(x))
        self.counts = self.counts + Counter(passes=1)
        if not hasattr(self, "mean"):
            self.register_buffer("mean", torch.zeros(8))
            self.scale = nn.Linear(8, 8)
        return self.scale(x) + self.mean


def test_module_that_registers_parts_in_its_first_pass_is_as_before() -> None:
    module = FirstPass()
    import_torch(module, (torch.zeros(2, 8),))
    assert (dict(module.named_buffers()), list(module.children()), module.sizes) == ({}, [], ([],))
    assert module.counts == Counter(passes=1)


def test_error_of_the_model_is_reported() -> None:
    with pytest.raises(UnreadableInput, match="reduction dim") as caught:
        import_torch(TwoLayers(), (torch.zeros(2, 9),))
    assert "runs on these example inputs" in caught.value.hint


def saved(module: nn.Module) -> bytes:
    out = io.BytesIO()
    torch.export.save(torch.export.export(module, (torch.zeros(2, 8),)), out)
    return out.getvalue()


def test_saved_program_with_a_loss_is_a_training_step() -> None:
    graph = read_graph(saved(TwoLayers()), "two_layers.pt2")
    assert graph.name == "two_layers"
    assert step_checks.saved_bytes(graph) == step_checks.saved_bytes(step())


def test_saved_program_with_any_names_and_a_region_without_gradients_is_traced() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.example = nn.Linear(8, 8)
            self.register_buffer("program", torch.zeros(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                scale = self.example(x)
            return (self.example(x) + scale * self.program).sum()

    graph = read_graph(saved(Named()), "named.pt2")
    assert (graph.name, graph.notes) == ("named", ())
    assert [(each.phase, each.instr) for each in graph.nodes if "mm" in each.instr] == [
        *[("forward", "addmm")] * 2,
        ("backward", "mm"),
    ]


def test_saved_program_without_a_loss_is_inference() -> None:
    graph = read_graph(saved(nn.Linear(8, 4)), "linear.pt2")
    assert [each.phase for each in graph.nodes] == ["forward"] * len(graph.nodes)


def test_open_dimensions_of_a_saved_program_use_the_example() -> None:
    out = io.BytesIO()
    batch = torch.export.Dim("batch", min=2, max=64)
    torch.export.save(torch.export.export(nn.Linear(8, 4), (torch.zeros(3, 8),), dynamic_shapes=({0: batch},)), out)
    graph = read_graph(out.getvalue(), "linear.pt2")
    assert (graph.name, graph.assumed) == ("linear", {"input.0": 3})
    assert tensor(graph, "input").shape == (3, 8)
    larger = read_within(out.getvalue(), {"input.0": Dim(64, 64)}, "linear.pt2")
    assert [each.instr for each in larger.nodes] == [each.instr for each in graph.nodes]
    assert tensor(larger, larger.outputs[0]).shape == (64, 4)


class Cache(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2).sum(0).exp()


class Returned(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2)


@pytest.mark.parametrize("module", [Cache, Returned])
@pytest.mark.parametrize("reader", ["traced", "as saved"])
def test_input_that_the_program_writes_is_kept_to_the_end(reader: str, module: type[nn.Module]) -> None:
    data = saved(module())
    graph = read_graph(data, "p.pt2") if reader == "traced" else pt2_graph.saved_graph(read_program(data), "p")
    plan = plan_graph(graph).plan
    assert plan.death[plan.size == 2 * 8 * 4].max() == plan.steps


class Writes(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        is_small = x > 0
        is_small &= x < 1
        doubled = torch.mul(x, 2, out=torch.empty_like(x))
        doubled, _ = torch.sort(x, out=(doubled, torch.empty_like(x, dtype=torch.int64)))
        return is_small, torch.atleast_3d(torch.dropout(doubled, 0.0, True)).sum_to_size(2, 8, 1)


def test_result_in_an_argument_has_no_memory_of_its_own() -> None:
    graph = pt2_graph.saved_graph(read_program(saved(Writes())), "p")
    assert [each.id for each in graph.tensors if each.view is None] == ["x", "gt", "lt", "empty_like", "empty_like_1"]


def test_program_in_the_test_data_is_read() -> None:
    assert len(read_graph_file(SAVED_PROGRAM).nodes) == len(step().nodes)


# --- saved programs, traced without being loaded ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in HOSTILE if kind != "formulas"])
def test_hostile_program_executes_nothing_with_pytorch_installed(kind: str, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    graph = read_graph(HOSTILE[kind](mark), "model.pt2")
    assert not mark.exists()
    assert graph.nodes


def test_saved_program_equals_the_traced_module() -> None:
    live = import_torch(torch.export.export(TwoLayers(), (torch.zeros(2, 8),)))
    assert msgspec.structs.replace(read_graph_file(SAVED_PROGRAM), name="") == msgspec.structs.replace(live, name="")


def test_dtype_numbers_are_those_of_pytorch() -> None:
    from torch._export.serde.serialize import _TORCH_TO_SERIALIZE_DTYPE

    numbers = _TORCH_TO_SERIALIZE_DTYPE.items()
    assert pt2_graph.DTYPES.items() <= {number: str(dtype).removeprefix("torch.") for dtype, number in numbers}.items()


def test_operator_tables_agree_with_pytorch() -> None:
    views, pointwise, names = set(), set(), set()
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        if space != "aten" or not hasattr(torch.ops.aten, name):
            continue
        if not name.endswith("_"):
            names.add(name)
        op = pt2_operators.Operator(space, name, schema.overload_name)
        if op.has_out != any(argument.is_out for argument in schema.arguments):
            assert name == "geqrf" or name.startswith("fbgemm_linear_fp16_weight"), schema
        first = schema.arguments[0].alias_info if schema.arguments else None
        if first is not None and not first.is_write and any(each.alias_info is not None for each in schema.returns):
            views.add(name)
        overload = getattr(getattr(torch.ops.aten, name), schema.overload_name or "default", None)
        if torch.Tag.pointwise in getattr(overload, "tags", ()):
            pointwise.add(name)
    known = pt2_operators.VIEWS | pt2_operators.RESHAPES | pt2_operators.SAME_OR_COPY
    unmarked = {
        "_unsafe_view",
        "unsafe_chunk",
        "unsafe_split",
        "unsafe_split_with_sizes",
        "squeeze",
        "detach_",
        "type_as",
    }
    unmarked |= {"atleast_1d", "atleast_2d", "atleast_3d", "sum_to_size", "to_dense"}
    assert known - views <= unmarked  # views in the eager framework, whose schemas keep silent of it
    untagged = {"divide", "floor_divide", "floordiv", "greater", "greater_equal", "hardswish", "less"}
    untagged |= {"leaky_relu_backward", "less_equal", "log_sigmoid", "multiply", "negative", "not_equal", "prelu"}
    untagged |= {"hardshrink_backward", "mish_backward", "softshrink_backward"}
    untagged |= {"subtract", "mean", "sum"}  # the last two only where the shape stays the same
    assert {name for name in names if operator_of(f"aten.{name}").is_elementwise} - pointwise <= untagged


def test_random_operators_of_pytorch_keep_their_position() -> None:
    seeded = {
        name
        for name in dir(torch.ops.aten)
        if isinstance(packet := getattr(torch.ops.aten, name), torch._ops.OpOverloadPacket)
        for overload in packet.overloads()
        if torch.Tag.nondeterministic_seeded in getattr(packet, overload).tags
    }
    loose = {name for name in seeded if not operator_of(f"aten.{name}").keeps_position}
    # PyTorch tags this operator as random, but rejects a dropout probability above 0.
    without_dropout = {"_scaled_dot_product_flash_attention_for_cpu"}
    assert {name for name in loose if not name.endswith("_backward")} == without_dropout
    q = torch.ones(1, 1, 2, 4)
    with pytest.raises(RuntimeError):
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, q, q, 0.5)


def test_concurrent_traces_are_serialised() -> None:
    """PyTorch traces with state of the whole process."""
    shared, wanted, begin = TwoLayers(), step(), threading.Barrier(4)

    def trace(me: int) -> Graph:
        begin.wait(60)
        if me == 3:
            with fake_tensors():
                return step(TwoLayers())
        return step(shared if me % 2 else TwoLayers())

    for _ in range(3):
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(trace, range(4))) == [wanted] * 4
    assert {type(parameter) for parameter in shared.parameters()} == {nn.Parameter}


def test_operator_and_its_gradient_have_the_module_and_line() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.relu(self.up(x))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.h = nn.ModuleList([Block(), Block()])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
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
    assert all(line.startswith("pytorch/test_torch.py:") for line in lines)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in net.modules())
