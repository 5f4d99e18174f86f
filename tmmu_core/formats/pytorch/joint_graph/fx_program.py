"""Build a traceable module from a saved program, without loading the program with PyTorch.

Loading it would unpickle its example inputs and evaluate its formulas. Here each call in the serialised graph runs an
operator of ``aten`` or ``prims``, or one of ``BODIES``, on tensors, numbers and strings. ``torch_module`` traces the
program with fake tensors, and ``runtime_child`` runs it with real ones. Both use a separate process, because the file
still selects which code of PyTorch runs.
"""

import re
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import msgspec
import torch

from tmmu_core.formats.pytorch.exported_program import pt2_operators
from tmmu_core.formats.pytorch.exported_program.pt2_archive import Program
from tmmu_core.formats.pytorch.exported_program.pt2_document import Body, Value
from tmmu_core.formats.pytorch.exported_program.pt2_graph import DTYPES, STRIDED, TENSOR_KINDS

SPACES = ("aten", "prims")  # namespaces of operators that are part of PyTorch and compute only on tensors
REJECTED = frozenset({"from_file"})  # operators of ``SPACES`` that open a file
BODIES = frozenset({"cond", "wrap_with_set_grad_enabled", "wrap_with_autocast"})
"""Supported operators that have bodies: a conditional, and a region of ``torch.no_grad`` or ``torch.autocast``."""
MEMORY_FORMATS = dict(
    enumerate((torch.contiguous_format, torch.channels_last, torch.channels_last_3d, torch.preserve_format), 1)
)


class RebuiltProgram:
    """A program on new tensors, which are fake in a fake mode. ``module(*tensors)`` runs it on its inputs, in order."""

    def __init__(self, program: Program) -> None:
        self.module = torch.nn.Module()  # not ``self``: names in the program could equal its attributes
        self.module.forward = self.forward
        self.program = program
        self.example: list[torch.Tensor] = []
        self.input_names = [each.label for each in program.inputs if each.role == "input"]
        self.returned = [spec.tensor for kind, spec in program.outputs if kind in ("user_output", "loss_output")]
        tensors: dict[Any, torch.Tensor] = {}
        for each in program.inputs:
            meta = program.graph.tensor_values[each.name]
            key = (each.member, meta) if each.member else each.name
            if key not in tensors:
                if meta.layout != STRIDED:
                    raise ValueError(f"{each.name!r} is not dense")
                shape, strides = (
                    [program.size(size, each.name) for size in side] for side in (meta.sizes, meta.strides)
                )
                tensors[key] = torch.empty_strided(shape, strides, dtype=_dtype(meta.dtype), device="cpu")
                if each.role == "parameter":
                    tensors[key] = torch.nn.Parameter(tensors[key], meta.requires_grad)
            if each.role == "input":
                self.example.append(tensors[key])
            else:  # a constant is a buffer too, so that the traced graph has its name
                part = self.module
                *parents, name = each.target.split(".")
                for parent in parents:
                    if parent not in part._modules:
                        part.add_module(parent, torch.nn.Module())
                    part = part.get_submodule(parent)
                (part.register_parameter if each.role == "parameter" else part.register_buffer)(name, tensors[key])

    def forward(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        """Run the program and return its tensor results; update the buffers and inputs that it mutates."""
        arguments = iter(tensors)
        values = {  # read at each call, because a trace replaces the module's tensors
            each.name: next(arguments) if each.role == "input" else attrgetter(each.target)(self.module)
            for each in self.program.inputs
        }
        graph_name_of = {each.target: each.name for each in self.program.inputs}
        self._run(self.program.graph, values)
        for kind, spec in self.program.outputs:
            if kind.endswith("_mutation"):
                with torch.no_grad():
                    values[graph_name_of.get(spec.target, spec.target)].copy_(values[spec.tensor])
        return [values[name] for name in self.returned if name]

    @property
    def is_loss(self) -> bool:
        """Whether the only result is a floating-point scalar, and a parameter needs a gradient."""
        is_trained = any(p.requires_grad for p in self.module.parameters())
        if not is_trained or len(self.returned) != 1 or not self.returned[0]:  # an empty name: no tensor
            return False
        meta = self.program.graph.tensor_values[self.returned[0]]
        return not meta.sizes and _dtype(meta.dtype).is_floating_point

    def _run(self, body: Body, values: dict[str, Any]) -> None:
        for operation in body.nodes:
            op = pt2_operators.operator(operation.target)
            kinds = {kind for value in (*operation.outputs, *(each.arg for each in operation.inputs)) for kind in value}
            if op.name in pt2_operators.NO_BYTES or kinds.isdisjoint(TENSOR_KINDS):
                continue
            pairs = [(each, self._argument(each.arg, values)) for each in operation.inputs]
            args = [value for each, value in pairs if each.kind != 2]
            if op.space == "higher_order" and op.name in BODIES:
                function = getattr(torch.ops.higher_order, op.name)
                args = [tuple(each) if isinstance(each, list) else each for each in args]
                if op.name == "wrap_with_autocast":
                    args[0] = "cpu"  # the device of all tensors
            elif op.space in SPACES and op.name not in REJECTED and re.fullmatch(r"\w+", op.name):
                function = getattr(getattr(getattr(torch.ops, op.space), op.name, None), op.overload, None)
                if not isinstance(function, torch._ops.OpOverload):
                    raise ValueError(f"this PyTorch has no operator {op.title}")
            else:
                raise ValueError(f"the operator {op.title} is not supported")
            result = function(*args, **{each.name: value for each, value in pairs if each.kind == 2})
            outputs = operation.outputs
            if len(outputs) == 1 and "as_tensors" in outputs[0]:
                outputs = tuple([{"as_tensor": each} for each in outputs[0]["as_tensors"]])
            for output, each in zip(outputs, result if isinstance(result, (list, tuple)) else [result], strict=False):
                tensor = output.get("as_tensor") or (output.get("as_optional_tensor") or {}).get("as_tensor")
                if tensor is not None:
                    values[tensor["name"]] = each

    def _argument(self, value: Value, values: dict[str, Any]) -> Any:
        ((kind, inner),) = value.items()
        if isinstance(inner, list) and kind.endswith("s"):
            return [self._argument({kind[:-1]: each}, values) for each in inner]
        match kind:
            case "as_none":
                return None
            case "as_tensor":
                return values[inner["name"]]
            case "as_optional_tensor":
                return values[inner["as_tensor"]["name"]] if "as_tensor" in inner else None
            case "as_int" | "as_bool" | "as_string":
                return _checked(inner)
            case "as_float":
                return float(inner)
            case "as_complex":
                return complex(float(inner["real"]), float(inner["imag"]))
            case "as_sym_int" if "as_int" in inner:
                return int(_checked(inner["as_int"]))
            case "as_sym_int" if inner["as_name"] in self.program.graph.sym_int_values:
                return self.program.size(self.program.graph.sym_int_values[inner["as_name"]], inner["as_name"])
            case "as_scalar_type":
                return _dtype(inner)
            case "as_memory_format":
                return MEMORY_FORMATS[inner]
            case "as_layout" if inner == STRIDED:
                return torch.strided
            case "as_device":
                return torch.device("cpu")
            case "as_graph":
                body = msgspec.convert(inner["graph"], Body)
                return lambda *inputs: self._results_of(body, inputs)
        raise ValueError(f"an argument has the unsupported kind {kind}, or is an undeclared size")

    def _results_of(self, body: Body, inputs: Sequence[Any]) -> Any:
        values = dict(zip([each["as_tensor"]["name"] for each in body.inputs], inputs, strict=True))
        self._run(body, values)
        results = [values[each["as_tensor"]["name"]] for each in body.outputs]
        return results[0] if body.is_single_tensor_return else tuple(results)


def _checked(value: Any) -> Any:
    """Return ``value``. Raises ``ValueError`` if it is no 64-bit integer, bool or string."""
    if not isinstance(value, (bool, int, str)) or (isinstance(value, int) and not -(2**63) <= value < 2**63):
        raise ValueError("an argument is neither a 64-bit integer nor a string")
    return value


def _dtype(number: int) -> torch.dtype:
    dtype = getattr(torch, DTYPES.get(number, ""), None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"this PyTorch has no dtype number {number}")
    return dtype
