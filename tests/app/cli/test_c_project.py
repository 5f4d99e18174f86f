"""``tmmu export --to c-project`` and ``tmmu convert --sidecar``."""

import json
from pathlib import Path

import pytest

from app.cli.main import run
from tests.support.paths import DATA, SAMPLES, read_graph_file
from tmmu_core.formats.open_file import constants_of

MODEL = str(DATA / "tflite" / "hello_world_int8.tflite")
PROGRAM = str(DATA / "torch" / "two_layers.pt2")
CHAIN = str(SAMPLES / "linear_chain.tmmu.json")


def test_model_has_its_constants_and_a_plan_is_given_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["export", MODEL, "--to", "c-project", "--planner", "helia", "-o", str(tmp_path / "one")]) == 0
    assert run(["plan", MODEL, "--planner", "helia", "-o", str(tmp_path / "plan.json")]) == 0
    given = ["export", str(tmp_path / "plan.json"), "--to", "c-project", "--model", MODEL, "-o", str(tmp_path / "two")]
    assert run(given) == 0
    one, two = ({file.name: file.read_bytes() for file in (tmp_path / name).iterdir()} for name in ("one", "two"))
    assert one == two
    assert json.loads(one["residency.json"])["arenas"][-1]["blob_sha256"] is not None
    assert run(["convert", MODEL, "-o", str(tmp_path / "other.json")]) == 0
    other = (tmp_path / "other.json").read_text().replace('"FULLY_CONNECTED"', '"CUSTOM"', 1)
    (tmp_path / "other.json").write_text(other)
    assert run([*given[:1], str(tmp_path / "other.json"), *given[2:]]) == 0
    assert capsys.readouterr().err.count(f"the plan is not of the graph in {MODEL}") == 1


def test_plan_without_constants_has_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["export", str(PROGRAM), "--to", "c-project", "-o", str(tmp_path / "a")]) == 0
    assert "not known" not in capsys.readouterr().err
    assert run(["plan", PROGRAM, "-o", str(tmp_path / "p.json")]) == 0
    assert run(["export", str(tmp_path / "p.json"), "--to", "c-project", "-o", str(tmp_path / "b")]) == 0
    assert "the project has no values of constants" in capsys.readouterr().err
    normalised = str(DATA / "torch" / "convolution.pt2")
    assert run(["export", normalised, "--to", "c-project", "--planner", "helia", "-o", str(tmp_path / "c")]) == 0
    assert "no values of buffers: set b.num_batches_tracked, b.running_mean" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ([], "c-project is a folder"),
        (["-o", "{folder}/there", "--blobs", "huge"], "unknown value 'huge' of --blobs"),
        (["-o", "{folder}/there", "--model", CHAIN], "has no bytes of constants"),
        (["-o", "{folder}/file"], "file exists"),
    ],
)
def test_contradicting_options_are_rejected_before_writing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], words: str
) -> None:
    (tmp_path / "file").write_text("kept")
    assert run(["export", CHAIN, "--to", "c-project", *(word.format(folder=tmp_path) for word in more)]) == 2
    assert words in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("form", ["residency", "tflm", "instance --arena activations"])
def test_hashed_addresses_are_exported_as_offsets_in_memory(tmp_path: Path, form: str) -> None:
    files = [tmp_path / "offsets", tmp_path / "blake3_sparse"]
    for file in files:
        arguments = ["--planner", "slots", "--addressing", file.name, "--to", *form.split(), "-o", str(file)]
        assert run(["export", MODEL, *arguments]) == 0
    assert files[0].read_bytes() == files[1].read_bytes()


def test_graph_is_converted_with_its_constants(tmp_path: Path) -> None:
    graph, beside = str(tmp_path / "g.tmmu.json"), str(tmp_path / "g.safetensors")
    assert run(["convert", PROGRAM, "-o", graph, "--sidecar", beside]) == 0
    theirs = constants_of(Path(PROGRAM), read_graph_file(PROGRAM))
    assert dict(constants_of(Path(graph), read_graph_file(graph))) == dict(theirs)
