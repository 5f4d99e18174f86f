"""Checks of graphs and arena configurations (contract §4), and the sizes of named dimensions.

An error names the node, the tensor or the arena, the place in the file and the fix.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import msgspec

from tmmu_core.base import strict
from tmmu_core.base.errors import U64_MAX, AlignmentViolation, AllocationOverflow, InvalidIrShapes
from tmmu_core.base.limits import ARENAS, ceiling, limit_error
from tmmu_core.graph import dtypes, model
from tmmu_core.graph.model import Arena, ArenaConfig, Dim, Graph, ShapeFrom, Tensor
from tmmu_core.graph.quantities import pair_texts

LARGEST_SIZE = 1 << 24  # default maximum of :func:`size_range`
SHAPE_SOURCES: dict[ShapeFrom, str] = {"declared": "declared", "onnx": "inferred by onnx"}
SHAPE_SOURCES |= {"symbolic": "inferred by onnxruntime", "measured": "measured in one run"}


def refuse(reason: str, path: str, message: str, hint: str, **diagnostics: str) -> NoReturn:
    """Raise ``InvalidIrShapes``. Empty ``diagnostics`` are omitted."""
    known: dict[str, Any] = {key: value for key, value in diagnostics.items() if value}
    raise InvalidIrShapes(message, hint=hint, reason=reason, path=path, **known)


def id_hint(tensor: str) -> str:
    """Return the hint of an error about an unknown tensor."""
    return f"Add a tensor with the id {tensor!r}, or correct the name."


def refuse_duplicate(ids: Sequence[str], noun: str, place: str) -> NoReturn:
    """Raise for the first duplicate in ``ids``; ``place``: JSON path of an id, with ``{}`` for its number."""
    first: dict[str, int] = {}
    i, name = next((i, name) for i, name in enumerate(ids) if first.setdefault(name, i) != i)
    message = f"the {noun} {name!r} is listed twice, at {place.format(first[name])} and {place.format(i)}."
    hint = "List it once." if noun.startswith("graph ") else f"Give every {noun} an id of its own."
    key, reason = "node_id" if noun == "node" else "tensor", f"duplicate_{noun.removeprefix('graph ')}"
    refuse(reason, place.format(i), message, hint, **{key: name})


def size_of(tensor: Tensor, shape: tuple[int, ...], i: int) -> int:
    """Return the bytes of the i-th tensor; errors name the tensor and its place."""
    try:
        return dtypes.tensor_bytes(shape, tensor.dtype)
    except (InvalidIrShapes, AllocationOverflow) as error:
        axis = error.diagnostics.pop("axis", None)
        place = "dtype" if error.diagnostics.get("reason") == "unknown_dtype" else "shape"
        error.fill(tensor=tensor.id, path=f"$.tensors[{i}].{place}" + (f"[{axis}]" if axis is not None else ""))
        error.message = f"the tensor {tensor.id!r}: {error.message}"
        raise


def resolve_shape(tensor: Tensor, sizes: dict[str, int], i: int) -> tuple[int, ...]:
    """Return the i-th tensor's shape with named dimensions resolved. Raises ``InvalidIrShapes`` (``unknown_dim``)."""
    for axis, dim in enumerate(tensor.shape):
        if isinstance(dim, str) and dim not in sizes:
            message = f"the tensor {tensor.id!r} has the dimension {dim!r}, which is not declared."
            hint = f'Declare it: "dims": {{"{dim}": {{"min": 1, "max": 8}}}}.'
            refuse("unknown_dim", f"$.tensors[{i}].shape[{axis}]", message, hint, tensor=tensor.id)
    return tuple([sizes[dim] if isinstance(dim, str) else dim for dim in tensor.shape])


def dimension_hint(name: str, known: Collection[str]) -> str:
    """Return the hint of an error about the unknown dimension ``name``."""
    return strict.closest_hint(name, sorted(known)) if known else "All shapes of the graph are fixed."


def resolve_dims(graph: Graph, dims: Mapping[str, int] | None) -> dict[str, int]:
    """Return each dimension's size: from ``dims``, else ``assumed``, else its ``max``. Raises ``InvalidIrShapes``."""
    sizes: dict[str, int] = {}
    for name, dim in graph.dims.items():
        if not 0 <= dim.min <= dim.max:
            message = f"the dimension {name!r} has the invalid range [{dim.min}, {dim.max}]."
            refuse("dim_envelope", f"$.dims.{name}", message, 'Write 0 ≤ "min" ≤ "max".')
        sizes[name] = dim.max
    for name, value in sorted({**graph.assumed, **(dims or {})}.items()):
        if name not in graph.dims:
            message = f"the graph has no dimension {name!r}."
            refuse("unknown_dim", f"$.dims.{name}", message, dimension_hint(name, graph.dims))
        low, high = graph.dims[name].min, graph.dims[name].max
        if not low <= value <= high:
            wider = f"tmmu convert MODEL --dims {name}={min(low, value)}:{max(high, value)} -o GRAPH.json"
            message = f"{name} = {value} is outside the declared range [{low}, {high}]."
            hint = "Choose a size in this range" + (f", or declare a wider range: {wider}" if value >= 0 else ".")
            refuse("dim_out_of_envelope", f"$.dims.{name}", message, hint)
        sizes[name] = value
    return sizes


def assumed_at(graph: Graph, dims: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return the assumed sizes of ``graph`` by name, without the dimensions whose size ``dims`` sets."""
    return {name: size for name, size in sorted(graph.assumed.items()) if name not in (dims or {})}


def size_range(graph: Graph, dim: str) -> Dim:
    """Return the range of sizes that a user can choose for ``dim``."""
    declared = graph.dims[dim]
    if dim in graph.ranges:  # the model can be read again with another size
        return Dim(graph.ranges[dim].min, min(LARGEST_SIZE, graph.ranges[dim].max))
    return Dim(min(1, declared.min), max(LARGEST_SIZE, declared.max)) if dim in graph.assumed else declared


def refuse_unused_dims(graph: Graph, names: Iterable[str]) -> None:
    """Raise ``InvalidIrShapes`` (``unused_dim``) for the first declared dimension in ``names`` without an effect."""
    used = _used_dims(graph)
    for name in names:
        if name in graph.dims and name not in used:
            message = f"no tensor of the graph has the dimension {name!r}, so its size has no effect."
            path, hint = f"$.dims.{name}", dimension_hint(name, used)
            raise InvalidIrShapes(message, reason="unused_dim", node_id="", path=path, hint=hint)


def _used_dims(graph: Graph) -> set[str]:
    if any(node.scope for node in graph.nodes):
        return {*graph.dims}  # any dimension may be the number of iterations of a loop
    return {dim for tensor in graph.tensors for dim in tensor.shape if isinstance(dim, str)} | graph.ranges.keys()


def dims_text(sizes: Mapping[str, int]) -> str:
    """Return sizes in the form of ``--dims``, sorted by name: ``B=1,T=512``."""
    return ",".join(pair_texts(sorted(sizes.items())))


def assumed_text(graph: Graph, dims: Mapping[str, int] | None = None) -> str:
    """List the assumed sizes that ``dims`` does not set, and the option to change them; ``""`` if there are none."""
    sizes = assumed_at(graph, dims)
    listed = ", ".join(f"{name} = {size:,}" for name, size in sizes.items())
    used = _used_dims(graph)
    option = dims_text({name: size for name, size in sizes.items() if name in used})
    how = f"; for other sizes: --dims {option}" if option else ""
    return f"assumed sizes of dynamic dimensions: {listed}{how}" if sizes else ""


def shape_sources_text(graph: Graph) -> str:
    """Return the number of shapes per source; ``""`` if the reader records no sources."""
    counts = Counter(graph.shapes_from.values())
    return ", ".join(f"{counts[source]:,} {text}" for source, text in SHAPE_SOURCES.items() if counts[source])


def read_arenas(config: Mapping[str, Arena | Mapping[str, Any]] | None) -> ArenaConfig:
    """Return the checked arenas by name. Raises ``AlignmentViolation``, ``InvalidIrShapes`` and ``UnreadableInput``."""
    refuse_too_many_arenas(config or {})
    arenas: ArenaConfig = {}
    example = 'Write it as {"capacity_bytes": 1048576, "alignment_bytes": 128, "page_size": 4096}.'
    for name, given in (config or {}).items():
        subject = f"arena {name!r} of the arena configuration"
        try:
            arena = given if isinstance(given, Arena) else msgspec.convert(given, Arena, strict=True)
        except msgspec.ValidationError as error:
            hint = strict.field_hint(error, Arena) or example
            what, field = strict.wrong_field(error)
            raise _invalid(f"{subject}: {what}.", name, "arena_config", hint, field[1:]) from None
        for field, value in msgspec.structs.asdict(arena).items():
            if not 0 <= value <= U64_MAX:
                message = f"{subject}: {field} is {value}, not between 0 and 2^64 − 1."
                raise _invalid(message, name, "arena_config", example, f".{field}")
        check_alignment(arena.alignment_bytes, arena=name)
        arenas[name] = arena
    return arenas


def refuse_unknown_arenas(config: Mapping[str, Any], graph: Graph) -> None:
    """Raise ``InvalidIrShapes`` (reason ``unknown_arena``) for an unused arena whose name resembles a known one."""
    known, unused = unused_arenas(config, graph)
    for name in unused:
        if strict.similar(name, known, 0.6) is not None:  # probably a misspelling
            hint = strict.closest_hint(name, known)
            raise _invalid(f"there is no arena {name!r} in this graph.", name, "unknown_arena", hint)


def unused_arenas(config: Mapping[str, Any], graph: Graph) -> tuple[tuple[str, ...], list[str]]:
    """Return the names to suggest for an unused arena, and the arenas of ``config`` that ``graph`` cannot use."""
    known = (*model.DEFAULT_ARENAS, "optimizer_state", model.OFFLOAD_ARENA)
    if config.keys() <= {*known} or {model.ONE_MEMORY} <= config.keys() <= {model.ONE_MEMORY, model.OFFLOAD_ARENA}:
        return known, []
    known = (*known, *sorted({tensor.arena for tensor in graph.tensors if tensor.arena} - {*known}))
    return known, sorted(config.keys() - {*known})


def refuse_too_many_arenas(config: Mapping[str, Any]) -> None:
    """Raise ``UnreadableInput`` for more arenas than the limit, because each arena costs a pass over all storages."""
    if len(config) > ceiling(ARENAS):
        raise limit_error(ARENAS, "the arena configuration")


def arena_fields(config: Mapping[str, Arena | Mapping[str, Any]] | None) -> dict[str, Any]:
    """Return each arena as a mapping of the given fields, to hash the configuration. Raises as :func:`read_arenas`."""
    read_arenas(config)
    items = (config or {}).items()
    return {name: msgspec.to_builtins(arena) if isinstance(arena, Arena) else dict(arena) for name, arena in items}


def check_alignment(alignment: int, *, arena: str) -> None:
    """Raise ``AlignmentViolation`` unless ``alignment`` (bytes) is a power of two ≥ 1."""
    if alignment < 1 or alignment & (alignment - 1):
        above = 1 << max(alignment, 1).bit_length()
        message = f"arena {arena!r} has the alignment {alignment} B, which is not a power of two."
        hint = f"Use a power of two, such as {above // 2} or {above}."
        raise AlignmentViolation(message, arena=arena, path=f"$.{arena}.alignment_bytes", hint=hint)


def _invalid(message: str, arena: str, reason: str, hint: str, field: str = "") -> InvalidIrShapes:
    return InvalidIrShapes(message, reason=reason, node_id="", arena=arena, path=f"$.{arena}{field}", hint=hint)
