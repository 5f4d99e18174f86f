"""Convert a PyTorch module or exported program to the graph of its forward pass or of a whole training step.

::

    module + example inputs ─► AOTAutograd under fake tensors ─► joint graph ─► fx_joint ─► Graph

No weight is needed: tensors have a shape, a dtype and a storage, but no bytes. The joint graph
has the operators that eager PyTorch runs, without decompositions and fusion. The extra ``torch`` installs PyTorch.
"""

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import msgspec

from tmmu_core.base import limits
from tmmu_core.base.child_process import ended_by_limit, limit_process, run_module, serve
from tmmu_core.base.errors import InvalidIrShapes, UnreadableInput, installed, need
from tmmu_core.formats.pytorch.exported_program.pt2_archive import Program, read_program, refusal
from tmmu_core.formats.pytorch.exported_program.pt2_document import LARGEST, symbol_in
from tmmu_core.formats.pytorch.exported_program.pt2_graph import saved_graph
from tmmu_core.graph.model import Dim, Graph
from tmmu_core.graph.native import native_file

__all__ = ["chosen_sizes", "fake_tensors", "import_torch", "read", "refusal", "with_dims"]


def import_torch(
    module: Any,
    example_inputs: Sequence[Any] | Mapping[str, Any] = (),
    *,
    train: bool = True,
    loss: Callable[[Any], Any] | None = None,
    name: str = "",
) -> Graph:
    """Return the graph of ``module``, an ``nn.Module`` or a ``torch.export.ExportedProgram``, on ``example_inputs``.

    ``example_inputs`` are its positional arguments (a sequence) or its keyword arguments (a mapping). They may be
    omitted for an exported program that contains example inputs. Parameters and inputs may be real, on the ``meta``
    device, or created under :func:`fake_tensors`, which supports models larger than the memory of this machine.

    With ``train`` the graph has the forward and backward pass in training mode: inputs and results that backward reads
    are ``saved_for_backward``, and parameter gradients are outputs. Without it the graph has the forward pass in
    evaluation mode, under ``no_grad``. ``loss`` maps the module's result to the value to differentiate. By default this
    is the attribute ``loss`` of the result, else the whole result.

    Raises ``UnreadableInput`` if ``module`` has another type or cannot be traced, ``MissingExtra`` without PyTorch.
    """
    torch = need("torch", "a PyTorch model")
    if not isinstance(module, torch.nn.Module | torch.export.ExportedProgram):
        hint = "Give an nn.Module or an ExportedProgram first, and its inputs as example_inputs."
        raise UnreadableInput(f"a value of type {type(module).__name__} is not a PyTorch model.", hint=hint)
    from tmmu_core.formats.pytorch.joint_graph.fx_trace import TRACING, Call, joint_of, with_loss

    module = getattr(module, "_orig_mod", module)  # the module inside of a torch.compile wrapper
    exported = module if isinstance(module, torch.export.ExportedProgram) else None
    name = name or (exported.graph_module if exported else module)._get_name()
    args, kwargs = ((), example_inputs) if isinstance(example_inputs, Mapping) else (tuple(example_inputs), {})
    if not args and not kwargs and exported is not None and exported.example_inputs is not None:
        args, kwargs = exported.example_inputs
    with TRACING:
        module = exported.module(check_guards=False) if exported else module
        return joint_of(with_loss(module, loss), Call.of(module, tuple(args), dict(kwargs)), train, name)


@contextlib.contextmanager
def fake_tensors(dtype: str = "float32") -> Iterator[None]:
    """Context manager in which new tensors are fake (without memory), of ``dtype`` by default.

    Call ``module.to(dtype)`` of a fake module in this context. Only one thread at a time can use it or trace a module.

    Raises ``UnreadableInput`` if a model reads a value of a tensor while it is built; ``MissingExtra`` without PyTorch.
    """
    torch = need("torch", "a model of fake tensors")
    from tmmu_core.formats.pytorch.joint_graph.fx_fake_tensors import shared_mode, while_built
    from tmmu_core.formats.pytorch.joint_graph.fx_trace import TRACING

    with TRACING:
        default_dtype = torch.get_default_dtype()
        torch.set_default_dtype(getattr(torch, dtype))
        try:
            with shared_mode(), while_built():
                yield
        except torch._subclasses.fake_tensor.DataDependentOutputException as error:
            what = f"the model reads a value while it is built ({error.func}), and fake tensors have none."
            raise UnreadableInput(what, hint='Build it under torch.device("meta") instead.') from error
        finally:
            torch.set_default_dtype(default_dtype)


def read(data: bytes, name: str = "", envelopes: Mapping[str, Dim] | None = None) -> Graph:
    """Return the graph of a saved exported program without running it.

    With PyTorch the graph is traced. It is a training step if a parameter needs a gradient and the only result is a
    floating-point scalar, else a forward pass. Without PyTorch, or if tracing fails (``while_loop``, ``map``, ``scan``)
    it is the forward pass as saved, with a note. The keys of ``envelopes`` are the names of :func:`dynamic_dims`. A
    dynamic size has its upper bound in ``envelopes``, else its value in the example, else its upper bound in the file.
    """
    envelopes = envelopes or {}
    program = read_program(data)
    point = chosen_sizes(program, envelopes)
    program = program.at(point)
    stem = PurePath(name).name.removesuffix(".pt2") or "exported program"
    saved = with_dims(saved_graph(program, f"{stem} (as saved)"), program, envelopes)
    reason = "PyTorch is not installed"
    if installed("torch"):
        seconds, memory = limits.ceiling(limits.TRACE_SECONDS), limits.ceiling(limits.TRACE_BYTES)
        request = json.dumps({"name": stem, "point": point}).encode()
        reason = f"PyTorch did not trace this program in {seconds} s (--max-{limits.TRACE_SECONDS.name})"
        try:
            child = run_module(__name__, [str(seconds), str(memory)], request + b"\n" + data, seconds + 10)
            if not ended_by_limit(child.returncode):
                reason = "PyTorch cannot trace this program"
            traced = str(json.loads(child.stdout)["graph"])
        except (subprocess.TimeoutExpired, OSError, ValueError, KeyError):
            pass
        else:
            return with_dims(native_file.decode(traced.encode(), stem), program, envelopes)
    return msgspec.structs.replace(saved, notes=(f"{reason}: its forward pass is planned as saved.",))


def main(arguments: Sequence[str]) -> None:
    """Run the child process, which serves :func:`_trace`. ``arguments``: limits in seconds and bytes."""
    limit_process(*map(int, arguments))
    serve(_trace)


def _trace(data: bytes, name: str, point: dict[str, int]) -> dict[str, str]:
    from tmmu_core.formats.pytorch.joint_graph.fx_fake_tensors import shared_mode
    from tmmu_core.formats.pytorch.joint_graph.fx_program import RebuiltProgram
    from tmmu_core.formats.pytorch.joint_graph.fx_trace import Call, joint_of, with_loss

    saved = read_program(data).at(point)
    shared_mode().allow_fallback_kernels = False  # an operator without a rule for fake tensors would run on real ones
    with shared_mode():
        program = RebuiltProgram(saved)
    call = Call(tuple(program.example), {}, program.input_names)
    graph = joint_of(with_loss(program.module, None), call, program.is_loss, name)
    constants = {each.target for each in saved.inputs if each.role == "constant"}  # traced as buffers
    tensors = [msgspec.structs.replace(t, role="constant") if t.id in constants else t for t in graph.tensors]
    graph = msgspec.structs.replace(graph, tensors=tuple(tensors))
    return {"graph": native_file.encode_json(graph).decode()}


def dynamic_dims(program: Program) -> dict[str, str]:
    """Return name → symbol of the dynamic sizes, in the order of the inputs; data-dependent sizes are last.

    The file does not contain the names of ``torch.export.Dim``. The name of a dynamic size is the first input and axis
    with this size: ``x.0``. The name of a data-dependent size (the number of nonzero elements) is its symbol: ``u0``.
    """
    symbol_of: dict[str, str] = {}
    for program_input in program.inputs:
        meta = program.graph.tensor_values.get(program_input.name) if program_input.role == "input" else None
        for axis, size in enumerate(meta.sizes if meta else ()):
            symbol = symbol_in(size)
            if symbol is not None and symbol[0] not in symbol_of.values():
                symbol_of[f"{program_input.label}.{axis}"] = symbol[0]
    return symbol_of | {symbol: symbol for symbol in program.data_dependent}


def chosen_sizes(program: Program, envelopes: Mapping[str, Dim]) -> dict[str, int]:
    """Return symbol → upper bound of each dynamic size in ``envelopes``. Raises ``InvalidIrShapes`` if out of range."""
    symbol_of = {name: symbol for name, symbol in dynamic_dims(program).items() if name in envelopes}
    for name, symbol in symbol_of.items():
        low, high = program.ranges.get(symbol, (0, envelopes[name].max))
        for size in (envelopes[name].max, envelopes[name].min):
            if not low <= size <= high:
                what = f"{name} = {size} is outside of {low} to {high}, for which the program was exported."
                hint = "Give a size in this range, or export the program for other sizes."
                raise InvalidIrShapes(what, hint=hint, reason="dim_out_of_envelope", path=f"$.dims.{name}", node_id="")
    return {symbol: envelopes[name].max for name, symbol in symbol_of.items()}


def with_dims(graph: Graph, program: Program, envelopes: Mapping[str, Dim]) -> Graph:
    """Return ``graph`` with the dynamic sizes as dimensions; sizes not in ``envelopes`` are fixed and assumed."""
    symbol_of = dynamic_dims(program)
    sizes = {name: program.symbols[symbol] for name, symbol in symbol_of.items() if symbol in program.symbols}
    dims = {name: envelopes.get(name, Dim(size, size)) for name, size in sizes.items()}
    assumed = {name: size for name, size in sizes.items() if name not in envelopes}
    ranges = {name: Dim(*program.ranges.get(symbol_of[name], (0, LARGEST))) for name in sizes}
    return msgspec.structs.replace(graph, dims=dims, assumed=assumed, ranges=ranges)
