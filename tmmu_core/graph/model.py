"""The types of a graph: tensors, nodes, dimensions and arenas, all frozen.

Field names are those of the native format (contract §8), which ``graph/native`` reads and writes. The garbage
collector does not track the small types (``gc=False``): they contain no cycles, and a million objects slow it down.
"""

from typing import Any, Literal, get_args

import msgspec

from tmmu_core.base.strict import register_types

Phase = Literal["forward", "backward", "optimizer"]
Mode = Literal["forward", "backward", "inference"]
Preset = Literal["train_full", "inference", "remat_enabled"]
Role = Literal[
    "activation", "input", "output", "workspace", "gradient", "parameter", "buffer", "constant", "optimizer_state"
]

MODES: tuple[Mode, ...] = get_args(Mode)
PRESETS: tuple[Preset, ...] = get_args(Preset)
PHASES: tuple[Phase, ...] = get_args(Phase)
ROLES: tuple[Role, ...] = get_args(Role)
PERSISTENT_ROLES: frozenset[str] = frozenset({"parameter", "buffer", "constant", "optimizer_state"})

ShapeFrom = Literal["declared", "onnx", "symbolic", "measured"]
"""Source of a shape: the file, the onnx package's inference, onnxruntime's symbolic inference, or one run."""

INPUTS_STEP = "@inputs"
"""Name of step 0 of a graph with ``inputs``; the step writes all of them. Orders and hashes do not contain it."""

GRAPH_SCHEMA = "uml_model_ir/1"
Inplace = str | tuple[tuple[int, int], ...]

HASHED_IN_PARAMS = ("scope", "recomputes", "offloads")
"""Fields of a node that are hashed as part of its ``params``."""


class View(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """Bytes ``[byte_offset, byte_offset + byte_length)`` of another tensor (contract §3)."""

    base_tensor_uid: str
    byte_offset: int = 0
    byte_length: int | None = None
    """Bytes; default: the size of the view's shape and dtype."""
    stride_desc: tuple[int, ...] | None = None
    """Strides of the axes. With a stride of 0, ``byte_length`` may be smaller than the view's size."""


class Shard(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """The split of a tensor's ``axis`` over the mesh axis ``mesh`` (TMMU v2 II.I)."""

    axis: int
    mesh: str


class Tensor(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """One tensor. Its size depends on ``shape`` and ``dtype`` only (``graph/dtypes.py``).

    A dimension is an integer ≥ 0 or the name of one of the graph's ``dims``.
    """

    id: str
    shape: tuple[int | str, ...] = ()
    dtype: str = "float32"
    role: Role = "activation"
    alias_group_id: str | None = None
    view: View | None = None
    saved_for_backward: bool = False
    remat: bool = False
    must_not_alias: tuple[str, ...] = ()
    alignment: int | None = None
    """Bytes, a power of two; default: the arena's."""
    arena: str | None = None
    """Name of the arena; default: by role (contract §4)."""
    shard: Shard | None = None

    @property
    def persistent(self) -> bool:
        """Whether the tensor is live at every step (contract §1)."""
        return self.role in PERSISTENT_ROLES


class Node(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """One operator call: it reads all ``inputs``, then writes its ``outputs``, in one step.

    ``inplace`` permits in-place reuse: ``"any"``, ``"none"`` or ``[input_index, output_index]`` pairs. The default,
    ``None``, permits the same as ``"any"``, but lint reports each reuse that only the default permits. The tensors of
    an ``in_place_write`` pair share a storage. ``grad_edges`` are ``[input_index, output_index]`` pairs along which
    gradients flow back; without pairs, they flow from every output to every differentiable input.
    """

    node_id: str
    instr: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    phase: Phase = "forward"
    inplace: Inplace | None = None
    in_place_write: tuple[tuple[int, int], ...] = ()
    params: dict[str, Any] = {}
    """Attributes of the operator, shown and hashed. Planning does not use them."""
    grad_edges: tuple[tuple[int, int], ...] = ()
    unplanned: tuple[str, ...] = ()
    """Parts of the node that a plan gives no memory, such as a loop body that is not in the graph."""
    scope: str = ""
    """Name of the loop or branch body that contains the node; ``outer/inner`` for a nested body."""
    recomputes: str = ""
    """Id of the node that this node runs again."""
    offloads: str = ""
    """Id of the tensor that this node copies to another memory, or back."""


class Dim(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """Smallest and largest size of a named dimension. Plans use ``max`` if no size is set or assumed."""

    min: int = 0
    max: int = 0


class Origin(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """Module and source line of a node, from the model file."""

    module: tuple[str, ...] = ()
    """Path of the module: ``("transformer", "h", "0", "mlp")``; empty for the outermost module."""
    source: str = ""
    """Source line, ``gpt2/model.py:12``; empty if unknown."""


class StorageOrigin(msgspec.Struct, frozen=True, gc=False):
    """Origin, operator and phase of the node that writes a storage, for a plan that is read without a graph."""

    origin: Origin = Origin()
    operator: str = ""
    """Operation name of the framework: ``dot_general``."""
    phase: Phase | None = None
    """``None`` if unknown."""


class Graph(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, weakref=True):
    """The graph to plan. Tensor ids and node ids are unique texts; ids compare by their UTF-8 bytes."""

    tensors: tuple[Tensor, ...] = ()
    nodes: tuple[Node, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    ir_schema: str = ""
    name: str = ""
    dims: dict[str, Dim] = {}
    assumed: dict[str, int] = {}
    """Named dimension → size that the reader assumed. Plans use it unless the caller sets a size."""
    ranges: dict[str, Dim] = {}
    """Named dimension → range of sizes that the model file allows. Neither hashed nor in a native file."""
    notes: tuple[str, ...] = ()
    """Sentences of the reader, such as how many tensors lack a dtype. Neither hashed nor in a native file."""
    replan_policy: Literal["ABORT", "REPLAN_AT_SAFEPOINT"] = "ABORT"
    safepoints: tuple[str, ...] = ()
    execution_order: tuple[str, ...] | None = None
    sidecar: str = ""
    """Name of the file with the constants' bytes (safetensors, by tensor id), in the same folder. Not hashed."""
    shapes_from: dict[str, ShapeFrom] = {}
    """Tensor id → source of its shape; empty if the model file declares all shapes. Not hashed."""
    planner: str = ""
    """Planner for which the graph was fitted: the default planner of this graph. Empty: the general default."""
    planner_options: dict[str, Any] = {}  # options of the default planner of this graph
    alignment: int = 0
    """Default alignment of every arena in bytes, for the runtime of the model; 0: the general default, 128."""
    origins: dict[str, Origin] = {}
    """Node id → module and source line, if known. Not hashed."""

    def __repr__(self) -> str:
        size = f"{len(self.nodes):,} nodes, {len(self.tensors):,} tensors"
        return f"<Graph {self.name[:60]!r}: {size}>"


class Arena(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One named region of memory (contract §4), in bytes; ``page_size`` 0: no pages."""

    capacity_bytes: int = 2**64 - 1
    alignment_bytes: int = 128
    page_size: int = 0


register_types(View, Shard, Tensor, Node, Dim, Origin, StorageOrigin, Graph, Arena)

ArenaConfig = dict[str, Arena]
"""Arena name → arena. Empty: the arenas of :data:`DEFAULT_ARENAS` without limits."""

OFFLOAD_ARENA = "offload"
"""Name of the arena that holds offloaded tensors while they are idle. It needs no declaration."""

ONE_MEMORY = "memory"
"""Name of the arena of all tensors in a plan for one memory (contract §12)."""

DEFAULT_ARENAS: tuple[str, ...] = ("activations", "gradients", "parameters")
ARENA_OF_ROLE = dict.fromkeys(("activation", "input", "output", "workspace"), "activations")
ARENA_OF_ROLE |= {"gradient": "gradients", **dict.fromkeys(PERSISTENT_ROLES, "parameters")}
"""Role → its default arena."""
