"""``tmmu fit``: output, files and exit codes (contract §11)."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.cli.main import run
from tests.fitting.test_alignment import odd_sizes
from tests.fitting.test_mesh import layers
from tests.fitting.test_order import two_branches
from tests.support.paths import SAMPLES
from tmmu_core.formats.open_file import read_graph
from tmmu_core.graph.native import native_file

TRAINING = str(SAMPLES / "training_step.tmmu.json")
BATCH = str(SAMPLES / "dynamic_batch.tmmu.json")


@pytest.fixture
def branches(tmp_path: Path) -> str:
    """Return two branches that need 408 bytes in the best order and 804 bytes in the given order."""
    path = tmp_path / "branches.tmmu.json"
    path.write_bytes(native_file.encode(two_branches(), path.name))
    return str(path)


def fitted(tmmu: Any, *arguments: str) -> tuple[int, dict[str, Any]]:
    code, out, err = tmmu("fit", *arguments, "--json")
    assert err == ""
    return code, json.loads(out)


def test_fit_exits_with_0_and_has_the_figures_of_the_contract(tmmu: Any, branches: str) -> None:
    code, answer = fitted(tmmu, branches, "--alignment", "4", "--capacity", "408")
    assert code == 0
    assert {"answer", "capacity", "extent_bytes", "lower_bound_bytes", "cost", "moves"} <= answer.keys()
    assert (answer["answer"], answer["extent_bytes"]) == ("fits", 408)
    assert answer["cost"] == {"extra_flops": 0, "extra_flops_percent": 0.0, "moved_bytes": 0, "extra_steps": 0}
    assert {"kind", "what", "bytes", "extra_flops", "moved_bytes"} <= answer["moves"][0].keys()


def test_impossible_fit_exits_with_1_and_names_the_step(tmmu: Any, branches: str) -> None:
    code, out, _ = tmmu("fit", branches, "--alignment", "4", "--capacity", "0")
    assert code == 1
    assert "Does not fit" in out
    assert "Smallest plan found: " in out
    assert "_a'" in out
    assert "'biga'" in out


def test_fit_of_a_training_step_shows_bytes_by_module_and_what_binds_the_peak(tmmu: Any) -> None:
    sample = str(SAMPLES / "gpt2_small_train_b1_s1024.tmmu.cbor.gz")
    code, answer = fitted(tmmu, sample, "--capacity", "2GiB", "--allow", "planner,order,offload")
    assert (code, answer["peak"]["module"]) == (0, "transformer")
    assert "chunks of tokens" in answer["peak"]["suggestion"]
    rows = answer["modules"].values()
    assert sum(row["offloaded"] for row in rows) > 0
    assert all(row["activations"] == row["kept"] + row["recomputed"] + row["offloaded"] for row in rows)
    persistent = sum(row["parameters"] for row in rows)
    assert sum(answer["peak"]["modules"].values()) + persistent <= answer["extent_bytes"]
    out = tmmu("fit", sample, "--capacity", "3GiB")[1]
    assert "\ntransformer.h.*.ln_2 × 12 " in out
    assert all(" B) " in line for line in out.splitlines() if line.startswith("recompute ")), "each change saves bytes"


def test_update_in_place_counts_once_in_the_bytes_of_a_module(tmmu: Any) -> None:
    model = fitted(tmmu, TRAINING, "--capacity", "2MiB")[1]["modules"][""]
    weights = 4 * (256 * 512 + 512 * 10)
    assert (model["parameters"], model["optimizer_state"]) == (weights, weights)


def test_smallest_mesh_is_reported(tmmu: Any, tmp_path: Path) -> None:
    path = tmp_path / "layers.tmmu.json"
    path.write_bytes(native_file.encode(layers(), path.name))
    code, answer = fitted(tmmu, str(path), "--capacity", f"parameters={3 * 1024 * 8}", "--mesh", "tp")
    assert (code, answer["answer"], answer["mesh"]) == (0, "fits", {"tp": 3})
    assert [move["kind"] for move in answer["moves"]] == ["shards"]
    code, out, _ = tmmu("fit", str(path), "--capacity", "1KiB", "--mesh", "tp")
    assert (code, out.splitlines()[0]) == (1, "no size of tp fits")


def test_fitted_file_contains_its_alignment(tmmu: Any, tmp_path: Path) -> None:
    path, out = tmp_path / "odd.tmmu.json", tmp_path / "fitted.tmmu.json"
    path.write_bytes(native_file.encode(odd_sizes(), path.name))
    capacity = 4 * 64 + 36
    assert tmmu("fit", str(path), "--capacity", str(capacity), "--allow", "alignment", "-o", str(out))[0] == 0
    plan = json.loads(tmmu("plan", str(out), "--json")[1])
    assert plan["metrics"]["totals"]["extent_bytes"] == capacity


def test_open_fit_exits_with_3(tmmu: Any, branches: str) -> None:
    code, answer = fitted(tmmu, branches, "--planner", "naive", "--capacity", "1000", "--allow", "order")
    assert (code, answer["answer"]) == (3, "open")
    assert answer["lower_bound_bytes"] < 1000 < answer["extent_bytes"]
    least, *others = answer["next_steps"]
    bound = answer["lower_bound_bytes"]
    assert least == f"a capacity of {answer['extent_bytes']:,} bytes (lower bound: {bound:,})"
    assert others == ["allow planner, inplace, recompute, offload"]


@pytest.mark.parametrize(("size", "smaller"), [("2", ["a smaller B"]), ("1", [])])
def test_smaller_size_and_larger_cost_are_suggested_only_if_they_help(tmmu: Any, size: str, smaller: list[str]) -> None:
    code, answer = fitted(tmmu, BATCH, "--dims", f"B={size}", "--capacity", "1KiB", "--max-cost", "5")
    assert (code, answer["next_steps"][1:]) == (1, smaller)


def test_fitted_file_needs_no_further_options(tmmu: Any, branches: str, tmp_path: Path) -> None:
    out, how = str(tmp_path / "fitted.tmmu.cbor.gz"), ("--planner", "greedy", "--option", "order=birth")
    code, answer = fitted(tmmu, branches, *how, "--capacity", "1KiB")
    assert run(["fit", branches, *how, "--capacity", "1KiB", "-o", out]) == code == 0
    plan = json.loads(tmmu("plan", out, "--json")[1])
    assert sum(arena["extent_bytes"] for arena in plan["arenas"].values()) == answer["extent_bytes"] <= 1024
    assert (plan["planner"], plan["planner_options"]) == ("greedy", {"order": "birth"})


def test_capacity_of_one_arena_is_compared_with_its_own_bytes(tmmu: Any) -> None:
    resnet50 = str(SAMPLES / "resnet50.tmmu.json.gz")
    code, out, _ = tmmu("fit", resnet50, "--capacity", "activations=8MiB", "--allow", "planner")
    assert code == 0
    assert out.startswith(
        "Fits the limit of 8.00 MiB (8,388,608 B) of activations: 6.89 MiB (7,225,344 B) after 1 change, no extra cost."
    )
    code, out, _ = tmmu("fit", resnet50, "--capacity", "activations=1MiB", "--allow", "planner")
    assert code == 1
    first, why = out.splitlines()[:2]
    assert first == (
        "Does not fit: needs at least 6.89 MiB (7,225,344 B), limit 1.00 MiB (1,048,576 B) of activations."
    )
    assert why.startswith("  activations: 6.89 MiB")
    assert "  To try next: a capacity of activations=7,225,344 bytes; allow order, " in out
    assert "  parameters: " not in out  # nothing limits them


def test_lower_bound_lists_persistent_bytes(tmmu: Any) -> None:
    out = tmmu("fit", str(SAMPLES / "training_step.tmmu.json"), "--capacity", "1MiB")[1]
    assert "): the node reads and writes them in one step; 1.04 MiB of the bound are persistent tensors\n" in out


def test_largest_size_is_reported(tmmu: Any) -> None:
    code, answer = fitted(tmmu, BATCH, "--capacity", "1700KiB", "--largest", "B")
    assert code == 0
    assert 1 <= answer["largest"]["B"] < 32
    bigger = fitted(tmmu, BATCH, "--capacity", "1700KiB", "--dims", f"B={answer['largest']['B'] + 1}")
    assert bigger[1]["answer"] != "fits"


def test_size_that_a_reader_assumed_is_used_only_if_no_other_is_given(tmmu: Any, tmp_path: Path) -> None:
    graph = read_graph(Path(BATCH).read_bytes(), BATCH)
    path = tmp_path / "open.tmmu.json"
    path.write_bytes(native_file.encode_json(msgspec.structs.replace(graph, assumed={"B": 1})))
    for options in (("--dims", "B=4"), ("--largest", "B")):
        declared, assumed = (fitted(tmmu, file, "--capacity", "1700KiB", *options)[1] for file in (BATCH, str(path)))
        assert assumed["extent_bytes"] == declared["extent_bytes"]
        assert assumed.get("largest") == declared.get("largest")


@pytest.mark.parametrize(
    ("arguments", "shown_text"),
    [
        ((), "--capacity"),
        (("--capacity", "1MiB", "--allow", "magic"), "magic"),
        (("--capacity", "1MiB", "--max-cost", "lots"), "lots"),
        (("--capacity", "1MiB", "--max-cost", "-1"), "-1"),
        (("--capacity", "sram=1MiB"), "sram"),
        (("--capacity", "1MiB", "--largest", "Q"), "Q"),
        (("--capacity", "1MiB", "--largest", "B", "--dims", "B=4"), "both set B"),
        (("--capacity", "1MiB", "--json", "--recipe", "-"), "standard output"),
    ],
)
def test_bad_options_are_rejected_by_name(tmmu: Any, arguments: tuple[str, ...], shown_text: str) -> None:
    code, out, err = tmmu("fit", TRAINING, *arguments)
    assert (code, out) == (2, "")
    assert shown_text in err


def test_interrupted_fit_keeps_the_best_plan(tmmu: Any, branches: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from app.cli.commands import fit as module

    planned = module.initial_candidate

    def interrupted(*given: Any) -> Any:
        start = planned(*given)
        os.kill(os.getpid(), signal.SIGINT)
        return start

    monkeypatch.setattr(module, "initial_candidate", interrupted)
    code, out, err = tmmu("fit", branches, "--alignment", "4", "--capacity", "408")
    assert code == 3
    assert "search was stopped" in out
    assert "best result so far" in err
