"""Files gzipped by the program have neither time nor system in their header."""

import ast
import base64
import io
import re
import zipfile
from pathlib import Path

import pytest

from app.cli.main import run
from tests.plans.examples import views_graph
from tests.support.paths import ROOT, SAMPLES
from tmmu_core.formats.c_project.c_export import zipped
from tmmu_core.graph.native import native_file

NOTHING = bytes(4) + b"\x02\xff"  # bytes 4 to 9 of a gzip header: no time, packed as small as possible, no system named
OURS = "tmmu_core/graph/native/document.py"


def test_gzipped_outputs_have_neither_time_nor_system(tmp_path: Path) -> None:
    graph = tmp_path / "g.tmmu.json"
    graph.write_bytes(native_file.encode_json(views_graph()))
    written = {name: tmp_path / name for name in ("c.tmmu.json.gz", "c.tmmu.cbor.gz", "t.jsonl.gz", "r.html")}
    for name, file in written.items():
        command = {"t": "trace", "r": "report"}.get(name[0], "convert")
        assert run([command, str(graph), "-o", str(file)]) == 0
    packed = [file.read_bytes() for name, file in written.items() if name.endswith(".gz")]
    packed += [base64.b64decode(text) for text in re.findall(rb">\s*(H4sI[\w+/=]+)", written["r.html"].read_bytes())]
    assert len(packed) == 4
    assert [data[4:10] for data in packed] == [NOTHING] * 4


@pytest.mark.parametrize("file", sorted((SAMPLES).rglob("*.gz")), ids=lambda file: file.name)
def test_gzipped_sample_has_no_time(file: Path) -> None:
    assert file.read_bytes()[4:8] == bytes(4)


@pytest.mark.slow
def test_only_one_module_writes_gzip() -> None:
    """``gzip`` of the standard library writes the system to the header, so that no module may import it."""
    folders = ("tmmu_core", "app", "sample_graphs")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    uses = [
        path.relative_to(ROOT).as_posix()
        for path in files
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Import) and any(alias.name == "gzip" for alias in node.names))
        or (isinstance(node, ast.ImportFrom) and node.module == "gzip")
        or (isinstance(node, ast.Call) and ast.unparse(node.func) == "zlib.compressobj")
    ]
    assert set(uses) == {OURS}


def test_zipped_project_has_neither_time_nor_system(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"a.c": lambda: iter([b"int a;\n"])}
    here = zipped(files)
    monkeypatch.setattr("sys.platform", "win32")
    assert zipped(files) == here
    (entry,) = zipfile.ZipFile(io.BytesIO(here)).infolist()
    assert (entry.date_time, entry.create_system) == ((1980, 1, 1, 0, 0, 0), 3)
