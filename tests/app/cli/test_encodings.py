"""With any terminal encoding a command has its exit code, and JSON is UTF-8."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli.main import run
from tests.support.paths import ROOT, SAMPLES
from tmmu_core.base.errors import InvalidIrShapes, UnreadableInput
from tmmu_core.store.store import Store

NAME = "g\udcff.json"


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "utf-16"])
@pytest.mark.parametrize(
    "command", ["--help", "plan sample_graphs/views.tmmu.json", "plan sample_graphs/views.tmmu.json --json"]
)
def test_narrow_encoding_is_no_error(encoding: str, command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "app.cli.main", *command.split()],
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    if command.endswith("--json"):
        assert json.loads(done.stdout)["ir_name"] == "views"


@pytest.mark.parametrize(
    "error", [UnreadableInput("a\udcff", source="b\udcff"), InvalidIrShapes("c\udcff", tensor="d\udcff")]
)
def test_surrogate_in_an_error_is_escaped(error: UnreadableInput | InvalidIrShapes) -> None:
    assert b"\\udcff" in json.dumps(error.record(), ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("encoding", "code", "shown"), [("utf-8-sig", 0, ""), ("utf-16", 2, "Save the file as UTF-8.")]
)
def test_order_file_is_utf_8_with_or_without_a_mark(
    encoding: str, code: int, shown: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "order.json").write_text(json.dumps([f"relu{k}" for k in range(1, 9)]), encoding=encoding)
    graph = str(SAMPLES / "linear_chain.tmmu.json")
    assert run(["plan", graph, "--order", str(tmp_path / "order.json")]) == code
    assert shown in capfd.readouterr().err


@pytest.mark.parametrize(
    ("line", "codes"),
    [
        (("gate", "g.json", "--baseline", NAME, "--json"), (0,)),
        (("plan", NAME, "--json"), (0,)),
        (("plan", NAME, "--planner", "naive", "--json"), (0,)),  # has a warning
        (("verify", NAME, "--planner", "naive", "--json"), (0,)),
        (("gate", NAME, "--max-gap", "1", "--json", "--out", "gate\udcff"), (0,)),
        (("sweep", NAME, "g.json", "--json"), (0,)),
        (("sweep", NAME, "g.json", "--store", "sqlite:///s.db"), (0,)),
        (("sweep", "g.json", "--planners", "x\udcff,slots"), (2,)),
        (("sweep", "g.json", "--shards", f"{NAME},none", "--json"), (0, 2)),
        (("record", NAME, "--as", "m\udcff@c", "--store", "sqlite:///s.db"), (2,)),
        (("history", "m\udcff", "--store", "sqlite:///s.db"), (2,)),
        (("compare", "store:m\udcff@c", "g.json", "--store", "sqlite:///s.db"), (2,)),
        (("export", NAME, "--to", "c-project", "--prefix", "x\udcff", "-o", "project\udcff"), (0,)),
        (("report", NAME, "--title", "t\udcff", "-o", "report\udcff.html"), (0,)),
        (("plan", "g.json", "--planner", "helia", "--option", 'memories=[{"name":"\\ud800"}]'), (2,)),
        (("plan", "g.json", "--planner", "helia", "--option", 'memories=[{"name":"\udcff"}]'), (2,)),
        (("plan", "g.json", "--capacity", "a\udcff=1"), (2,)),
    ],
)
def test_file_name_that_is_no_text_is_a_name(
    line: tuple[str, ...],
    codes: tuple[int, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    """File names are bytes; Python decodes invalid UTF-8 to surrogates."""
    monkeypatch.chdir(tmp_path)
    for name in ("g.json", NAME):
        Path(name).write_bytes((SAMPLES / "linear_chain.tmmu.json").read_bytes())
    Store.at("sqlite:///s.db", create=True).close()
    code = run(line)
    out, err = capfdbinary.readouterr()
    assert code in codes, err.decode()
    (out + err).decode("utf-8")
