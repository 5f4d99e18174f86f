"""Bad input and usage: a sentence with code, place and fix, or one JSON record; always exit code 2."""

import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.main import get_command

from app.cli.main import INTERRUPTED, build
from tests.app.cli.conftest import Tmmu
from tests.support.paths import ROOT, SAMPLES, read_graph_file
from tmmu_core.__main__ import main
from tmmu_core.formats.planfile import plan_file as files
from tmmu_core.plans.making.engine import plan_graph

CHAIN = str(SAMPLES / "linear_chain.tmmu.json")
RESIDUAL = str(SAMPLES / "residual_block.tmmu.json")
RECORD = {
    *("code_id", "numeric_code", "severity", "subsystem", "t", "rank", "failure_operator", "replay_token"),
    *("message", "retryable", "diagnostics"),
}


def _graph(change: Callable[[dict[str, Any]], None]) -> str:
    document = json.loads(Path(CHAIN).read_text())
    change(document)
    return json.dumps(document)


def _tensor(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["tensors"][2].update(fields)


def _cycle(document: dict[str, Any]) -> None:
    document["nodes"][0]["inputs"] = [document["nodes"][-1]["outputs"][0]]


BAD_GRAPHS: dict[str, tuple[str, str]] = {
    "a cycle": (_graph(_cycle), "LIVENESS_CYCLE"),
    "an unknown tensor": (_graph(lambda d: d["nodes"][1].update(inputs=["nobody"])), "INVALID_IR_SHAPES"),
    "a negative shape": (_graph(_tensor(shape=[-1])), "INVALID_IR_SHAPES"),
    "an overflowing shape": (_graph(_tensor(shape=[2**33, 2**33])), "ALLOCATION_OVERFLOW"),
    "a wrong dtype": (_graph(_tensor(dtype="float33")), "INVALID_IR_SHAPES"),
    "a short order": (_graph(lambda d: d.update(execution_order=["relu1"])), "INVALID_IR_SHAPES"),
    "a wrong type": (_graph(_tensor(shape="4")), "INVALID_IR_SHAPES"),
    "a truncated file": (Path(CHAIN).read_text()[:200], "UNREADABLE_INPUT"),
    "a text": ("this is a text\n", "UNREADABLE_INPUT"),
    "nothing": ("", "UNREADABLE_INPUT"),
}


@pytest.mark.parametrize("what", BAD_GRAPHS)
def test_bad_input_is_a_sentence_and_a_record(tmmu: Tmmu, tmp_path: Path, what: str) -> None:
    text, expected = BAD_GRAPHS[what]
    path = tmp_path / "model.onnx"
    path.write_text(text)
    code, out, err = tmmu("plan", str(path))
    assert (code, out) == (2, "")
    assert err.startswith("tmmu: ")
    assert "Traceback" not in err
    code, out, err = tmmu("plan", str(path), "--json")
    assert (code, out) == (2, "")
    record = json.loads(err)
    assert record["code_id"] == expected
    if expected == "UNREADABLE_INPUT":
        assert record["source"]
        assert record["hint"]
    else:
        assert set(record) == RECORD


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"activations": {"alignment_bytes": 48}}, "ALIGNMENT_VIOLATION"),
        ({"activations": {"capacity_bytes": 100}}, "ARENA_TOO_SMALL"),
        ({"elsewhere": {}}, "ARENA_TOO_SMALL"),
        ({"activations": {"capacity_bytes": "much"}}, "INVALID_IR_SHAPES"),
        ({"activations": 5}, "UNREADABLE_INPUT"),
        ([], "UNREADABLE_INPUT"),
    ],
)
def test_bad_arena_configuration_is_rejected(tmmu: Tmmu, tmp_path: Path, config: object, expected: str) -> None:
    path = tmp_path / "arenas.json"
    path.write_text(json.dumps(config))
    code, _, err = tmmu("plan", CHAIN, "--arenas", str(path), "--json")
    assert code == 2
    assert json.loads(err)["code_id"] == expected


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("plan",),
        ("nonsense",),
        ("plan", CHAIN, "--nonsense"),
        ("plan", CHAIN, "--mode", "sideways"),
        ("plan", CHAIN, "--planner", "magic"),
        ("plan", CHAIN, "--option", "colour=blue"),
        ("plan", CHAIN, "--option", "colour"),
        ("plan", CHAIN, "--token", "abc"),
        ("plan", CHAIN, "--token", "ab" * 32, "--seed", "1"),
        ("plan", CHAIN, "--dims", "B=many", "--seed", "-1"),
        ("plan", CHAIN, "--seed", "x"),
        ("plan", CHAIN, "--rank", "4", "--world-size", "4"),
        ("plan", CHAIN, "--dims", "B"),
        ("plan", CHAIN, "--capacity", "=1MiB"),
        ("plan", CHAIN, "--budget", "lots"),
        ("plan", CHAIN, "--addressing", "magic"),
        ("plan", CHAIN, "-o", "plan.docx"),
        ("plan", CHAIN, "-o", "/no/such/folder/plan.json"),
        ("plan", "/no/such/file.json"),
        ("plan", str(SAMPLES)),
        ("plan", str(SAMPLES / "golden" / "linear_chain.inference.trace.jsonl")),
        ("plan", CHAIN, "--arenas", "/no/such/file.json"),
        ("trace", str(SAMPLES / "golden" / "linear_chain.inference.trace.jsonl"), "--mode", "forward"),
        ("compare", CHAIN),
        ("gate", CHAIN),
        ("gate", CHAIN, "--max-growth", "1"),
        ("gate", CHAIN, "--max-extent", "nowhere=5"),
        ("gate", CHAIN, "--max-extent", "1MiB", "--explorer", "https://host"),
        ("gate", CHAIN, "--max-extent", "1MiB", "--explorer", "http://[host", "--out", "."),
        ("gate", CHAIN, "--max-extent", "1MiB", "--explorer", "http:host", "--out", "."),
        ("sweep", CHAIN, "--planner", "slots"),
        ("sweep", CHAIN, "--alignments", "many"),
        ("sweep", CHAIN, "--alignments", "64", "--alignment", "32"),
        ("sweep", str(SAMPLES / "dynamic_batch.tmmu.json"), "--dims", "B=2", "--over", "B=4,8"),
        ("export", CHAIN, "--to", "docx"),
        ("export", CHAIN, "--to", "json", "--arena", "activations"),
        ("export", str(SAMPLES / "two_arenas.tmmu.json"), "--to", "instance"),
        ("convert", str(SAMPLES / "golden" / "linear_chain.inference.trace.jsonl")),
        ("verify", CHAIN, "--graph", CHAIN),
        ("checkpoint", CHAIN),
        ("restore", CHAIN),
        ("explore", "/no/such/file.json"),
        ("explore", "-"),
        ("explore", CHAIN, "--viewer", "/dev/null"),
        ("explore", "--port", "0"),
    ],
    ids=" ".join,
)
def test_bad_usage_exits_with_2_without_a_result(tmmu: Tmmu, arguments: tuple[str, ...]) -> None:
    code, out, err = tmmu(*arguments)
    assert code == 2
    assert "Traceback" not in err
    if arguments:
        assert out == ""
        assert err.startswith("tmmu: ")


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="Linux only")
def test_file_that_fails_while_it_is_read_is_named(tmmu: Tmmu) -> None:
    code, _, err = tmmu("plan", "/proc/self/mem")
    assert (code, "/proc/self/mem: the file cannot be opened" in err) == (2, True)


@pytest.mark.parametrize("mark", [";", "\t"])
def test_table_with_another_separator_is_planned(tmmu: Tmmu, tmp_path: Path, mark: str) -> None:
    (tmp_path / "lives.csv").write_text("id,lower,upper,size\na,0,2,64\n".replace(",", mark))
    code, out, _ = tmmu("plan", str(tmp_path / "lives.csv"), "--json")
    assert (code, json.loads(out)["arenas"]["arena"]["extent_bytes"]) == (0, 64)


def test_bad_usage_is_one_record_with_json(tmmu: Tmmu) -> None:
    code, _, err = tmmu("plan", "--json")
    assert code == 2
    assert json.loads(err)["code_id"] == "USAGE"
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("options", [(), ("--json",)])
@pytest.mark.parametrize("word", ["n", "n "])
def test_error_cuts_a_name_of_megabytes(tmmu: Tmmu, tmp_path: Path, word: str, options: tuple[str, ...]) -> None:
    tensor = {"id": word * 1_000_000, "shape": [4], "dtype": "floaty"}
    (tmp_path / "graph.json").write_text(json.dumps({"tensors": [tensor], "nodes": []}))
    code, _, err = tmmu("plan", str(tmp_path / "graph.json"), *options)
    assert (code, "…" in err or "\\u2026" in err) == (2, True)
    assert len(err) < 100_000


def test_internal_error_is_distinct_from_verdicts(tmmu: Tmmu, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise AssertionError("ours")

    monkeypatch.setattr("app.cli.commands.plan.resolve_opened", broken)
    code, _, err = tmmu("plan", CHAIN)
    assert code == 70
    assert "internal error" in err


@pytest.mark.parametrize("command", [("plan",), ("trace",), ("export", "--to", "json"), ("fit", "--capacity", "1MiB")])
def test_output_that_is_the_input_is_rejected(tmmu: Tmmu, tmp_path: Path, command: tuple[str, ...]) -> None:
    graph, link = tmp_path / "graph.json", tmp_path / "link.json"
    graph.write_bytes(Path(CHAIN).read_bytes())
    link.symlink_to(graph)
    code, _, err = tmmu(*command, str(graph), "-o", str(link))
    assert (code, "Write to another file" in err) == (2, True)
    assert graph.read_bytes() == Path(CHAIN).read_bytes()
    assert tmmu("convert", str(graph), "-o", str(link))[0] == 0


@pytest.mark.parametrize(
    "line",
    [
        "plan CHAIN --order FILE -o FILE",
        "export CHAIN --to onnx --model FILE -o ./FILE",
        "fit FILE --capacity 1MiB --recipe FILE",
        "fit CHAIN --capacity 1MiB -o FILE --recipe FILE",
        "convert FILE --sidecar FILE -o other.json",
        "explore FILE --viewer FILE",
        "gate CHAIN --baseline out/candidate.plan.json --out out",
    ],
)
def test_file_that_is_read_and_written_is_kept(
    tmmu: Tmmu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("out").mkdir()
    kept = Path("out/candidate.plan.json" if line.startswith("gate") else "graph.json")
    kept.write_bytes(Path(CHAIN).read_bytes())
    code, out, err = tmmu(*(CHAIN if word == "CHAIN" else word.replace("FILE", str(kept)) for word in line.split()))
    assert (code, out, "Write to another file" in err or "Use another folder" in err) == (2, "", True)
    assert kept.read_bytes() == Path(CHAIN).read_bytes()


@pytest.mark.parametrize("name", ["fitted.csv", "no/such/folder/fitted.json"])
def test_output_of_a_fit_is_rejected_before_the_search(tmmu: Tmmu, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("app.cli.commands.fit.fit", None)
    assert tmmu("fit", CHAIN, "--capacity", "1MiB", "-o", name)[0] == 2


def test_graph_with_the_name_none_is_no_output(tmmu: Tmmu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("None").write_bytes(Path(CHAIN).read_bytes())
    assert tmmu("lint", "None")[0] == 0


def test_import_name_runs_as_a_module(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["tmmu", "--version"])
    runpy.run_module("tmmu", run_name="__main__")
    assert capfd.readouterr().out.startswith("tmmu ")


def test_interrupt_during_the_imports_ends_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tmmu_core.__main__.app_module", interrupted)
    monkeypatch.setattr("sys.argv", ["tmmu", "plan", CHAIN])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == INTERRUPTED


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["compare", CHAIN, RESIDUAL], 3),
        (["compare", CHAIN, CHAIN], 0),
        (["gate", CHAIN, "--max-extent", "1"], 1),
        (["gate", CHAIN, "--max-extent", "1", "--json"], 1),
        (["lint", CHAIN], 0),
        (["verify", "tampered.json"], 1),
        (["plan", "/no/file"], 2),
        (["trace", str(SAMPLES / "resnet50.tmmu.json.gz")], 0),
    ],
)
def test_closed_pipe_keeps_the_exit_code(tmp_path: Path, arguments: list[str], code: int) -> None:
    tampered = msgspec.json.decode(files.to_json(plan_graph(read_graph_file(CHAIN)).plan))
    tampered["tensors"][0]["offset_bytes"] += 1
    (tmp_path / "tampered.json").write_bytes(msgspec.json.encode(tampered))
    for both in (False, True):
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run(
            [sys.executable, "-m", "app.cli.main", *arguments],
            stdout=write,
            stderr=write if both else subprocess.DEVNULL,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(SAMPLES.parent)},
        )
        os.close(write)
        assert done.returncode == code


@pytest.mark.slow
@pytest.mark.parametrize("streams", [">&-", "2>&-", ">&- 2>&- <&-", ">/dev/null 2>/dev/full", "1</dev/null"])
@pytest.mark.parametrize(
    ("arguments", "code"),
    [(f"plan {CHAIN}", 0), (f"gate {CHAIN} --max-extent 1", 1), ("plan /no/file", 2), ("--version", 0)],
)
def test_closed_or_full_streams_keep_the_exit_code(arguments: str, code: int, streams: str) -> None:
    done = subprocess.run(f"{sys.executable} -m tmmu_core {arguments} {streams}", shell=True, check=False, cwd=ROOT)
    assert done.returncode == (2 if streams == "1</dev/null" else code)  # nothing can be written there at all


@pytest.mark.slow
def test_slow_reader_gets_everything() -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    longer_than_a_pipe_holds = str(SAMPLES / "resnet50.tmmu.json.gz")
    command = [sys.executable, "-m", "tmmu_core", "plan", longer_than_a_pipe_holds, "--json"]
    with subprocess.Popen(command, stdout=write, stderr=subprocess.PIPE, cwd=ROOT) as process:
        os.close(write)
        with os.fdopen(read, "rb") as end:
            plan = end.read()
    assert (process.returncode, msgspec.json.decode(plan)["ir_name"]) == (0, "resnet50")


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "-", "--arenas", "-"),
        ("plan", "-", "--engines", "-"),
        ("plan", CHAIN, "--order", "-", "--shard", "-"),
        ("compare", "-", "-"),
        ("sweep", "-", "-"),
    ],
)
def test_standard_input_is_read_once(tmmu: Tmmu, arguments: tuple[str, ...]) -> None:
    code, _, error = tmmu(*arguments)
    assert (code, "standard input can be read only once" in error) == (2, True)
    assert "only once" not in tmmu("fit", "-", "--recipe", "-")[2]  # this one is standard output


@pytest.mark.parametrize(
    "arguments",
    [
        ("gate", CHAIN, "--max-gap", "1e999999999"),
        ("gate", CHAIN, "--min-reuse", "1e-999999999 %"),
        ("gate", CHAIN, "--baseline", CHAIN, "--max-growth", "1e999999999%"),
        ("gate", CHAIN, "--max-gap", "1/0"),
        ("gate", CHAIN, "--max-gap", "-1"),
        ("fit", CHAIN, "--capacity", "1", "--max-cost", "1e999999999"),
    ],
)
def test_huge_percentage_is_rejected(tmmu: Tmmu, arguments: tuple[str, ...]) -> None:
    code, out, err = tmmu(*arguments)
    assert (code, out) == (2, "")
    assert "is not a percentage" in err


@pytest.mark.parametrize(
    "arguments", [("/dev/zero",), (CHAIN, "--order", "/dev/zero"), (CHAIN, "--engines", "/dev/zero")]
)
def test_endless_input_is_not_read_to_its_end(
    tmmu: Tmmu, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setenv("TMMU_MAX_UNPACKED_BYTES", "1000000")
    code, _, err = tmmu("plan", *arguments)
    assert code == 2
    assert "more than 1,000,000 bytes" in err
    assert "--max-unpacked-bytes" in err


@pytest.mark.parametrize(
    "url", ["sqlite:///x.db?timeout=abc", "postgresql//me:secret@there/x", "postgresql://me:secret@[/x", "sqlite:///\0"]
)
def test_misspelt_store_is_reported_without_its_password(tmmu: Tmmu, url: str) -> None:
    code, _, err = tmmu("record", CHAIN, "--as", "m@c", "--store", url)
    assert code == 2
    assert "secret" not in err


VALUED = [
    (name, parameter.opts[0])
    for name, command in get_command(build()).commands.items()  # type: ignore[attr-defined]
    for parameter in command.params
    if parameter.param_type_name == "option" and not parameter.is_flag
]


@pytest.mark.slow
@pytest.mark.parametrize("text", ["", " ", ","])
@pytest.mark.parametrize(("command", "option"), VALUED)
def test_empty_option_is_rejected(tmmu: Tmmu, command: str, option: str, text: str) -> None:
    needed = ["--as", "m@c"] if command == "record" else ["-o", os.devnull]
    is_required = command in ("record", "report", "checkpoint", "export")
    needs = [*(needed if is_required and option not in needed else []), *(["--to", "c"] if command == "export" else [])]
    files = [CHAIN] * {"schema": 0, "explore": 0, "history": 0, "compare": 2}.get(command, 1)
    code, out, err = tmmu(command, *files, *needs, option, text)
    assert (code, out) == (2, "")
    assert option in err


@pytest.mark.parametrize("line", ["fit --capacity 1 --allow", "fit --capacity 1 --max-cost", "gate --max-extent"])
def test_bad_value_is_a_usage_error(tmmu: Tmmu, line: str) -> None:
    code, _, err = tmmu(*line.split(), "much", CHAIN, "--json")
    record = msgspec.json.decode(err)
    assert (code, record["code_id"], "much" in record["message"]) == (2, "USAGE", True)


@pytest.mark.parametrize("command", ["plan", "verify", "fit", "explore", "history", "schema"])
def test_empty_argument_is_rejected(tmmu: Tmmu, command: str) -> None:
    code, out, err = tmmu(command, "")
    assert (code, out) == (2, "")
    assert "is empty" in err


def test_error_of_a_graph_names_its_file(tmmu: Tmmu, tmp_path: Path) -> None:
    graph = json.loads(Path(CHAIN).read_text())
    path = tmp_path / "graph.json"
    path.write_text(json.dumps({**graph, "inputs": [*graph["inputs"], *graph["inputs"]]}))
    code, _, err = tmmu("compare", CHAIN, str(path), "--json")
    diagnostics = json.loads(err)["diagnostics"]
    assert (code, diagnostics["reason"], diagnostics["source"]) == (2, "duplicate_input", str(path))


def test_plan_of_another_graph_is_reported_first(tmmu: Tmmu, tmp_path: Path) -> None:
    plan = str(tmp_path / "p.json")
    tmmu("plan", RESIDUAL, "-o", plan)
    code, out, _ = tmmu("verify", plan, "--graph", CHAIN, "--json")
    assert code == 1
    assert [finding["rule"] for finding in json.loads(out)["findings"]] == ["graph"]
