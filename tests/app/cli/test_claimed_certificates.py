"""Certificates of finished plans, alignment of instances and assumptions of proofs, on the command line."""

import json
from pathlib import Path
from typing import Any

import pytest

import tmmu
from app.cli.main import run
from tests.support.paths import SAMPLES
from tmmu_core.formats.planfile.plan_file import to_json

GRAPH = str(SAMPLES / "mixed_sizes.tmmu.json")
TWO_BUFFERS = "id,lower,upper,size\na,0,2,100\nb,1,3,100\n"


@pytest.fixture
def honest(tmp_path: Path) -> str:
    """Return a plan of slots whose extent is 190.9 % above its lower bound."""
    path = tmp_path / "honest.json"
    assert run(["plan", GRAPH, "-o", str(path)]) == 0
    return str(path)


@pytest.fixture
def forged(tmp_path: Path, honest: str) -> str:
    """Return the same plan marked as optimal, without a content hash."""
    document = json.loads(Path(honest).read_text())
    for arena in document["arenas"].values():
        arena |= {"lower_bound_bytes": arena["extent_bytes"], "status": "optimal", "witness": [], "witness_step": -1}
    document["metrics"]["totals"]["lower_bound_bytes"] = document["metrics"]["totals"]["extent_bytes"]
    document.pop("content_hash", None)
    path = tmp_path / "forged.json"
    path.write_text(json.dumps(document))
    return str(path)


def answer(capsys: pytest.CaptureFixture[str], arguments: list[str], code: int) -> dict[str, Any]:
    capsys.readouterr()
    assert run([*arguments, "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("more", [[], ["--graph", GRAPH]])
def test_gate_computes_the_gap_from_the_recomputed_bound(
    capsys: pytest.CaptureFixture[str], forged: str, more: list[str]
) -> None:
    found = answer(capsys, ["gate", forged, "--max-gap", "0", *more], 1)
    assert found["checked"] == ("graph" if more else "rows")
    assert found["certificates"]["activations"] == {
        "status": "claimed",
        "lower_bound_bytes": 270_336,
        "claimed_bytes": 786_432,
    }


def test_gate_of_a_digest_reports_totals_only(capsys: pytest.CaptureFixture[str], honest: str, tmp_path: Path) -> None:
    digest = tmp_path / "digest.jsonl"
    assert run(["trace", honest, "--digest", "-o", str(digest)]) == 0
    assert answer(capsys, ["gate", str(digest), "--max-gap", "1000"], 1)["checked"] == "totals"
    assert answer(capsys, ["gate", str(digest), "--max-extent", "1MiB"], 0)["checked"] == "totals"
    assert run(["gate", str(digest), "--max-extent", "1MiB", "--graph", GRAPH]) == 2


def test_gate_with_graph_finds_an_edit_that_the_rows_do_not_show(
    capsys: pytest.CaptureFixture[str], honest: str, tmp_path: Path
) -> None:
    document = json.loads(Path(honest).read_text())
    document.pop("content_hash", None)
    document["preset"], document["tensors"][0]["dtype"] = "train_full", "int32"
    edited = tmp_path / "edited.json"
    edited.write_text(json.dumps(document))
    assert answer(capsys, ["gate", str(edited), "--max-extent", "1MiB"], 0)["valid"]
    assert not answer(capsys, ["gate", str(edited), "--graph", GRAPH], 1)["valid"]
    assert not answer(capsys, ["gate", str(edited), "--max-extent", "1MiB", "--graph", GRAPH], 1)["valid"]


def test_verify_names_the_certificate_that_it_did_not_recompute(
    capsys: pytest.CaptureFixture[str], forged: str
) -> None:
    found = answer(capsys, ["verify", forged, "--graph", GRAPH], 0)
    assert "certificate" in found["not_checked"]
    assert [each["status"] for each in found["certificates"]] == ["claimed"]


def test_compare_reports_certificates_that_differ(capsys: pytest.CaptureFixture[str], honest: str, forged: str) -> None:
    found = answer(capsys, ["compare", honest, forged], 1)
    path = "$.arenas.activations.lower_bound_bytes"
    assert found["certificates"] == [{"path": path, "left": 270_336, "right": 786_432}]
    assert found["arenas"][0]["right"]["status"] == "claimed"


def test_compare_shows_reuse_costs_and_their_bounds(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for capacity, name in ((8, "roomy.json"), (7, "tight.json")):
        packed = tmmu.pack([0, 5], [5, 9], [4, 4], capacity=capacity, reuse_penalties=[[0, 1, 3]])
        (tmp_path / name).write_bytes(to_json(packed.plan))
    tight = str(tmp_path / "tight.json")
    run(["compare", str(tmp_path / "roomy.json"), tight])
    shown = capsys.readouterr().out
    assert "lower bound of the reuse cost of arena: 0 → 3" in shown
    assert "reuse cost             0, optimal → 3, optimal" in shown
    assert run(["gate", tight, "--max-reuse-cost", "1KiB"]) == 2
    assert "'1KiB' is not a whole number" in capsys.readouterr().err


def test_instance_keeps_its_alignment_unless_one_is_given(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    instance, arenas = tmp_path / "two.csv", tmp_path / "arenas.json"
    instance.write_text(TWO_BUFFERS)
    arenas.write_text(json.dumps({"arena": {"capacity_bytes": 200}}))
    for limit in (["--capacity", "200"], ["--arenas", str(arenas)]):
        found = answer(capsys, ["plan", str(instance), *limit], 0)["arenas"]["arena"]
        assert (found["extent_bytes"], found["alignment_bytes"]) == (200, 1)
    arenas.write_text(json.dumps({"arena": {"capacity_bytes": 200, "alignment_bytes": 128}}))
    capsys.readouterr()
    assert run(["plan", str(instance), "--arenas", str(arenas)]) == 2
    assert "at alignment 128 B" in capsys.readouterr().err
