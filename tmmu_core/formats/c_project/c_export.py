"""Export a plan as files of a firmware build: ``tmmu export PLAN --to c-project -o DIR``.

``docs/how-to/c-project.md`` lists the files. The C files compile as C11 and as C++17 without warnings. Equal plans and
bytes give equal files. The program must bind memory to constants whose bytes are not exported, and to the writable
arenas if together they are too large for static arrays. ``templates/`` (jinja2) has ``«value»``, ``/*% statement %*/``.
"""

import io
import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jinja2
import msgspec

from tmmu_core.base.atomic_files import replace_file
from tmmu_core.base.errors import UnwritableOutput
from tmmu_core.formats.c_project.render_plan import RenderMemoryPlan, crc32_of, identifier
from tmmu_core.graph.constants import ByteReader, in_memory
from tmmu_core.plans.analysis.plan_notes import cells

Blobs = Literal["auto", "inline", "sidecar"]
MANIFEST = "tmmu-manifest.json"  # the file of a project that lists the generated files
MAX_STATIC_BYTES = 1 << 28  # maximum bytes of all writable arenas together, if they are static arrays
MAX_INLINE_BYTES = 1 << 20  # maximum bytes that ``auto`` writes inline: large C arrays compile slowly
_LINKER_NAME = re.compile(r"[A-Za-z]\w{0,63}", re.A)


def c_project(render: RenderMemoryPlan, blobs: Blobs = "auto") -> dict[str, ByteReader]:
    """Return file name → reader of its bytes, without the manifest. ``blobs``: where the constants are."""
    prefix = render.prefix
    blob_bytes = sum(blob.size for blob in render.constant_blobs)
    is_inline = blobs == "inline" or (blobs == "auto" and blob_bytes <= MAX_INLINE_BYTES)
    source = f"{prefix}_blobs.{'c' if is_inline else 'S'}" if render.constant_blobs else ""
    sidecars = () if is_inline else render.constant_blobs
    arenas = render.all_arenas
    is_static = sum(arena.size for arena in arenas if arena.has_buffer) <= MAX_STATIC_BYTES
    parts = [(part, blob.constants.chunks(part.tensor_id)) for blob in render.constant_blobs for part in blob.parts]
    checks = [(part, crc32_of(chunks)) for part, chunks in parts]
    memories = dict.fromkeys([a.memory for a in arenas] + [a.source_memory for a in arenas])
    origins = {arena.memory: arena.origin for arena in arenas if arena.origin is not None}
    # Generated names begin with an underscore, so they differ from the names that are kept.
    linker_names = {m: m if _LINKER_NAME.fullmatch(m) else f"_{k}_{identifier(m)}" for k, m in enumerate(memories)}
    texts = {f"{prefix}_{name}": from_template(name, render) for name in ("memory.h", "memory.c")}
    texts[f"{prefix}_arenas.c"] = from_template("arenas.c", render, is_static=is_static)
    texts[f"{prefix}_selftest.c"] = from_template("selftest.c", render, checks=checks)
    texts["memory.ld"] = from_template("memory.ld", render, memories=linker_names, origins=origins)
    texts["CMakeLists.txt"] = from_template("CMakeLists.txt", render, blobs_source=source, sidecars=sidecars)
    files: dict[str, ByteReader] = {name: partial(in_memory, text.encode()) for name, text in texts.items()}
    files["residency.json"] = partial(in_memory, residency_json(render))
    if source and is_inline:
        files[source] = partial(_inline_blobs, render)
    elif source:
        text = from_template("blobs.S", render)
        files[source] = partial(in_memory, text.encode())
        files |= {blob.sidecar_filename: blob.chunks for blob in sidecars}
    return files


def residency_json(render: RenderMemoryPlan) -> bytes:
    """Return the file ``residency.json``: hashes, arenas in region order and tensors by id, with C names."""
    arenas, tensors = [], []
    for arena, names in zip(render.all_arenas, render.region_names, strict=True):
        blob = render.blob_of.get(arena.region_id)
        fields = {key: value for key, value in vars(arena).items() if key not in ("name", "origin")}
        fields |= {"enumerator": names.stem, "symbol": names.symbol, "blob": blob and blob.sidecar_filename}
        fields["blob_symbol"] = names.blob if arena.role == "constant" else None
        fields["blob_sha256"] = blob and blob.sha256
        arenas.append(fields)
    for row, tensor in enumerate(render.tensors):
        arena = render.all_arenas[tensor.region_id]
        columns = {"tensor_id": tensor.tensor_id, "region_id": tensor.region_id, "role": arena.role}
        columns |= {"memory": arena.memory, "offset": tensor.offset, "size": tensor.size}
        columns["macro"] = render.tensor_stems[tensor.tensor_id]
        tensors.append(columns | (cells(render.residences[row]) if render.residences else {}))
    head = {name: getattr(render, name) for name in ("module_prefix", "plan_hash", "tensor_layout_hash")}
    content = {"schema": "tmmu_residency/1", **head, "arenas": arenas, "tensors": tensors}
    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"


def comment(text: str) -> str:
    """Return ``text`` without line breaks, backslashes, comment delimiters and trigraphs, for use in a C comment."""
    plain = "".join(c if c.isprintable() else " " for c in text).replace("\\", "/")
    return re.sub(r"(?<=\*)(?=/)|(?<=/)(?=\*)|(?<=\?)(?=\?)", " ", plain)


_ENVIRONMENT = jinja2.Environment(
    *("/*%", "%*/", "«", "»", "/*#", "#*/"),  # marks of statements, values and comments
    loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
    undefined=jinja2.StrictUndefined,
    autoescape=False,  # C, not HTML: names from the model pass through the filter ``comment``
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_ENVIRONMENT.filters["comment"] = comment


def from_template(template: str, render: RenderMemoryPlan, **values: Any) -> str:
    """Return a file of the project, such as ``memory.h``, from its template."""
    values |= {"r": render, "p": render.prefix, "P": render.prefix.upper()}
    values["regions"] = list(zip(render.all_arenas, render.region_names, strict=True))
    values["tensors"] = [(tensor, render.tensor_stems[tensor.tensor_id]) for tensor in render.tensors]
    # The symbol's name contains the hashes, so code for a plan with other arenas or offsets does not link.
    values["plan_symbol"] = f"{render.prefix}_plan_{render.plan_hash[:16]}_{render.tensor_layout_hash[:16]}"
    return _ENVIRONMENT.get_template(template).render(values)


def _inline_blobs(render: RenderMemoryPlan) -> Iterator[bytes]:
    """Yield the file ``<prefix>_blobs.c`` in parts, because its text is several times as long as the blobs."""
    yield from_template("blobs.c", render).encode()
    upper = render.prefix.upper()
    for region, blob in render.blob_of.items():
        arena, name = render.all_arenas[region], render.region_names[region]
        start = (
            f"\n/* {comment(arena.role)} for {comment(arena.memory)}, stored in {comment(arena.source_memory)} */\n"
            f'alignas({name.stem}_ALIGNMENT) {upper}_SECTION(".rodata.{name.blob}")\n'
            f"const uint8_t {name.blob}[{max(blob.size, 1)}u] = {{\n"
        )
        yield start.encode()
        raw = b"".join(blob.chunks()) or b"\0"
        yield from (f"    0x{raw[k : k + 16].hex(',').replace(',', ',0x')},\n".encode() for k in range(0, len(raw), 16))
        yield b"};\n"


def zipped(files: Mapping[str, ByteReader]) -> bytes:
    """Return a zip archive of the files. All its timestamps are the same, so equal files give equal archives."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, piece in files.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            entry.create_system = 3  # Unix permissions on every platform
            with archive.open(entry, "w") as member:
                for data in piece():
                    member.write(data)
    return out.getvalue()


def write_project(folder: Path, files: Mapping[str, ByteReader]) -> int:
    """Write files and their manifest; delete files that only the previous manifest lists. Return the bytes written.

    Raises ``UnwritableOutput`` and writes nothing if a file exists that the previous manifest does not list.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        previous = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=dict[str, list[str]])["files"]
    except (OSError, KeyError, msgspec.DecodeError, UnicodeDecodeError):  # there is no manifest, or it is damaged
        previous = []
    names = [*files, MANIFEST]
    for name in names:
        if name not in previous and os.path.lexists(folder / name):
            message = f"{folder / name} exists, and no earlier export wrote it."
            raise UnwritableOutput(message, "Write to another folder, or delete this file.")
    # The manifest is written first, so that the next export knows the files of an export that was killed.
    replace_file(folder / MANIFEST, _manifest(dict.fromkeys([*names, *previous])))
    size = sum(replace_file(folder / name, piece()) for name, piece in files.items())
    for name in previous:
        if name not in names and Path(name).name == name and (folder / name).is_file():  # not in another folder
            (folder / name).unlink()
    return size + replace_file(folder / MANIFEST, _manifest(names))


def _manifest(names: Iterable[str]) -> bytes:
    return msgspec.json.format(msgspec.json.encode({"files": [*names]}), indent=2) + b"\n"
