"""Export a plan as files of a firmware build: ``tmmu export PLAN --to c-project -o DIR``.

::

    <prefix>_memory.h, .c       offsets, sizes and their assertions; the tables
    <prefix>_arenas.c           the arenas, each in its own section; binding, hydration, SHA-256
    <prefix>_blobs.c            the constants' bytes, inline; or
    <prefix>_blobs.S, *.bin     the constants' bytes in files that the assembler includes
    <prefix>_selftest.c         hydrates, checks every constant's bytes and the bounds of arenas and tensors
    memory.ld                   linker script fragment that places arenas and blobs in their memories
    CMakeLists.txt              the library and its self-test (ctest)
    residency.json              arenas, tensors and their names in C, for other tools
    tmmu-manifest.json          the names of these files; in folders only

The C is C11 and C++17, without warnings. Equal plans and bytes give equal files. The caller binds arenas that are too
large for a program's image, and constants without bytes. Static assertions compare every offset, size and alignment
with its region, so that an edited or truncated header does not compile.

The files are filled in from ``templates/`` (jinja2, with ``«value»`` and ``/*% statement %*/``).
"""

import io
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import chain, count
from pathlib import Path
from typing import Any, Literal

import jinja2
import msgspec

from tmmu_core.base.atomic_files import replace_file_by_parts
from tmmu_core.formats.c_project.c_names import RegionNames
from tmmu_core.formats.c_project.render_plan import RenderArena, RenderConstantBlob, RenderMemoryPlan, residency
from tmmu_core.graph.constants import InMemory, Piece

Blobs = Literal["auto", "inline", "sidecar"]
MANIFEST = "tmmu-manifest.json"
"""The file of a project that lists the generated files."""
STATIC_UP_TO = 1 << 28
"""Maximum bytes of all writable arenas in the image; above it the caller binds them."""
INLINE_UP_TO = 1 << 20
"""Maximum bytes of all blobs that ``auto`` writes inline: large C arrays compile slowly."""


def c_project(render: RenderMemoryPlan, blobs: Blobs = "auto") -> dict[str, Piece]:
    """Return file name → bytes of the project, in the order of the table above."""
    prefix = render.prefix
    inline = blobs == "inline" or (blobs == "auto" and sum(blob.size for blob in render.constant_blobs) <= INLINE_UP_TO)
    source = f"{prefix}_blobs.{'c' if inline else 'S'}" if render.constant_blobs else ""
    sidecars = () if inline else render.constant_blobs
    written = sum(arena.size for arena in render.all_arenas if arena.has_buffer)
    checks = [(region, part, digest) for region, blob in render.blob_of.items() for part, digest in blob.digests()]
    texts = {
        f"{prefix}_memory.h": c_header(render),
        f"{prefix}_memory.c": c_source(render),
        f"{prefix}_arenas.c": filled_in("arenas.c", render, fits_image=written <= STATIC_UP_TO),
        f"{prefix}_selftest.c": filled_in("selftest.c", render, checks=checks),
        "memory.ld": linker_fragment(render),
        "CMakeLists.txt": filled_in("CMakeLists.txt", render, blobs_source=source, sidecars=sidecars),
    }
    files: dict[str, Piece] = {name: InMemory(text.encode()) for name, text in texts.items()}
    files["residency.json"] = InMemory(residency_json(render))
    if source and inline:
        files[source] = _Inline(render)
    elif source:
        files[source] = InMemory(filled_in("blobs.S", render, blobs=list(_blobs(render))).encode())
        files |= {blob.sidecar_filename: blob for blob in sidecars}
    return files


def residency_json(render: RenderMemoryPlan) -> bytes:
    """Return the residency of arenas and tensors as JSON."""
    return msgspec.json.format(msgspec.json.encode(residency(render)), indent=2) + b"\n"


# --- templates -----------------------------------------------------------------------------------------------------


STATUSES = ("OK", "ERROR_REGION", "ERROR_UNBOUND", "ERROR_ALIGNMENT", "ERROR_BLOB_HASH")
"""Return values of the C functions, from 0."""


def comment(text: str) -> str:
    """Return free text that is safe in a C comment: it cannot end or begin a comment, or join two lines."""
    plain = "".join(c if c.isprintable() else " " for c in text).replace("\\", "/")
    return re.sub(r"(?<=\*)(?=/)|(?<=/)(?=\*)|(?<=\?)(?=\?)", " ", plain)


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
    environment.filters |= {
        "comment": comment,
        "literal": "UINT64_C({})".format,
        "c_bytes": lambda data: "{" + ", ".join(f"0x{byte:02x}u" for byte in data) + "}",
    }
    return environment


def filled_in(template: str, render: RenderMemoryPlan, **values: Any) -> str:
    """Return a file of ``templates/`` filled in with a plan and further values."""
    values |= {
        "r": render,
        "p": render.prefix,
        "P": render.prefix.upper(),
        "regions": list(zip(render.all_arenas, render.region_names, strict=True)),
        "tensors": [(tensor, render.tensor_stems[tensor.tensor_id]) for tensor in render.tensors],
        # The linker finds this symbol only in the objects of the same arenas and places.
        "plan_symbol": f"{render.prefix}_plan_{render.plan_hash[:16]}_{render.tensor_layout_hash[:16]}",
        "statuses": STATUSES,
    }
    return _templates().get_template(template).render(values)


def c_header(render: RenderMemoryPlan) -> str:
    """Return the header ``<prefix>_memory.h``: sizes, alignments, offsets and the hash."""
    return filled_in("memory.h", render)


def c_source(render: RenderMemoryPlan) -> str:
    """Return the source ``<prefix>_memory.c``: the tables, in region and tensor-id order."""
    return filled_in("memory.c", render)


def linker_fragment(render: RenderMemoryPlan) -> str:
    """Return the output sections of a GNU linker script: one per memory, with its arenas in region order."""
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


# --- the constants' bytes ------------------------------------------------------------------------------------------


class _Inline:
    """The file ``<prefix>_blobs.c``, written in parts, because it is several times as long as the blobs."""

    def __init__(self, render: RenderMemoryPlan) -> None:
        self.render = render

    def chunks(self) -> Iterator[bytes]:
        """Yield the file in order."""
        yield filled_in("blobs.c", self.render).encode()
        upper = self.render.prefix.upper()
        for arena, name, blob in _blobs(self.render):
            start = (
                f"\n/* {comment(arena.role)} for {comment(arena.memory)}, stored in {comment(arena.source_memory)} */\n"
                f'{upper}_ALIGNAS({name.stem}_ALIGNMENT) {upper}_SECTION(".rodata.{name.blob}")\n'
                f"const uint8_t {name.blob}[{max(blob.size, 1)}u] = {{\n"
            )
            yield start.encode()
            yield from _hex_lines(blob)
            yield b"};\n" if blob.size else b"    0x00,\n};\n"


def _blobs(render: RenderMemoryPlan) -> Iterator[tuple[RenderArena, RegionNames, RenderConstantBlob]]:
    for region, blob in render.blob_of.items():
        yield render.all_arenas[region], render.region_names[region], blob


_BYTE = [b"0x%02x," % value for value in range(256)]


def _hex_lines(blob: RenderConstantBlob) -> Iterator[bytes]:
    rest = b""
    for chunk in blob.chunks():
        rest += chunk
        whole = len(rest) - len(rest) % 16
        yield b"".join(b"    " + b"".join([_BYTE[b] for b in rest[k : k + 16]]) + b"\n" for k in range(0, whole, 16))
        rest = rest[whole:]
    if rest:
        yield b"    " + b"".join([_BYTE[b] for b in rest]) + b"\n"


# --- to disk -------------------------------------------------------------------------------------------------------


def zipped(files: Mapping[str, Piece]) -> bytes:
    """Return all files as a zip archive without times, so that equal files give equal archives."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, piece in files.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            entry.create_system = 3  # Unix permissions on every platform
            with archive.open(entry, "w") as member:
                for data in piece.chunks():
                    member.write(data)
    return out.getvalue()


def write_project(folder: Path, files: Mapping[str, Piece]) -> int:
    """Write these files into the folder; return the number of bytes. Raises ``OSError``.

    Each file is replaced in one step; sources of two exports do not link with each other. Files that only the manifest
    of an earlier export lists are removed; other files are the user's and are kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    manifest = InMemory(msgspec.json.format(msgspec.json.encode({"files": [*files, MANIFEST]}), indent=2) + b"\n")
    contents = {**files, MANIFEST: manifest}
    try:
        listed = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=dict[str, list[str]]).get("files", [])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):  # there is no manifest, or it is damaged
        listed = []
    written = sum(replace_file_by_parts(folder / name, piece.chunks()) for name, piece in contents.items())
    for name in listed:
        if name not in contents and Path(name).name == name:  # a path could lead out of the folder
            (folder / name).unlink(missing_ok=True)
    return written
