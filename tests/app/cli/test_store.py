"""``record``, ``history``, ``gate --baseline store:`` and ``bisect``."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.cli.main import run
from tests.store.plans import graph_of, plan_of
from tests.support.paths import SAMPLES
from tmmu_core.formats.planfile.plan_file import to_json
from tmmu_core.graph.native import native_file


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'team.db'}"


def file_of(tmp_path: Path, lines: dict[str, int]) -> str:
    path = tmp_path / ("-".join(f"{name}{n}" for name, n in lines.items()) + ".tmmu.json")
    path.write_bytes(native_file.encode(graph_of(lines), path.name))
    return str(path)


def record(store: str, file: str, label: str, hour: int, *options: str) -> None:
    at = f"2026-01-01T{hour:02}:00:00+00:00"
    assert run(["record", file, "--store", store, "--as", label, "--at", at, *options]) == 0


@pytest.fixture
def grown(tmp_path: Path, store: str) -> str:
    """Return a store of three commits: the second made ``b`` two lines larger and added ``c``."""
    for hour, (commit, lines) in enumerate(
        (("c1", {"a": 1, "b": 1}), ("c2", {"a": 1, "b": 3, "c": 1}), ("c3", {"a": 1, "b": 3, "c": 1}))
    ):
        record(store, file_of(tmp_path, lines), f"net@{commit}", hour)
    return store


def test_history_lists_runs_oldest_first(tmmu: Any, grown: str) -> None:
    code, out, _ = tmmu("history", "net", "--store", grown, "--json")
    assert code == 0
    runs = json.loads(out)["runs"]
    found = [(r["model"], r["commit"], r["planner"], r["extent_bytes"], r["lower_bound_bytes"]) for r in runs]
    figures = (("c1", 384), ("c2", 768), ("c3", 768))
    assert found == [("net", commit, "slots", n, n) for commit, n in figures]
    assert runs[1]["layout_hash"] == runs[2]["layout_hash"] != runs[0]["layout_hash"]
    assert {run["at"] for run in runs} == {f"2026-01-01T0{hour}:00:00.000000Z" for hour in range(3)}


def test_invalid_plan_is_not_recorded(tmmu: Any, tmp_path: Path, store: str) -> None:
    document = json.loads(to_json(plan_of({"a": 1, "b": 1})))
    for row in document["tensors"]:
        row["offset_bytes"] = 0
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    code, _, err = tmmu("record", str(path), "--store", store, "--as", "net@c1", "--json")
    assert (code, json.loads(err)["numeric_code"]) == (2, 1307)
    assert not (tmp_path / "team.db").exists()


def test_gate_compares_with_a_run_of_the_store(tmmu: Any, tmp_path: Path, grown: str) -> None:
    same, larger = file_of(tmp_path, {"a": 1, "b": 3, "c": 1}), file_of(tmp_path, {"a": 1, "b": 4, "c": 1})
    for baseline in ("store:main", "store:net@main", "store:net@c3"):
        assert tmmu("gate", same, "--store", grown, "--baseline", baseline)[0] == 0
        assert tmmu("gate", larger, "--store", grown, "--baseline", baseline)[0] == 1
    code, out, _ = tmmu("gate", same, "--store", grown, "--baseline", "store:net@c1", "--json")
    assert (code, json.loads(out)["baseline"]) == (1, "store:net@c1")


def test_store_is_read_from_the_environment(
    tmmu: Any, tmp_path: Path, grown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMMU_STORE", grown)
    assert tmmu("gate", file_of(tmp_path, {"a": 1, "b": 1}), "--baseline", "store:main")[0] == 0
    assert tmmu("history", "net")[0] == 0


def test_runs_of_the_store_are_compared(tmmu: Any, grown: str) -> None:
    code, out, _ = tmmu("compare", "store:net@c2", "store:net@c3", "--store", grown)
    assert (code, "identical" in out) == (0, True)
    code, out, _ = tmmu("compare", "store:c1", "store:net@c2", "--store", grown, "--json")
    assert code == 3  # the graph is another one
    assert json.loads(out)["totals"]["added"] == {"tensors": 1, "bytes": 128}


def test_bisect_names_a_changed_planner(tmmu: Any, store: str) -> None:
    file = str(SAMPLES / "residual_block.tmmu.json")
    for hour, planner in enumerate(("slots", "slots", "naive")):
        record(store, file, f"net@c{hour}", hour, "--planner", planner)
    code, out, _ = tmmu("bisect", "net", "--store", store)
    assert code == 1
    assert out.splitlines()[0] == "3 runs of net on main, by slots, inference, inference; naive, inference, inference"
    assert "plan settings changed (planner slots → naive)" in out
    assert "increased the extent" not in out
    assert "slots → naive" in tmmu("history", "net", "--store", store)[1]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--alignment", "4096"), "alignment of activations 128 → 4096"),
        (("--capacity", "activations=1MiB"), "capacity of activations unlimited → 1048576"),
        (("--page-size", "4096"), "page size of activations 0 → 4096"),
        (("--one-memory",), "arenas activations → memory"),
        (("--planner", "greedy"), "planner slots → greedy"),
        (("--addressing", "blake3_sparse"), "addressing offsets → "),
        (("--world-size", "2"), "world size 1 → 2"),
    ],
)
def test_history_names_changed_settings(
    tmmu: Any, tmp_path: Path, store: str, options: tuple[str, ...], named: str
) -> None:
    for hour, more in enumerate(((), options)):
        record(store, file_of(tmp_path, {"a": 1, "b": 1 + hour}), f"net@c{hour}", hour, *more)
    first, second = json.loads(tmmu("history", "net", "--store", store, "--json")[1])["runs"]
    assert (first["planned_differently"], named in second["planned_differently"]) == ("", True)
    for last in ((), ("--last", "1")):
        assert named in tmmu("history", "net", "--store", store, *last)[1]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("history", "net"), "no store is given"),
        (("history", "nix", "--store", "STORE"), "no run of the model"),
        (("history", "--last", "1", "--store", "STORE"), "no effect without a model"),
        (("record", "GRAPH", "--store", "STORE", "--as", "net"), "MODEL@COMMIT"),
        (("record", "GRAPH", "--store", "STORE", "--as", "net@c", "--at", "yesterday"), "not a time"),
        (("record", "GRAPH", "--store", "STORE", "--as", "net@c", "--at", "2026-01-01T00:00:00"), "a time zone"),
        (("gate", "GRAPH", "--store", "STORE", "--baseline", "store:gone"), "no run of a commit or branch"),
        (("bisect", "net", "--store", "STORE", "--figure", "speed"), "unknown figure"),
        (("bisect", "net", "--store", "STORE", "--arena", "attic"), "no run has an arena"),
        (("history", "net", "--store", "nonsense"), "not the URL of a store"),
        (("record", "no-such-file", "--store", "nonsense", "--as", "net@c"), "not the URL of a store"),
    ],
)
def test_impossible_request_is_rejected_with_a_fix(
    tmmu: Any, tmp_path: Path, grown: str, arguments: tuple[str, ...], why: str
) -> None:
    names = {"STORE": grown, "GRAPH": file_of(tmp_path, {"a": 1, "b": 1})}
    code, _, err = tmmu(*(names.get(word, word) for word in arguments))
    assert (code, why in err) == (2, True), err
