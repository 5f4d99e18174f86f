"""Rank-local plans and sweeps over a dimension, on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from app.cli.main import run
from tests.support.paths import SAMPLES
from tmmu_core.formats.open_file import read_any
from tmmu_core.plans.making.ranks import plan_rank
from tmmu_core.plans.making.request import PlanRequest

DYNAMIC = str(SAMPLES / "dynamic_batch.tmmu.json")
CHAIN = str(SAMPLES / "linear_chain.tmmu.json")
BY_COLUMNS = {"mesh": {"tp": 4}, "tensors": {"w1": {"axis": 1, "mesh": "tp"}}}
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def tmmu(capsysbinary: pytest.CaptureFixture[bytes]) -> Command:
    """``told(*arguments) -> (exit code, stdout, stderr)``."""

    def call(*arguments: str) -> tuple[int, str, str]:
        capsysbinary.readouterr()
        code = run(arguments)
        out, err = capsysbinary.readouterr()
        return code, out.decode(), err.decode()

    return call


@pytest.fixture
def spec(tmp_path: Path) -> str:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(BY_COLUMNS))
    return str(path)


def test_shard_spec_splits_the_shapes(tmmu: Command, spec: str) -> None:
    document = json.loads(tmmu("plan", DYNAMIC, "--shard", spec, "--rank", "1", "--json")[1])
    assert next(row for row in document["tensors"] if row["tensor_id"] == "w1")["shape"] == [784, 128]
    assert (document["rank"], document["world_size"]) == (1, 4)


def test_rank_equals_that_of_the_core(tmmu: Command, spec: str) -> None:
    graph = read_any(Path(DYNAMIC).read_bytes(), DYNAMIC)
    document = json.loads(tmmu("plan", DYNAMIC, "--shard", spec, "--rank", "2", "--mode", "backward", "--json")[1])
    alone = plan_rank(graph, PlanRequest(shard_spec=BY_COLUMNS, rank=2, mode="backward")).plan
    assert document["tmmu_plan_hash"] == alone.tmmu_plan_hash.hex()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--rank", "4"), "no rank 4 among 4"),
        (("--rank", "0", "--world-size", "8"), "the world has 8 ranks"),
    ],
)
def test_world_size_that_differs_from_the_mesh_is_rejected(
    tmmu: Command, spec: str, options: tuple[str, ...], said: str
) -> None:
    code, _, err = tmmu("plan", DYNAMIC, "--shard", spec, *options)
    assert code == 2
    assert said in err


def test_split_that_leaves_a_rank_empty_is_rejected(tmmu: Command, tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text('{"mesh": {"tp": 16}, "tensors": {"w2": {"axis": 1, "mesh": "tp"}}}')
    code, _, err = tmmu("plan", DYNAMIC, "--shard", str(path), "--json")
    assert code == 2
    assert json.loads(err)["diagnostics"]["reason"] == "shard_too_small"


def test_plan_of_a_rank_verifies_against_its_share(tmmu: Command, spec: str, tmp_path: Path) -> None:
    path = str(tmp_path / "rank.json")
    assert tmmu("plan", DYNAMIC, "--shard", spec, "--rank", "3", "-o", path)[0] == 0
    assert tmmu("verify", path, "--graph", DYNAMIC, "--shard", spec)[0] == 0
    assert tmmu("lint", DYNAMIC, "--shard", spec, "--rank", "3")[0] == 0


@pytest.mark.parametrize("addressing", ["offsets", "blake3_sparse"])
def test_plan_of_a_rank_is_checkpointed_with_its_spec(
    tmmu: Command, spec: str, tmp_path: Path, addressing: str
) -> None:
    plan, kept = str(tmp_path / "rank.json"), str(tmp_path / "rank.cbor")
    assert tmmu("plan", DYNAMIC, "--shard", spec, "--addressing", addressing, "-o", plan)[0] == 0
    assert tmmu("checkpoint", plan, "--graph", DYNAMIC, "--shard", spec, "-o", kept)[0] == 0
    assert tmmu("compare", plan, kept)[0] == 0
    assert tmmu("checkpoint", plan, "--graph", DYNAMIC, "-o", kept)[0] == 2


def test_plan_of_a_rank_does_not_verify_for_the_whole_graph(tmmu: Command, spec: str, tmp_path: Path) -> None:
    path = str(tmp_path / "rank.json")
    assert tmmu("plan", DYNAMIC, "--shard", spec, "-o", path)[0] == 0
    assert tmmu("verify", path, "--graph", DYNAMIC)[0] == 1


# --- sweeps over a dimension -------------------------------------------------------------------------------------


def test_sweep_over_a_dimension_has_a_row_per_size(tmmu: Command) -> None:
    rows = json.loads(tmmu("sweep", DYNAMIC, "--over", "B=1,8", "--planners", "slots", "--json")[1])["rows"]
    assert [row["dims"] for row in rows] == [{"B": 1}, {"B": 8}]
    assert rows[0]["extent_bytes"] < rows[1]["extent_bytes"]


def test_sweep_over_an_envelope_has_all_its_sizes(tmmu: Command) -> None:
    rows = json.loads(tmmu("sweep", DYNAMIC, "--over", "B", "--planners", "slots", "--json")[1])["rows"]
    assert [row["dims"]["B"] for row in rows] == list(range(1, 33))


def test_size_outside_the_envelope_is_an_error_row(tmmu: Command) -> None:
    rows = json.loads(tmmu("sweep", DYNAMIC, "--over", "B=8,99", "--planners", "slots", "--json")[1])["rows"]
    assert [row["error"] and row["error"]["code_id"] for row in rows] == [None, "INVALID_IR_SHAPES"]


def test_planner_options_are_json(tmmu: Command) -> None:
    code, out, _ = tmmu(
        "plan",
        CHAIN,
        "--planner",
        "greedy",
        "--planner-option",
        "order=area",
        "--planner-option",
        "fit=tightest",
        "--json",
    )
    assert code == 0
    assert (
        json.loads(out)["planner_options"] | {"order": "area", "fit": "tightest"} == json.loads(out)["planner_options"]
    )


# --- all ranks at once -------------------------------------------------------------------------------------------


def test_sweep_over_ranks_has_a_row_per_class(tmmu: Command, spec: str) -> None:
    uneven = {"mesh": {"dp": 2, "tp": 3}, "tensors": {"w1": {"axis": 1, "mesh": "tp"}}}
    Path(spec).write_text(json.dumps(uneven))
    code, out, _ = tmmu("sweep", DYNAMIC, "--shard", spec, "--ranks", "--planners", "slots", "--json")
    rows = json.loads(out)["rows"]
    assert (code, [row["ranks"] for row in rows]) == (0, [[0, 1, 3, 4], [2, 5]])
    graph = read_any(Path(DYNAMIC).read_bytes(), DYNAMIC)
    alone = plan_rank(graph, PlanRequest(shard_spec=uneven, rank=5)).plan
    assert rows[1]["arenas"] == {arena.name: arena.extent_bytes for arena in alone.arenas}
    assert rows[1]["layout_hash"] == alone.layout_hash.hex()
