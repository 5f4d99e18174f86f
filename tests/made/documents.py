"""What is said of documents, byte for byte: of packed ones and damaged ones, of ones too long and too deep."""

from __future__ import annotations

import gzip
import os
import threading
from random import Random
from typing import Any

import cbor2

from tests.made.saying import Kind, digest, folder, line, said
from tmmu_core import limits
from tmmu_core.graph import document, native, sidecar, unpacking
from tmmu_core.graph.constants import CHUNK, Constants, Held, InFile, Made, beside
from tmmu_core.graph.model import Dim, Graph, Tensor
from tmmu_core.writing import replace_file, replace_file_by_parts, write_new

TENSOR = b'{"id": "x", "shape": [2], "dtype": "f32"}'
GRAPH = b'{"tensors": [' + TENSOR + b'], "inputs": ["x"]}'
TEXTS: tuple[bytes, ...] = (
    *(
        b"",
        b" \n",
        b"{",
        b"{}",
        b"{} x",
        b"[]",
        b"nul",
        b'{"a" 1}',
        b'{"a": 1,}',
        b'{\n "a": 1,\n "b" 2}',
        b"\xef\xbb\xbf{}",
        b"\xef\xbb\xbf{,}",
    ),
    *(
        GRAPH,
        GRAPH + b"\n",
        GRAPH[:-1],
        GRAPH[:30],
        GRAPH.decode().encode("utf-16"),
        GRAPH.decode().encode("utf-16-le"),
        b"\xff\xfe{}",
    ),
    *(
        b'{"name": "\xff"}',
        b'{"name": "a\\ud800"}',
        b'{"name": "\xc3\xa9", "x": 1}',
        b"\xc3\xa9{}",
        b'{"params": "\xff", "tensors": []}',
    ),
    *(
        b'{"tensors": 4}',
        b'{"tensors": [4]}',
        b'{"tensors": [{"id": 4}]}',
        b'{"tensors": [{"id": "x", "shape": [1.5], "dtype": "f32"}]}',
    ),
    *(
        b'{"tensors": [{"id": "x"}]}',
        b'{"tensors": [{"id": "x", "shape": [1]}]}',
        b'{"tensors": [{"id": "x", "dtype": "f32"}]}',
        b'{"q": 1}',
    ),
    *(
        b'{"tensors": [{"id": "x", "shape": [], "dtype": "f32"}]}',
        b'{"tensors": [{"id": "x", "shape": [1], "dtype": "float33"}]}',
    ),
    *(b'{"tensors": [{"id": "x", "shape": [1], "dtype": "float32"}, {"id": "y", "shape": [1], "dtype": "f16"}]}',),
    *(
        b'{"tensors": [{"id": "x", "shape": [1], "dtype": "f32", "role": "friend"}]}',
        b'{"nodes": [{"node_id": "n", "phase": "x"}]}',
    ),
    *(
        b'{"replan_policy": "X"}',
        b'{"nodes": [{}]}',
        b'{"nodes": [{"node_id": "n", "q": 1}]}',
        b'{"nodes": [{"node_id": "n"}, {"node_id": 4}]}',
    ),
    *(
        b'{"nodes": [{"node_id": "n", "q": 1}], "tensors": 4}',
        b'{"ir_schema": "uml_model_ir/1"}',
        b'{"ir_schema": "uml_model_ir/2"}',
    ),
    *(
        b'{"name": "a", "name": "b"}',
        b'{"nodes": [{"node_id": "n", "params": {"a": {"b": 1, "b": 2}}}]}',
        b'{"a": [1, {"b": 1, "b": 2}], "a": 1}',
    ),
    *(
        b'{"nodes": [{"node_id": "n", "params": {"a": [0, {"c": 1, "d": [{"e": 1, "e": 1}]}]}}]}',
        b'{"dims": {"n": {"min": 1, "min": 2}}}',
    ),
    *(
        b'{"x": 18446744073709551615}',
        b'{"x": 18446744073709551616}',
        b'{"x": -9223372036854775808}',
        b'{"x": -9223372036854775809}',
    ),
    *(
        b'{"a": [1, {"b": 99999999999999999999}]}',
        b'{"a": 99999999999999999999999999999999999999}',
        b'{"a": ' + b"9" * 40 + b"}",
    ),
    *(
        b'{"a": ' + b"9" * 41 + b"}",
        b'{"a": "99999999999999999999"}',
        b'{"a": 1e400, "b": 0.00000000000000000000001}',
        b'{"a": 99999999999999999999',
    ),
    *(b'{"a": NaN}', b'{"a": 1e999}', b'{"a": tru}'),
    *(
        b"\xa0",
        b"\xa1",
        b"\xa1dname",
        b"\xa1dnameax",
        b"\xa1dname\x61a",
        b"\xa1dname\x61a\x00\x00",
        b"\xd9\xd9\xf7\xa1dname\x61a",
        b"\xa1\x01\x02",
    ),
    *(
        b"\xa2dname\x61adname\x61b",
        b"\xa1dname\xc0\x61a",
        b"\xa1dname\xd8\x19\x00",
        b"\xa1dname\xd9\xd9\xf7\x00",
        b"\xa1dname\xc2\x41\x01",
        b"\xa1dname\x1c",
    ),
    *(
        b"\xa1gtensors" + b"\x81" * 198 + b"\x80",
        b"\xa1gtensors" + b"\x81" * 199 + b"\x80",
        b"\xa1gtensors" + b"\x81" * 260 + b"\x80",
        b"\xbf\xff",
    ),
    *(
        cbor2.dumps({"tensors": [{"id": "x", "shape": [2], "dtype": "f32", "q": 1}]}),
        cbor2.dumps({"nodes": [{"node_id": "n", "inputs": 4}]}),
    ),
    *(
        cbor2.dumps({"tensors": [{"id": 4}]}),
        cbor2.dumps([{"a": 1}]),
        b"\xc0",
        b"\x9f\xff",
        b"\x80",
        b"\xbf",
        cbor2.dumps({"name": "a", 1: 2}),
    ),
)


def _read(_: Random, k: int) -> str:
    text = TEXTS[k]

    def ask() -> str:
        kind = f"{document.kind(text)}{' of 16 bits' * document.is_utf16(text)}"
        known = said(lambda: sorted(document.fields(text)))
        named, nameless = (said(lambda name=name: digest(native.decode(text, name))) for name in ("given", ""))  # type: ignore[misc]
        return f"{kind}; {known}; {named}; {nameless}"

    return f"{text[:40]!r}: {said(ask)}"


def _packed() -> tuple[bytes, ...]:
    whole = gzip.compress(GRAPH, 0, mtime=0)
    long = gzip.compress(bytes(200_000), 9, mtime=0)
    noise = gzip.compress(Random("noise").randbytes(150_000), 0, mtime=0)
    return (
        *(
            b"",
            GRAPH,
            whole,
            whole[:-1],
            whole[:9],
            whole[:2],
            whole + whole,
            whole + b"x",
            whole + b"\x1f\x8b",
            whole + long,
        ),
        *(
            long,
            long[:-3],
            whole[:20] + b"\xff" + whole[21:],
            whole[:-6] + bytes(2) + whole[-4:],
            noise,
            noise + whole,
            b"\x1f\x8b",
        ),
        *(unpacking.pack(GRAPH), unpacking.pack(b""), unpacking.pack(bytes(70_000))),
    )


PACKED = _packed()


def _unpacked(_: Random, k: int) -> str:
    """A packed file: at once and from disk, with room enough, with just so much, and with a byte less."""
    data, found = PACKED[k], []
    for room in (1 << 28, 200_000, 150_000, len(GRAPH), len(GRAPH) - 1, 0):
        with limits.raised({"unpacked-bytes": room}):
            found.append(said(lambda: digest(unpacking.unpack(data, "given"))))
            if data[:2] == unpacking.GZIP_MAGIC:
                with folder() as home:
                    path = home / "given"
                    path.write_bytes(data)
                    found.append(
                        said(lambda path=path: digest(bytes(unpacking.unpacked_file(path))))  # type: ignore[misc]
                    )
    return f"file {k}: {line([len(set(found)), *found[:2]])} {digest(found)}"


MANY: tuple[tuple[bytes, int], ...] = (
    *(
        (b"[" * 9, 0),
        (b"[" * 10, 0),
        (b"[" * 11, 0),
        (b'{"a": ' + b"1," * 20, 0),
        (b"\n" * 30, 0),
        (b"x" * 200, 0),
        (b",\0" * 20, 0),
    ),
    *(
        (b"\xa1" + b"\x80" * 7, 0),
        (b"\xa1" + b"\x80" * 8, 0),
        (b"\xa1" + b"\x80" * 12, 0),
        (b"\xa1" + b"a" * 40, 0),
        (b"\xa1" + b"a" * 43, 0),
    ),
    *(
        (b"[" * 40, 3),
        (b"[" * 30, 4),
        (b"," * 1024 + b"\0", 0),
        (b"," * 1025 + b"\0", 0),
        (b"{" * 12, 5),
        (b"\xbf" * 12, 0),
        (b"\xc0" * 12, 0),
    ),
)


def _many(_: Random, k: int) -> str:
    data, packed = MANY[k]
    found = []
    for most in (8, 9, 10, 11, 12, 20, 1024):
        with limits.raised({"values": most}):
            found.append(said(lambda: document.refuse_many_values(data, "given", packed) or "read"))
    return f"{data[:6]!r} × {len(data)} of {packed}: {[each[:4] for each in found]} {digest(found)}"


def _whole(_: Random, k: int) -> str:
    """A file read whole; one that grows or is written over while it is read; a pipe."""
    with folder() as home:
        path = home / "given"
        if k == 3:
            os.mkfifo(path)
            writer = threading.Thread(target=lambda: path.write_bytes(GRAPH))
            writer.start()
            found = said(lambda: digest(unpacking.read_whole(path)))
            writer.join()
            return f"a pipe: {found}"
        path.write_bytes(GRAPH)

        def ask() -> str:
            with unpacking.of_one_moment(path) as (file, size):
                data = file.read()
                if k == 1:
                    path.write_bytes(GRAPH * 2)
                if k == 2:
                    os.utime(path, ns=(1, 1))
                return f"{size} {digest(data)}"

        how = ("as it is", "longer", "of another time")[k]
        return f"{how}: {said(ask)} {said(lambda: digest(unpacking.read_whole(path)))}"


PIECES: tuple[tuple[Any, ...], ...] = (
    *((0, None), (3, None), (3, 4), (0, 12), (0, 13), (12, 0), (13, 0), (3, 0), (12, None), (14, None), (0, 1)),
)


def _pieces(_: Random, k: int) -> str:
    """Bytes of a constant: at hand, in a file, computed; and many of them."""
    start, length = PIECES[k]
    with folder() as home:
        path, data = home / "w.bin", bytes(range(12))
        path.write_bytes(data)
        several = (Held(data, start, length), InFile(path, start, length), Made(lambda: data[start:]))
        found = [said(lambda piece=piece: b"".join(piece.chunks()).hex()) for piece in several]  # type: ignore[misc]
        long = bytes(CHUNK) + b"ab"
        path.write_bytes(long)
        sizes = [
            said(lambda piece=piece: [len(each) for each in piece.chunks()])  # type: ignore[misc]
            for piece in (Held(long, start), InFile(path, start), InFile(path, 2, CHUNK), Held(long, 1, CHUNK + 1))
        ]
        return line([start, length, *found, sizes])


def _constants(_: Random, k: int) -> str:
    held = Constants.of(
        ({"a": b"xy", "b": b""}, None, Constants({"c": Held(b"ab", 1)}), Constants({"d": Held(b"ab", 1, 9)}))[k]
    )
    return line(
        [list(held), len(held), "a" in held, "q" in held, [said(lambda name=name: held[name].hex()) for name in held]]
    )  # type: ignore[misc]


def _beside(_: Random, k: int) -> str:
    """A place beside a file."""
    location = ("w.bin", "a/../w.bin", "../w.bin", "/w.bin", "", ".", "link", "a/b", "x" * 90 + "/../..")[k]
    with folder() as home:
        (home / "link").symlink_to("/etc/hostname")
        answers = [said(lambda where=where: str(beside(where, location, "it"))) for where in (home, None)]  # type: ignore[misc]
        return line([location[:20], *answers])


HEADS: tuple[tuple[bytes, int], ...] = tuple(
    (head, more)
    for head in (
        *(
            b"{}",
            b'{"w": {"data_offsets": [0, 16]}}',
            b'{"w": {"data_offsets": [4, 12]}}',
            b'{"w": {"data_offsets": [0, 17]}}',
            b"[",
        ),
        *(
            b'{"w": {"data_offsets": [-1, 4]}}',
            b'{"w": {"data_offsets": [8, 4]}}',
            b'{"w": {}}',
            b'{"w": 4}',
            b'{"\xff": 1}',
            b"",
        ),
        *(b'{"__metadata__": 4, "w": {"data_offsets": [16, 16]}}', b'{"other": {"data_offsets": [0, 99]}}'),
    )
    for more in (0, 1)
)


def _sidecar(_: Random, k: int) -> str:
    """A sidecar of a graph, by its head; its length as it is and one more."""
    head, more = HEADS[k]
    graph = Graph((Tensor("w", (4,), role="parameter"),), sidecar="w.st")
    with folder() as home:
        (home / "w.st").write_bytes((len(head) + more).to_bytes(8, "little") + head + bytes(range(16)))

        def ask() -> str:
            held = sidecar.constants(graph, home / "graph.json", "given")
            return " ".join(f"{name} {held[name].hex()}" for name in held) or "none"

        with limits.raised({"unpacked-bytes": 40}):
            return line([head.decode("latin-1")[:36], more, said(ask)])


def _written(random: Random, _: int) -> str:
    """The sidecar of a graph."""
    kinds = (*sidecar.DTYPES, "int4", "complex64", "float8_e8m0fnu")
    tensors, held = [], {}
    for i in range(random.randrange(1, 5)):
        tensor = Tensor(f"w{i}", (random.randrange(4), random.choice((3, "n"))), random.choice(kinds), "parameter")
        tensors.append(tensor)
        if random.randrange(4):
            held[tensor.id] = random.randbytes(random.randrange(9))
    graph = Graph(tuple(tensors), dims={"n": Dim(1, 2)})
    data = b"".join(sidecar.written(graph, Constants.of(held)))
    length = int.from_bytes(data[:8], "little")
    return line(f"{length} {length % 8} {data[8 : 8 + length].decode()} {data[8 + length :].hex()}")


def _files(_: Random, k: int) -> str:
    """A file put in the place of what was there."""
    with folder() as home:
        path = home / "it"
        if k in (1, 2, 5):
            path.write_bytes(b"old")
            path.chmod(0o640 if k == 2 else 0o600)
        if k == 3:
            (home / "real").write_bytes(b"old")
            path.symlink_to(home / "real")
        (home / ".tmmu-999999999.part").write_bytes(b"left")
        (home / ".tmmu-x.part").write_bytes(b"left")
        (home / f".tmmu-{os.getppid()}.part").write_bytes(b"left")

        def parts() -> Any:
            yield b"ne"
            if k == 5:
                raise ValueError
            yield b"w"

        try:
            if k == 6:
                written = write_new(path, parts(), 0o604)
            else:
                written = (replace_file_by_parts if k >= 4 else replace_file)(path, parts() if k >= 4 else b"new")  # type: ignore[arg-type,func-returns-value]
        except ValueError:
            written = -1
        names = sorted(each.name.replace(f"-{os.getppid()}.", "-parent.") for each in home.iterdir())
        mode = oct(path.stat().st_mode & 0o777) if k in (1, 2, 5, 6) else ""
        return line([k, written, names, mode, path.read_bytes().decode(), path.is_symlink()])


KINDS = {
    "a document": Kind(len(TEXTS), _read),
    "a packed document": Kind(len(PACKED), _unpacked),
    "a document of many values": Kind(len(MANY), _many),
    "a file of one moment": Kind(4, _whole),
    "a constant's bytes": Kind(len(PIECES), _pieces),
    "constants": Kind(4, _constants),
    "a place beside a file": Kind(9, _beside),
    "a sidecar": Kind(len(HEADS), _sidecar),
    "what is written beside a graph": Kind(20, _written),
    "a file in the place of another": Kind(7, _files),
}
