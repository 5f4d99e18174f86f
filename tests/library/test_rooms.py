"""The rooms of the library: what a caller writes, what is refused, what is said of a plan; and names and files."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tmmu_core as tmmu
from tests.build import chain, graph, node, tensor
from tmmu_core import __main__ as program
from tmmu_core import names, version_line, writing
from tmmu_core.cbor import H
from tmmu_core.errors import ArenaTooSmall, ContractError, MissingExtra, StoreFault, TmmuError, UnreadableInput
from tmmu_core.library import fitted, packed, planned, requests
from tmmu_core.library.planned import Plan
from tmmu_core.plan.analysis.gate import ALL, Limit
from tmmu_core.plan.formats import files, parquet, parquet_child
from tmmu_core.plan.making.engine import plan_graph
from tmmu_core.plan.model import INVALID


def refusal(ask: Any) -> UnreadableInput:
    with pytest.raises(UnreadableInput) as caught:
        ask()
    return caught.value


# --- what a caller writes ----------------------------------------------------------------------------------------


def test_limits_are_read_by_what_they_limit() -> None:
    assert requests.limits_of("extent", None) == []
    assert requests.limits_of("extent", "1KiB") == [Limit("extent", Fraction(1024), ALL)]
    for what in ("gap", "reuse"):
        assert requests.limits_of(what, "5 %") == [Limit(what, Fraction(1, 20), ALL)]  # type: ignore[arg-type]
    both = requests.limits_of("peak live bytes", {"a": 7, "b": "2KiB"})
    assert both == [Limit("peak live bytes", Fraction(n), arena) for arena, n in (("a", 7), ("b", 2048))]
    assert requests.growth_of(" 5 % ") == Limit("growth", Fraction(1, 20), relative=True)
    assert requests.growth_of("5KiB") == Limit("growth", Fraction(5120))
    assert requests.growth_of(3) == Limit("growth", Fraction(3))
    assert (requests.capacity_of(5).total, requests.capacity_of({"a": "1KiB"}).arenas) == (5, {"a": 1024})
    assert (requests.ratio("x", 5), requests.ratio("x", "2.5")) == (Fraction(1, 20), Fraction(1, 40))
    said = refusal(lambda: requests.ratio("max_gap", "many"))
    assert (said.message.startswith("max_gap: "), said.hint) == (True, "Write 5, or '5 %'.")
    for wrong in (-1, "", None, "x"):
        hint = "Write 65536, 64KiB or 8 GiB."
        if wrong is not None:
            assert refusal(lambda: requests.amount_of_bytes("n", wrong)).hint == hint  # noqa: B023


def test_what_is_no_field_or_contradicts_itself_is_refused() -> None:
    with pytest.raises(TypeError, match="there is no option 'a'"):
        requests.request_of({"b": 1, "a": 2})
    assert requests.request_of({"seed": None, "capacity": 3}).capacities == {"": 3}
    for order in (("a", "b"), ["a", "b"], '["a", "b"]', b"a\nb".decode()):
        assert requests.request_of({"order": order}).order == ("a", "b")
    said = refusal(lambda: requests.request_of({"dims": "B"}))
    assert said.message.startswith("dims: ")
    assert said.hint.startswith("Write ")
    assert "it holds a plan already." in str(
        refusal(lambda: requests.made_of(plan_graph(chain(1)).plan, requests.request_of({})))
    )


def test_a_module_is_one_by_where_its_class_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, Any, bool]] = []
    traced = SimpleNamespace(import_torch=lambda source, inputs, train: asked.append((source, inputs, train)))
    monkeypatch.setitem(sys.modules, "tmmu_core.graph.importers.torch", traced)
    kind = type("Linear", (), {"__module__": "torch.nn"})
    mine = type("Mine", (kind,), {"__module__": "mine", "training": 1})
    for source, train in ((kind(), False), (mine(), True)):
        requests.opened(source, None, (1,))
        assert asked.pop() == (source, (1,), train)
    for other in (type("Torchy", (), {"__module__": "torchy.nn"})(), 7, None, []):
        assert f"a {type(other).__name__} holds no graph." in str(refusal(lambda: requests.opened(other)))  # noqa: B023
    assert "cannot be opened: is a directory" in str(refusal(lambda: requests.opened(Path("."))))


# --- what is asked of a plan -------------------------------------------------------------------------------------


def test_a_plan_is_verified_against_its_own_graph_or_the_one_given() -> None:
    made = tmmu.plan(chain(2, "none"))
    assert made.graph is not None
    assert (made.verify().ok, made.verify(made.graph).ok, made.verify(chain(3)).ok) == (True, True, False)
    finished = Plan.of(made)
    assert (finished.solution, finished.graph) == (None, None)
    assert not finished.verify(chain(3)).ok
    assert "this plan has no graph" in str(refusal(lambda: finished.fit(1)))


def test_what_a_plan_is_called_on_one_line() -> None:
    made = tmmu.plan(chain(1))
    said = {"": "a plan", "a\nb": "a\\x0ab", "x" * 61: "x" * 60, "n": "n"}
    for name, shown in said.items():
        assert repr(replace(made, ir_name=name)).startswith(f"<Plan {shown} · inference · ")
    one_of = tuple(replace(arena, status=INVALID) for arena in made.arenas)
    assert ": INVALID, extent " in repr(replace(made, arenas=(*one_of, *made.arenas)))
    assert "INVALID" not in repr(made)


def test_a_report_and_a_plan_are_written_by_the_ending_of_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmmu.plan(chain(1))
    for name in ("plan", "plan.txt", "plan.json.gz"):
        assert "End the name in .json, .cbor, .csv, .parquet." in str(refusal(lambda: made.save(tmp_path / name)))  # noqa: B023
    assert "a file without an ending" in str(refusal(lambda: made.save(tmp_path / "plan")))
    for ending in ("json", "cbor", "csv", "parquet"):
        path = made.save(str(tmp_path / f"p.{ending}"))
        assert path.read_bytes() == files.WRITERS[ending](made)
    for name in ("r.txt", "r.json"):
        assert "a report is not written as" in str(refusal(lambda: made.report(tmp_path / name)))  # noqa: B023
    whole = made.report()
    assert b"<html" in whole[:200]
    for name in ("r.html", "r.HTM", "r"):
        assert made.report(tmp_path / name) == tmp_path / name
        assert (tmp_path / name).read_bytes() == whole
    assert made.report(tmp_path / "r.md").read_bytes()[:1] == b"#"
    paper = SimpleNamespace(browser=lambda: None, pdf=lambda data, with_: b"printed by " + with_)
    faces = planned.face
    monkeypatch.setattr(planned, "face", lambda name: paper if name == "report.pdf" else faces(name))
    assert "none is installed" in str(refusal(lambda: made.report(tmp_path / "r.pdf")))
    assert not (tmp_path / "r.pdf").exists()
    paper.browser = lambda: b"one"
    assert made.report(tmp_path / "r.pdf").read_bytes() == b"printed by one"


def test_the_map_is_of_the_arena_where_most_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    faces = planned.face
    still = SimpleNamespace(map_figure=lambda plan, arena, sheet: drawn.append(f"{arena} {sheet.height}") or "<svg/>")
    monkeypatch.setattr(planned, "face", lambda name: still if name == "report.still" else faces(name))
    made = tmmu.plan(chain(1))
    base = replace(made.arenas[0], max_live=1, storages=1, extent_bytes=9)
    cases = [
        ((("a", {}), ("b", {"storages": 2, "extent_bytes": 1})), "b"),
        ((("a", {}), ("b", {"extent_bytes": 10})), "b"),
        ((("b", {}), ("a", {})), "b"),
    ]
    for arenas, busiest in cases:
        these = tuple(replace(base, name=name, **changes) for name, changes in arenas)
        assert "<svg/></div>" in replace(made, arenas=these)._repr_html_()
        assert drawn.pop() == f"{busiest} 460"
    assert replace(made, arenas=())._repr_html_().endswith("</code></div>")
    assert drawn == []


def test_a_gate_is_of_a_plan_and_a_baseline_that_verify() -> None:
    made = tmmu.plan(chain(2))
    wrong = Plan.of(replace(made, death=made.death * 0))
    with pytest.raises(ValueError, match="can never be red"):
        made.gate(max_extent=None)
    green = made.gate(baseline=made)
    assert (bool(green), green.ok, repr(green), len(green.checks)) == (True, True, "<Gate green>", 1)
    for gate in (wrong.gate(max_gap=900), made.gate(baseline=wrong)):
        assert (bool(gate), gate.checks, gate.verdict.ok) == (False, (), False)
        assert repr(gate) == f"<Gate red: {gate.verdict}>"
    extent = made.extent_bytes
    red = made.gate(max_extent={"activations": extent - 1}, max_peak=0, max_gap=900)
    assert repr(red) == "<Gate red: extent of activations, peak live bytes>"
    assert [check.ok for check in red.checks] == [False, False, True]


def test_a_fit_is_true_where_it_fits_and_says_by_how_much_it_does_not(tmp_path: Path) -> None:
    sizes = [tensor(f"t{k}", 32) for k in range(4)]
    nodes = [node(f"n{k}", f"t{k}", f"t{k + 1}", inplace="none") for k in range(3)]
    small = graph(sizes, nodes, "t0", "t3")
    fits = tmmu.fit(small, 256, allow="planner")
    assert (bool(fits), fits.answer, "over by" in repr(fits)) == (True, "fits", False)
    over = tmmu.fit(small, 255, allow=["planner"])
    assert (bool(over), over.answer) == (False, "cannot")
    assert f", over by {over.extent_bytes - 255:,} B, bound 256 B, " in repr(over)
    for count in (0, 1, 2):
        plural = "" if count == 1 else "s"
        best = SimpleNamespace(moves=(0,) * count, extent_bytes=3)
        shown = fitted.Fit(SimpleNamespace(best=best, answer="open", over_bytes=0, lower_bound_bytes=2), fits.plan)  # type: ignore[arg-type]
        assert repr(shown) == f"<Fit open: extent 3 B, bound 2 B, {count} move{plural}>"
    for name in ("g.tmmu.json", "g.tmmu.cbor", "g.json.gz"):
        assert H(tmmu.read(fits.save(tmp_path / name)).name) == H(fits.graph.name)
    assert "a graph is written as" in str(refusal(lambda: fits.save(tmp_path / "g.txt")))
    assert "there is no move 'b'" in str(refusal(lambda: tmmu.fit(small, 255, allow="planner, b,c")))
    with pytest.raises(TypeError, match="no option"):
        planned.fit_of(small, requests.request_of({}), 255, {"odd": 1})
    with pytest.raises(UnreadableInput, match="does not hold a graph"):
        tmmu.fit(b"id,lower,upper,size\na,0,2,8\n", 9)


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"lower": [0, -1]}, "buffer 1 begins before step 0"),
        ({"upper": [1, 0]}, "buffer 1 ends no later than it begins"),
        ({"size": [0, -1]}, "buffer 1 has a negative size"),
        ({"alignment": [1, 0]}, "buffer 1 has an alignment that is no power of two"),
        ({"alignment": [3, 1]}, "buffer 0 has an alignment that is no power of two"),
        ({"alignment": -2}, "buffer 0 has an alignment"),
        ({"size": [1]}, r"size has the shape \(1,\), lower has \(2,\)"),
        ({"size": [[1, 2]]}, r"size has the shape \(1, 2\)"),
        ({"size": [1.5, 2]}, "size holds float64 and no whole numbers"),
        ({"size": np.array([1, 2**63], np.uint64)}, "size holds a number over"),
    ],
)
def test_columns_of_buffers_belong_together(columns: dict[str, Any], why: str) -> None:
    fine = {"lower": [0, 0], "upper": [1, 1], "size": [0, 2**63 - 1], "alignment": 1}
    packed.instance_of(fine, None)
    with pytest.raises(UnreadableInput, match=why) as caught:
        packed.instance_of(fine | columns, None)
    assert caught.value.source == "pack"


def test_buffers_are_put_into_the_order_of_a_problem_and_found_again() -> None:
    lower, size = [1, 0, 0, 1, 0] + [0] * 7, [4, 4, 8, 8, 4] + [1] * 7
    columns: dict[str, Any] = {"lower": lower, "upper": np.array(lower) + 1, "size": size, "alignment": [2] * 12}
    instance, place = packed.instance_of(columns, 99)
    problem = instance.problem
    order = sorted(range(12), key=lambda k: (lower[k], -size[k], str(k)))
    assert problem.ids == tuple(str(k) for k in order)
    assert [problem.ids[k] for k in place] == [str(k) for k in range(12)]
    assert (problem.capacity, problem.alignment.tolist(), problem.size.tolist()) == (
        99,
        [2] * 12,
        [size[k] for k in order],
    )
    empty, nowhere = packed.instance_of({"lower": [], "upper": [], "size": [], "alignment": 1}, None)
    assert (len(empty.problem.ids), nowhere.tolist()) == (0, [])
    assert tmmu.pack([], [], []).offset.tolist() == []


# --- one arena, and large tables ---------------------------------------------------------------------------------


def test_one_arena_is_chosen_by_its_name_or_is_the_only_one() -> None:
    two = graph(
        [tensor("x", 8, role="input"), tensor("w", 8, role="parameter"), tensor("y", 8)],
        [node("n", "x w", "y")],
        "x",
        "y",
    )
    plan = plan_graph(two).plan
    assert [arena.name for arena in plan.arenas] == ["activations", "parameters"]
    for arena, why in ((None, "an instance holds one arena."), ("none", "the plan has no arena 'none'.")):
        said = refusal(lambda: files.to_instance(plan, arena))  # noqa: B023
        assert why in str(said)
        assert said.hint == "Choose one of its arenas: activations, parameters."
    assert files.to_instance(plan, "parameters").splitlines()[1].startswith(b"w,")
    bare = replace(plan, arenas=())
    assert "it has none" in str(refusal(lambda: files.to_instance(bare)))


def test_a_packed_table_is_read_up_to_the_limits() -> None:
    def metadata(*groups: tuple[tuple[int, int], ...]) -> Any:
        columns = [[SimpleNamespace(num_values=n, total_uncompressed_size=size) for n, size in each] for each in groups]
        made = [SimpleNamespace(num_columns=len(each), column=each.__getitem__) for each in columns]
        return SimpleNamespace(num_row_groups=len(made), row_group=made.__getitem__)

    for groups, named in (
        ((((4, 5), (1, 5)), ((5, 10),)), ""),
        ((((4, 5), (1, 5)), ((6, 10),)), "values"),
        ((((4, 5), (1, 6)), ((5, 10),)), "unpacked"),
    ):
        assert parquet_child.past(metadata(*groups), 10, 20) == named
    sink = pa.BufferOutputStream()
    pa.parquet.write_table(pa.table({"a": [1]}), sink)
    assert "it has no head" in str(refusal(lambda: parquet.from_parquet(sink.getvalue().to_pybytes())))


# --- names, errors and files -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a\x00\x1f\x7f\x9f\xad", "a\\x00\\x1f\\x7f\\x9f\\xad"),
        ("\u034f\u200b\u2028", "\\u034f\\u200b\\u2028"),
        ("\U000e0001\U0001d173\ud800", "\\U000e0001\\U0001d173\\ud800"),
        ("é\ufe0f \xff\u0100", "é\ufe0f \xff\u0100"),
    ],
)
def test_what_is_not_seen_is_spelled_out(text: str, seen: str) -> None:
    assert names.visible(text) == seen


def test_names_are_sorted_as_people_count() -> None:
    ordered = ["", "a", "a1", "a2", "a2b", "a10", "b", "1", "01x", "2", "10"]
    keys = sorted(ordered, key=names.natural)
    assert keys.index("a2") < keys.index("a10")
    assert keys.index("2") < keys.index("10")
    assert names.natural("r10") == ((-1, "r"), (10, ""), (-2, "r10"))
    assert names.natural("1") == ((1, ""), (-2, "1"))
    assert names.natural("9" * 19) == ((10**18 - 1, ""), (9, ""), (-2, "9" * 19))


def test_an_error_says_source_place_readers_and_the_way_out() -> None:
    whole = UnreadableInput("no.", source="f", place="byte 3", tried=(("a", "b"), ("c", "d")), hint="Do.")
    assert str(whole) == "f: no. (at byte 3)\n  a: b\n  c: d\nDo."
    assert str(UnreadableInput("no.")) == "no."
    tried = [{"reader": "a", "reason": "b"}, {"reader": "c", "reason": "d"}]
    assert whole.record() == {
        "code_id": "UNREADABLE_INPUT",
        "message": "no.",
        "source": "f",
        "place": "byte 3",
        "tried": tried,
        "hint": "Do.",
    }
    assert MissingExtra("x").record()["code_id"] == "MISSING_EXTRA"
    assert (str(StoreFault("m.")), str(StoreFault("m.", store="s", hint="h."))) == ("m.", "s: m. h.")
    assert StoreFault("m.", store="s").record() == {"code_id": "STORE", "message": "m.", "store": "s", "hint": ""}
    assert TmmuError("m").record() == {"code_id": "TMMU_ERROR", "message": "m", "hint": ""}


def test_what_is_known_further_up_is_added_and_what_was_said_stays() -> None:
    error: ContractError = ArenaTooSmall("m.", capacity=3)
    assert (error.t, error.rank, str(error)) == (-1, 0, "ARENA_TOO_SMALL: m.")
    said = error.record()
    assert said["diagnostics"] == {"arena": "unknown", "capacity": 3, "required": "unknown"}
    assert (said["retryable"], said["failure_operator"]) == (False, ArenaTooSmall.operator)
    error.fill(replay_token="a", rank=2, capacity=9, arena="x")
    error.fill(replay_token="b")
    assert (error.replay_token, error.rank) == ("a", 2)
    assert error.record()["diagnostics"] == {"arena": "x", "capacity": 3, "required": "unknown"}
    other = ArenaTooSmall("m.", t=5, operator="op", hint="h", zebra="\ud800")
    assert str(other) == "ARENA_TOO_SMALL: m. h"
    assert (other.record()["t"], other.record()["failure_operator"]) == (5, "op")
    assert list(other.record()["diagnostics"].items())[-1] == ("zebra", "\\ud800")
    assert other.record()["diagnostics"]["hint"] == "h"


def test_a_file_keeps_its_rights_and_what_was_left_by_the_dead_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = [tmp_path / f".tmmu-{name}.part" for name in (ended.pid, os.getppid(), "x", "1" * 10, "²")]
    for path in left:
        path.write_bytes(b"half")
    target = tmp_path / "f"
    target.write_bytes(b"old")
    target.chmod(0o640)
    synced: list[Path] = []
    monkeypatch.setattr(writing, "synced", synced.append)
    writing.replace_file(target, b"new")
    assert (target.read_bytes(), target.stat().st_mode & 0o777, synced) == (b"new", 0o640, [tmp_path])
    assert [path.exists() for path in left] == [False, True, True, True, True]
    assert writing.write_new(tmp_path / "g", (b"ab", b"", b"cde")) == 5
    assert (tmp_path / "g").read_bytes() == b"abcde"

    def broken() -> Any:
        yield b"some"
        raise ValueError("and no more")

    with pytest.raises(ValueError, match="and no more"):
        writing.replace_file_by_parts(target, broken())
    assert target.read_bytes() == b"new"
    writing.replace_file_by_parts(target, (b"by ", b"parts"))
    assert target.read_bytes() == b"by parts"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["f", "g", *(path.name for path in left[1:])])


def test_the_version_is_said_before_anything_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[int, bytes]] = []
    called: list[str] = []
    monkeypatch.setattr(program.os, "write", lambda where, data: written.append((where, data)))
    monkeypatch.setattr(program, "face", lambda name: SimpleNamespace(main=lambda: called.append(name)))
    monkeypatch.setattr(program.sys, "stdout", SimpleNamespace(fileno=lambda: 77))
    monkeypatch.setattr(program.sys, "argv", ["tmmu", "--version"])
    program.main()
    assert (written, called) == ([(77, f"{version_line()}\n".encode())], [])
    for argv in (["tmmu"], ["tmmu", "--version", "x"], ["--version", "plan"]):
        monkeypatch.setattr(program.sys, "argv", argv)
        program.main()
    monkeypatch.setattr(program.sys, "argv", ["tmmu", "--version"])
    monkeypatch.setattr(program.sys, "stdout", None)
    program.main()
    assert (len(written), called) == (1, ["cli.main"] * 4)
