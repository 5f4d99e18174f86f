"""The render plan in C: a header with sizes, alignments, offsets and the hash, and the source with the arenas.

The header is self-checking: every offset, size and alignment stands in a ``_Static_assert`` against its region, so a
compiler refuses a header that was edited or cut. Both files are C11 and warning-free.
"""

from __future__ import annotations

from tmmu_core.plan.formats.render import RenderArena, RenderMemoryPlan, identifier


def c_header(render: RenderMemoryPlan) -> str:
    """The header, named ``<prefix>_memory.h``."""
    prefix, upper = _prefix(render), _prefix(render).upper()
    symbols = tensor_symbols(render)
    lines = [
        "/* Generated from a memory plan. Do not edit: the assertions below would fail. */",
        f"#ifndef {upper}_MEMORY_H",
        f"#define {upper}_MEMORY_H",
        "",
        "#include <stddef.h>",
        "#include <stdint.h>",
        "",
        f'#define {upper}_PLAN_HASH "{render.plan_hash}"',
        f"#define {upper}_PLAN_HASH_32 0x{render.plan_hash[:8]}u",
        "",
        "typedef enum {",
        *(f"    {_region(render, arena)} = {arena.region_id}," for arena in render.arenas),
        f"    {upper}_REGION_COUNT = {len(render.arenas)}",
        f"}} {prefix}_region_t;",
        "",
    ]
    for arena in render.arenas:
        region = _region(render, arena)
        staged = f", staged from {arena.source_memory}" if arena.is_staged else ""
        lines += [
            f"/* {_comment(arena.role)} in {_comment(arena.memory)}{_comment(staged)} */",
            f"#define {region}_SIZE {_literal(arena.size)}",
            f"#define {region}_ALIGNMENT {_literal(arena.alignment)}",
            f'_Static_assert(({region}_ALIGNMENT & ({region}_ALIGNMENT - 1u)) == 0u, "{region}: alignment");',
        ]
    lines.append("")
    for tensor in render.tensors:
        name, region = f"{upper}_{symbols[tensor.tensor_id]}", _region(render, render.arenas[tensor.region_id])
        lines += [
            f"/* {_comment(tensor.tensor_id)} */",
            f"#define {name}_REGION {region}",
            f"#define {name}_OFFSET {_literal(tensor.offset)}",
            f"#define {name}_SIZE {_literal(tensor.size)}",
            f'_Static_assert({name}_OFFSET + {name}_SIZE <= {region}_SIZE, "{name}: past its region");',
            f'_Static_assert({name}_OFFSET % {_literal(tensor.alignment)} == 0u, "{name}: alignment");',
        ]
    lines += [
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
        "/* Where tensor `index` lies, once the caller has bound each region to memory; NULL for a bad index. */",
        f"void *{prefix}_address(uint8_t *const bases[], size_t index);",
        "",
        f"#endif /* {upper}_MEMORY_H */",
        "",
    ]
    return "\n".join(lines)


def c_source(render: RenderMemoryPlan) -> str:
    """The source, named ``<prefix>_memory.c``: the tables behind the header, in region and tensor-id order."""
    prefix, upper = _prefix(render), _prefix(render).upper()
    symbols = tensor_symbols(render)

    def table(kind: str, name: str, entries: list[str]) -> list[str]:
        # C has no empty arrays; a plan without tensors keeps one entry that nothing counts.
        return [f"const {kind} {prefix}_{name}[] = {{", *(f"    {entry}," for entry in entries or ["{0}"]), "};", ""]

    regions = [_region(render, arena) for arena in render.arenas]
    slots = []
    for tensor in render.tensors:
        name = f"{upper}_{symbols[tensor.tensor_id]}"
        slots.append(f"{{{name}_REGION, {name}_OFFSET, {name}_SIZE}}")
    return "\n".join(
        [
            "/* Generated from a memory plan. */",
            f'#include "{prefix}_memory.h"',
            "",
            *table("uint64_t", "region_size", [f"{region}_SIZE" for region in regions] or ["0"]),
            *table("uint64_t", "region_alignment", [f"{region}_ALIGNMENT" for region in regions] or ["0"]),
            *table(f"{prefix}_slot_t", "tensors", slots),
            f"const char {prefix}_plan_hash[] = {upper}_PLAN_HASH;",
            "",
            f"void *{prefix}_address(uint8_t *const bases[], size_t index) {{",
            f"    if (index >= (size_t){upper}_TENSOR_COUNT) {{",
            "        return NULL;",
            "    }",
            f"    return bases[{prefix}_tensors[index].region] + {prefix}_tensors[index].offset;",
            "}",
            "",
        ]
    )


def tensor_symbols(render: RenderMemoryPlan) -> dict[str, str]:
    """Tensor id → its part of a C name, upper case; ids that look alike in C are told apart by their position."""
    plain = {tensor.tensor_id: identifier(tensor.tensor_id).upper() for tensor in render.tensors}
    seen: dict[str, int] = {}
    for symbol in plain.values():
        seen[symbol] = seen.get(symbol, 0) + 1
    return {
        tensor_id: f"T{at}_{symbol}" if seen[symbol] > 1 else f"T_{symbol}"
        for at, (tensor_id, symbol) in enumerate(plain.items())
    }


def _prefix(render: RenderMemoryPlan) -> str:
    return c_prefix(render.module_prefix)


def c_prefix(module_prefix: str) -> str:
    """What the names in C begin with, and the names of both files: ``<c_prefix>_memory.h`` and ``.c``."""
    name = identifier(module_prefix)
    return f"m_{name}" if name[0].isdigit() else name


def _region(render: RenderMemoryPlan, arena: RenderArena) -> str:
    return f"{_prefix(render).upper()}_REGION_{arena.role.upper()}_{identifier(arena.memory).upper()}"


def _literal(value: int) -> str:
    return f"UINT64_C({value})"


def _comment(text: str) -> str:
    """Free text inside a C comment: nothing in it may end the comment, open another, or splice lines."""
    return text.replace("*/", "* /").replace("/*", "/ *").replace("\\", "/").replace("\n", " ").replace("??", "? ?")
