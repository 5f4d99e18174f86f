"""Files of earlier versions open; files of later versions are rejected as such."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cbor2
import pytest

from app.cli.main import run
from tests.support.paths import DATA, read_graph_file
from tmmu_core.base.errors import StoreFault, TmmuError, UnreadableInput
from tmmu_core.formats.open_file import read_any
from tmmu_core.formats.planfile import plan_file, trace
from tmmu_core.formats.planfile.plan_file import checkpoint, restore
from tmmu_core.formats.planfile.trace import Trace
from tmmu_core.graph.model import Graph
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.planners.problem import PlainInstance
from tmmu_core.plans.making.engine import Solution, plan_graph
from tmmu_core.plans.model import Plan

FOLDER = DATA / "versions"
"""``COMMIT/FILE``: one file of each kind, as the code of that commit wrote it."""
FILES = sorted(path for path in FOLDER.rglob("*") if path.is_file() and not path.name.startswith("store.db-"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(FOLDER).as_posix())
def test_file_of_an_earlier_version_opens(path: Path, tmp_path: Path) -> None:
    if path.suffix == ".db":
        from tmmu_core.store.store import Store

        url = f"sqlite:///{shutil.copy(path, tmp_path)}"
        (kept,) = Store.at(url).recorded_runs("net")
        assert verify_plan(Store.at(url).plan(kept)).ok
        return
    if path.name == "arenas.json":
        graph = str(path.with_name("training_step.tmmu.json"))
        assert run(["plan", graph, "--arenas", str(path), "-o", str(tmp_path / "p.json")]) == 0
        return
    found = read_any(path.read_bytes(), path.name)
    assert isinstance(found, Graph | PlainInstance | Plan | Trace)
    plan = found.plan if isinstance(found, Trace) else found
    if isinstance(found, Graph):
        plan = plan_graph(found).plan
    if isinstance(plan, Plan) and "digest" not in path.name:
        assert verify_plan(plan).ok


def test_graph_of_the_first_version_is_read_with_a_note() -> None:
    old = read_graph_file(FOLDER / "da4ff5b" / "training_step.tmmu.json")
    new = read_graph_file(FOLDER / "d0b5278" / "training_step.tmmu.json")
    assert old.tensors == new.tensors
    assert old.notes == (
        "20 of 20 tensors have no dtype and are read as float32.",
        "1 of 20 tensors have no shape and are read as scalars.",
    )
    assert "no dtype and are read as float32" in plan_graph(old).plan.remark("read")


# --- later versions ----------------------------------------------------------------------------------------------


def solution() -> Solution:
    return plan_graph(read_graph_file(FOLDER / "d0b5278" / "training_step.tmmu.json"))


def renamed(value: Any) -> Any:
    """Return the document with new names for all fields but the schemas."""
    if isinstance(value, dict):
        kept = ("schema", "ir_schema", "trace_schema", "record")
        return {key if key in kept else f"{key}_2": renamed(inner) for key, inner in value.items()}
    return [renamed(inner) for inner in value] if isinstance(value, list) else value


def later_json(data: bytes, field: str, rename: Callable[[Any], Any]) -> bytes:
    document = json.loads(data)
    name, _, version = document[field].partition("/")
    return json.dumps(rename({**document, field: f"{name}/{int(version) + 1}"})).encode()


def same(value: Any) -> Any:
    return value


@pytest.mark.parametrize("rename", [same, renamed])
@pytest.mark.parametrize("kind", ["graph", "graph cbor", "plan", "plan cbor", "checkpoint", "trace", "trace cbor"])
def test_file_of_a_later_version_is_refused_as_such(kind: str, rename: Callable[[Any], Any]) -> None:
    made = solution()
    head, *rows = trace.to_json_lines(made.plan).splitlines()
    graph = (FOLDER / "d0b5278" / "training_step.tmmu.json").read_bytes()
    later: dict[str, Callable[[], bytes]] = {
        "graph": lambda: later_json(graph, "ir_schema", rename),
        "graph cbor": lambda: cbor2.dumps(json.loads(later_json(graph, "ir_schema", rename))),
        "plan": lambda: later_json(plan_file.to_json(made.plan), "schema", rename),
        "plan cbor": lambda: cbor2.dumps(json.loads(later_json(plan_file.to_json(made.plan), "schema", rename))),
        "checkpoint": lambda: cbor2.dumps(
            rename(cbor2.loads(checkpoint(made.plan, made.liveness)) | {"schema": "tmmu_checkpoint/2"})
        ),
        "trace": lambda: b"\n".join([later_json(head, "trace_schema", rename), *rows]),
        "trace cbor": lambda: cbor2.dumps(json.loads(later_json(head, "trace_schema", rename))),
    }
    with pytest.raises(UnreadableInput, match="a later version of TMMU Plan Explorer wrote this file"):
        read_any(later[kind](), "file")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ir_schema", {"name": "uml_model_ir", "version": 2}),
        ("ir_schema", 2),
        ("schema", "uml_model_ir/2"),
        ("schema", "2"),
        ("ir_schema_version", 2),
        ("version", 2),
    ],
)
@pytest.mark.parametrize("encode", [lambda document: json.dumps(document).encode(), cbor2.dumps])
def test_later_version_may_write_its_schema_otherwise(
    field: str, value: Any, encode: Callable[[Any], bytes], tmp_path: Path
) -> None:
    graph = json.loads((FOLDER / "d0b5278" / "training_step.tmmu.json").read_bytes())
    plan = json.loads(plan_file.to_json(solution().plan))
    del graph["ir_schema"], plan["schema"]
    for document in (graph | {field: value}, plan | {field.removeprefix("ir_"): value}):
        with pytest.raises(UnreadableInput, match="a later version of TMMU Plan Explorer wrote this file"):
            read_any(encode(document), "file")
    for other in ({"version": 2}, {"version": 2, "tensors": []}, {"conversion": 3, "tensors": [], "nodes": []}):
        with pytest.raises(TmmuError, match=r"Unrecognised file format|unknown field"):
            read_any(encode(other | {"of": "another tool"}), "file")


def test_version_1_0_is_not_reported_as_later() -> None:
    with pytest.raises(UnreadableInput, match=r"uml_model_ir/1\.0") as caught:
        read_any(b'{"ir_schema": "uml_model_ir/1.0", "tensors": [], "nodes": []}', "file")
    assert caught.value.place == "$.ir_schema"


def test_store_of_a_later_version_is_refused_as_such(tmp_path: Path) -> None:
    from tmmu_core.store.store import Store

    path = tmp_path / "store.db"
    shutil.copy(FOLDER / "d0b5278" / "store.db", path)
    with sqlite3.connect(path) as store:
        store.execute("UPDATE alembic_version SET version_num = '9999'")
        store.execute("ALTER TABLE runs RENAME COLUMN planner TO made_by")
    with pytest.raises(StoreFault, match="the store has version"):
        Store.at(f"sqlite:///{path}")


def test_restore_refuses_no_current_checkpoint() -> None:
    made = solution()
    assert restore(checkpoint(made.plan, made.liveness)).tmmu_plan_hash == made.plan.tmmu_plan_hash
