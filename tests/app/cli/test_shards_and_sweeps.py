"""Rank-local plans and sweeps over a dimension, on the command line."""

import json
from pathlib import Path

import pytest

from tests.app.cli.conftest import Tmmu
from tests.support.paths import SAMPLES

DYNAMIC = str(SAMPLES / "dynamic_batch.tmmu.json")
CHAIN = str(SAMPLES / "linear_chain.tmmu.json")
BY_COLUMNS = {"mesh": {"tp": 4}, "tensors": {"w1": {"axis": 1, "mesh": "tp"}}}


@pytest.fixture
def spec(tmp_path: Path) -> str:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(BY_COLUMNS))
    return str(path)


@pytest.mark.parametrize(
    ("options", "shown_text"),
    [(("--rank", "4"), "no rank 4: the number of ranks"), (("--rank", "0", "--world-size", "8"), "--world-size is 8")],
)
def test_world_size_that_differs_from_the_mesh_is_rejected(
    tmmu: Tmmu, spec: str, options: tuple[str, ...], shown_text: str
) -> None:
    code, _, err = tmmu("plan", DYNAMIC, "--shard", spec, *options)
    assert code == 2
    assert shown_text in err


@pytest.mark.parametrize("command", [("plan", "--shard"), ("sweep", "--shards")])
def test_damaged_spec_is_named(tmmu: Tmmu, tmp_path: Path, command: tuple[str, str]) -> None:
    (tmp_path / "bad.json").write_text("{")
    assert "bad.json: this is not JSON" in tmmu(command[0], DYNAMIC, command[1], str(tmp_path / "bad.json"))[2]


def test_plan_of_a_rank_verifies_against_its_share(tmmu: Tmmu, spec: str, tmp_path: Path) -> None:
    path = str(tmp_path / "rank.json")
    assert tmmu("plan", DYNAMIC, "--shard", spec, "--rank", "3", "-o", path)[0] == 0
    assert tmmu("verify", path, "--graph", DYNAMIC, "--shard", spec)[0] == 0
    assert tmmu("lint", DYNAMIC, "--shard", spec, "--rank", "3")[0] == 0


@pytest.mark.parametrize("addressing", ["offsets", "blake3_sparse"])
def test_plan_of_a_rank_is_checkpointed_with_its_spec(tmmu: Tmmu, spec: str, tmp_path: Path, addressing: str) -> None:
    plan, kept = str(tmp_path / "rank.json"), str(tmp_path / "rank.cbor")
    assert tmmu("plan", DYNAMIC, "--shard", spec, "--addressing", addressing, "-o", plan)[0] == 0
    assert tmmu("checkpoint", plan, "--graph", DYNAMIC, "--shard", spec, "-o", kept)[0] == 0
    assert tmmu("compare", plan, kept)[0] == 0
    assert tmmu("checkpoint", plan, "--graph", DYNAMIC, "-o", kept)[0] == 2


# --- sweeps over a dimension -------------------------------------------------------------------------------------


def test_size_outside_the_envelope_is_an_error_row(tmmu: Tmmu) -> None:
    rows = json.loads(tmmu("sweep", DYNAMIC, "--over", "B=8,99", "--planners", "slots", "--json")[1])["rows"]
    assert [row["error"] and row["error"]["code_id"] for row in rows] == [None, "INVALID_IR_SHAPES"]


def test_file_without_the_dimension_has_empty_cells(tmmu: Tmmu, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    code, out, _ = tmmu("sweep", DYNAMIC, str(bad), "--over", "B=8", "--planners", "slots")
    assert (code, "B=8" in out, "UNREADABLE_INPUT" in out) == (0, True, True)


def test_planner_options_are_json(tmmu: Tmmu) -> None:
    code, out, _ = tmmu(
        "plan", CHAIN, "--planner", "greedy", "--option", "order=area", "--option", "fit=tightest", "--json"
    )
    assert code == 0
    assert (
        json.loads(out)["planner_options"] | {"order": "area", "fit": "tightest"} == json.loads(out)["planner_options"]
    )
