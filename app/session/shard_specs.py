"""Shard specs of the view Ranks: presets, JSON text, and the coordinates of a rank."""

from fnmatch import fnmatchcase
from typing import Any

import msgspec

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.graph.model import ARENA_OF_ROLE, Graph
from tmmu_core.graph.quantities import short_bytes
from tmmu_core.graph.sharding.shard_spec import ShardSpec
from tmmu_core.plans.making.plan_sets import RankPlans
from tmmu_core.plans.making.request_options import read_json_object

MOST_RANKS = 16_384  # maximum number of ranks on the page Scale

MEGATRON: tuple[tuple[str, int], ...] = (
    ("*.c_attn.weight", 1),
    ("*.attn.c_proj.weight", 0),
    ("*.c_fc.weight", 1),
    ("*.mlp.c_proj.weight", 0),
    ("*.[qkv]_proj.weight", 0),
    ("*.o_proj.weight", 1),
    ("*.gate_proj.weight", 0),
    ("*.up_proj.weight", 0),
    ("*.down_proj.weight", 1),
    ("*.output.dense.weight", 1),
)
"""``(pattern of the weight's id, axis to split)`` of tensor parallelism (Shoeybi et al., 2019): the first matrix of a
pair is split along its output axis, the second along its input axis."""


def presets(graph: Graph) -> dict[str, tuple[str, str]]:
    """Return name → ``(explanation, shard spec as JSON)``. Mesh axes of the graph that a preset omits have size 1."""
    graph_axes = sorted({tensor.shard.mesh for tensor in graph.tensors if tensor.shard is not None})
    ids = [tensor.id for tensor in graph.tensors if tensor.role == "parameter"]

    def mesh(**axes: int) -> list[dict[str, Any]]:
        sizes = {name: 1 for name in graph_axes if name not in axes} | axes
        return [{"name": name, "size": size} for name, size in sizes.items()]

    def split(mesh_axis: str, axis: int = 0) -> dict[str, Any]:
        return {"axis": axis, "mesh": mesh_axis}

    matching = [(pattern, axis) for pattern, axis in MEGATRON if any(fnmatchcase(name, pattern) for name in ids)]
    rules = [{"match": pattern, **split("tp", axis)} for pattern, axis in matching]
    weight_rules: dict[str, Any] = {"rules": rules} if rules else {}
    tensor_parallel: dict[str, Any] = {kind: split("tp") for kind in ("parameters", "optimizer_state")}
    tensor_parallel |= {"activations": "follow", "gradients": "follow"}
    fully_sharded = {kind: split("dp") for kind in ("parameters", "gradients", "optimizer_state")}
    tensor_and_data_parallel = fully_sharded | {"parameters": split("tp"), "activations": "follow"}
    tensor_parallel_text = (
        "parameters, heads, MLP activations and any optimizer state are split; each rank has the whole residual stream"
        if rules
        else "parameters and optimizer state are split by rows; activations and gradients where operators keep it"
    )
    by_rows = "parameters, gradients and optimizer state are split by rows"
    specs = {
        "Tensor parallel 8": (tensor_parallel_text, {"mesh": mesh(tp=8), **weight_rules, "contracts": tensor_parallel}),
        "Fully sharded 8": (by_rows, {"mesh": mesh(dp=8), "contracts": fully_sharded}),
        "Data 128 × tensor 8": (
            "1,024 ranks: parameters are split over 8 ranks, gradients and optimizer state over 128",
            {"mesh": mesh(dp=128, tp=8), **weight_rules, "contracts": tensor_and_data_parallel},
        ),
        "Fully sharded 1,024": (by_rows, {"mesh": mesh(dp=1024), "contracts": fully_sharded}),
    }
    return {name: (explanation, msgspec.json.encode(spec).decode()) for name, (explanation, spec) in specs.items()}


def spec_of(text: str) -> dict[str, Any]:
    """Parse the JSON object of a spec; ``read_spec`` checks its fields. Raises ``UnreadableInput`` for other texts."""
    if not text.strip():
        rule = '"rules": [{"match": "*.weight", "axis": 0, "mesh": "tp"}]'
        hint = f'Write {{"mesh": {{"tp": 8}}, {rule}}}, or choose a preset.'
        raise UnreadableInput("a rank is chosen without a shard spec.", source="shard spec", hint=hint)
    return read_json_object(text, "shard spec")


def compact(text: str) -> str:
    """Return a spec without white space, for a link; unchanged if it is not JSON."""
    try:
        return msgspec.json.format(text.encode(), indent=-1).decode()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text


def coordinates_text(spec: ShardSpec, rank: int) -> str:
    """Return the coordinates of a rank on the axes with several ranks: ``dp = 3, tp = 1``, or ``alone``."""
    coordinates = spec.coordinates(rank)
    return ", ".join(f"{name} = {coordinates[name]}" for name, size in spec.mesh if size > 1) or "alone"


def whole_parameters(ranks: RankPlans) -> str:
    """Return the parameters that every rank has whole: ``161 of 267 parameters (1.20 MiB)``; "" for none."""
    solution = ranks.classes[0].solution
    whole = {t.id: t.shape for t in ranks.graph.tensors if ARENA_OF_ROLE[t.role] == "parameters"}
    rows = [solution.plan.row_of.get(t.id) for t in solution.graph.tensors if whole.get(t.id) == t.shape]
    nbytes = sum(int(solution.plan.size[row]) for row in rows if row is not None)
    return f"{len(rows):,} of {len(whole):,} parameters ({short_bytes(nbytes)})" if rows else ""
