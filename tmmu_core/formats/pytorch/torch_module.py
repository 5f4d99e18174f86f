"""Convert a PyTorch module or exported program to the graph of its forward pass or of a whole training step.

::

    module + example inputs ─► AOTAutograd under fake tensors ─► joint graph ─► fx_joint ─► Graph

Nothing is computed and no weight is needed: tensors have a shape, a dtype and a storage, but no bytes. The joint graph
has the operators that eager PyTorch runs, without decompositions and fusion. ``fx_trace`` traces it. PyTorch is
installed by the extra ``torch``.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import msgspec

from tmmu_core.base.errors import InvalidIrShapes, MissingExtra, UnreadableInput
from tmmu_core.base.extras import install
from tmmu_core.formats.pytorch.exported_program.pt2_archive import Program, read_program, refuses
from tmmu_core.formats.pytorch.exported_program.pt2_document import LARGEST, symbol_in
from tmmu_core.formats.pytorch.exported_program.pt2_graph import as_saved
from tmmu_core.formats.pytorch.joint_graph import fx_child
from tmmu_core.graph.model import AnnotatedGraph, Dim, Graph

__all__ = ["chosen_sizes", "fake_tensors", "import_torch", "read", "refuses", "with_dims"]

ADD_THE_EXTRA = install("torch")


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
    omitted for an exported program that was saved with its own. Parameters and inputs may be real, on the ``meta``
    device, or created under :func:`fake_tensors`, for a model larger than the memory of this machine.

    With ``train`` the graph has the forward and backward pass; tensors that the backward pass reads are marked
    ``saved_for_backward``, and parameter gradients are outputs. Without it the graph has the forward pass, under
    ``no_grad``. ``loss`` selects the value to differentiate from the module's result [its attribute ``loss``, else the
    whole result].

    Raises ``UnreadableInput`` if PyTorch is not installed or the module cannot be traced, and for other values.
    """
    torch = _torch("a PyTorch model")
    if not isinstance(module, torch.nn.Module | torch.export.ExportedProgram):
        raise UnreadableInput(
            f"source: a {type(module).__name__} of PyTorch is not a model.",
            hint="Give an nn.Module or an ExportedProgram first, and its inputs as example_inputs.",
        )
    from tmmu_core.formats.pytorch.joint_graph.fx_trace import TRACING, Call, joint_of, with_loss

    module = getattr(module, "_orig_mod", module)  # the module inside of a torch.compile wrapper
    exported = module if isinstance(module, torch.export.ExportedProgram) else None
    name = name or (exported.graph_module if exported else module)._get_name()
    args, kwargs = _arguments(exported, example_inputs)
    with TRACING:
        module = exported.module(check_guards=False) if exported else module
        return joint_of(with_loss(module, loss), Call.of(module, args, kwargs), train, name)


@contextlib.contextmanager
def fake_tensors(dtype: str = "float32") -> Iterator[None]:
    """Context manager in which new tensors are fake (without memory), of ``dtype`` by default.

    ``module.to(dtype)`` works only inside: fake parameters reject it elsewhere. One thread at a time can be inside or
    trace a module. Raises ``UnreadableInput`` if a model reads a value of a tensor while it is built.
    """
    torch = _torch("a model of fake tensors")
    from tmmu_core.formats.pytorch.joint_graph.fx_fake_tensors import shared_mode, while_built
    from tmmu_core.formats.pytorch.joint_graph.fx_trace import TRACING

    with TRACING:
        before = torch.get_default_dtype()
        torch.set_default_dtype(getattr(torch, dtype))
        try:
            with shared_mode(), while_built():
                yield
        except torch._subclasses.fake_tensor.DataDependentOutputException as error:
            raise UnreadableInput(
                f"the model reads a value while it is built ({error.func}), and fake tensors have none.",
                hint='Build it under torch.device("meta") instead.',
            ) from error
        finally:
            torch.set_default_dtype(before)


def read(data: bytes, name: str = "", envelopes: Mapping[str, Dim] | None = None) -> Graph:
    """Return the graph of a saved exported program without running it.

    With PyTorch it is the joint graph: a training step if the program's only output is a scalar and it has a parameter
    to learn. Without PyTorch, and where PyTorch cannot trace the program (``while_loop``, ``map``, ``scan``), it is the
    forward pass as saved, as the graph's name and notes state. Open sizes have the values of the example, or the
    upper bounds of ``envelopes``.
    """
    envelopes = envelopes or {}
    program = read_program(data, name)
    point = chosen_sizes(program, envelopes)
    program = program.at(point)
    stem = PurePath(name).name.removesuffix(".pt2") or "exported program"
    saved = with_dims(as_saved(program, f"{stem} (as saved)"), program, envelopes)
    found = fx_child.traced(data, stem, point) if fx_child.installed() else None
    if found is not None:
        return with_dims(found, program, envelopes)
    why = "PyTorch cannot trace this program" if fx_child.installed() else "PyTorch is not installed"
    return AnnotatedGraph(**msgspec.structs.asdict(saved), notes=(f"{why}: its forward pass is planned as saved.",))


def open_dims(program: Program) -> dict[str, str]:
    """Return name → symbol of open sizes, in the order of the inputs; data-dependent ones last.

    The file does not contain the names of ``torch.export.Dim``. An open size is named after the first input and axis
    that have it: ``x.0``. A data-dependent size (the number of nonzero elements) has its name in the program, ``u0``.
    """
    found: dict[str, str] = {}
    for incoming in program.inputs:
        meta = program.graph.tensor_values.get(incoming.name) if incoming.role == "input" else None
        for axis, size in enumerate(meta.sizes if meta else ()):
            pair = symbol_in(size)
            if pair is not None and pair[0] not in found.values():
                found[f"{incoming.label}.{axis}"] = pair[0]
    return found | {symbol: symbol for symbol in program.by_data}


def chosen_sizes(program: Program, envelopes: Mapping[str, Dim]) -> dict[str, int]:
    """Return symbol → upper bound in ``envelopes``. Raises ``InvalidIrShapes`` outside of the program's bounds."""
    point = {}
    for name, symbol in open_dims(program).items():
        if name in envelopes:
            low, high = program.ranges.get(symbol, (0, envelopes[name].max))
            point[symbol] = envelopes[name].max
            outside = next((end for end in (envelopes[name].max, envelopes[name].min) if not low <= end <= high), None)
            if outside is not None:
                what = f"{name} = {outside} is outside of {low} to {high}, for which the program was exported."
                hint = "Give a size inside, or export the program for other sizes."
                path = f"$.dims.{name}"
                raise InvalidIrShapes(what, hint=hint, reason="dim_out_of_envelope", path=path, node_id="")
    return point


def with_dims(graph: Graph, program: Program, envelopes: Mapping[str, Dim]) -> Graph:
    """Return ``graph`` with the program's open sizes as fixed dimensions; sizes that are not ``given`` are assumed."""
    symbol_of = open_dims(program)
    sizes = {name: program.symbols[symbol] for name, symbol in symbol_of.items() if symbol in program.symbols}
    return msgspec.structs.replace(
        graph,
        dims={name: envelopes.get(name, Dim(size, size)) for name, size in sizes.items()},
        assumed={name: size for name, size in sizes.items() if name not in envelopes},
        ranges={name: Dim(*program.ranges.get(symbol_of[name], (0, LARGEST))) for name in sizes},
    )


def _torch(what: str) -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingExtra(f"{what} needs PyTorch, which is not installed.", hint=f"Add it: {ADD_THE_EXTRA}") from error
    return torch


def _arguments(
    exported: Any, example_inputs: Sequence[Any] | Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example_inputs, Mapping):
        return (), dict(example_inputs)
    if not example_inputs and exported is not None and exported.example_inputs is not None:
        args, kwargs = exported.example_inputs
        return tuple(args), dict(kwargs)
    return tuple(example_inputs), {}
