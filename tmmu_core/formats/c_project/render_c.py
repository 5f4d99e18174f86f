"""Write the render plan in C: a header with sizes, alignments, offsets and the hash, and a source with the tables.

The header is self-checking: static assertions compare every offset, size and alignment with its region, so that an
edited or truncated header does not compile. Header and source are C11 and C++17 without warnings. Arenas, blobs and
hydration are in :mod:`~tmmu_core.formats.c_project.c_export`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tmmu_core.formats.c_project.c_names import RegionNames, c_prefix, identifier
from tmmu_core.formats.c_project.render_plan import RenderArena, RenderMemoryPlan

STATUSES = ("OK", "ERROR_REGION", "ERROR_UNBOUND", "ERROR_ALIGNMENT", "ERROR_BLOB_HASH")
"""Return values of the C functions, from 0."""


def c_header(render: RenderMemoryPlan) -> str:
    """Return the header ``<prefix>_memory.h``."""
    prefix, upper = render.prefix, render.prefix.upper()
    lines = [
        "/* Generated from a memory plan. Do not edit: the assertions below would fail. */",
        f"#ifndef {upper}_MEMORY_H",
        f"#define {upper}_MEMORY_H",
        "",
        "#include <stddef.h>",
        "#include <stdint.h>",
        "",
        "#ifdef __cplusplus",
        f"#define {upper}_ASSERT(holds, otherwise) static_assert(holds, otherwise)",
        'extern "C" {',
        "#else",
        f"#define {upper}_ASSERT(holds, otherwise) _Static_assert(holds, otherwise)",
        "#endif",
        "",
        f'#define {upper}_PLAN_HASH "{render.plan_hash}"',
        f"#define {upper}_PLAN_HASH_32 0x{render.plan_hash[:8]}u",
        "",
        "typedef enum {",
        *(f"    {name.stem} = {arena.region_id}," for arena, name in _named_arenas(render)),
        f"    {upper}_REGION_COUNT = {len(render.all_arenas)}",
        f"}} {prefix}_region_t;",
        "",
        *_places(render),
        "",
        "typedef struct {",
        "    uint32_t region;",
        "    uint64_t offset;",
        "    uint64_t size;",
        f"}} {prefix}_slot_t;",
        "",
        f"#define {upper}_TENSOR_COUNT {len(render.tensors)}",
        f"extern const uint64_t {prefix}_region_size[];",
        f"extern const uint64_t {prefix}_region_alignment[];",
        f"extern const {prefix}_slot_t {prefix}_tensors[];",
        f"extern const char {prefix}_plan_hash[];",
        "",
        "/* Named by the regions and by where tensors lie: what refers to it links with this plan, or not at all. */",
        f"#define {upper}_PLAN_SYMBOL {plan_symbol(render)}",
        f"extern const uint32_t {plan_symbol(render)};",
        "",
        "/* Where tensor `index` lies, once the caller has bound each region to memory; NULL for a bad index. */",
        f"void *{prefix}_address(uint8_t *const bases[], size_t index);",
        "",
        *_declared(render),
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "",
        f"#endif /* {upper}_MEMORY_H */",
        "",
    ]
    return "\n".join(lines)


def _named_arenas(render: RenderMemoryPlan) -> Iterator[tuple[RenderArena, RegionNames]]:
    return zip(render.all_arenas, render.region_names, strict=True)


def _places(render: RenderMemoryPlan) -> list[str]:
    """Return the sizes, alignments and offsets of regions and tensors, with their assertions."""
    upper, names = render.prefix.upper(), render.region_names
    lines: list[str] = []
    for arena, name in _named_arenas(render):
        region = name.stem
        staged = f", staged from {arena.source_memory}" if arena.is_staged else ""
        lines += [
            f"/* {comment(arena.role)} in {comment(arena.memory)}{comment(staged)} */",
            f"#define {region}_SIZE {literal(arena.size)}",
            f"#define {region}_ALIGNMENT {literal(arena.alignment)}",
            f'{upper}_ASSERT(({region}_ALIGNMENT & ({region}_ALIGNMENT - 1u)) == 0u, "{region}: alignment");',
        ]
    lines.append("")
    for tensor in render.tensors:
        stem, region = render.tensor_stems[tensor.tensor_id], names[tensor.region_id].stem
        lines += [
            f"/* {comment(tensor.tensor_id)} */",
            f"#define {stem}_REGION {region}",
            f"#define {stem}_OFFSET {literal(tensor.offset)}",
            f"#define {stem}_SIZE {literal(tensor.size)}",
            f'{upper}_ASSERT({stem}_OFFSET + {stem}_SIZE <= {region}_SIZE, "{stem}: past its region");',
            f'{upper}_ASSERT({stem}_OFFSET % {literal(tensor.alignment)} == 0u, "{stem}: alignment");',
        ]
    return lines


def _declared(render: RenderMemoryPlan) -> list[str]:
    """Return the declarations of the arenas' source."""
    prefix, upper = render.prefix, render.prefix.upper()
    blobs = [render.region_names[region].blob for region in render.blob_of]
    return [
        "typedef enum {",
        *(f"    {upper}_{status} = {k}," for k, status in enumerate(STATUSES[:-1])),
        f"    {upper}_{STATUSES[-1]} = {len(STATUSES) - 1}",
        f"}} {prefix}_status_t;",
        "",
        "/* The regions' memory, by region id; a cold constant's is read only. NULL where the caller binds it. */",
        f"extern uint8_t *{prefix}_arena_buffers[];",
        *(f"extern const uint8_t {blob}[];" for blob in blobs),
        "",
        "/* Give a region its memory, or a staged region the bytes that it is hydrated from. */",
        f"{prefix}_status_t {prefix}_bind({prefix}_region_t region, void *base);",
        f"{prefix}_status_t {prefix}_bind_source({prefix}_region_t region, const void *source);",
        "",
        "/* Whether the model writes the region; constants it only reads. */",
        f"int {prefix}_is_written({prefix}_region_t region);",
        "",
        "/* Before the first run: check every constant's bytes by their hash, and copy those that are staged. */",
        f"{prefix}_status_t {prefix}_hydrate_constants(void);",
        f"void {prefix}_sha256(const void *data, uint64_t size, uint8_t digest[32]);",
        "",
    ]


def c_source(render: RenderMemoryPlan) -> str:
    """Return the source ``<prefix>_memory.c``: the tables, in region and tensor-id order."""
    prefix, upper = render.prefix, render.prefix.upper()

    def table(kind: str, name: str, entries: list[str]) -> list[str]:
        # C has no empty arrays; a plan without tensors keeps one entry that nothing counts.
        return [f"const {kind} {prefix}_{name}[] = {{", *(f"    {entry}," for entry in entries), "};", ""]

    regions = [name.stem for name in render.region_names]
    stems = [render.tensor_stems[tensor.tensor_id] for tensor in render.tensors]
    slots = [f"{{(uint32_t){stem}_REGION, {stem}_OFFSET, {stem}_SIZE}}" for stem in stems]
    lines = "\n".join(
        [
            "/* Generated from a memory plan. */",
            f'#include "{prefix}_memory.h"',
            "",
            *table("uint64_t", "region_size", [f"{region}_SIZE" for region in regions] or ["0"]),
            *table("uint64_t", "region_alignment", [f"{region}_ALIGNMENT" for region in regions] or ["0"]),
            *table(f"{prefix}_slot_t", "tensors", slots or ["{0u, 0u, 0u}"]),
            f"const char {prefix}_plan_hash[] = {upper}_PLAN_HASH;",
            f"const uint32_t {plan_symbol(render)} = {upper}_PLAN_HASH_32;",
            "",
            f"void *{prefix}_address(uint8_t *const bases[], size_t index) {{",
            *(_ADDRESS if slots else ["    (void)bases;", "    (void)index;", "    return NULL;"]),
            "}",
            "",
        ]
    )
    return lines.replace("$P$", upper).replace("$p$", prefix)


_ADDRESS = [
    "    if (index >= (size_t)$P$_TENSOR_COUNT || bases[$p$_tensors[index].region] == NULL) {",
    "        return NULL;",
    "    }",
    "    return bases[$p$_tensors[index].region] + (size_t)$p$_tensors[index].offset;",
]


def plan_symbol(render: RenderMemoryPlan) -> str:
    """Return the symbol that identifies these arenas and the place of every tensor."""
    return f"{render.prefix}_plan_{render.plan_hash[:16]}_{render.tensor_layout_hash[:16]}"


def literal(value: int) -> str:
    """Return a uint64 literal in C."""
    return f"UINT64_C({value})"


def comment(text: str) -> str:
    """Return free text that is safe inside of a C comment: it cannot end or open a comment, or splice lines."""
    plain = "".join(c if c.isprintable() else " " for c in text).replace("\\", "/")
    return re.sub(r"(?<=\*)(?=/)|(?<=/)(?=\*)|(?<=\?)(?=\?)", " ", plain)


__all__ = ["STATUSES", "c_header", "c_prefix", "c_source", "comment", "identifier", "literal", "plan_symbol"]
