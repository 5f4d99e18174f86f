"""The largest size of a dynamic dimension of an exported program, which is read at each size."""

import json
from pathlib import Path
from typing import Any

import pytest

import tmmu_core as tmmu
from app.cli.main import run
from tests.support.paths import DATA
from tmmu_core.formats.pytorch import torch_module

MODEL = DATA / "torch" / "formulas.pt2"  # batch 2 to 64, 4 in the example; shapes hold ``2*s`` and ``16*s``
SIZES = range(2, 65)


@pytest.fixture(autouse=True)
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_module, "installed", lambda _: False)


def extent(size: int) -> int:
    return tmmu.plan(str(MODEL), dims={"x.0": size}, planner="exact", one_memory=True).extent_bytes


@pytest.fixture
def fitted(capfd: pytest.CaptureFixture[str]) -> Any:
    def call(capacity: int, *options: str) -> tuple[int, dict[str, Any]]:
        asked = ("--planner", "exact", "--capacity", str(capacity), "--largest", "x.0", "--allow", "sizes", "--json")
        code = run(["fit", str(MODEL), *asked, *options])
        return code, json.loads(capfd.readouterr().out)

    return call


@pytest.mark.parametrize("largest", [2, 3, 4, 5, 23, 40, 63, 64])
def test_largest_size_is_the_one_that_a_plan_of_each_size_gives(fitted: Any, largest: int) -> None:
    capacity = extent(largest)
    expected = max(size for size in SIZES if extent(size) <= capacity)
    code, answer = fitted(capacity)
    assert (code, answer["largest"]) == (0, {"x.0": expected})
    assert answer["extent_bytes"] <= capacity


def test_no_size_is_given_where_the_smallest_does_not_fit(fitted: Any) -> None:
    code, answer = fitted(extent(2) - 1)
    assert (code, answer["largest"]) == (1, {"x.0": None})


def test_plan_is_made_at_the_size_that_is_given(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", str(MODEL), "--dims", "x.0=8", "--json"]) == 0
    rows = {row["tensor_id"]: row["size_bytes"] for row in json.loads(capfd.readouterr().out)["tensors"]}
    assert (rows["x"], rows["cat"], rows["cos"]) == (8 * 64, 2 * 8 * 64, 16 * 8 * 4)


def test_convert_writes_the_upper_end_of_the_bounds(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "graph.json"
    assert run(["convert", str(MODEL), "--dims", "x.0=2:64", "-o", str(out)]) == 0
    assert run(["convert", str(MODEL), "-o", str(out)]) == 0
    assert "--dims" in tmmu.plan(str(MODEL)).notes["assumed"]
    assert "--dims" not in tmmu.plan(str(out)).notes["assumed"]
    assert run(["convert", str(MODEL), "--dims", "x.0=2:64", "-o", str(out)]) == 0
    assert f"x.0 cannot change in the written graph. Convert {MODEL} again with --dims." in capfd.readouterr().err
    assert tmmu.plan(str(out), one_memory=True, planner="exact").extent_bytes == extent(64)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("plan", "{model}", "--dims", "x.1=8"), "Did you mean 'x.0'?"),
        (("plan", "{model}", "--dims", "x.0=65"), "x.0 = 65 is outside of 2 to 64"),
        (("convert", "{model}", "--dims", "x.1=8"), "Did you mean 'x.0'?"),
        (("convert", "{model}", "--dims", "x.0=1:64"), "x.0 = 1 is outside of 2 to 64"),
        (("fit", "{model}", "--capacity", "1MiB", "--largest", "x.1"), "Did you mean 'x.0'?"),
        (("fit", "{model}", "--capacity", "1MiB", "--dims", "x.1=8"), "Did you mean 'x.0'?"),
        (("plan", "{unused}", "--dims", "batches=8"), "Did you mean 'batch'?"),
        (("convert", "{unused}", "--dims", "batches=8"), "Did you mean 'batch'?"),
        (("fit", "{unused}", "--capacity", "1MiB", "--largest", "batches"), "Did you mean 'batch'?"),
    ],
)
def test_dimension_that_changes_no_size_is_rejected_with_the_closest(
    command: tuple[str, ...], message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    unused = tmp_path / "unused.json"
    unused.write_text(
        '{"ir_schema": "uml_model_ir/1", "dims": {"batch": {"min": 1, "max": 8}, "batches": {"min": 2, "max": 64}},'
        '"tensors": [{"id": "x", "shape": ["batch", 4], "role": "input", "dtype": "float32"}], "inputs": ["x"],'
        '"nodes": [], "outputs": ["x"]}'
    )
    assert run([part.format(model=MODEL, unused=unused) for part in command]) != 0
    assert message in capfd.readouterr().err
