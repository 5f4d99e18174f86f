"""Write the render plan in C, from the files in ``templates/`` (jinja2, with ``«value»`` and ``/*% statement %*/``).

The header is self-checking: static assertions compare every offset, size and alignment with its region, so that an
edited or truncated header does not compile. Header and source are C11 and C++17 without warnings.
"""

import re
from collections.abc import Iterable
from functools import cache
from itertools import chain, count
from pathlib import Path
from typing import Any

import jinja2

from tmmu_core.formats.c_project.render_plan import RenderMemoryPlan

STATUSES = ("OK", "ERROR_REGION", "ERROR_UNBOUND", "ERROR_ALIGNMENT", "ERROR_BLOB_HASH")
"""Return values of the C functions, from 0."""


def literal(value: int) -> str:
    """Return a uint64 literal in C."""
    return f"UINT64_C({value})"


def comment(text: str) -> str:
    """Return free text that is safe inside of a C comment: it cannot end or open a comment, or splice lines."""
    plain = "".join(c if c.isprintable() else " " for c in text).replace("\\", "/")
    return re.sub(r"(?<=\*)(?=/)|(?<=/)(?=\*)|(?<=\?)(?=\?)", " ", plain)


def c_bytes(data: bytes) -> str:
    """Return an initializer of a byte array."""
    return "{" + ", ".join(f"0x{byte:02x}u" for byte in data) + "}"


@cache
def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # C, not HTML: free text passes through ``comment``
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        variable_start_string="«",
        variable_end_string="»",
        block_start_string="/*%",
        block_end_string="%*/",
        comment_start_string="/*#",
        comment_end_string="#*/",
    )
    environment.filters |= {"literal": literal, "comment": comment, "c_bytes": c_bytes}
    return environment


def filled_in(template: str, render: RenderMemoryPlan, **values: Any) -> str:
    """Return a file of ``templates/`` filled in with a plan and further values."""
    return (
        _templates()
        .get_template(template)
        .render(
            r=render,
            p=render.prefix,
            P=render.prefix.upper(),
            regions=list(zip(render.all_arenas, render.region_names, strict=True)),
            tensors=[(tensor, render.tensor_stems[tensor.tensor_id]) for tensor in render.tensors],
            plan_symbol=plan_symbol(render),
            statuses=STATUSES,
            **values,
        )
    )


def plan_symbol(render: RenderMemoryPlan) -> str:
    """Return the symbol that identifies these arenas and the place of every tensor."""
    return f"{render.prefix}_plan_{render.plan_hash[:16]}_{render.tensor_layout_hash[:16]}"


def c_header(render: RenderMemoryPlan) -> str:
    """Return the header ``<prefix>_memory.h``: sizes, alignments, offsets and the hash."""
    return filled_in("memory.h", render)


def c_source(render: RenderMemoryPlan) -> str:
    """Return the source ``<prefix>_memory.c``: the tables, in region and tensor-id order."""
    return filled_in("memory.c", render)


def linker_fragment(render: RenderMemoryPlan) -> str:
    """Return the output sections for a GNU linker script: one per memory, arenas in region order."""
    arenas = render.all_arenas
    memories = list(dict.fromkeys([*(arena.memory for arena in arenas), *(arena.source_memory for arena in arenas)]))
    known = {arena.memory: arena.origin for arena in arenas if arena.origin is not None}
    words = dict(zip(memories, _linker_names(memories), strict=True))
    return filled_in("memory.ld", render, memories=words, origins=known)


def _linker_names(memories: Iterable[str]) -> list[str]:
    """Return the names of memories in a linker script: unchanged if they are identifiers, else made unique."""
    kept = {m for m in memories if m.isascii() and m.isidentifier() and m[0] != "_" and len(m) <= 64}
    taken = set(kept)
    names = []
    for number, memory in enumerate(memories):
        name = "".join(c if c.isascii() and c.isalnum() else "_" for c in memory)[:64]
        name = name if name[:1].isalpha() else f"M{name}"
        spellings = chain((name,), (f"{name}_{k}" for k in count(number)))
        names.append(memory if memory in kept else next(one for one in spellings if one not in taken))
        taken.add(names[-1])
    return names
