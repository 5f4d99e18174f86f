"""Every hand-written format rejects a misspelt key or name, or warns about it, and names the closest known one."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.cli.main import run
from tmmu_core.base import strict

LONG = "1" * 5000
GRAPH: dict[str, Any] = {
    "ir_schema": "uml_model_ir/1",
    "name": "small",
    "dims": {"batch": {"min": 1, "max": 4}},
    "tensors": [
        {"id": "source", "shape": ["batch", 8], "dtype": "float32", "role": "input"},
        {"id": "weight", "shape": [8, 8], "dtype": "float32", "role": "parameter"},
        {"id": "hidden", "shape": ["batch", 8], "dtype": "float32", "role": "activation"},
        {"id": "result", "shape": ["batch", 8], "dtype": "float32", "role": "output"},
    ],
    "nodes": [
        {"node_id": "first", "instr": "MATMUL", "inputs": ["source", "weight"], "outputs": ["hidden"]},
        {"node_id": "second", "instr": "RELU", "inputs": ["hidden"], "outputs": ["result"]},
    ],
    "inputs": ["source"],
    "outputs": ["result"],
}
ARENAS = {
    "activations": {"capacity_bytes": 65536, "alignment_bytes": 64, "page_size": 4096},
    "gradients": {},
    "parameters": {"capacity_bytes": 65536},
}
SHARDS = {
    "mesh": [{"name": "model", "size": 2}],
    "tensors": {"weight": {"axis": 0, "mesh": "model"}},
    "rules": [{"match": "hid*", "axis": 1, "mesh": "model"}],
    "contracts": {"activations": None},
}
MEMORIES = [{"name": "DTCM", "max_size": 65536, "arena_alignment": 16}, {"name": "SRAM", "writable": True}]
RULES = [
    {"memory": "SRAM", "role": "constant", "min_size": 1},
    {"memory": "DTCM", "role": "scratch", "operator": "MATMUL", "name": "hidden", "max_size": 4096},
]
FREE_TEXT = ("DTCM", "model")
"""Names that the document itself introduces: a misspelt one is a new name. Its uses are misspelt elsewhere."""


def misspelt(word: str) -> str:
    """Return the word with its last two letters replaced; a pattern keeps its star."""
    return f"{word.rstrip('*')[:-2]}qz" + "*" * word.endswith("*")


def variants(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield ``(word, value with that word misspelt)`` for each key and each text in a JSON value."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key, {misspelt(k) if k == key else k: v for k, v in value.items()}
            for word, changed in variants(inner):
                yield word, {k: changed if k == key else v for k, v in value.items()}
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            for word, changed in variants(inner):
                yield word, [changed if k == at else v for k, v in enumerate(value)]
    elif isinstance(value, str):
        yield value, misspelt(value)


@dataclass(frozen=True)
class Written:
    """A hand-written document, and the arguments that read it; ``FILE`` is the document, ``GRAPH`` the graph."""

    document: Any
    arguments: tuple[str, ...]


PLAN = ("plan", "GRAPH", "--json")
FORMATS = {
    "arenas": Written(ARENAS, (*PLAN, "--arenas", "FILE")),
    "shard spec": Written(SHARDS, (*PLAN, "--shard", "FILE")),
    "order": Written(["first", "second"], (*PLAN, "--order", "FILE")),
    "helia": Written({"memories": MEMORIES, "rules": RULES}, (*PLAN, "--planner", "helia", "OPTIONS")),
    "planner options": Written({"order": "size", "fit": "lowest"}, (*PLAN, "--planner", "greedy", "OPTIONS")),
    "dims": Written({"batch": 2}, (*PLAN, "--dims", "PAIRS")),
    "capacities": Written({"activations": 65536}, (*PLAN, "--capacity", "PAIRS")),
    "gate limits": Written({"activations": 65536}, ("gate", "GRAPH", "--json", "--max-extent", "PAIRS")),
    "names of options": Written(["slots"], (*PLAN, "--planner", "WORD")),
    "moves": Written(["order"], ("fit", "GRAPH", "--json", "--capacity", "1MiB", "--allow", "WORD")),
    "graph fields": Written(GRAPH["tensors"][2], ("plan", "TENSOR", "--json")),
}


def call(
    written: Written, document: Any, folder: Path, capfd: pytest.CaptureFixture[str]
) -> tuple[int, dict[str, Any]]:
    """Return ``(exit code, JSON output)`` of the command on the document."""
    (folder / "graph.json").write_text(json.dumps(GRAPH))
    (folder / "file.json").write_text(json.dumps(document))
    tensors = [document if k == 2 else tensor for k, tensor in enumerate(GRAPH["tensors"])]
    (folder / "tensor.json").write_text(json.dumps(GRAPH | {"tensors": tensors}))
    arguments: list[str] = []
    for argument in written.arguments:
        if argument == "OPTIONS":
            for key, value in document.items():
                arguments += ["--option", f"{key}={json.dumps(value)}"]
            continue
        files = {"GRAPH": "graph.json", "FILE": "file.json", "TENSOR": "tensor.json"}
        if argument in files:
            argument = str(folder / files[argument])
        elif argument == "PAIRS":
            argument = ",".join(f"{key}={value}" for key, value in document.items())
        elif argument == "WORD":
            argument = document[0]
        arguments.append(argument)
    code = run(arguments)
    out, err = capfd.readouterr()
    return code, json.loads(err.strip().splitlines()[-1] if code == 2 else out)


@pytest.mark.parametrize("name", FORMATS)
def test_each_misspelt_key_and_name_is_rejected_or_warned_about(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    written = FORMATS[name]
    code, answer = call(written, written.document, tmp_path, capfd)
    assert code == 0, answer
    assert not answer.get("warnings")
    unnoticed = []
    for word, document in variants(written.document):
        code, answer = call(written, document, tmp_path, capfd)
        text = json.dumps(answer, ensure_ascii=False)
        if code == 2 and (word in text or word in FREE_TEXT or name == "graph fields"):
            continue
        if code == 0 and answer.get("warnings"):
            continue
        unnoticed.append((word, code, text[:200]))
    assert not unnoticed


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("TMMU_MAX_ARENA", "1", "Did you mean 'TMMU_MAX_ARENAS'"),
        ("TMMU_MAX_ARENA", "abc", "Did you mean 'TMMU_MAX_ARENAS'"),
        ("TMMU_MAX_RANKS", "abc", "TMMU_MAX_RANKS: 'abc' is not a whole number"),
        ("TMMU_MAX_RANKS", LONG, "is over 2^64 − 1"),
    ],
)
def test_invalid_environment_variable_is_rejected_at_the_start(
    name: str, value: str, named: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """``schema`` reads no limit."""
    monkeypatch.setenv(name, value)
    assert run(["schema"]) == 2
    assert named in capfd.readouterr()[1]


@pytest.mark.parametrize("text", ['{"order": ["first", "second"]}', "{}"])
def test_order_written_as_an_object_is_rejected(text: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, record = call(Written(None, (*PLAN, "--order", "FILE")), json.loads(text), tmp_path, capfd)
    assert code == 2
    assert "object" in record["message"]


def test_helia_rejects_the_capacity_of_an_arena(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = (*PLAN, "--planner", "helia", "--capacity", "activations=10")
    assert call(Written(None, arguments), None, tmp_path, capfd)[0] == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "NUMBER"),
        ("plan", "GRAPH", "--arenas", "NUMBER"),
        ("plan", "GRAPH", "--shard", "NUMBER"),
        ("plan", "GRAPH", "--order", "NUMBER"),
        ("plan", "CELL"),
        ("plan", "GRAPH", "--planner", "exact", "--option", f"budget={LONG}"),
        ("plan", "GRAPH", "--planner", "exact", "--option", f'budget="{LONG}"'),
        ("plan", "GRAPH", "--seed", LONG),
        ("plan", "GRAPH", "--dims", f"batch={LONG}"),
        ("plan", "GRAPH", "--capacity", LONG),
        ("plan", "GRAPH", "--max-arenas", LONG),
        ("gate", "GRAPH", "--max-extent", LONG),
        ("sweep", "GRAPH", "--over", f"batch={LONG}"),
        ("convert", "GRAPH", "--dims", f"batch=1:{LONG}"),
    ],
)
def test_number_of_5000_digits_is_rejected_with_a_record(
    arguments: tuple[str, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "GRAPH").write_text(json.dumps(GRAPH))
    (tmp_path / "NUMBER").write_text(LONG)
    (tmp_path / "CELL").write_text(f"id,lower,upper,size\na,0,1,{LONG}\n")
    given = [str(tmp_path / a) if a in ("GRAPH", "NUMBER", "CELL") else a for a in arguments]
    assert run([*given, "--json"]) == 2
    record = json.loads(capfd.readouterr()[1].strip().splitlines()[-1])
    assert "NUMBER" in arguments or re.search(r"2\^64 − 1|64 bits", str(record))


@given(st.text(max_size=30), st.integers(0, 2**64))
def test_whole_number_parses_digits_up_to_its_limit(text: str, number: int) -> None:
    assert strict.whole_number(f" {number:030d}") == number if number < 2**64 else True
    try:
        assert 0 <= strict.whole_number(text) < 2**64
    except ValueError:
        assert not (text.strip().isascii() and text.strip().isdigit()) or int(text) >= 2**64
