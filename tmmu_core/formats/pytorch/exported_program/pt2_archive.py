"""Read the archive of an exported program: find members, unpack them within limits, decode them into typed values.

A ``.pt2`` file is a zip archive. To plan, the reader opens only JSON: the program, and the tables of weights. PyTorch
2.8 and newer writes ``models/model.json`` (or another name in ``models``), older versions
``serialized_exported_program.json``. Loading a pickle, or the program with PyTorch, can run code.
"""

import io
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import msgspec

from tmmu_core.base import limits
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.pytorch.exported_program import pt2_document as schema
from tmmu_core.graph.constants import CHUNK, truncation_error
from tmmu_core.graph.model import Role

WEIGHT_TABLES = ("weights/model_weights_config.json", "constants/model_constants_config.json")
"""The members that list weights: parameters and saved buffers, then lifted constants and other buffers."""
OLDER_PROGRAM = "exported_program.json"  # end of the name of the program's member, before PyTorch 2.8
LEAST_UNBOUNDED = 1 << 40  # an upper bound of at least this is no bound: PyTorch writes a huge integer
COPY = "Copy the file again, or save the program again with torch.export.save."
_DAMAGE = (
    *(zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, EOFError, OSError),
    *(NotImplementedError, RuntimeError, ValueError, OverflowError, UnicodeDecodeError, MemoryError),
)
"""Exceptions of the zip reader for a damaged, encrypted or unknown member; ``ValueError`` for a bad name or date."""
DEEPEST = 50  # maximum nesting of the containers of an argument
ROLES: dict[str, Role] = {"parameter": "parameter", "buffer": "buffer", "tensor_constant": "constant"}
"""Kind of an input → its role, for inputs whose bytes are saved."""


@dataclass(frozen=True)
class InputTensor:
    """An input tensor of the graph: a parameter, a buffer, a constant or an argument."""

    name: str  # its name in the graph
    target: str  # its name in the signature
    role: Role
    label: str  # name for the user: the path of an argument (``x.0`` for a tensor in a list), else ``name``
    member: str = ""  # member of the archive with its bytes; empty if unknown
    is_raw: bool = False  # whether the member has the plain bytes, not a pickle


@dataclass(frozen=True)
class Program:
    """Contents of an archive."""

    graph: schema.Body
    inputs: tuple[InputTensor, ...]  # the input tensors of the graph, in order
    outputs: tuple[tuple[str, schema.IoSpec], ...]  # kind and value of each output, in order
    symbols: Mapping[str, int]  # dynamic size → requested value, else value in the example, else upper bound
    ranges: Mapping[str, tuple[int, int]]  # dynamic size → its lower and upper bound in the exported program
    data_dependent: tuple[str, ...]  # symbols of data-dependent sizes; the example has no value for them
    ignore_recorded: bool = False  # whether a symbol differs from the example, so that formulas must be evaluated

    def at(self, point: Mapping[str, int]) -> Self:
        """Return the program with the dynamic sizes in ``point``: symbol → number."""
        differs = any(self.symbols.get(name) != size for name, size in point.items() if name not in self.data_dependent)
        return replace(self, symbols={**self.symbols, **point}, ignore_recorded=self.ignore_recorded or differs)

    def size(self, size: schema.Size, what: str) -> int:
        """Return the value of a size. Raises ``UnreadableInput``; ``what`` is its subject in the message."""
        try:
            return schema.number(size, self.symbols, self.ignore_recorded)
        except schema.SizeUnknown as error:
            unknown = sorted(set(schema.data_dependent_symbols(size)) - self.symbols.keys())
            hint = "Export the program with example inputs, or with fixed sizes."
            if unknown:
                example = ",".join(f"{symbol}=64" for symbol in unknown)
                hint = f"It depends on data. Give its maximum: tmmu convert MODEL --dims {example} -o GRAPH.json; "
                hint += "or bound it in the model with torch._check and export it again."
            raise UnreadableInput(f"a size of {what!r} is not known: {error}.", hint=hint) from error


def refusal(data: bytes) -> str:
    """Return why bytes are not an exported program; ``""`` if they are, or if the archive is damaged."""
    if not data.startswith(b"PK\x03\x04"):
        return "it does not begin like a zip archive, the format of a .pt2 file"
    try:
        names = zipfile.ZipFile(io.BytesIO(data)).namelist()
    except _DAMAGE:
        return ""  # the reader reports the damage
    if any(name.rpartition("/")[2] == "archive_format" or name.endswith(OLDER_PROGRAM) for name in names):
        return ""
    return "it contains no exported program (torch.export.save writes one; torch.save and TorchScript do not)"


def read_program(data: bytes | Path) -> Program:
    """Read the program of an archive, given as bytes or a file, without executing code. Raises ``UnreadableInput``."""
    try:
        archive = _opened(data)
    except _DAMAGE as error:
        raise UnreadableInput("the zip archive is cut off or damaged.", hint=COPY) from error
    with archive:
        document, weights = _parts(archive)
    module = document.graph_module
    ranges: dict[str, tuple[int, int]] = {}
    for symbol, bounds in document.range_constraints.items():
        low, high = (bounds.get(end) if isinstance(bounds, dict) else None for end in ("min_val", "max_val"))
        ranges[symbol] = (low if isinstance(low, int) else 0), (high if isinstance(high, int) else schema.LARGEST)
    tensors = module.graph.tensor_values.values()
    sizes = [*module.graph.sym_int_values.values(), *(size for meta in tensors for size in meta.sizes)]
    symbols = dict(pair for size in sizes if (pair := schema.symbol_in(size)))
    by_size = (schema.data_dependent_symbols(size) for meta in tensors for size in (*meta.sizes, *meta.strides))
    data_dependent = list(dict.fromkeys(symbol for each in by_size for symbol in each))
    largest = {symbol: ranges[symbol][1] for symbol in data_dependent if symbol in ranges}
    return Program(
        graph=module.graph,
        inputs=tuple(_inputs(module, weights)),
        outputs=tuple([pair for each in module.signature.output_specs for pair in each.items()]),
        symbols={symbol: high for symbol, high in largest.items() if high < LEAST_UNBOUNDED} | symbols,
        ranges=ranges,
        data_dependent=tuple([symbol for symbol in data_dependent if symbol not in symbols]),
    )


def _parts(archive: zipfile.ZipFile) -> tuple[schema.Document, dict[str, tuple[str, schema.Weight]]]:
    """Return the program's JSON, and the parameters, buffers and constants: name → ``(member, entry)``."""
    names = archive.namelist()
    repeated = next((name for name, after in pairwise(sorted(names)) if name == after), None)
    if repeated is not None:  # zip readers differ in which member they open
        raise UnreadableInput(f"the archive contains the member {repeated!r} twice.", hint=COPY)
    programs = [n for n in names if n.endswith(OLDER_PROGRAM) or n.split("/")[-2:] == ["models", "model.json"]]
    programs = programs or [name for name in names if name.endswith(".json") and name.split("/")[-2:-1] == ["models"]]
    if len(programs) != 1:
        what = f"the archive contains {f'{len(programs)} programs' if programs else 'no program'} under models/."
        raise UnreadableInput(what, hint="Save one program with torch.export.save.")
    document = _decoded(archive, programs[0], schema.Document)
    weights: dict[str, tuple[str, schema.Weight]] = {}
    for table in reversed(WEIGHT_TABLES):  # an entry of the first table replaces one of the second
        name = next((name for name in names if name.endswith(table)), None)
        if name is not None:
            folder, config = name.rpartition("/")[0], _decoded(archive, name, schema.Weights).config
            weights |= {weight: (f"{folder}/{each.path_name}", each) for weight, each in config.items()}
    return document, weights


def _inputs(module: schema.Module, weights: Mapping[str, tuple[str, schema.Weight]]) -> Iterator[InputTensor]:
    specs = module.signature.input_specs
    try:  # the call signature has the names of the arguments and their nesting
        signature = module.module_call_graph[0]["signature"]
        positional, by_name = msgspec.json.decode(signature["in_spec"])[1]["children_spec"]
        argument_names = signature.get("forward_arg_names") or ()
        paths = [
            path
            for k, child in enumerate(positional["children_spec"])
            for path in _leaves(child, str(argument_names[k]) if k < len(argument_names) else f"input_{k}", 0)
        ]
        paths += _leaves(by_name, "", 0)
    except (RecursionError, ValueError, TypeError, KeyError, IndexError, AttributeError):
        paths = []  # the inputs keep their names in the graph
    arguments = [k for k, spec in enumerate(specs) if "user_input" in spec or "constant_input" in spec]
    labels = dict(zip(arguments, paths, strict=True)) if len(arguments) == len(paths) else {}
    for k, value in enumerate(module.graph.inputs):
        name = schema.IoSpec(value).tensor if "as_tensor" in value else ""
        kind, spec = next(iter(specs[k].items() if k < len(specs) else ()), ("", schema.IoSpec()))
        if name and kind in ROLES:
            target = spec.target or name
            member, entry = weights.get(target, ("", schema.Weight()))
            yield InputTensor(name, target, ROLES[kind], name, member, bool(member) and not entry.use_pickle)
        elif name:
            yield InputTensor(name, name, "input", labels.get(k, name))


def _leaves(spec: Any, path: str, depth: int) -> Iterator[str]:
    if depth > DEEPEST:
        raise ValueError("nested too deeply")
    if spec["type"] is None:
        yield path
        return
    children = spec["children_spec"]
    keys = [str(k) for k in range(len(children))]
    if spec["type"].endswith("dict"):
        context = msgspec.json.decode(spec["context"])
        keys = [str(key) for key in context] if isinstance(context, list) and len(context) == len(keys) else keys
    for key, child in zip(keys, children, strict=True):
        yield from _leaves(child, f"{path}.{key}" if path else key, depth + 1)


def _decoded(archive: zipfile.ZipFile, name: str, schema_type: Any) -> Any:
    ceiling = limits.ceiling(limits.UNPACKED_BYTES)
    try:
        with archive.open(name) as member:
            data = member.read(ceiling + 1)
    except _DAMAGE as error:
        raise UnreadableInput(f"the member {name!r} of the zip archive is cut off or damaged.", COPY) from error
    if len(data) > ceiling:
        raise limits.limit_error(limits.UNPACKED_BYTES, f"the archive's member {name!r}")
    try:
        return msgspec.json.decode(data, type=schema_type)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else error
        what = f"the exported program is not laid out as PyTorch writes it: {why}."
        raise UnreadableInput(what, "Save it with torch.export.save of PyTorch 2.8 or newer.", place=name) from error


def in_member(archive: Path | bytes, member: str, start: int, length: int) -> Iterator[bytes]:
    """Yield the bytes ``[start, start + length)`` of a member of a zip archive, in a file or in memory."""
    try:
        with _opened(archive) as opened, opened.open(member) as file:
            file.seek(start)
            remaining = length
            while remaining:
                data = file.read(min(CHUNK, remaining))
                if not data:
                    raise truncation_error(f"the member {member!r}", start + length, file.tell())
                remaining -= len(data)
                yield data
    except (KeyError, *_DAMAGE) as error:
        raise UnreadableInput(f"the member {member!r} cannot be read: {error}.", hint=COPY) from error


def _opened(archive: Path | bytes) -> zipfile.ZipFile:
    return zipfile.ZipFile(archive if isinstance(archive, Path) else io.BytesIO(archive))
