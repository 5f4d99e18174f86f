"""The functions of ``import tmmu`` and the methods of their results."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

import tmmu
from tests.support.build import chain, graph, node, tensor
from tests.support.paths import SAMPLES, read_graph_file
from tmmu_core.base import app_package, atomic_files, errors
from tmmu_core.base.errors import ArenaTooSmall, InvalidIrShapes, UnreadableInput
from tmmu_core.formats.planfile.trace import to_json_lines
from tmmu_core.graph.native import native_file
from tmmu_core.library import arguments
from tmmu_core.plans.making.engine import plan_graph

MIXED = SAMPLES / "mixed_sizes.tmmu.json"
ROOT = SAMPLES.parent


def test_import_loads_modules_at_first_use() -> None:
    program = (
        "import sys, tmmu_core; assert 'numpy' not in sys.modules; tmmu_core.SPEC_VERSION;"
        "assert 'numpy' not in sys.modules; tmmu_core.TmmuError; assert 'numpy' not in sys.modules;"
        "tmmu_core.pack; assert 'app' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_reading_a_graph_loads_no_reader_of_another_format() -> None:
    program = (
        f"import sys, tmmu; tmmu.read({str(MIXED)!r});"
        "print(sorted(m for m in sys.modules if m.startswith('tmmu_core.formats.') or m in ('onnx', 'torch')))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    assert ".open_file'" in loaded
    assert "'onnx'" not in loaded
    assert "'torch'" not in loaded
    for other in ("executorch", "torch_snapshot", "vela", "tflm", "xla_dump", "onnx_reader", "tflite"):
        assert f".{other}'" not in loaded


def test_path_bytes_and_graph_give_the_same_plan() -> None:
    graph = read_graph_file(MIXED)
    expected = plan_graph(graph, planner="greedy").plan.tmmu_plan_hash
    for source in (MIXED, str(MIXED), MIXED.read_bytes(), graph, native_file.encode_json(graph)):
        made = tmmu.plan(source, planner="greedy")
        assert made.tmmu_plan_hash == expected
        assert made.verify().ok


def test_pytorch_module_without_pytorch_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """A PyTorch module is recognised by the module name of its type."""
    monkeypatch.setitem(sys.modules, "torch", None)
    module = type("Linear", (), {"__module__": "torch.nn.modules.linear"})()
    with pytest.raises(tmmu.TmmuError) as caught:
        tmmu.plan(module)
    assert "pip install 'tmmu-plan-explorer[torch]'" in str(caught.value.hint)


def test_option_is_a_value_or_a_text() -> None:
    file = SAMPLES / "dynamic_batch.tmmu.json"
    planned = tmmu.plan(file, dims={"B": 2})
    assert planned.layout_hash == tmmu.plan(file, dims="B=2").layout_hash
    assert planned.layout_hash == tmmu.plan(tmmu.read(file, dims={"B": 2})).layout_hash
    with pytest.raises(InvalidIrShapes, match="no dimension"):
        tmmu.read(file, dims={"Q": 2})
    assert planned.verify(read_graph_file(file)).ok
    with pytest.raises(ArenaTooSmall):
        tmmu.plan(MIXED, capacity="1KiB")
    with pytest.raises(UnreadableInput):
        tmmu.plan(MIXED, alignment="sixteen")


@pytest.mark.parametrize(
    ("alignment", "words"), [(16, "at alignment 16 B (proven)"), ([4, 64], "at alignments of 4 to 64 B (proven)")]
)
def test_proof_names_the_alignments_of_the_buffers(alignment: int | list[int], words: str) -> None:
    with pytest.raises(ArenaTooSmall) as caught:
        tmmu.pack(lower=[0, 0], upper=[1, 1], size=[8, 8], alignment=alignment, capacity=12)
    assert words in caught.value.hint


def test_source_without_a_graph_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UnreadableInput, match="a value of type int has no graph"):
        tmmu.plan(7)
    with pytest.raises(UnreadableInput, match="cannot be opened"):
        tmmu.plan(tmp_path / "nothing.onnx")
    saved = tmmu.plan(MIXED).save(tmp_path / "plan.json")
    with pytest.raises(UnreadableInput, match="already is a plan"):
        tmmu.plan(saved)


def test_path_instead_of_a_graph_to_verify_against_is_rejected(tmp_path: Path) -> None:
    plan = tmmu.plan(MIXED)
    for source in (plan, plan.save(tmp_path / "plan.json")):
        with pytest.raises(UnreadableInput, match=r"graph: a value of type \w*Path is not a graph"):
            tmmu.verify(source, MIXED)  # type: ignore[arg-type]


def test_saved_plan_is_identical_after_reading(tmp_path: Path) -> None:
    made = tmmu.plan(MIXED)
    again = tmmu.read(made.save(tmp_path / "plan.cbor"))
    assert isinstance(again, tmmu.Plan)
    assert again.compare(made).identical
    assert tmmu.compare(made, MIXED).identical
    assert not tmmu.compare(made, tmmu.plan(MIXED, planner="naive")).identical
    assert tmmu.verify(tmp_path / "plan.cbor").ok


def test_plan_has_figures_in_its_repr() -> None:
    made = tmmu.plan(MIXED)
    assert (made.extent_bytes, made.lower_bound_bytes, made.peak_live_bytes) == (786_432, 270_336, 270_336)
    assert repr(made) == (
        "<Plan mixed_sizes · inference · slots: extent 786,432 B, bound 270,336 B, gap 190.9 %, 12 tensors. "
        "That is 504 KiB above the lower bound of 264 KiB: at #2 make_c, 504 KiB are unused inside the slots of "
        "live tensors. "
        'auto needs 264 KiB, 65 % less: add planner="auto".>'
    )
    assert made.better is not None
    assert made.better.extent_bytes == tmmu.plan(MIXED, planner="auto").extent_bytes


def test_gate_is_red_over_a_limit() -> None:
    made = tmmu.plan(MIXED)
    assert made.gate(max_gap=200)
    assert repr(made.gate(max_gap=5, max_extent="1MiB")) == "<Gate red: gap>"
    assert made.gate(max_extent={"activations": 786_432})
    assert not made.gate(max_extent={"activations": 786_431})
    assert not made.gate(baseline=tmmu.plan(MIXED, planner="auto"))
    assert made.gate(baseline=tmmu.plan(MIXED, planner="auto"), max_growth="300 %")
    with pytest.raises(ValueError, match="cannot fail"):
        made.gate()
    for wrong, text in (({"max_growth": "5 %"}, "max_growth requires baseline"), ({"max_extent": "x"}, "max_extent: ")):
        with pytest.raises(UnreadableInput, match=f"^{text}"):
            made.gate(**wrong)


def test_table_has_a_row_per_tensor() -> None:
    table = tmmu.plan(MIXED).table()
    assert len(table) == 12
    assert table.loc["k", "offset_bytes"] == 262_144
    assert int((table["offset_bytes"] + table["size_bytes"]).max()) <= 786_432


def test_report_is_written_to_its_path(tmp_path: Path) -> None:
    made = tmmu.plan(MIXED)
    page = made.report(tmp_path / "x.html").read_bytes()
    assert page == made.report()
    assert b"mixed_sizes" in page
    assert b"mixed_sizes" in made.report(tmp_path / "x.md", title="mixed_sizes").read_bytes()


def test_notebook_view_draws_the_arena_with_reuse() -> None:
    """The larger arena has one weight, which never moves."""
    tensors = [
        tensor("x", 2, role="input"),
        tensor("w", 900, role="parameter"),
        *(tensor(f"t{k}", 3) for k in range(4)),
    ]
    nodes = [node(f"n{k}", f"t{k - 1}" if k else "x w", f"t{k}") for k in range(4)]
    drawn = tmmu.plan(graph(tensors, nodes, "x", "t3"), mode="inference")
    assert max(drawn.arenas, key=lambda arena: arena.extent_bytes).name == "parameters"
    assert "arena: &#34;activations&#34;" in drawn._repr_html_()


def test_fit_returns_the_graph_that_fits(tmp_path: Path) -> None:
    made = tmmu.plan(MIXED)
    fitted = made.fit("300KiB")
    assert (fitted.answer, bool(fitted)) == ("fits", True)
    again = tmmu.plan(fitted.save(tmp_path / "fitted.tmmu.json"))
    assert again.extent_bytes == fitted.extent_bytes == fitted.plan.extent_bytes
    assert fitted.plan.verify().ok
    refused = tmmu.fit(MIXED, 1000, allow="planner")
    assert (refused.answer, bool(refused)) == ("cannot", False)
    assert repr(refused).startswith("<Fit cannot: extent ")


def test_plan_from_a_file_cannot_be_fitted(tmp_path: Path) -> None:
    finished = tmmu.read(tmmu.plan(MIXED).save(tmp_path / "plan.json"))
    with pytest.raises(UnreadableInput, match="no graph"):
        finished.fit("1MiB")


def test_pack_returns_offsets_in_the_order_of_the_arrays() -> None:
    packed = tmmu.pack([5, 0, 0], [9, 5, 9], [4, 4, 8])
    assert (packed.extent_bytes, packed.optimal, len(packed)) == (12, True, 3)
    assert packed[0] == packed[1] != packed[2]
    assert packed.lower_bound_bytes == 12
    assert repr(packed) == "<Packed 3 buffers: extent 12 B, optimal>"
    assert np.asarray(packed).dtype == np.uint64
    with pytest.raises(ValueError, match="copy"):
        np.array(packed, dtype=np.int64, copy=False)
    assert list(packed) == packed.offset.tolist()
    assert len(tmmu.pack([], [], [])) == 0
    assert tmmu.pack([2, 3], [5, 6], [2, 1], alignment=[2, 4]).extent_bytes == 4  # a greedy run needs 5


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        (([0], [0], [1]), "half-open"),
        (([0], [1], [-1]), "negative"),
        (([-1], [1], [1]), "before step 0"),
        (([0, 1], [1], [1]), "shape"),
        (([0.5], [1], [1]), "integer type"),
        (([0, 0], [1, 1], [2**63, 1]), "row 0 of size contains 9,223,372,036,854,775,808, beyond"),
        (([[0, 1]], [[2, 3]], [[4, 4]]), r"lower has the shape \(1, 2\), not \(n,\)"),
    ],
)
def test_pack_rejects_invalid_arrays(columns: tuple[list[Any], ...], why: str) -> None:
    with pytest.raises(UnreadableInput, match=why):
        tmmu.pack(*columns)


def test_pack_stops_at_the_first_fit_unless_minimise_is_set() -> None:
    draw = np.random.default_rng(0)
    lower = draw.integers(0, 30, 60)
    buffers = lower, lower + draw.integers(1, 9, 60), draw.integers(1, 10_000, 60)
    enough = tmmu.pack(*buffers, alignment=64, capacity=10**6)
    assert enough.plan.verify().ok
    least = tmmu.pack(*buffers, alignment=64, capacity=10**6, planner="portfolio")
    assert least.extent_bytes <= enough.extent_bytes
    asked = tmmu.pack(*buffers, alignment=64, capacity=10**6, minimise=True)
    assert asked.extent_bytes == tmmu.pack(*buffers, alignment=64).extent_bytes <= least.extent_bytes


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(1, 6), st.integers(0, 9), st.sampled_from((1, 2, 4))),
        min_size=1,
        max_size=9,
    )
)
def test_buffers_live_at_the_same_step_do_not_overlap(rows: list[tuple[int, int, int, int]]) -> None:
    lower, span, size, alignment = (np.array(column) for column in zip(*rows, strict=True))
    upper = lower + span
    packed = tmmu.pack(lower, upper, size, alignment=alignment, planner="greedy")
    at = packed.offset.astype(np.int64)
    assert (at % alignment == 0).all()
    assert int((at + size).max()) <= packed.extent_bytes or not size.any()
    for i in range(len(rows)):
        for j in range(i):
            together = lower[i] < upper[j] and lower[j] < upper[i] and size[i] and size[j]
            assert not together or at[i] + size[i] <= at[j] or at[j] + size[j] <= at[i]


def test_show_without_the_explorer_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tmmu_core.base.errors.find_spec", lambda _: None)
    with pytest.raises(tmmu.TmmuError) as caught:
        tmmu.plan(chain(2)).show()
    assert "pip install 'tmmu-plan-explorer[app]'" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"rank": 5}, "no rank 5; the number of ranks is 1"),
        ({"world_size": 0}, "the number of ranks is 0"),
        ({"token": "00" * 32, "seed": 3}, "exclude each other"),
        ({"addressing": "sideways"}, "no addressing 'sideways'"),
        ({"seed": -1}, "not a whole number"),
        ({"seed": 1.5}, "not a whole number"),
        ({"dims": {"B": 2.5}}, "not a dict from dimension to whole number"),
        ({"budget": 2**64}, "is over 2"),
        ({"capacity": True}, "capacity: True is not a number of bytes"),
        ({"arenas": {"activations": 5}, "alignment": 64}, "expected 'object'"),
        ({"options": 5}, "options: 5 is not a dict"),
        ({"order": 5}, "order: 5"),
    ],
)
def test_invalid_request_is_rejected(how: dict[str, Any], why: str) -> None:
    with pytest.raises(tmmu.TmmuError, match=why):
        tmmu.plan(chain(2), **how)
    assert tmmu.plan(chain(2), rank=1, world_size=2, seed=3, budget=2**64 - 1).rank == 1


OVERLAPPING = b"id,lower,upper,size,offset\na,0,2,100,0\nb,1,3,100,50\n"


def test_overlapping_offsets_of_an_instance_are_invalid() -> None:
    found = tmmu.plan(OVERLAPPING)
    assert [arena.status for arena in found.arenas] == ["invalid"]
    assert repr(found).startswith("<Plan bytes · inference · given: INVALID, extent 150 B, bound 200 B, gap impossible")
    assert not found.gate(max_gap=5)
    assert tmmu.compare(found, found).invalid == ("left", "right")


@pytest.mark.parametrize("digest", [False, True])
def test_trace_is_verified_and_compared_like_a_plan(tmp_path: Path, digest: bool) -> None:
    made = tmmu.plan(MIXED)
    path = tmp_path / "plan.jsonl"
    path.write_bytes(to_json_lines(made, digest=digest))
    assert tmmu.compare(path, made).identical
    assert tmmu.compare(made, path).invalid == ()
    assert tmmu.verify(path).ok
    path.write_bytes(path.read_bytes().replace(b'"extent_bytes":786432', b'"extent_bytes":786431'))
    assert not tmmu.verify(path).ok
    assert {arena.status for arena in tmmu.read(path).plan.arenas} == {"invalid"}
    assert tmmu.compare(made, path).invalid == ("right",)
    if digest:
        with pytest.raises(UnreadableInput, match="digest"):
            made.gate(baseline=path)
    else:
        assert not made.gate(baseline=path)


def test_show_opens_the_explorer_on_a_file_named_after_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[list[str]] = []
    monkeypatch.setattr("tmmu_core.library.plan_result.require", lambda *_: None)
    monkeypatch.setattr(subprocess, "Popen", shown.append)
    names = {"a/b c-é_1": "a-b-c-é_1", "": "plan", "x" * 51: "x" * 50, "...": "---"}
    for name, stem in names.items():
        plan = tmmu.plan(structs.replace(chain(2), name=name))
        for browser in (True, False):
            plan.show(browser=browser)
            *_, command, file = [part for part in shown[-1] if part != "--no-browser"]
            shown_as = command, Path(file).name, "--no-browser" in shown[-1]
            assert shown_as == ("explore", f"{stem}.plan.json", not browser)
            assert tmmu.read(file).tmmu_plan_hash == plan.tmmu_plan_hash


def test_request_options_are_parsed() -> None:
    options = {
        "capacity": {"a": "1KiB", "b": 7},
        "dims": {"N": 2},
        "order": ["n1", "n0"],
        "seed": 3,
        "mode": "inference",
    }
    request = arguments.request_of(options)
    assert (request.capacities, request.dims, request.order) == ({"a": 1024, "b": 7}, {"N": 2}, ("n1", "n0"))
    assert (request.seed, request.mode) == (arguments.request_of({"seed": "3"}).seed, "inference")
    assert arguments.request_of({"capacity": 5}).capacities == {"": 5}
    assert [arguments.request_of({"capacity": c}).capacities for c in ("5KiB", "a=1KiB")] == [{"": 5120}, {"a": 1024}]
    assert arguments.amount_of_bytes("capacity", 0) == 0
    for wrong in (-1, "-1", "", "many"):
        with pytest.raises(UnreadableInput, match="capacity"):
            arguments.amount_of_bytes("capacity", wrong)


def test_missing_dependency_of_an_extra_is_reported_as_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "needs_another.py").write_text("import there_is_no_such_thing")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(errors.EXTRA_OF, "needs_another", "torch")
    monkeypatch.setitem(errors.EXTRA_OF, "not_there", "torch")
    with pytest.raises(ModuleNotFoundError, match="there_is_no_such_thing"):
        errors.need("needs_another", "this")
    with pytest.raises(tmmu.TmmuError, match=r"this needs not_there, which is not installed"):
        errors.need("not_there.inside", "this")


def test_app_of_a_checkout_is_found_from_any_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = [path for path in sys.path if path != str(app_package.HOME)]
    monkeypatch.setattr(sys, "path", [*elsewhere])
    for _ in range(2):
        assert app_package.app_module("cli.main").__name__ == "app.cli.main"
        assert sys.path == [str(app_package.HOME), *elsewhere]


@pytest.mark.parametrize("ending", ["json", "cbor", "csv", "parquet"])
def test_failed_save_reports_path_and_reason(tmp_path: Path, ending: str) -> None:
    made = tmmu.plan(MIXED)
    (tmp_path / f"folder.{ending}").mkdir()
    gone = tmp_path / "nofolder" / f"x.{ending}"
    for path, why in ((gone, "no such file or directory"), (tmp_path / f"folder.{ending}", "is a directory")):
        with pytest.raises(tmmu.TmmuError) as caught:
            made.save(path)
        assert (path.name in str(caught.value), why in str(caught.value)) == (True, True)
        assert ".part" not in str(caught.value)
        assert caught.value.hint == "Check the folder and its permissions."


def test_missing_permission_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path, data: bytes) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "elsewhere.part")

    monkeypatch.setattr(atomic_files, "replace_file", denied)
    with pytest.raises(tmmu.TmmuError, match=r"x\.json cannot be written: permission denied\."):
        tmmu.plan(MIXED).save(tmp_path / "x.json")


def test_repr_of_every_result_is_one_short_line(tmp_path: Path) -> None:
    graph, made = tmmu.read(MIXED), tmmu.plan(MIXED)
    other = tmmu.plan(MIXED, planner="naive")
    (tmp_path / "t.jsonl").write_bytes(to_json_lines(made))
    results = [
        graph,
        made.verify(),
        tmmu.compare(made, other),
        tmmu.read(SAMPLES / "instances" / "A.1048576.csv"),
        tmmu.read(tmp_path / "t.jsonl"),
    ]
    for value in (*results, made, made.gate(max_gap=0), tmmu.PlanRequest()):
        assert len(repr(value)) < 400
        assert "\n" not in repr(value)
    assert [repr(value).split()[0] for value in results] == [
        *("<Graph", "<Verdict", "<Comparison", "<PlainInstance", "<Trace")
    ]
    assert repr(tmmu.compare(made, made)).endswith(": identical>")
    assert "moved" in repr(tmmu.compare(made, other))
