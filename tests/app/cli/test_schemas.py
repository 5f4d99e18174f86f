"""Outputs match their schemas, and have no field that the schemas omit."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import onnx
import pytest

from app.cli.main import COMMANDS, run
from tests.support.paths import SAMPLES
from tmmu_core.base import schemas

MIXED, TRAINING, OPEN, TWO = (
    str(SAMPLES / f"{name}.tmmu.json") for name in ("mixed_sizes", "training_step", "dynamic_batch", "two_arenas")
)
LIGHT = Path(onnx.__file__).parent / "backend/test/data/light/light_squeezenet.onnx"


def undescribed(value: Any, schema: Any, root: Any, path: str = "$") -> Iterator[str]:
    """Yield the path of each field that the schema does not name."""
    if schema is True:
        return
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    for one in [*schema.get("anyOf", ()), *schema.get("oneOf", ())]:
        if jsonschema.Draft202012Validator({**one, "$defs": root.get("$defs", {})}).is_valid(value):
            yield from undescribed(value, one, root, path)
            return
    if isinstance(value, dict):
        for key, inner in value.items():
            known = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
            if known is None:
                yield f"{path}.{key}"
            else:
                yield from undescribed(inner, known, root, f"{path}.{key}")
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        for inner in value:
            yield from undescribed(inner, schema["items"], root, f"{path}[]")


def held(name: str, document: Any) -> None:
    """Assert that the document is valid and that its schema names every field."""
    whole = schemas.schema(name)
    jsonschema.Draft202012Validator(whole).validate(document)
    assert sorted(set(undescribed(document, whole, whole))) == []


def written(command: str, capfd: pytest.CaptureFixture[str], code: int | None = 0) -> str:
    capfd.readouterr()
    found = run(command.split())
    out, err = capfd.readouterr()
    assert code is None or found == code, err
    return err if code == 2 else out


@pytest.mark.parametrize("name", schemas.NAMES)
def test_schema_is_valid_and_titled(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schemas.schema(name))
    assert schemas.schema(name)["title"]


@pytest.mark.parametrize("sample", [MIXED, TRAINING, TWO, str(SAMPLES / "views.tmmu.json")])
@pytest.mark.parametrize("planner", ["slots", "greedy", "helia"])
def test_plans_and_traces_match_their_schemas(sample: str, planner: str, capfd: pytest.CaptureFixture[str]) -> None:
    held("plan", json.loads(written(f"plan {sample} --planner {planner} --json", capfd)))
    for line in written(f"trace {sample} --planner {planner}", capfd).splitlines():
        held("trace", json.loads(line))


@pytest.mark.parametrize(
    ("name", "command", "code"),
    [
        ("verify", f"verify {MIXED} --json", 0),
        ("verify", f"lint {MIXED} --json", 0),
        ("gate", f"gate {MIXED} --max-gap 5 --baseline {MIXED} --json", 1),
        ("compare", f"compare {MIXED} {TWO} --json", 3),
        ("compare", f"compare {MIXED} {MIXED} --json", 0),
        ("fit", f"fit {MIXED} --capacity 300KiB --json", 0),
        ("fit", f"fit {MIXED} --capacity 1KiB --json", 1),
        ("fit", f"fit {OPEN} --largest B --capacity 100KiB --json", None),
        ("apply", f"apply {MIXED} --json", 0),
        ("sweep", f"sweep {OPEN} --over B --json", 0),
        ("sweep", f"sweep {MIXED} {TWO} --capacities 300KiB --planners slots,greedy --json", 0),
        ("sweep", f"sweep {MIXED} --capacity 700KiB --planners slots,greedy --json", 0),
        ("measure", f"measure {LIGHT} --json", 0),
        ("error", f"plan {MIXED} --capacity 1KiB --json", 2),
        ("error", "plan nothing.onnx --json", 2),
        ("error", f"plan {MIXED} --planner none --json", 2),
        ("error", f"plan {MIXED} --token 7 --json", 2),
    ],
)
def test_output_of_each_command_matches_its_schema(
    name: str, command: str, code: int | None, capfd: pytest.CaptureFixture[str]
) -> None:
    held(name, json.loads(written(command, capfd, code)))


def test_output_of_the_store_matches_its_schema(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store = f"--store sqlite:///{tmp_path}/plans.db --json"
    for k, planner in enumerate(("auto", "slots")):
        held("record", json.loads(written(f"record {MIXED} --planner {planner} --as m@c{k} {store}", capfd)))
    held("history", json.loads(written(f"history m {store}", capfd)))
    held("history", json.loads(written(f"history {store}", capfd)))
    held("bisect", json.loads(written(f"bisect m {store}", capfd, None)))


def test_schema_command_lists_all(capfd: pytest.CaptureFixture[str]) -> None:
    assert json.loads(written("schema plan", capfd)) == schemas.schema("plan")
    assert [line.split()[0] for line in written("schema", capfd).splitlines()] == list(schemas.NAMES)
    assert "schema" in COMMANDS
    written("schema nothing", capfd, 2)
