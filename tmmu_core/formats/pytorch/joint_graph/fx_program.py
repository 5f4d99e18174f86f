"""A saved program as a module that can be traced: built from its serialised graph, one operator call after another.

Loading it with PyTorch would unpickle its example inputs and evaluate its formulas. Here a call is an operator of
PyTorch's own two spaces, found by name, on fake tensors, numbers and words; code is neither made nor loaded. An
operator without a rule for fake tensors is refused, because running it would compute. It still is much machinery for a
file to steer, so it happens in a process of its own, under limits (``fx_child``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import torch

from tmmu_core.formats.pytorch.exported_program import pt2_operators
from tmmu_core.formats.pytorch.exported_program.pt2_archive import Argument, Body, Meta, Operation, Program, Value
from tmmu_core.formats.pytorch.exported_program.pt2_graph import DTYPES, STRIDED
from tmmu_core.formats.pytorch.exported_program.pt2_names import given_names
from tmmu_core.formats.pytorch.joint_graph.fx_fake_tensors import shared_mode

SPACES = ("aten", "prims")
"""Spaces of operators that come with PyTorch and compute on tensors alone."""
NEVER = frozenset({"from_file"})
"""Operators of these that touch more than tensors: this one opens a file."""
BODIES = frozenset({"cond"})
"""Operators with bodies that can be called with them."""
MEMORY_FORMATS = {
    1: torch.contiguous_format,
    2: torch.channels_last,
    3: torch.channels_last_3d,
    4: torch.preserve_format,
}


class CannotTrace(Exception):
    """The program cannot be rebuilt; ``str`` is the reason."""


class Rebuilt(torch.nn.Module):
    """The program, to be called with its tensors alone, in the order of the graph's inputs."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program
        self.given: list[tuple[str, str]] = []
        """(kind, name) of every tensor that the graph begins with, in order."""
        self.example: list[torch.Tensor] = []
        self.input_names: list[str] = []
        """Names of the program's input tensors."""
        self.paths: dict[str, str] = {}
        """Value of the graph → the path of the parameter or buffer: looked up at each call, for tracing puts others."""
        self.constants: dict[str, torch.Tensor] = {}
        self.own_name: dict[str, str] = {}
        made: dict[tuple[str, Any], torch.Tensor] = {}
        body, specs = program.module.graph, program.module.signature.input_specs
        names = given_names(program)
        for k, value in enumerate(body.inputs):
            if "as_tensor" not in value:
                continue
            name = value["as_tensor"]["name"]
            kind, called = _kind(specs[k] if k < len(specs) else None, name)
            self.own_name[called] = name
            if kind == "input":
                self.example.append(self._empty(name))
                self.input_names.append(names.get(k, name))
                self.given.append((kind, name))
                continue
            member = program.weights.get(called, "")
            key = (member, self._meta(name)) if member else (name, None)
            if key not in made:
                made[key] = self._empty(name)
                if kind == "parameter":
                    made[key] = torch.nn.Parameter(made[key], self._meta(name).requires_grad)
            if kind == "constant":
                self.constants[name] = made[key]
                continue
            self.paths[name] = called
            _register(self, kind, called, made[key])

    def forward(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        """Return the flat outputs of the program. Buffers are overwritten as declared."""
        body, values = self.program.module.graph, dict(self.constants)
        values.update({name: _at(self, path) for name, path in self.paths.items()})
        values.update(zip([name for _, name in self.given], tensors, strict=True))
        self._run(body, values)
        returned = []
        for left in self.program.module.signature.output_specs:
            output = left.user_output or left.loss_output
            if output is not None:
                arg = output["arg"]
                named = arg.get("as_tensor", arg if "name" in arg else None)
                if named is not None:
                    returned.append(values[named["name"]])
            for mutation, key in (
                (left.buffer_mutation, "buffer_name"),
                (left.parameter_mutation, "parameter_name"),
                (left.user_input_mutation, "user_input_name"),
            ):
                if mutation is not None:
                    called = mutation[key]
                    with torch.no_grad():
                        values[self.own_name.get(called, called)].copy_(values[mutation["arg"]["name"]])
        return returned

    @property
    def is_loss(self) -> bool:
        """Whether all it returns is a floating-point scalar, and there is a parameter to learn."""
        left = [each for each in self.program.module.signature.output_specs if each.user_output or each.loss_output]
        output = (left[0].user_output or left[0].loss_output) if len(left) == 1 else None
        arg = output["arg"] if output else {}
        named = arg.get("as_tensor", arg if "name" in arg else None)
        if named is None or not any(parameter.requires_grad for parameter in self.parameters()):
            return False
        meta = self._meta(named["name"])
        return not meta.sizes and _dtype(meta.dtype).is_floating_point

    # -- operators --------------------------------------------------------------------------------------------------

    def _run(self, body: Body, values: dict[str, Any]) -> None:
        for operation in body.nodes:
            what = pt2_operators.operator(operation.target)
            if what.name in pt2_operators.NO_BYTES or not _any_tensors(operation):
                continue
            args, kwargs = self._arguments(operation.inputs, values)
            if what.space == "higher_order" and what.name in BODIES:
                found = [each for each in args if isinstance(each, list)]
                args = [tuple(each) if each in found else each for each in args]
            result = _callable(what)(*args, **kwargs)
            self._take(operation.outputs, result, values)

    def _arguments(self, given: Sequence[Argument], values: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for argument in given:
            value = self._argument(argument.arg, values)
            if argument.kind == 2:
                kwargs[argument.name] = value
            else:
                args.append(value)
        return args, kwargs

    def _argument(self, value: Value, values: dict[str, Any]) -> Any:
        (kind, inner), *more = value.items()
        if more:
            raise CannotTrace("an argument is of two kinds")
        if kind == "as_none":
            return None
        if kind == "as_tensor":
            return values[inner["name"]]
        if kind == "as_tensors":
            return [values[each["name"]] for each in inner]
        if kind in ("as_optional_tensor", "as_optional_tensors"):
            many = inner if isinstance(inner, list) else [inner]
            found = [values[each["as_tensor"]["name"]] if "as_tensor" in each else None for each in many]
            return found if isinstance(inner, list) else found[0]
        if kind in ("as_int", "as_bool", "as_string", "as_ints", "as_bools", "as_strings"):
            return _checked(inner)
        if kind in ("as_float", "as_floats"):
            return [float(each) for each in inner] if isinstance(inner, list) else float(inner)
        if kind == "as_complex":
            return complex(float(inner["real"]), float(inner["imag"]))
        if kind in ("as_sym_int", "as_sym_ints"):
            return [self._open(each) for each in inner] if isinstance(inner, list) else self._open(inner)
        if kind == "as_scalar_type":
            return _dtype(inner)
        if kind == "as_memory_format":
            return MEMORY_FORMATS[inner]
        if kind == "as_layout" and inner == STRIDED:
            return torch.strided
        if kind == "as_device":
            return torch.device("cpu")
        if kind == "as_graph":
            return self._body(msgspec.convert(inner["graph"], Body))
        raise CannotTrace(f"an argument is of the kind {kind}")

    def _open(self, value: Any) -> int:
        if "as_int" in value:
            return int(_checked(value["as_int"]))
        name = value["as_name"]
        size = self.program.module.graph.sym_int_values.get(name)
        if size is None:
            raise CannotTrace(f'the size "{name}" is not among the sizes')
        return self.program.size(size, name)

    def _body(self, body: Body) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            values = dict(zip([each["as_tensor"]["name"] for each in body.inputs], given, strict=True))
            self._run(body, values)
            results = [values[each["as_tensor"]["name"]] for each in body.outputs]
            return results[0] if body.is_single_tensor_return else tuple(results)

        return run

    def _take(self, outputs: Sequence[Value], result: Any, values: dict[str, Any]) -> None:
        """Call the results what the file calls them."""
        if len(outputs) == 1 and "as_tensors" in outputs[0]:
            outputs = [{"as_tensor": each} for each in outputs[0]["as_tensors"]]
        results = list(result) if isinstance(result, (list, tuple)) else [result]
        for output, each in zip(outputs, results, strict=False):
            named = output.get("as_tensor") or (output.get("as_optional_tensor") or {}).get("as_tensor")
            if named is not None:
                values[named["name"]] = each

    # -- tensors ----------------------------------------------------------------------------------------------------

    def _meta(self, name: str) -> Meta:
        return self.program.module.graph.tensor_values[name]

    def _empty(self, name: str) -> torch.Tensor:
        meta = self._meta(name)
        if meta.layout != STRIDED:
            raise CannotTrace(f'"{name}" is not dense')
        shape = [self.program.size(size, name) for size in meta.sizes]
        strides = [self.program.size(size, name) for size in meta.strides]
        return torch.empty_strided(shape, strides, dtype=_dtype(meta.dtype), device="cpu")


def rebuilt(program: Program) -> Rebuilt:
    """The program as a module of fake tensors. Raises ``CannotTrace``, ``UnreadableInput``."""
    mode = shared_mode()
    mode.allow_fallback_kernels = False  # an operator that fake tensors have no rule for would be run on real ones
    with mode:
        return Rebuilt(program)


def _kind(spec: Any, name: str) -> tuple[str, str]:
    for kind, key in (("parameter", "parameter_name"), ("buffer", "buffer_name")):
        if spec is not None and (value := getattr(spec, kind)) is not None:
            return kind, value[key]
    if spec is not None and spec.tensor_constant is not None:
        return "constant", spec.tensor_constant["tensor_constant_name"]
    return "input", name


def _register(module: torch.nn.Module, kind: str, path: str, value: torch.Tensor) -> None:
    """Put ``value`` under its dotted name; the modules on the way are empty ones."""
    *way, name = path.split(".")
    for step in way:
        inner = module._modules.get(step)
        if inner is None:
            inner = torch.nn.Module()
            module.add_module(step, inner)
        module = inner
    if kind == "parameter":
        module.register_parameter(name, value)
    else:
        module.register_buffer(name, value)


def _at(module: torch.nn.Module, path: str) -> torch.Tensor:
    *way, name = path.split(".")
    for step in way:
        module = module._modules[step]
    found = module._parameters.get(name)
    value = module._buffers.get(name) if found is None else found
    assert value is not None
    return value


def _callable(what: pt2_operators.Operator) -> Callable[..., Any]:
    if what.space == "higher_order" and what.name in BODIES:
        found: Callable[..., Any] = getattr(torch.ops.higher_order, what.name)
        return found
    if what.space not in SPACES or what.name in NEVER or not re.fullmatch(r"\w+", what.name):
        raise CannotTrace(f"the operator {what.title} is none of PyTorch's own")
    packet = getattr(getattr(torch.ops, what.space), what.name, None)
    operator = getattr(packet, what.overload, None)
    if not isinstance(operator, torch._ops.OpOverload):
        raise CannotTrace(f"this PyTorch has no operator {what.title}")
    return operator


def _any_tensors(operation: Operation) -> bool:
    kinds = [kind for value in (*operation.outputs, *(each.arg for each in operation.inputs)) for kind in value]
    return any(kind.startswith(("as_tensor", "as_optional_tensor")) for kind in kinds)


def _checked(value: Any) -> Any:
    """A number, a word or a list of them, numbers within 64 bits."""
    for each in value if isinstance(value, list) else [value]:
        if not isinstance(each, (bool, int, str)) or (isinstance(each, int) and not -(2**63) <= each < 2**63):
            raise CannotTrace("an argument is neither a number of 64 bits nor a word")
    return value


def _dtype(number: int) -> torch.dtype:
    found = getattr(torch, DTYPES.get(number, ""), None)
    if not isinstance(found, torch.dtype):
        raise CannotTrace(f"this PyTorch has no dtype number {number}")
    return found
