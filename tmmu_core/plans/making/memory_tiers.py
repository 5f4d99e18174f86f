"""Place the storages of a graph in several memories (SRAM, flash …) with ``helia``: an arena per role and memory."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from tmmu_core.base.errors import U64_MAX
from tmmu_core.graph.dtypes import itemsize
from tmmu_core.graph.model import DEFAULT_ARENAS, Arena, ArenaConfig
from tmmu_core.liveness.analyse import analyse
from tmmu_core.liveness.live_model import Liveness, Timeline
from tmmu_core.planners.helia import Facts, Region, place
from tmmu_core.planners.platform import READ_ONLY_ROLES, Memory, Platform, read_platform
from tmmu_core.planners.problem import Packing, Problem, option_error
from tmmu_core.plans.making.plan_rows import arena_problems, without_handoffs


def spread_over_memories(
    timeline: Timeline, options: Mapping[str, Any], config: ArenaConfig
) -> tuple[Liveness, ArenaConfig, list[Problem], list[Packing]]:
    """Return ``(liveness, configuration, problems, packings)`` with the regions as arenas.

    The memories are those of ``options``, else the arenas of the configuration, else one unlimited memory. A tensor
    whose ``arena`` is a memory is placed there. A region (one role in one memory) is the arena ``role@memory``.
    Raises ``ArenaTooSmall`` (capacity 0) for a tensor whose ``arena`` is neither a memory nor a default arena, and
    the errors of ``read_platform`` and ``helia.place``.
    """
    platform = _platform(options, config)
    memory = {m.name: m for m in platform.memories}
    with_reuse = analyse(timeline, dict.fromkeys([*memory, *DEFAULT_ARENAS], Arena()))
    # Exported C code declares a storage with the plan's alignment, which must suffice for the widest element.
    widths = np.array([itemsize(tensor.dtype) for tensor in timeline.graph.tensors], np.uint64)
    members = np.flatnonzero(with_reuse.storage_of >= 0)
    alignment = with_reuse.storages.alignment.copy()
    np.maximum.at(alignment, with_reuse.storage_of[members], widths[members])
    with_reuse = replace(with_reuse, storages=replace(with_reuse.storages, alignment=alignment))
    liveness = without_handoffs(with_reuse)
    in_one_arena = replace(liveness.storages, arena=np.zeros(len(alignment), np.int32))
    all_storages = replace(liveness, arenas=("all",), storages=in_one_arena)
    (problem,) = arena_problems(all_storages, {"all": Arena(alignment_bytes=1)})
    regions = place(problem, [_facts(liveness, s, memory) for s in range(len(problem))], platform)
    by_name = sorted(enumerate(regions), key=lambda item: item[1].name)
    names, arenas = tuple([region.name for _, region in by_name]), np.zeros(len(problem), np.int32)
    offset = np.zeros(len(problem), np.uint64)
    for number, (_, region) in enumerate(by_name):
        rows = list(region.offset)
        arenas[rows], offset[rows] = number, np.array(list(region.offset.values()), np.uint64)
    # helia does not reuse in place. Another planner could do so inside a region, and the lower bounds assume it.
    with_reuse = replace(with_reuse, arenas=names, storages=replace(with_reuse.storages, arena=arenas))
    liveness = without_handoffs(with_reuse, across_arenas=True)
    region_config = {}
    for region in regions:
        of_region = memory[region.memory]
        capacity = U64_MAX if of_region.max_size is None else of_region.max_size
        alignment_bytes = max(platform.min_alignment, of_region.arena_alignment or 1)
        region_config[region.name] = Arena(capacity, alignment_bytes, config.get(region.memory, Arena()).page_size)
    packings = [
        Packing(offset[arenas == number], notes=_notes(region_id, region, memory))
        for number, (region_id, region) in enumerate(by_name)
    ]
    return liveness, region_config, arena_problems(liveness, region_config), packings


def _platform(options: Mapping[str, Any], config: ArenaConfig) -> Platform:
    """Return the platform of the options; the arenas of the configuration, if any, are its memories."""
    if options.get("memories") is not None and config:
        message = "planner 'helia' reads the memories from its option or from the arena configuration, not from both."
        raise option_error(message, "Give alignments and sizes in the option: arena_alignment, max_size.")
    if config:
        memories = [
            Memory(name, None if a.capacity_bytes == U64_MAX else a.capacity_bytes, arena_alignment=a.alignment_bytes)
            for name, a in config.items()
        ]
        options = {**options, "memories": msgspec.to_builtins(memories)}
    return read_platform(options)


def _facts(liveness: Liveness, storage: int, memory: Mapping[str, Memory]) -> Facts:
    """Return the facts of a storage. Roles: ``constant`` (persistent, read-only), ``persistent``, ``scratch``."""
    index, tensors = liveness.timeline.index, liveness.timeline.graph.tensors
    head = int(liveness.storages.head[storage])
    producer = int(index.producer[head])
    operator = liveness.timeline.graph.nodes[producer].instr if producer >= 0 else ""
    role = "scratch"
    if liveness.storages.persistent[storage]:
        members = np.flatnonzero(liveness.storage_of == storage).tolist()
        is_read_only = all(tensors[m].role in READ_ONLY_ROLES and index.producer[m] < 0 for m in members)
        role = "constant" if is_read_only else "persistent"
    arena = tensors[head].arena
    return Facts(role, operator, itemsize(tensors[head].dtype), arena if arena in memory else None)


def _notes(region_id: int, region: Region, memory: Mapping[str, Memory]) -> dict[str, Any]:
    """Return the notes of a region for ``Plan.notes``; ``region_id``: its position in the result of ``place``."""
    fields = ("role", "memory", "source_memory", "alignment", "is_staged")
    return {
        "region_id": region_id,
        **{name: getattr(region, name) for name in fields},
        "writable": memory[region.memory].writable,
        "origin": memory[region.memory].origin,
        "source_origin": memory[region.source_memory].origin,
        "said_by": region.decided_by,
        "spills": region.spills,
    }
