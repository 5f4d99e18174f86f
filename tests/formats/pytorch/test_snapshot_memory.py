"""Reserved bytes, categories and lines of snapshots whose truth is known."""

import json
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from app.cli.main import run
from benchmarks.snapshot_writer import Document, SnapshotWriter, Transformer, frame, transformer_steps
from tests.support.paths import DATA
from tmmu_core.formats.open_file import read_any
from tmmu_core.formats.planfile.compare_plans import compare
from tmmu_core.formats.pytorch.snapshot.torch_snapshot import History
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.planners.problem import PlainInstance
from tmmu_core.plans.figures.metrics import by_category, live_by_line, totals
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.model import Plan

MIB = 1 << 20
LINE = [frame("/work/train.py", 3, "main")]
TINY = {"layers": 2, "width": 256, "tokens": 512, "vocabulary": 5000}


def opened(document: Document) -> PlainInstance:
    found = read_any(pickle.dumps(document), "snapshot.pickle")
    assert isinstance(found, PlainInstance)
    return found


def history(document: Document) -> History:
    found = opened(document).recorded
    assert isinstance(found, History)
    return found


def given_plan(document: Document) -> Plan:
    return make_plan(opened(document), PlanRequest()).plan


# --- reserved bytes ---------------------------------------------------------------------------------------------


def test_released_segments_are_not_added_up() -> None:
    writer = SnapshotWriter()
    for k in range(10):
        writer.alloc(k, 500 * MIB, LINE, "other")
        writer.free(k, LINE)
        writer.allocator.empty_cache()
    plan = given_plan(writer.document())
    assert plan.arenas[0].extent_bytes == totals(plan).reserved_peak_bytes == 500 * MIB
    assert verify_plan(plan).ok


def test_segments_that_do_not_coexist_share_offsets() -> None:
    writer = SnapshotWriter()
    for k, size in enumerate((100, 60, 40, 100)):  # 60 and 40 together, each of the others alone
        writer.alloc(k, size * MIB, LINE, "other")
        if k != 1:
            for key in list(writer.held):
                writer.free(key, LINE)
            writer.allocator.empty_cache()
    plan = given_plan(writer.document())
    assert (plan.arenas[0].extent_bytes, verify_plan(plan).ok) == (100 * MIB, True)


@pytest.mark.parametrize("last", [None, 60])
def test_reserved_peak_equals_the_allocators_own(last: int | None) -> None:
    writer = transformer_steps(Transformer(**TINY))
    plan = given_plan(writer.document(last))
    assert totals(plan).reserved_peak_bytes == plan.arenas[0].extent_bytes == writer.reserved_peak
    assert verify_plan(plan).ok


def test_snapshot_of_an_h100_has_the_peak_and_the_parameters_that_pytorch_reported() -> None:
    """Three steps with AdamW on PyTorch 2.11; ``max_memory_reserved`` was 660,602,880 bytes."""
    path = DATA / "torch" / "h100.pickle.gz"
    plan = make_plan(read_any(path.read_bytes(), path.name), PlanRequest()).plan
    assert totals(plan).reserved_peak_bytes == 660_602_880
    parameters, states = 54_111_776, 2 * 54_111_776
    of_category: Counter[str] = Counter()
    for (_, category), (live, _) in live_by_line(plan, totals(plan).peak_step).items():
        of_category[category] += live
    assert of_category["parameter"] == parameters
    assert states <= of_category["optimizer_state"] <= states + 32 * 512


def test_pages_released_from_an_expandable_segment_lower_the_reserved_bytes() -> None:
    def event(action: str, addr: int, size: int) -> dict[str, Any]:
        return {"action": action, "addr": addr * MIB, "size": size * MIB}

    events = [event("segment_map", 0, 120)]
    events += [event("alloc", addr, 40) for addr in (0, 40, 80)]
    events += [event("free_completed", 40, 40), event("segment_unmap", 40, 40)]
    events += [event("segment_map", 500, 20), event("alloc", 500, 20)]
    parts = [(0, 40), (80, 40), (500, 20)]
    segments = [
        {
            "address": addr * MIB,
            "total_size": size * MIB,
            "blocks": [{"address": addr * MIB, "size": size * MIB, "state": "active_allocated"}],
        }
        for addr, size in parts
    ]
    document = {"segments": segments, "device_traces": [events]}
    found = history(document)
    assert found.reserved.size.tolist()[-2:] == [80 * MIB, 100 * MIB]
    assert found.reserved_peak_bytes == 120 * MIB
    assert verify_plan(given_plan(document)).ok


# --- names ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frames", "name"),
    [
        (["torch::unwind::unwind()", "at::_ops::mm::call(at::Tensor const&)"], "at::_ops::mm"),
        (["torch::unwind::unwind()", "at::_ops::mm::call()", "torch::autograd::MmBackward0::apply()"], "MmBackward0"),
        (["c10::cuda::CUDACachingAllocator::malloc()", "/x/train.py"], "train.py:7 f"),
        (["torch::unwind::unwind()", "/x/torch/nn/functional.py"], "functional.py:7 f"),
        (["torch::unwind::unwind()"], "torch::unwind::unwind()"),
    ],
)
def test_name_skips_the_unwinder(frames: list[str], name: str) -> None:
    stack = [frame(one, 7, "f") if one.endswith(".py") else frame("??", 0, one) for one in frames]
    writer = SnapshotWriter()
    writer.alloc(0, 512, stack, "other")
    assert opened(writer.document()).problem.ids == (f"{name} #0",)


# --- categories -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [{}, {"has_cpp_frames": False}, {"is_checkpointed": True, "steps": 3}])
def test_categories_of_a_training_run_are_right(how: dict[str, Any]) -> None:
    writer = transformer_steps(Transformer(**TINY, **how))
    found = history(writer.document())
    by_birth = sorted(range(len(found.ids)), key=lambda row: found.birth[row])
    assert [(found.categories[row], found.size[row]) for row in by_birth] == writer.truth


@pytest.mark.parametrize("has_cpp_frames", [True, False])
def test_parameters_and_state_from_before_the_trace_are_told_by_their_sizes(has_cpp_frames: bool) -> None:
    run = Transformer(**TINY, steps=3, start_at_step=1, has_cpp_frames=has_cpp_frames)
    writer = transformer_steps(run)
    found = history(writer.document())
    true, read = Counter[str](), Counter[str]()
    for category, size in writer.before.values():
        true[category] += size
    for row in range(len(found.ids)):
        if found.is_before[row]:
            read[found.categories[row]] += int(found.size[row])
            assert found.name("origin", row) == "before the trace"
    assert read == true
    assert history({**writer.document(), "device_traces": []}).name("origin", 0) == "unknown"


# --- streams, pools, failures -----------------------------------------------------------------------------------


def test_private_pools_are_found_by_their_segments_in_older_snapshots() -> None:
    writer = SnapshotWriter()
    writer.alloc("a", 512, LINE, "other")
    writer.alloc("b", 512, LINE, "other", pool=(0, 1))
    document = writer.document()
    for event in document["device_traces"][0]:
        del event["pool_id"]
    found = history(document)
    assert sorted(found.name("pool", row) for row in range(2)) == ["stream 0", "stream 0, private pool 0.1"]


def test_failed_allocation_is_reported() -> None:
    writer = SnapshotWriter()
    writer.alloc("x", 70 * MIB, LINE, "activation")
    failed = {"action": "oom", "addr": 0, "size": 60 * MIB, "device_free": 30 * MIB, "frames": LINE}
    document = writer.document()
    document["device_traces"][0].append(failed)
    note = given_plan(document).remark("read")
    assert "1 allocations failed; the first, at step 1, requested 60.0 MiB with 30.0 MiB free" in note


# --- comparison -------------------------------------------------------------------------------------------------


def test_difference_of_two_snapshots_is_explained_to_the_byte() -> None:
    runs = (Transformer(**TINY), Transformer(**{**TINY, "tokens": 1024}), Transformer(**TINY, is_checkpointed=True))
    base, larger, checkpointed = (given_plan(transformer_steps(run).document()) for run in runs)
    for other in (larger, checkpointed):
        found = compare(base, other)
        assert (found.comparable, found.identical) == (True, False)
        grown = totals(other).peak_live_bytes - totals(base).peak_live_bytes
        assert sum(change.growth_bytes for change in found.lines) == grown
        assert sum(change.growth_bytes for change in by_category(found.lines)) == grown
    gone = [change.line for change in compare(base, checkpointed).lines if not change.after_count]
    assert "model.py:44 Block.forward" in gone
    assert compare(base, base).identical


def test_gate_reports_growth_of_a_snapshot_by_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, count in (("old", 512), ("new", 1024)):
        document = transformer_steps(Transformer(**{**TINY, "tokens": count})).document()
        (tmp_path / f"{name}.pickle").write_bytes(pickle.dumps(document))
    files = [str(tmp_path / "new.pickle"), "--baseline", str(tmp_path / "old.pickle")]
    assert run(["gate", *files, "--max-growth", "10%"]) == 1
    out = capsys.readouterr().out
    assert "FAILED" in out
    assert "model.py:40 Block.forward" in out
    assert run(["gate", *files, "--max-growth", "200%"]) == 0
    assert run(["compare", files[2], files[0]]) == 1
    assert "category at the peak" in capsys.readouterr().out


# --- ranks ------------------------------------------------------------------------------------------------------


def test_folder_of_ranks_is_one_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(4):
        document = transformer_steps(Transformer(**{**TINY, "tokens": 1024 if rank == 2 else 512})).document()
        (tmp_path / f"job_rank{rank}_step100.pickle").write_bytes(pickle.dumps(document))
    assert run(["plan", str(tmp_path)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in out[1:3]] == ["2", "0–1,"]
    assert "highest peak: rank 2 (job_rank2_step100.pickle)" in out[-1]
    (tmp_path / "job_rank9.pickle").write_bytes(pickle.dumps(document)[:-100])
    assert run(["plan", str(tmp_path), "--json"]) == 1
    ranks = json.loads(capsys.readouterr().out)["ranks"]
    assert [one["rank"] for one in ranks] == [0, 1, 2, 3, 9]
    assert "cut off" in ranks[4]["error"]
    assert ranks[2]["difference"] is None
    assert ranks[0]["difference"]["growth_bytes"] < 0


def test_folder_of_unreadable_ranks_has_no_highest_peak(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot = pickle.dumps(transformer_steps(Transformer(**TINY)).document())
    for rank in range(2):
        (tmp_path / f"job_rank{rank}.pickle").write_bytes(snapshot[:-100])
    assert run(["plan", str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "2 ranks"
