"""Read the archive of an exported program: find members, unpack them within limits, decode them into typed values.

A ``.pt2`` file is a zip archive. The reader needs its JSON: ``models/model.json`` (PyTorch 2.8 and newer) or
``serialized_exported_program.json`` (before), and the table of the weights' names. The other members hold bytes of
weights and, as pickles, example inputs: they are never opened. Loading a pickle can run
code, and so can loading the program with PyTorch: this reader does neither.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from tmmu_core.base import limits
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.base.struct_types import register_types
from tmmu_core.formats.pytorch.exported_program.pt2_sizes import (
    LARGEST,
    Size,
    SizeUnknown,
    data_dependent_symbols,
    number,
    symbol_in,
)

WEIGHTS = "weights/model_weights_config.json"
LIFTED = "constants/model_constants_config.json"
ARCHIVE_MARK = "archive_format"
OLDER = "exported_program.json"
LEAST_UNBOUNDED = 1 << 40
"""The upper end of a range from which on it bounds nothing: PyTorch writes the largest integers where none is known."""
COPY = "Copy the file again, or save the program again with torch.export.save."

Value = dict[str, Any]
"""A serialized argument: one key for its kind (``as_tensor``, ``as_ints``) with the value."""


class Named(msgspec.Struct, frozen=True):
    """A reference to a value."""

    name: str


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


class InputSpec(msgspec.Struct, frozen=True):
    """Kind of an input of the graph: exactly one field is set."""

    user_input: dict[str, Any] | None = None
    parameter: dict[str, Any] | None = None
    buffer: dict[str, Any] | None = None
    tensor_constant: dict[str, Any] | None = None


class OutputSpec(msgspec.Struct, frozen=True):
    """Kind of an output of the graph: exactly one field is set."""

    user_output: dict[str, Any] | None = None
    loss_output: dict[str, Any] | None = None
    buffer_mutation: dict[str, Any] | None = None
    parameter_mutation: dict[str, Any] | None = None
    user_input_mutation: dict[str, Any] | None = None
    gradient_to_parameter: dict[str, Any] | None = None
    gradient_to_user_input: dict[str, Any] | None = None


class Signature(msgspec.Struct, frozen=True):
    """The kind of each input and output (parameter, buffer, user input …), in graph order."""

    input_specs: tuple[InputSpec, ...] = ()
    output_specs: tuple[OutputSpec, ...] = ()


class CallSignature(msgspec.Struct, frozen=True):
    """Call signature of the module."""

    in_spec: str = ""
    forward_arg_names: tuple[str, ...] | None = None


class Call(msgspec.Struct, frozen=True):
    """A module and how it is called; the first is the program itself."""

    fqn: str = ""
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
    torch_version: str = ""


class Weight(msgspec.Struct, frozen=True):
    """Archive member of a weight: two names with one path are one tensor."""

    path_name: str = ""
    use_pickle: bool = False


class _Weights(msgspec.Struct, frozen=True):
    config: dict[str, Weight] = {}


class Program(msgspec.Struct, frozen=True):
    """Contents of an archive."""

    module: Module
    symbols: dict[str, int]
    """Open size → the example's value, the upper bound of a data-dependent size, or the requested value."""
    ranges: dict[str, tuple[int, int]]
    """Open size → the least and the largest that the program was exported for."""
    weights: dict[str, str]
    """Parameter or buffer → the member with its bytes."""
    lifted: dict[str, str] = {}
    """Lifted constant, or buffer that is not saved with the others → the member with its bytes."""
    source: str = ""
    by_data: tuple[str, ...] = ()
    """Symbols of data-dependent sizes; the example has no value for them."""
    elsewhere: bool = False
    """Whether an open size has another value than in the example."""

    def at(self, point: Mapping[str, int]) -> Program:
        """The program with these open sizes, by symbol, at these numbers."""
        moved = any(self.symbols.get(symbol) != size for symbol, size in point.items() if symbol not in self.by_data)
        return msgspec.structs.replace(self, symbols={**self.symbols, **point}, elsewhere=self.elsewhere or moved)

    def member_of(self, name: str) -> str:
        """Return the member with the bytes of a parameter, buffer or constant; ``""`` if unknown."""
        return f"{WEIGHTS}/{self.weights[name]}" if name in self.weights else self.lifted.get(name, "")

    def size(self, size: Size, what: str) -> int:
        """The size at the chosen numbers. Raises ``UnreadableInput`` naming ``what`` it is a size of."""
        try:
            return number(size, self.symbols, self.elsewhere)
        except SizeUnknown as error:
            waiting = sorted({symbol for symbol in data_dependent_symbols(size) if symbol not in self.symbols})
            hint = "Export the program with example inputs, or with fixed sizes."
            if waiting:
                most = ",".join(f"{symbol}=64" for symbol in waiting)
                hint = (
                    f"It depends on data. Give its largest value: tmmu convert MODEL --dims {most} -o GRAPH.json; "
                    "or bound it in the model with torch._check and export it again."
                )
            raise UnreadableInput(
                f'a size of "{what}" is not known: {error}.', source=self.source, hint=hint
            ) from error


register_types(Named, Argument, Operation, Meta, Body, InputSpec, OutputSpec, Signature)
register_types(CallSignature, Call, Module, Document, Weight, _Weights, Program)


def refuses(data: bytes) -> str:
    """Return the reason why the bytes are not an exported program, or ``""``."""
    if not data.startswith(b"PK\x03\x04"):
        return "it does not begin like the zip archive that a .pt2 file is"
    try:
        names = zipfile.ZipFile(io.BytesIO(data)).namelist()
    except _DAMAGE:
        return ""  # its reader reports the damage
    if any(name.rpartition("/")[2] == ARCHIVE_MARK or name.endswith(OLDER) for name in names):
        return ""
    return "the zip archive holds no exported program (torch.export.save writes one; torch.save and TorchScript do not)"


_DAMAGE = (
    *(zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, EOFError, OSError),
    *(NotImplementedError, RuntimeError, ValueError, OverflowError, UnicodeDecodeError, MemoryError),
)
"""Exceptions of the zip reader for a damaged, encrypted or unknown member; ``ValueError`` for a bad name or date."""


def read_program(data: bytes | Path, source: str = "") -> Program:
    """The program in an archive's bytes, or in the file of them. Nothing is run. Raises ``UnreadableInput``."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(data) if isinstance(data, bytes) else data)
    except _DAMAGE as error:
        raise UnreadableInput("the zip archive is cut off or damaged.", source=source, hint=COPY) from error
    names = archive.namelist()
    twice = next((name for name, after in pairwise(sorted(names)) if name == after), None)
    if twice is not None:  # readers disagree on which of them counts
        raise UnreadableInput(f'the archive holds the member "{twice}" twice.', source=source, hint=COPY)
    models = [name for name in names if name.endswith(OLDER) or name.split("/")[-2:-1] == ["models"]]
    models = [name for name in models if name.endswith(".json")]
    own = [name for name in models if name.endswith(("models/model.json", OLDER))] or models
    if len(own) != 1:
        what = "no program" if not own else f"{len(own)} programs"
        raise UnreadableInput(
            f"the archive holds {what} under models/.", source=source, hint="Save one program with torch.export.save."
        )
    document = _decoded(_member(archive, own[0], source), Document, own[0], source)
    weights, lifted = (
        {name: weight.path_name for name, weight in _table(archive, each, source)[1].items()}
        for each in (WEIGHTS, LIFTED)
    )
    module = document.graph_module
    ranges = {symbol: _range(bounds) for symbol, bounds in document.range_constraints.items()}
    symbols = _symbols(module.graph)
    by_data = _by_data(module.graph)
    largest = {symbol: ranges[symbol][1] for symbol in by_data if symbol in ranges}
    return Program(
        module=module,
        symbols={symbol: high for symbol, high in largest.items() if high < LEAST_UNBOUNDED} | symbols,
        ranges=ranges,
        by_data=tuple([symbol for symbol in by_data if symbol not in symbols]),
        weights=weights,
        lifted=lifted,
        source=source,
    )


def _member(archive: zipfile.ZipFile, name: str, source: str) -> bytes:
    ceiling = limits.ceiling(limits.UNPACKED_BYTES)
    try:
        with archive.open(name) as member:
            data = member.read(ceiling + 1)
    except _DAMAGE as error:
        raise UnreadableInput(
            f'the member "{name}" of the zip archive is cut off or damaged.', source=source, hint=COPY
        ) from error
    if len(data) > ceiling:
        raise limits.past(limits.UNPACKED_BYTES, f'the archive\'s member "{name}"', source)
    return data


def _table(archive: zipfile.ZipFile, config: str, source: str) -> tuple[str, dict[str, Weight]]:
    """Return ``(folder, name → weight)`` of a table of the archive; empty without one."""
    name = next((name for name in archive.namelist() if name.endswith(config)), None)
    if name is None:
        return "", {}
    return name.rpartition("/")[0], _decoded(_member(archive, name, source), _Weights, name, source).config


def _decoded(data: bytes, shape: Any, name: str, source: str) -> Any:
    try:
        return msgspec.json.decode(data, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableInput(
            "the exported program is not laid out as PyTorch writes it: "
            f"{'it is nested too deeply' if isinstance(error, RecursionError) else error}.",
            source=source,
            place=name,
            hint="Save it again with torch.export.save of PyTorch 2.8 or newer.",
        ) from error


def _symbols(graph: Body) -> dict[str, int]:
    """Return the symbols that occur alone as a size, with their values in the example."""
    found: dict[str, int] = {}
    for size in graph.sym_int_values.values():
        found.update([pair] if (pair := symbol_in(size)) else [])
    for meta in graph.tensor_values.values():
        for size in meta.sizes:
            found.update([pair] if (pair := symbol_in(size)) else [])
    return found


def _by_data(graph: Body) -> list[str]:
    """Return the symbols of data-dependent sizes in the order of their first tensor."""
    sizes = (size for meta in graph.tensor_values.values() for size in (*meta.sizes, *meta.strides))
    return list(dict.fromkeys(symbol for size in sizes for symbol in data_dependent_symbols(size)))


def _range(bounds: Any) -> tuple[int, int]:
    """Range of the size in the file, if there is one."""
    low, high = (bounds.get(end) if isinstance(bounds, dict) else None for end in ("min_val", "max_val"))
    return (low if isinstance(low, int) else 0), (high if isinstance(high, int) else LARGEST)


def members_of(data: Any, source: str = "") -> dict[str, str]:
    """Parameter, buffer or lifted constant → the archive's member with its raw bytes; none where it is a pickle."""
    found: dict[str, str] = {}
    with zipfile.ZipFile(data) as archive:
        for config in (WEIGHTS, LIFTED):
            folder, weights = _table(archive, config, source)
            found |= {name: f"{folder}/{each.path_name}" for name, each in weights.items() if not each.use_pickle}
    return found
