"""Export a plan as files of a firmware build: ``tmmu export PLAN --to c-project -o DIR``.

::

    <prefix>_memory.h, .c       offsets, sizes and their assertions; the tables (render_c)
    <prefix>_arenas.c           the arenas, each in its own section; binding, hydration, SHA-256
    <prefix>_blobs.c            the constants' bytes, inline; or
    <prefix>_blobs.S, *.bin     the same as sidecars, included by the assembler
    <prefix>_selftest.c         hydrates, checks every constant's bytes and the bounds of arenas and tensors
    memory.ld                   linker script fragment that places arenas and blobs in their memories
    CMakeLists.txt              the library and its self-test (ctest)
    residency.json              the same for other tools, with the names in C
    tmmu-manifest.json          the names of these files; in folders only

The C is C11 and C++17. Equal plans and bytes give equal files. The caller binds arenas that are too large for a
program's image, and constants without bytes.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from itertools import chain, count
from pathlib import Path
from typing import Literal

import msgspec

from tmmu_core.base.atomic_files import exchange_folders, replace_file_by_parts
from tmmu_core.formats.c_project.c_names import RegionNames
from tmmu_core.formats.c_project.c_templates import ARENAS_C, CMAKE, SELFTEST_C
from tmmu_core.formats.c_project.render_c import c_header, c_source, comment, literal
from tmmu_core.formats.c_project.render_plan import RenderArena, RenderConstantBlob, RenderMemoryPlan, residency
from tmmu_core.graph.constants import InMemory, Piece

Blobs = Literal["auto", "inline", "sidecar"]
MANIFEST = "tmmu-manifest.json"
"""The file of a project that lists the generated files."""
INLINE_UP_TO = 1 << 20
"""Maximum bytes of all blobs that ``auto`` writes inline: more compiles slowly."""
STATIC_UP_TO = 1 << 28
"""Maximum bytes of all writable arenas in the image; above it the caller binds them."""


def c_project(render: RenderMemoryPlan, blobs: Blobs = "auto") -> dict[str, Piece]:
    """Return file name → bytes, in the order above."""
    prefix = render.prefix
    inline = blobs == "inline" or (blobs == "auto" and sum(blob.size for blob in render.constant_blobs) <= INLINE_UP_TO)
    held = {
        f"{prefix}_memory.h": c_header(render),
        f"{prefix}_memory.c": c_source(render),
        f"{prefix}_arenas.c": _filled_in(render, ARENAS_C, _arenas(render)),
        f"{prefix}_selftest.c": _filled_in(render, SELFTEST_C, _checks(render)),
        "memory.ld": linker_fragment(render),
        "CMakeLists.txt": _cmake(render, inline),
    }
    files: dict[str, Piece] = {name: InMemory(text.encode()) for name, text in held.items()}
    files["residency.json"] = InMemory(residency_json(render))
    if render.constant_blobs and inline:
        files[f"{prefix}_blobs.c"] = _Inline(render)
    elif render.constant_blobs:
        files[f"{prefix}_blobs.S"] = InMemory(_assembler(render).encode())
        files |= {blob.sidecar_filename: blob for blob in render.constant_blobs}
    return files


def residency_json(render: RenderMemoryPlan) -> bytes:
    """Return the residency of arenas and tensors as JSON."""
    return msgspec.json.format(msgspec.json.encode(residency(render)), indent=2) + b"\n"


def linker_fragment(render: RenderMemoryPlan) -> str:
    """Return the output sections for a GNU linker script: one per memory, arenas in region order."""
    arenas = list(zip(render.all_arenas, render.region_names, strict=True))
    memories = dict.fromkeys(
        [arena.memory for arena in render.all_arenas] + [arena.source_memory for arena in render.all_arenas]
    )
    lines = [
        f"/* Generated from a memory plan: {comment(render.module_prefix)}, plan hash {render.plan_hash}.",
        "   Include it in SECTIONS, before .rodata and .bss; MEMORY must name the regions: */",
    ]
    known = {arena.memory: arena.origin for arena in render.all_arenas if arena.origin is not None}
    called = dict(zip(memories, _memory_words(list(memories)), strict=True))
    for memory, word in called.items():
        at = f", at {known[memory]:#x}" if memory in known else ""
        lines.append(f"/*   {word}: {comment(memory)}{at} */")
    for memory, word in called.items():
        written = [(a, n) for a, n in arenas if a.memory == memory and (a.role != "constant" or a.is_staged)]
        stored = [(a, n) for a, n in arenas if a.role == "constant" and a.source_memory == memory]
        if written:
            lines += [f".tmmu_{word} (NOLOAD) :", "{"]
            lines += [f"    . = ALIGN({a.alignment});\n    KEEP(*(.bss.{n.symbol}))" for a, n in written]
            lines += [f"}} > {word}"]
        if stored and render.constant_blobs:
            lines += [f".tmmu_{word}_constants :", "{"]
            lines += [f"    . = ALIGN({a.alignment});\n    KEEP(*(.rodata.{n.blob}))" for a, n in stored]
            lines += [f"}} > {word}"]
    return "\n".join([*lines, ""])


def _memory_words(memories: list[str]) -> list[str]:
    """Return the names of memories in a linker script: unchanged if they are identifiers, else made unique."""
    taken = {memory for memory in memories if _is_word(memory)}
    words = []
    for number, memory in enumerate(memories):
        word = "".join(c if c.isascii() and c.isalnum() else "_" for c in memory)[:64]
        word = word if word[:1].isalpha() else f"M{word}"
        spellings = chain((word,), (f"{word}_{k}" for k in count(number)))
        words.append(memory if _is_word(memory) else next(one for one in spellings if one not in taken))
        taken.add(words[-1])
    return words


def _is_word(memory: str) -> bool:
    return memory.isascii() and memory.isidentifier() and memory[0] != "_" and len(memory) <= 64


# --- the arenas ----------------------------------------------------------------------------------------------------


def _filled_in(render: RenderMemoryPlan, text: str, rows: Mapping[str, str]) -> str:
    names = {"prefix": render.prefix, "PREFIX": render.prefix.upper()}
    # One pass: a memory may be named @BUFFERS@.
    return re.sub(r"@(\w+)@", lambda found: {**rows, **names}[found[1]], text)


def _own_buffer(arena: RenderArena) -> bool:
    """Whether the program contains the buffer of the arena: it is written, by the model or by hydration."""
    return arena.role != "constant" or arena.is_staged


def _arenas(render: RenderMemoryPlan) -> dict[str, str]:
    arenas = list(zip(render.all_arenas, render.region_names, strict=True))
    upper = render.prefix.upper()
    room, buffers, sources = [], [], []
    for arena, name in arenas:
        blob = render.blob_of.get(arena.region_id)
        if _own_buffer(arena):
            room += [
                f"/* {comment(arena.role)} in {comment(arena.memory)} */",
                f'{upper}_ALIGNAS({name.stem}_ALIGNMENT) {upper}_SECTION(".bss.{name.symbol}")',
                f"uint8_t {name.symbol}[{max(arena.size, 1)}u];",
            ]
            buffers.append(f"{upper}_OWN({name.symbol})")
        else:
            buffers.append(f"(uint8_t *){name.symbol}" if blob else "NULL")
        sources.append(name.blob if blob else "NULL")
    digests = {
        region: "{" + ", ".join(f"0x{byte:02x}u" for byte in blob.sha256) + "}"
        for region, blob in render.blob_of.items()
    }
    rows = [
        f"    {{{_flag(arena.role == 'constant')}, {_flag(arena.is_staged)}, {_flag(arena.region_id in digests)}, "
        f"{digests.get(arena.region_id, '{0}')}}},"
        for arena, _ in arenas
    ]
    static = sum(arena.size for arena, _ in arenas if _own_buffer(arena)) <= STATIC_UP_TO
    return {
        "EXTERNAL_DEFAULT": "0" if static else "1",
        "ROOM": "\n".join(room),
        "BUFFERS": "".join(f"    {buffer},\n" for buffer in buffers or ["NULL"]).rstrip("\n"),
        "SOURCES": "".join(f"    {source},\n" for source in sources or ["NULL"]).rstrip("\n"),
        "FACTS": "\n".join(rows or ["    {0u, 0u, 0u, {0}},"]),
    }


def _flag(holds: bool) -> str:
    return "1u" if holds else "0u"


def _checks(render: RenderMemoryPlan) -> dict[str, str]:
    """Return a row per constant with known bytes: its place and digest."""
    rows = []
    for region, blob in render.blob_of.items():
        assert not isinstance(blob.image, bytes), "blobs of a plan are put together from its tensors"
        for part, digest in blob.image.digests():
            shown = ", ".join(f"0x{byte:02x}u" for byte in digest)
            rows.append(f"    {{{region}u, {literal(part.offset)}, {literal(part.size)}, {{{shown}}}}},")
    return {"COUNT": str(len(rows)), "CHECKS": "\n".join(rows or ["    {0u, 0u, 0u, {0}},"])}


# --- the constants' bytes ------------------------------------------------------------------------------------------


class _Inline:
    """``<prefix>_blobs.c``, written in parts: it is several times as long as the blobs."""

    def __init__(self, render: RenderMemoryPlan) -> None:
        self.render = render

    def chunks(self) -> Iterator[bytes]:
        """The file in order."""
        upper = self.render.prefix.upper()
        yield (
            "/* Generated from a memory plan: the constants' bytes. */\n"
            f'#include "{self.render.prefix}_memory.h"\n\n{_SECTIONS.replace("@PREFIX@", upper)}\n'
        ).encode()
        for arena, name, blob in _blobs(self.render):
            start = (
                f"\n/* {comment(arena.role)} for {comment(arena.memory)}, stored in {comment(arena.source_memory)} */\n"
                f'{upper}_ALIGNAS({name.stem}_ALIGNMENT) {upper}_SECTION(".rodata.{name.blob}")\n'
                f"const uint8_t {name.blob}[{max(blob.size, 1)}u] = {{\n"
            )
            yield start.encode()
            yield from _hex_lines(blob)
            yield b"};\n" if blob.size else b"    0x00,\n};\n"


_SECTIONS = """#ifdef __cplusplus
#define @PREFIX@_ALIGNAS(bytes) alignas(bytes)
#else
#define @PREFIX@_ALIGNAS(bytes) _Alignas(bytes)
#endif
#if defined(__GNUC__) && defined(__ELF__)
#define @PREFIX@_SECTION(name) __attribute__((section(name)))
#else
#define @PREFIX@_SECTION(name)
#endif
"""


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


def _assembler(render: RenderMemoryPlan) -> str:
    lines = ["/* Generated from a memory plan: the constants' bytes, from the files beside. */"]
    for arena, name, blob in _blobs(render):
        lines += [
            f'    .section .rodata.{name.blob},"a",%progbits',
            f"    .balign {arena.alignment}",
            f"    .global {name.blob}",
            f"    .type {name.blob}, %object",
            f"{name.blob}:",
            f'    .incbin "{blob.sidecar_filename}"',
            f"    .size {name.blob}, {blob.size}",
        ]
    return "\n".join([*lines, "#ifdef __linux__", '    .section .note.GNU-stack,"",%progbits', "#endif", ""])


def _cmake(render: RenderMemoryPlan, inline: bool) -> str:
    prefix = render.prefix
    blobs, needs = "", ""
    if render.constant_blobs:
        blobs = f" {prefix}_blobs.{'c' if inline else 'S'}"
    if blobs.endswith(".S"):
        sidecars = ";".join(f"${{CMAKE_CURRENT_SOURCE_DIR}}/{b.sidecar_filename}" for b in render.constant_blobs)
        needs = (
            f"set_source_files_properties({prefix}_blobs.S PROPERTIES\n"
            f'    COMPILE_OPTIONS "-I${{CMAKE_CURRENT_SOURCE_DIR}}" OBJECT_DEPENDS "{sidecars}")\n'
        )
    languages = "C ASM" if needs else "C"
    return _filled_in(render, CMAKE, {"LANGUAGES": languages, "BLOBS": blobs, "NEEDS": needs})


# --- to disk -------------------------------------------------------------------------------------------------------


def zipped(files: Mapping[str, Piece]) -> bytes:
    """Return all files as a zip archive without times, so that equal files give equal archives."""
    import io
    import zipfile

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
    """Replace the folder by one with these files; return the number of bytes. Raises ``OSError``.

    A staging folder takes its place in one step, so a killed export leaves the old folder or the new one. Files that
    only the manifest of an earlier export lists are removed; other files are the user's and are kept.
    """
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    manifest = InMemory(msgspec.json.format(msgspec.json.encode({"files": [*files, MANIFEST]}), indent=2) + b"\n")
    contents = {**files, MANIFEST: manifest}
    with tempfile.TemporaryDirectory(prefix=".tmmu-", dir=folder.parent) as beside:
        staging = Path(beside) / folder.name
        staging.mkdir(mode=stat.S_IMODE(folder.stat().st_mode))
        written = sum(replace_file_by_parts(staging / name, piece.chunks()) for name, piece in contents.items())
        generated = {*contents, *_listed(folder / MANIFEST)}
        shutil.copytree(
            folder, staging, symlinks=True, dirs_exist_ok=True, copy_function=_link,
            ignore=lambda path, names: generated.intersection(names) if Path(path) == folder else (),
        )  # fmt: skip
        exchange_folders(staging, folder)
    return written


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except (OSError, NotImplementedError):  # another file system
        shutil.copy2(source, target, follow_symlinks=False)


def _listed(manifest: Path) -> list[str]:
    """Return the files that an earlier export wrote; none where the manifest is missing or damaged."""
    try:
        names = msgspec.json.decode(manifest.read_bytes(), type=dict[str, list[str]]).get("files", [])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return []
    return [name for name in names if Path(name).name == name]  # a path could lead out of the folder
