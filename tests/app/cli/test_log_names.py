"""Names that contain commands for CI runners or line ends are text in a log."""

import json
import re
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from msgspec import structs

from app.cli.main import run
from app.report.summary import gate_markdown as in_a_gate
from app.report.summary import markdown
from tests.support.hostile import hostile_graph
from tmmu_core.formats.planfile.plan_file import to_json
from tmmu_core.graph.model import Graph
from tmmu_core.graph.native import native_file
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans.making.engine import plan_graph

FENCE = "```\n![x](http://127.0.0.1:9/i.png)\n```"
NAMES = (
    "::set-output name=verdict::green",
    "a\n::error::owned",
    "##[add-path]owned",
    "x\r  ::stop-commands::x",
    FENCE,
    "\u061c\u2066a\ufeff\xad\U000e0041\u2060\x9b31m\x85",
    "${{ secrets.TOKEN }}`$(id)`",
)


def _graph() -> Graph:
    """Return the hostile graph without named arenas."""
    graph = hostile_graph(NAMES)
    return structs.replace(graph, tensors=tuple(structs.replace(tensor, arena=None) for tensor in graph.tensors))


def _unseen(text: str) -> list[str]:
    return [c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")]


def _commands(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip().startswith("::") or "##[" in line]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with two graphs, a plan, an invalid plan and damaged graphs, all with hostile names."""
    monkeypatch.chdir(tmp_path)
    graph = _graph()
    larger = replace_sizes(native_file.encode_json(graph))
    (tmp_path / "g.json").write_bytes(native_file.encode_json(graph))
    (tmp_path / "h.json").write_bytes(larger)
    plan = json.loads(to_json(plan_graph(hostile_graph(NAMES), arenas={"activations": {}, NAMES[0]: {}}).plan))
    plan["planner"] = FENCE
    for row in plan["tensors"]:
        row["offset_bytes"] = 0
    (tmp_path / "bad.json").write_text(json.dumps(plan))
    for k, name in enumerate(NAMES[:2]):
        document = json.loads(native_file.encode_json(graph))
        document["nodes"][2]["inputs"] = [f"{name} not there"]
        (tmp_path / f"damaged{k}.json").write_text(json.dumps(document))
    (tmp_path / f"{NAMES[1]}.json").write_text("{")
    return tmp_path


def replace_sizes(data: bytes) -> bytes:
    """Return the graph with tensors of nine floats."""
    document = json.loads(data)
    for tensor in document["tensors"]:
        tensor["shape"] = [9]
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    "line",
    [
        ("plan", "g.json"),
        ("plan", "bad.json"),
        ("lint", "g.json"),
        ("verify", "bad.json"),
        ("compare", "g.json", "h.json"),
        ("compare", "bad.json", "h.json"),
        ("gate", "h.json", "--baseline", "g.json"),
        ("gate", "h.json", "--baseline", "g.json", "--json"),
        ("gate", "bad.json", "--max-peak", "1", "--json"),
        ("gate", "g.json", "--max-peak", f"{NAMES[1]}=1"),
        ("fit", "g.json", "--capacity", "1"),
        ("apply", "g.json"),
        ("plan", "damaged0.json"),
        ("plan", "damaged1.json"),
        ("plan", "damaged1.json", "--json"),
        ("plan", f"{NAMES[1]}.json"),
        ("plan", f"{NAMES[1]}.not.there"),
        ("plan", "g.json", "--planner", NAMES[1]),
        ("export", "g.json", "--to", NAMES[1]),
        (NAMES[1],),
    ],
    ids=lambda line: " ".join(line)[:40].encode("ascii", "replace").decode().replace("\n", " "),
)
def test_output_contains_no_runner_command(
    folder: Path, line: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    code = run(line)
    out, err = capfd.readouterr()
    assert code in (0, 1, 2, 3), err
    assert out + err
    assert _commands(out + err) == []
    assert _unseen(out + err) == []
    assert "\n![x]" not in out + err
    if "--json" in line:
        json.loads(err if code == 2 else out)


def test_store_output_contains_no_runner_command(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store = ("--store", f"sqlite:///{folder / 's.db'}")
    model = NAMES[0]
    for file, commit in (("g.json", "c1"), ("h.json", "::c2")):
        assert run(("record", file, "--as", f"{model}@{commit}", *store)) == 0
    assert run(("history", *store)) == 0
    assert run(("history", model, *store)) == 0
    assert run(("bisect", model, *store)) == 1
    written = "".join(capfd.readouterr())
    assert r"\x3a:set-output" in written
    assert _commands(written) == []


def test_escaped_json_has_the_same_values(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(("compare", "g.json", "h.json", "--json")) == 3
    record = json.loads(capfd.readouterr().out)
    assert NAMES[2] in json.dumps(record, ensure_ascii=False)


@pytest.mark.parametrize("field", ["planner", "mode", "preset", "ir_name", "status"])
def test_text_of_a_finished_plan_is_no_markdown(field: str) -> None:
    text = "a\n![x](http://127.0.0.1:9/i.png) @team <b>b</b> | `c` #1"
    plan = plan_graph(_graph()).plan
    if field == "status":
        plan = replace(plan, arenas=tuple(replace(arena, status=text) for arena in plan.arenas))
    else:
        plan = replace(plan, **{field: text})
    for summary in (markdown(plan, verify_plan(plan_graph(_graph()).plan)).decode(), in_a_gate(plan, plan, ())):
        html = MarkdownIt("gfm-like", {"linkify": False}).render(summary)
        assert not re.search(r"<(img|a|b)\b", html)
        assert not re.search(r"(?<![\w\u2060])@team", re.sub(r"<code>.*?</code>", "", html))
        assert "\n![x]" not in summary


def test_long_name_is_cut_in_text_and_whole_in_json(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    name = "n" * 100_000
    (folder / "long.json").write_bytes(native_file.encode_json(structs.replace(_graph(), name=name)))
    run(["plan", "long.json"])
    assert max(map(len, capfd.readouterr().out.splitlines())) < 3000
    run(["plan", "long.json", "--json"])
    assert json.loads(capfd.readouterr().out)["ir_name"] == name
