"""The JSON of an exported program as typed values: the part of PyTorch's schema that a plan needs."""

from typing import Any

import msgspec

from tmmu_core.base.struct_types import register_types
from tmmu_core.formats.pytorch.exported_program.pt2_sizes import Size

Value = dict[str, Any]
"""A serialized argument: one key for its kind (``as_tensor``, ``as_ints``) with the value."""


class Argument(msgspec.Struct, frozen=True):
    """One argument of an operator."""

    arg: Value
    name: str = ""
    kind: int | None = None
    """1 by position, 2 by name."""


class Operation(msgspec.Struct, frozen=True):
    """One call of an operator."""

    target: str
    inputs: tuple[Argument, ...] = ()
    outputs: tuple[Value, ...] = ()
    name: str | None = None
    metadata: Any = None
    """Metadata of the node's origin; only texts in it are read."""


class Meta(msgspec.Struct, frozen=True):
    """Metadata of a tensor."""

    dtype: int
    sizes: tuple[Size, ...] = ()
    strides: tuple[Size, ...] = ()
    storage_offset: Size = Size(as_int=0)
    requires_grad: bool = False
    layout: int = 7


class Body(msgspec.Struct, frozen=True):
    """A graph: the program's own, or one that an operator carries."""

    inputs: tuple[Value, ...] = ()
    outputs: tuple[Value, ...] = ()
    nodes: tuple[Operation, ...] = ()
    tensor_values: dict[str, Meta] = {}
    sym_int_values: dict[str, Size] = {}
    is_single_tensor_return: bool = False


class End(msgspec.Struct, frozen=True):
    """One input or output of the program."""

    arg: Value | None = None
    parameter_name: str = ""
    buffer_name: str = ""
    tensor_constant_name: str = ""
    user_input_name: str = ""

    @property
    def tensor(self) -> str:
        """The tensor in the graph; ``""`` for a number or another value."""
        arg = self.arg or {}
        value = arg.get("as_tensor", arg)
        name = value.get("name") if isinstance(value, dict) else None
        return name if isinstance(name, str) else ""

    @property
    def called(self) -> str:
        """The name of the parameter, buffer, constant or input that it is, or is written to."""
        return self.parameter_name or self.buffer_name or self.tensor_constant_name or self.user_input_name


class Signature(msgspec.Struct, frozen=True):
    """The kind of each input and output (``parameter``, ``buffer_mutation``) and its target, in graph order."""

    input_specs: tuple[dict[str, End], ...] = ()
    output_specs: tuple[dict[str, End], ...] = ()


class CallSignature(msgspec.Struct, frozen=True):
    """Call signature of the module."""

    in_spec: str = ""
    forward_arg_names: tuple[str, ...] | None = None


class Call(msgspec.Struct, frozen=True):
    """A module and its calling convention; the first is the whole program."""

    signature: CallSignature | None = None


class Module(msgspec.Struct, frozen=True):
    """The graph with its signature."""

    graph: Body
    signature: Signature = Signature()
    module_call_graph: tuple[Call, ...] = ()


class Document(msgspec.Struct, frozen=True):
    """The JSON file."""

    graph_module: Module
    range_constraints: dict[str, Any] = {}


class Weight(msgspec.Struct, frozen=True):
    """Archive member of a weight: two names with one path are one tensor."""

    path_name: str = ""
    use_pickle: bool = False


class Weights(msgspec.Struct, frozen=True):
    """A table of the archive: weights by name."""

    config: dict[str, Weight] = {}


register_types(Argument, Operation, Meta, Body, End, Signature, CallSignature, Call, Module, Document, Weights)
