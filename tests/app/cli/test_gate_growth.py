"""Comparison of the gate with a baseline, and its warnings, in text, JSON and the pull-request summary."""

import json
import pickle
from pathlib import Path

import pytest

import tmmu as library
from tests.app.cli.conftest import Tmmu
from tests.support.paths import SAMPLES
from tmmu_core.base.errors import ArenaTooSmall

MIXED = str(SAMPLES / "mixed_sizes.tmmu.json")
HEADER = "id,lower,upper,size,offset\n"
MIB = 1 << 20


def snapshot(path: Path, *live: int) -> str:
    """Return a PyTorch snapshot: a segment of 16 MiB with live blocks of these sizes."""
    at, events = 0, []
    for size in live:
        events.append({"action": "alloc", "addr": at, "size": size, "stream": 0, "frames": []})
        at += size
    blocks = [
        {
            "address": e["addr"],
            "size": e["size"],
            "requested_size": e["size"],
            "state": "active_allocated",
            "frames": [],
        }
        for e in events
    ]
    blocks.append({"address": at, "size": 16 * MIB - at, "requested_size": 0, "state": "inactive", "frames": []})
    segment = {"device": 0, "address": 0, "total_size": 16 * MIB, "stream": 0, "segment_type": "large"}
    segment |= {"allocated_size": at, "active_size": at, "blocks": blocks, "frames": []}
    path.write_bytes(pickle.dumps({"segments": [segment], "device_traces": [events]}))
    return str(path)


def csv(path: Path, *rows: str) -> str:
    path.write_text(HEADER + "".join(f"{row}\n" for row in rows))
    return str(path)


def test_live_peak_that_grows_inside_the_same_reserved_bytes_is_red(tmmu: Tmmu, tmp_path: Path) -> None:
    before = snapshot(tmp_path / "a.pickle", 6 * MIB)
    after = snapshot(tmp_path / "c.pickle", 6 * MIB, 5 * MIB)
    code, out, _ = tmmu("gate", after, "--baseline", before, "--max-growth", "0")
    assert code == 1
    rows = {line.split("  ")[0]: line for line in out.splitlines() if "growth" in line}
    assert "+5.00 MiB" in rows["peak growth"]
    assert "FAILED" in rows["peak growth"]


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (("--max-growth", "0"), 1),
        (("--max-growth", "7KiB"), 0),
        (("--max-peak-growth", "7KiB"), 0),
        (("--max-peak-growth", "6KiB"), 1),
        (("--max-growth", "0", "--max-peak-growth", "7KiB"), 1),  # the lower bound has the limit of --max-growth
    ],
)
def test_growth_limits_can_be_set_apart(tmmu: Tmmu, tmp_path: Path, limits: tuple[str, ...], code: int) -> None:
    before = csv(tmp_path / "a.csv", "a,0,2,2048,0", "b,2,4,1024,8192")
    after = csv(tmp_path / "c.csv", "a,0,4,8192,0", "b,2,4,1024,8192")
    assert tmmu("gate", after, "--baseline", before, *limits)[0] == code


@pytest.mark.parametrize("options", [("PLAN", "--graph", "GRAPH"), ("GRAPH",), ("PLAN",)])
def test_bound_that_only_the_graph_proves_is_no_growth_over_a_plan_file(
    tmmu: Tmmu, tmp_path: Path, options: tuple[str, ...]
) -> None:
    graph, made = str(SAMPLES / "must_not_alias.tmmu.json"), str(tmp_path / "plan.json")
    assert tmmu("plan", graph, "-o", made)[0] == 0
    named = [{"PLAN": made, "GRAPH": graph}.get(option, option) for option in options]
    for limits in (("--baseline", made, "--max-growth", "0"), ("--baseline", graph, "--max-growth", "0")):
        assert tmmu("gate", *named, *limits)[0] == 0
    assert library.plan(graph).gate(baseline=made, max_growth=0)


@pytest.mark.parametrize(
    ("made", "named"),
    [
        (("--planner", "slots"), "planner slots → greedy"),
        (("--planner", "greedy", "--mode", "forward"), "mode forward → inference"),
        (("--planner", "greedy", "--option", "order=size"), "planner options order=size → none"),
        (("--planner", "greedy", "--alignment", "4096"), "alignment of activations 4096 → 128"),
    ],
)
def test_settings_that_differ_from_the_baseline_are_named_in_the_first_line(
    tmmu: Tmmu, tmp_path: Path, made: tuple[str, ...], named: str
) -> None:
    golden = str(tmp_path / "golden.json")
    assert tmmu("plan", MIXED, *made, "-o", golden)[0] == 0
    gate = ("gate", MIXED, "--planner", "greedy", "--baseline", golden, "--max-growth", "1GiB")
    first, _, checked = tmmu(*gate)[1].splitlines()[:3]
    assert (named in first, checked.split("; ")[0]) == (True, f"checked {golden}: rows only")
    assert named in json.loads(tmmu(*gate, "--json")[1])["warnings"][0]
    tmmu(*gate, "--out", str(tmp_path / "out"))
    assert named.split("=")[0] in (tmp_path / "out" / "summary.md").read_text().replace("\\", "")


@pytest.mark.parametrize(
    ("rows", "options", "question"),
    [
        (("a,0,2,64,0", "b,2,4,64,64"), (), "all 2 offsets of the input are kept"),
        (("a,0,2,64,0", "b,2,4,64,64"), ("--planner", "greedy"), "all 2 offsets of the input are discarded"),
        (("a,0,2,64,0", "b,2,4,64,"), ("--planner", "greedy"), "1 of 2 offsets are given and stay fixed"),
        (("a,0,2,64,", "b,2,4,64,"), ("--planner", "greedy"), ""),
    ],
)
def test_use_of_given_offsets_is_named(
    tmmu: Tmmu, tmp_path: Path, rows: tuple[str, ...], options: tuple[str, ...], question: str
) -> None:
    path = csv(tmp_path / "x.csv", *rows)
    for command in (("plan", path), ("gate", path, "--max-extent", "1MiB"), ("export", path, "--to", "perfetto")):
        if command[0] == "export":
            found = json.loads(tmmu(*command, *options)[1])["otherData"]
        else:
            found = json.loads(tmmu(*command, *options, "--json")[1])
        warnings = found.get("warnings", [])
        assert bool(warnings) == bool(question)
        assert question in " ".join(warnings)
        assert question in tmmu(*command, *options)[1]
    assert question in repr(library.plan(path, planner=options[1] if options else None))
    for ending in ("md", "html"):
        report = tmp_path / f"x.{ending}"
        tmmu("report", path, *options, "-o", str(report))
        assert question in report.read_text()
        assert ("Warning: " in report.read_text()) == bool(question)


def test_proof_names_the_alignment_of_the_buffers(tmmu: Tmmu, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("id,lower,upper,size,alignment\na,0,1,8,16\nb,0,1,8,16\n")
    assert "Proven optimal: 24 B at alignment 16 B" in tmmu("plan", str(path), "--planner", "exact")[1]
    assert "2.14 MiB at alignment 128 B" in tmmu("plan", str(SAMPLES / "bvlc_alexnet.tmmu.json.gz"))[1]  # has views


def test_proofs_name_the_given_offsets(tmmu: Tmmu, tmp_path: Path) -> None:
    """The given offsets of ``a`` and ``b`` are 200 bytes apart, so 400 bytes are needed; without them, 200."""
    path = csv(tmp_path / "x.csv", "a,0,10,100,0", "b,5,15,100,300", "c,16,20,100,")
    text = tmmu("plan", path, "--planner", "exact")[1]
    assert "no plan with the given offsets needs less than 400 B" in text
    assert "Proven optimal: 400 B at alignment 1 B with the given offsets" in text
    for planner in ("greedy", "exact"):
        with pytest.raises(ArenaTooSmall) as caught:
            library.plan(path, planner=planner, capacity=350)
        assert "at least 400 B are needed at alignment 1 B with the 2 given offsets (proven)" in caught.value.hint
    with pytest.raises(ArenaTooSmall) as caught:
        library.plan(csv(tmp_path / "one.csv", "a,0,10,100,300", "c,16,20,100,"), planner="exact", capacity=350)
    assert "with the 1 given offset (proven)" in caught.value.hint
    assert "2 of 3 offsets are given and stay fixed" in tmmu("sweep", path, "--planners", "greedy,exact")[1]


@pytest.mark.parametrize(("plan", "baseline"), [("DIGEST", MIXED), (MIXED, "DIGEST"), ("DIGEST", "DIGEST")])
def test_unknown_bound_of_a_digest_is_no_growth(tmmu: Tmmu, tmp_path: Path, plan: str, baseline: str) -> None:
    digest = str(tmp_path / "d.jsonl")
    tmmu("trace", MIXED, "--digest", "-o", digest)
    plan, baseline = (digest if each == "DIGEST" else each for each in (plan, baseline))
    code, out, _ = tmmu("gate", plan, "--baseline", baseline, "--max-growth", "0", "--json")
    found = json.loads(out)
    assert code == 0
    assert {check["what"] for check in found["checks"]} >= {"peak growth", "extent growth"}
    assert "lower bound growth" not in {check["what"] for check in found["checks"]}
    assert "growth of the lower bound was not checked" in found["warnings"][0]
