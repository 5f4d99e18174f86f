"""``docs/security.md`` names every reader and every module that decodes bytes: what has no row there does not land."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tmmu_core.limits import LIMITS
from tmmu_core.plan.formats.reading import READERS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "security.md").read_text()
DECODERS = {
    *("json.loads", "json.load", "msgspec.json.decode", "msgspec.json.Decoder", "msgspec.msgpack.decode"),
    *("cbor2.loads", "cbor2.load", "pickle.loads", "pickle.load", "pickle.Unpickler", "marshal.loads", "yaml.load"),
    *("zlib.decompress", "zlib.decompressobj", "zipfile.ZipFile", "tarfile.open", "csv.reader", "csv.DictReader"),
    *("eval", "exec", "onnx.load", "onnx.load_model", "onnx.load_from_string", "onnx.load_model_from_string"),
    *(
        "pq.read_table",
        "pq.ParquetFile",
        "tflite.Model.GetRootAs",
        "torch.load",
        "torch.export.load",
        "ModelProto.FromString",
    ),
}


def section(title: str) -> str:
    return re.split(r"\n#{2,3} ", PAGE.split(f"## {title}\n", 1)[1])[0]


def said(text: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", text))


def decoding_modules() -> set[str]:
    found = set()
    for folder in ("tmmu_core", "app"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                names = [ast.unparse(node.func)] if isinstance(node, ast.Call) else []
                names += [ast.unparse(base) for base in node.bases] if isinstance(node, ast.ClassDef) else []
                if any(name in DECODERS or name.endswith("FromString") for name in names):
                    found.add(path.relative_to(ROOT).as_posix())
    return found


def test_every_reader_has_a_row_that_says_what_it_may_construct() -> None:
    rows = [row for row in section("What each reader may construct").splitlines() if row.startswith("|")]
    cells = [row.strip()[1:-1].split("|") for row in rows[2:]]
    assert all(len(row) == 4 and row[2].strip() for row in cells)
    named = set().union(*(said(row[0]) for row in cells))
    assert {reader.name for reader in READERS} <= named


def test_every_module_that_decodes_is_named() -> None:
    assert decoding_modules() == {name for name in said(section("Who decodes")) if name.endswith(".py")}


def test_every_limit_stands_in_the_table() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| ([\d,]+) \| (.*) \|$", section("Limits"), re.MULTILINE)
    assert {(name, int(number.replace(",", "")), what) for name, number, what in rows} == {
        (limit.name, limit.default, limit.what) for limit in LIMITS
    }
