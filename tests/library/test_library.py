"""``import tmmu_core as tmmu``: the same answers as everywhere else, in one line each."""

from __future__ import annotations

import errno
import inspect
import os
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

import tmmu_core as tmmu
from tests.build import chain, graph, node, tensor
from tmmu_core import compiled, door, extras, writing
from tmmu_core.errors import ArenaTooSmall, UnreadableInput
from tmmu_core.graph import native
from tmmu_core.judge.verifier import verify_plan
from tmmu_core.library import requests
from tmmu_core.library.requests import ratio
from tmmu_core.plan.analysis.gate import ALL, Limit, gate
from tmmu_core.plan.formats.files import to_json
from tmmu_core.plan.formats.reading import read_graph_file
from tmmu_core.plan.formats.trace import to_json_lines
from tmmu_core.plan.making.engine import plan_graph

SAMPLES = Path(__file__).resolve().parents[2] / "sample_graphs"
MIXED = SAMPLES / "mixed_sizes.tmmu.json"
ROOT = SAMPLES.parent


def test_there_are_ten_names_and_each_is_documented() -> None:
    assert len(tmmu.__all__) == 10
    assert set(tmmu.__all__) <= set(dir(tmmu))
    for name in ("plan", "fit"):
        assert callable(getattr(tmmu, name))
    from tmmu_core.library import verbs

    for name in ("plan", "fit", "pack", "compare", "read", "verify"):
        text = inspect.getdoc(getattr(verbs, name)) or ""
        assert "Raises" in text
        assert "Source:" in text


def test_nothing_is_loaded_before_it_is_asked_for() -> None:
    program = (
        "import sys, tmmu_core; assert 'numpy' not in sys.modules; tmmu_core.plan;"
        "assert 'numpy' not in sys.modules; tmmu_core.TmmuError; assert 'numpy' not in sys.modules;"
        "tmmu_core.pack; assert 'app' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_a_graph_is_read_without_the_readers_of_other_formats() -> None:
    program = (
        f"import sys, tmmu_core as tmmu; tmmu.read({str(MIXED)!r});"
        "print(sorted(m.rpartition('.')[2] for m in sys.modules if m.startswith('tmmu_core.plan.formats.')"
        " or m == 'onnx' or m.startswith('tmmu_core.graph.importers.')))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    assert "reading" in loaded
    for other in ("executorch", "torch_snapshot", "flatbuffer", "vela", "tflm", "xla", "onnx", "torch", "tflite"):
        assert f"'{other}'" not in loaded


def test_a_verb_with_the_name_of_a_room_is_both() -> None:
    import tmmu_core.plan.model

    assert tmmu.plan.model is tmmu_core.plan.model
    assert "source" in inspect.signature(tmmu.plan).parameters
    assert tmmu.plan(MIXED).planner == "slots"


def test_path_bytes_graph_and_instance_are_planned_alike() -> None:
    graph = read_graph_file(MIXED)
    expected = plan_graph(graph, planner="greedy").plan.tmmu_plan_hash
    for source in (MIXED, str(MIXED), MIXED.read_bytes(), graph, native.encode_json(graph)):
        made = tmmu.plan(source, planner="greedy")
        assert made.tmmu_plan_hash == expected
        assert made.verify().ok
    instance = tmmu.plan(
        SAMPLES / "instances" / "figure1.csv"
        if (SAMPLES / "instances" / "figure1.csv").exists()
        else min((SAMPLES / "instances").glob("*.csv")),
        planner="greedy",
    )
    assert verify_plan(instance).ok


def test_a_pytorch_value_without_pytorch_says_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of another environment's PyTorch, such as a pickled stand-in, is known by its name alone."""
    monkeypatch.setitem(sys.modules, "torch", None)
    module = type("Linear", (), {"__module__": "torch.nn.modules.linear"})()
    with pytest.raises(tmmu.TmmuError) as caught:
        tmmu.plan(module)
    assert "pip install 'tmmu-plan-explorer[torch]'" in str(caught.value.hint)


def test_options_are_values_or_texts() -> None:
    file = SAMPLES / "dynamic_batch.tmmu.json"
    assert tmmu.plan(file, dims={"B": 2}).layout_hash == tmmu.plan(file, dims="B=2").layout_hash
    assert tmmu.plan(file, dims={"B": 2}).verify().ok  # where it was planned
    with pytest.raises(ArenaTooSmall):
        tmmu.plan(MIXED, capacity="1KiB")
    with pytest.raises(TypeError, match="no option 'planer'"):
        tmmu.plan(MIXED, planer="auto")
    with pytest.raises(UnreadableInput):
        tmmu.plan(MIXED, alignment="sixteen")


def test_what_holds_no_graph_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnreadableInput, match="a int holds no graph"):
        tmmu.plan(7)
    with pytest.raises(UnreadableInput, match="cannot be opened"):
        tmmu.plan(tmp_path / "nothing.onnx")
    saved = tmmu.plan(MIXED).save(tmp_path / "plan.json")
    with pytest.raises(UnreadableInput, match="a plan already"):
        tmmu.plan(saved)


def test_a_plan_is_what_it_was_after_a_file(tmp_path: Path) -> None:
    made = tmmu.plan(MIXED)
    again = tmmu.read(made.save(tmp_path / "plan.cbor"))
    assert isinstance(again, tmmu.Plan)
    assert again.compare(made).identical
    assert tmmu.compare(made, MIXED).identical
    assert not tmmu.compare(made, tmmu.plan(MIXED, planner="naive")).identical
    assert tmmu.verify(tmp_path / "plan.cbor").ok


def test_figures_are_the_cores() -> None:
    made = tmmu.plan(MIXED)
    assert (made.extent_bytes, made.lower_bound_bytes, made.peak_live_bytes) == (786_432, 270_336, 270_336)
    assert repr(made) == (
        "<Plan mixed_sizes · inference · slots: extent 786,432 B, bound 270,336 B, gap 190.9 %, 12 tensors>"
    )


def test_a_gate_is_green_or_red_and_says_why() -> None:
    made = tmmu.plan(MIXED)
    assert made.gate(max_gap=200)
    red = made.gate(max_gap=5, max_extent="1MiB")
    assert not red
    assert repr(red) == "<Gate red: gap>"
    assert made.gate(max_extent={"activations": 786_432})
    assert not made.gate(max_extent={"activations": 786_431})
    assert not made.gate(baseline=tmmu.plan(MIXED, planner="auto"))
    assert made.gate(baseline=tmmu.plan(MIXED, planner="auto"), max_growth="300 %")
    with pytest.raises(ValueError, match="can never be red"):
        made.gate()
    with pytest.raises(TypeError, match="no limit 'max_gaps'"):
        made.gate(max_gaps=5)


def test_a_table_has_a_row_per_tensor() -> None:
    table = tmmu.plan(MIXED).table()
    assert len(table) == 12
    assert table.loc["k", "offset_bytes"] == 262_144
    assert int((table["offset_bytes"] + table["size_bytes"]).max()) <= 786_432


def test_a_report_is_written_where_it_is_asked_for(tmp_path: Path) -> None:
    made = tmmu.plan(MIXED)
    page = made.report(tmp_path / "x.html").read_bytes()
    assert page == made.report()
    assert b"mixed_sizes" in page
    assert b"mixed_sizes" in made.report(tmp_path / "x.md", title="mixed_sizes").read_bytes()


def test_a_notebook_draws_the_map() -> None:
    drawn = tmmu.plan(MIXED)._repr_html_()
    assert "<svg" in drawn
    assert "Arena map of activations" in drawn
    assert "<script" not in drawn


def test_a_notebook_draws_the_arena_where_most_moves() -> None:
    """The larger one holds a weight alone, which lies still."""
    tensors = [
        tensor("x", 2, role="input"),
        tensor("w", 900, role="parameter"),
        *(tensor(f"t{k}", 3) for k in range(4)),
    ]
    nodes = [node(f"n{k}", f"t{k - 1}" if k else "x w", f"t{k}") for k in range(4)]
    drawn = tmmu.plan(graph(tensors, nodes, "x", "t3"), mode="inference")
    assert max(drawn.arenas, key=lambda arena: arena.extent_bytes).name == "parameters"
    assert "Arena map of activations" in drawn._repr_html_()


def test_a_fit_answers_and_gives_the_graph_that_fits(tmp_path: Path) -> None:
    made = tmmu.plan(MIXED)
    fitted = made.fit("300KiB")
    assert (fitted.answer, bool(fitted)) == ("fits", True)
    again = tmmu.plan(fitted.save(tmp_path / "fitted.tmmu.json"))
    assert again.extent_bytes == fitted.extent_bytes == fitted.plan.extent_bytes
    assert fitted.plan.verify().ok
    refused = tmmu.fit(MIXED, 1000, allow="planner")
    assert (refused.answer, bool(refused)) == ("cannot", False)
    assert repr(refused).startswith("<Fit cannot: extent ")
    with pytest.raises(TypeError, match="no option"):
        made.fit("1MiB", quickly=True)


def test_a_plan_that_came_finished_has_no_graph_to_fit(tmp_path: Path) -> None:
    finished = tmmu.read(tmmu.plan(MIXED).save(tmp_path / "plan.json"))
    with pytest.raises(UnreadableInput, match="no graph"):
        finished.fit("1MiB")


def test_arrays_are_packed_in_the_order_in_which_they_came() -> None:
    packed = tmmu.pack([5, 0, 0], [9, 5, 9], [4, 4, 8])
    assert (packed.extent_bytes, packed.optimal, len(packed)) == (12, True, 3)
    assert packed[0] == packed[1] != packed[2]
    assert packed.lower_bound_bytes == 12
    assert repr(packed) == "<Packed 3 buffers: extent 12 B, optimal>"
    assert np.asarray(packed).dtype == np.uint64
    assert list(packed) == packed.offset.tolist()
    assert len(tmmu.pack([], [], [])) == 0


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        (([0], [0], [1]), "half-open"),
        (([0], [1], [-1]), "negative"),
        (([-1], [1], [1]), "before step 0"),
        (([0, 1], [1], [1]), "shape"),
        (([0.5], [1], [1]), "whole numbers"),
    ],
)
def test_arrays_that_mean_nothing_are_refused(columns: tuple[list[int], ...], why: str) -> None:
    with pytest.raises(UnreadableInput, match=why):
        tmmu.pack(*columns)


def test_a_packing_keeps_alignment_and_capacity() -> None:
    packed = tmmu.pack([0, 0, 0], [2, 2, 2], [3, 3, 3], alignment=4, capacity=11)
    assert sorted(packed) == [0, 4, 8]
    loose = tmmu.pack([0, 0, 1], [1, 2, 2], [4, 2, 6], planner="naive")
    assert (loose.lower_bound_bytes, loose.extent_bytes) == (8, 12)
    assert repr(loose) == "<Packed 3 buffers: extent 12 B, bound 8 B>"
    with pytest.raises(ArenaTooSmall):
        tmmu.pack([0, 0], [2, 2], [8, 8], capacity="8")


def test_a_packing_that_fits_is_the_answer_unless_the_least_is_asked_for() -> None:
    draw = np.random.default_rng(0)
    lower = draw.integers(0, 30, 60)
    buffers = lower, lower + draw.integers(1, 9, 60), draw.integers(1, 10_000, 60)
    enough = tmmu.pack(*buffers, alignment=64, capacity=10**6)
    assert enough.plan.verify().ok
    least = tmmu.pack(*buffers, alignment=64, capacity=10**6, planner="portfolio")
    assert least.extent_bytes <= enough.extent_bytes
    asked = tmmu.pack(*buffers, alignment=64, capacity=10**6, minimise=True)
    assert asked.extent_bytes == tmmu.pack(*buffers, alignment=64).extent_bytes <= least.extent_bytes


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(1, 6), st.integers(0, 9), st.sampled_from((1, 2, 4))),
        min_size=1,
        max_size=9,
    )
)
def test_no_two_buffers_alive_together_share_a_byte(rows: list[tuple[int, int, int, int]]) -> None:
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


def test_a_plan_of_a_made_graph_is_verified() -> None:
    made = tmmu.plan(chain(4), mode="backward", planner="auto")
    assert made.graph is not None
    assert tmmu.verify(made).ok


@pytest.mark.parametrize("browser", [True, False])
def test_show_opens_the_explorer_on_this_very_plan(monkeypatch: pytest.MonkeyPatch, browser: bool) -> None:
    opened: list[list[str]] = []
    monkeypatch.setattr("tmmu_core.library.planned.subprocess.Popen", opened.append)
    plan = tmmu.plan(chain(2))
    plan.show(browser=browser)
    ((_, _, _, command, file, *rest),) = opened
    assert (command, rest) == ("explore", [] if browser else ["--no-browser"])
    assert tmmu.read(file).tmmu_plan_hash == plan.tmmu_plan_hash


def test_show_without_the_explorer_says_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tmmu_core.extras.find_spec", lambda _: None)
    with pytest.raises(tmmu.TmmuError) as caught:
        tmmu.plan(chain(2)).show()
    assert "pip install 'tmmu-plan-explorer[app]'" in str(caught.value.hint)


def test_offsets_are_an_array_of_any_kind_and_a_copy_where_one_is_asked_for() -> None:
    packed = tmmu.pack([0, 1], [2, 3], [4, 8])
    assert np.asarray(packed, dtype=np.int32).dtype == np.int32
    assert np.asarray(packed, dtype=np.int32).tolist() == packed.offset.tolist()
    assert np.array(packed, copy=True) is not packed.offset
    assert np.asarray(packed) is packed.offset
    assert packed.__array__(np.int32).dtype == np.int32, "asked as the protocol asks, without numpy's own cast"


@pytest.mark.parametrize("limit", ["five", "-1", "1/0", -0.5])
def test_a_share_that_is_none_is_refused_by_its_name(limit: object) -> None:
    with pytest.raises(UnreadableInput, match=r"growth.*is not a percentage"):
        ratio("growth", limit)  # type: ignore[arg-type]
    assert [ratio("growth", given) for given in (0, "5 %", 2.5)] == [0, Fraction(5, 100), Fraction(25, 1000)]


def test_a_plan_of_a_chosen_size_is_verified_at_that_size() -> None:
    sample = Path(__file__).parents[2] / "sample_graphs" / "dynamic_batch.tmmu.json"
    found = tmmu.plan(sample, dims={"B": 2})
    assert found.verify(read_graph_file(sample)).ok


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"rank": 5}, "no rank 5 in a world of 1"),
        ({"world_size": 0}, "no world of 0 ranks"),
        ({"token": "00" * 32, "seed": 3}, "exclude each other"),
        ({"addressing": "sideways"}, "no addressing 'sideways'"),
        ({"seed": -1}, "not between 0 and"),
        ({"budget": 2**64}, "not between 0 and"),
    ],
)
def test_what_the_command_line_refuses_of_a_request_the_library_does_too(how: dict[str, Any], why: str) -> None:
    with pytest.raises(UnreadableInput, match=why):
        tmmu.plan(chain(2), **how)
    assert tmmu.plan(chain(2), rank=1, world_size=2, seed=3, budget=2**64 - 1).rank == 1


def test_a_report_has_an_ending_that_says_what_it_is(tmp_path: Path) -> None:
    made = tmmu.plan(chain(2))
    assert made.report(tmp_path / "r.MD").read_text().startswith("###")
    with pytest.raises(UnreadableInput, match=r"not written as \.txt"):
        made.report(tmp_path / "r.txt")


OVERLAPPING = b"id,lower,upper,size,offset\na,0,2,100,0\nb,1,3,100,50\n"


def test_offsets_that_came_with_an_instance_are_judged_before_anything_is_said_of_them() -> None:
    found = tmmu.plan(OVERLAPPING)
    assert [arena.status for arena in found.arenas] == ["invalid"]
    assert repr(found).startswith("<Plan bytes · inference · given: INVALID, extent 150 B, bound 200 B, gap impossible")
    assert not found.gate(max_gap=5)
    assert tmmu.compare(found, found).invalid == ("left", "right")


def test_no_gate_is_green_below_a_bound_and_no_other_arena_hides_it() -> None:
    """Whoever made the plan: one of the two figures is false."""
    made = tmmu.plan(SAMPLES / "two_arenas.tmmu.json")
    low = replace(made.arenas[0], extent_bytes=made.arenas[0].bound_bytes - 1)
    wrong = replace(made, arenas=(low, *made.arenas[1:]))
    for arena, ok in ((ALL, False), (low.name, False), (made.arenas[1].name, True)):
        (check,) = gate(wrong, [Limit("gap", Fraction(10), arena)])
        assert check.ok is ok
    assert all(check.ok for check in gate(made, [Limit("gap", Fraction(10))]))


@pytest.mark.parametrize("digest", [False, True])
def test_a_trace_is_a_finished_plan_like_any_other(tmp_path: Path, digest: bool) -> None:
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
        with pytest.raises(UnreadableInput, match="does not tell its tensors"):
            made.gate(baseline=path)
    else:
        assert not made.gate(baseline=path)


def test_the_explorer_is_shown_a_file_by_the_graphs_name(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[list[str]] = []
    monkeypatch.setattr("tmmu_core.library.planned.require", lambda *_: None)
    monkeypatch.setattr(subprocess, "Popen", shown.append)
    names = {"a/b c-é_1": "a-b-c-é_1", "": "plan", "x" * 51: "x" * 50, "...": "---"}
    for name in names:
        tmmu.plan(structs.replace(chain(2), name=name)).show()
        tmmu.plan(structs.replace(chain(2), name=name)).show(browser=False)
    assert [Path(command[4]).name for command in shown] == [
        f"{stem}.plan.json" for stem in names.values() for _ in "12"
    ]
    assert [command[5:] for command in shown] == [[], ["--no-browser"]] * len(names)
    assert all(isinstance(tmmu.read(command[4]), tmmu.Plan) for command in shown)


def test_offsets_that_came_with_an_instance_are_judged() -> None:
    given = b"id,lower,upper,size,offset\na,0,2,8,0\nb,1,3,8,%d\n"
    assert [tmmu.plan(given % at).arenas[0].status for at in (4, 8)] == ["invalid", "optimal"]
    assert [tmmu.plan(given % 8, capacities=most).arenas[0].status for most in (15, 16)] == ["invalid", "optimal"]


def test_a_plan_file_whose_rows_were_changed_is_judged_when_it_is_read() -> None:
    plan = plan_graph(chain(3)).plan
    moved = replace(plan, offset=plan.offset + np.uint64(1))
    assert [tmmu.read(to_json(each)).arenas[0].status for each in (plan, moved)] == [plan.arenas[0].status, "invalid"]


def test_an_option_is_read_as_what_it_is_called() -> None:
    said = {
        "capacities": {"a": "1KiB", "b": 7},
        "dims": {"N": 2},
        "order": ["n1", "n0"],
        "seed": 3,
        "mode": "inference",
    }
    request = requests.request_of(said)
    assert (request.capacities, request.dims, request.order) == ({"a": 1024, "b": 7}, {"N": 2}, ("n1", "n0"))
    assert (request.seed, request.mode) == (requests.request_of({"seed": "3"}).seed, "inference")
    assert requests.request_of({"capacities": 5}).capacities == {"": 5}
    assert requests.request_of({"capacities": "5KiB"}).capacities == {"": 5120}
    assert requests.amount_of_bytes("capacity", 0) == 0
    for wrong in (-1, "-1", "", "many"):
        with pytest.raises(UnreadableInput, match="capacity"):
            requests.amount_of_bytes("capacity", wrong)


def test_what_a_package_needs_and_lacks_is_not_said_of_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needs_another.py").write_text("import there_is_no_such_thing")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(extras.EXTRA_OF, "needs_another", "torch")
    monkeypatch.setitem(extras.EXTRA_OF, "not_there", "torch")
    with pytest.raises(ModuleNotFoundError, match="there_is_no_such_thing"):
        extras.need("needs_another", "this")
    with pytest.raises(tmmu.TmmuError, match=r"this needs not_there, which is not installed"):
        extras.need("not_there.inside", "this")


def test_a_checkouts_faces_are_found_from_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = [path for path in sys.path if path != str(door.HOME)]
    monkeypatch.setattr(sys, "path", [*elsewhere])
    for _ in range(2):
        assert door.face("cli.main").__name__ == "app.cli.main"
        assert sys.path == [str(door.HOME), *elsewhere]


def test_loops_are_compiled_where_the_compiler_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    for found in (None, object()):
        monkeypatch.setattr(compiled, "find_spec", lambda name, found=found: found if name == "numba" else None)
        assert compiled.is_there() is (found is not None)


@pytest.mark.parametrize("ending", ["json", "cbor", "csv", "parquet"])
def test_a_plan_that_cannot_be_saved_says_where_and_why(tmp_path: Path, ending: str) -> None:
    made = tmmu.plan(MIXED)
    (tmp_path / f"folder.{ending}").mkdir()
    gone = tmp_path / "nofolder" / f"x.{ending}"
    for path, why in ((gone, "no such file or directory"), (tmp_path / f"folder.{ending}", "is a directory")):
        with pytest.raises(tmmu.TmmuError) as caught:
            made.save(path)
        assert (path.name in str(caught.value), why in str(caught.value)) == (True, True)
        assert ".part" not in str(caught.value)
        assert caught.value.hint == "Check the folder and the rights."


@pytest.mark.parametrize("name", ["x.html", "x.md", "x"])
def test_a_report_that_cannot_be_written_says_so_as_the_command_line_does(tmp_path: Path, name: str) -> None:
    gone = tmp_path / "nofolder" / name
    with pytest.raises(tmmu.TmmuError, match="cannot be written: no such file or directory") as caught:
        tmmu.plan(MIXED).report(gone)
    assert caught.value.record()["code_id"] == "USAGE"


def test_a_fit_that_cannot_be_saved_says_so(tmp_path: Path) -> None:
    with pytest.raises(tmmu.TmmuError, match="cannot be written"):
        tmmu.fit(MIXED, "1GiB").save(tmp_path / "nofolder" / "x.tmmu.json")


def test_a_lost_right_is_told_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path, data: bytes) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "elsewhere.part")

    monkeypatch.setattr(writing, "replace_file", denied)
    with pytest.raises(tmmu.TmmuError, match=r"x\.json cannot be written: permission denied\."):
        tmmu.plan(MIXED).save(tmp_path / "x.json")


def test_what_the_library_gives_is_said_in_a_line(tmp_path: Path) -> None:
    graph, made = tmmu.read(MIXED), tmmu.plan(MIXED)
    other = tmmu.plan(MIXED, planner="naive")
    (tmp_path / "t.jsonl").write_bytes(to_json_lines(made))
    said = [
        graph,
        made.verify(),
        tmmu.compare(made, other),
        tmmu.read(SAMPLES / "instances" / "A.1048576.csv"),
        tmmu.read(tmp_path / "t.jsonl"),
    ]
    for value in (*said, made, made.gate(max_gap=0), tmmu.PlanRequest()):
        assert len(repr(value)) < 400
        assert "\n" not in repr(value)
    assert [repr(value).split()[0] for value in said] == [
        *("<Graph", "<Verdict", "<Comparison", "<PlainInstance", "<Trace"),
    ]
    assert repr(tmmu.compare(made, made)).endswith(": identical>")
    assert "moved" in repr(tmmu.compare(made, other))
