"""A request gives the same plan from a command, a link and the library."""

import json
import shlex
import subprocess
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import tmmu
from app.cli.main import run
from app.kit import downloads
from app.session import opening, planning
from app.session.view_state import Choice, from_query, to_query
from app.session.work import tasks
from app.session.work.workers import TaskContext
from tests.support.strategies import arena_configs, graphs, orders
from tmmu_core.base.errors import TmmuError, UnreadableInput
from tmmu_core.formats.planfile import plan_file
from tmmu_core.graph.model import MODES, PRESETS, Dim, Graph, Node, Tensor
from tmmu_core.graph.native import native_file
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.making.request_options import OPTION_SPECS, contradiction

ODD = ("B", "a,b", "a=b", 'q"', '"q', '"q"=1', " edge ", "-x", "ä b", "new\nline", "a\\", "1,048")
"""Names as graphs from elsewhere have them."""
PLANNED_BY: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "slots": st.just({}),
    "naive": st.just({}),
    "greedy": st.sampled_from([{}, {"fit": "tightest"}, {"order": "area", "fit": "lowest"}]),
    "search": st.fixed_dictionaries({"iterations": st.just(2)}, optional={"seed": st.integers(0, 9)}),
    "exact": st.just({"budget": 50}),
    "helia": st.just({"memories": [{"name": "fast, small", "max_size": 64}, {"name": "big"}]}),
}
sizes = st.integers(0, 2**64 - 1)


def optional(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


@st.composite
def requests(draw: st.DrawFn, of: Graph) -> PlanRequest:
    """Draw a request for a graph with any choice of its fields."""
    planner = draw(optional(st.sampled_from(sorted(PLANNED_BY))))
    ranks = draw(optional(st.integers(1, 4)))
    arenas = draw(arena_configs())
    token = draw(optional(st.binary(min_size=32, max_size=32)))
    return PlanRequest(
        mode=draw(optional(st.sampled_from(MODES))),
        preset=draw(optional(st.sampled_from(PRESETS))),
        planner=planner,
        options=draw(PLANNED_BY[planner]) if planner else {},
        arenas=arenas,
        alignment=draw(optional(st.sampled_from([1, 32, 4096]))),
        capacities=dict.fromkeys(draw(st.sets(st.sampled_from(sorted(arenas)))), 2**40) if arenas else {},
        page_size=draw(optional(st.sampled_from([1000, 4096]))),
        order=draw(optional(orders(of))),
        token=token,
        seed=None if token else draw(optional(sizes)),
        rank=draw(st.integers(0, ranks - 1)) if ranks else 0,
        world_size=ranks,
        dims=draw(st.sampled_from([{}, {"B": 1}, {"B": 3, "S": 0}])),
        budget=draw(optional(st.integers(2**40, 2**64 - 1))),
        addressing=draw(st.sampled_from(["offsets", "offsets", "blake3_sparse"])),
    )


def choice_of(request: PlanRequest, **viewed: Any) -> Choice:
    return Choice(**viewed, **{field.name: getattr(request, field.name) for field in fields(PlanRequest)})


def as_a_shell_reads(line: str) -> list[str]:
    """Split a line as a shell does; ``shlex`` does not know the quotes of control characters."""
    if "$'" not in line:
        return shlex.split(line)
    printed = subprocess.run(["bash", "-c", f'printf "%s\\0" {line}'], capture_output=True, check=True).stdout
    return printed.decode().removesuffix("\0").split("\0")


def repeated(asked: bytes, request: PlanRequest, name: str = "asked.tmmu.json") -> tuple[Any, dict[str, Any]]:
    """Return what the page shows, and the plan that its command writes. Raises the error that the page shows."""
    choice = choice_of(request, source=opening.shelf().put(name, asked))
    opened = opening.open_source(choice.source)
    full = planning.with_explicit_defaults(choice, opened)
    made = make_plan(planning.planning_input(opened), planning.request_of(full, opened))
    shown = planning.Shown(full, opened, made.plan, made.solution)
    words = as_a_shell_reads(downloads.command(shown))
    assert words[0] == "tmmu"
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path(name).write_bytes(asked)
        for file, data in downloads.command_files(shown).items():
            Path(file).write_bytes(data)
        assert run(words[1:]) == 0, words
        return shown, json.loads(Path(words[-1]).read_text())


@settings(suppress_health_check=list(HealthCheck))
@given(st.data())
def test_command_of_a_request_gives_its_plan(data: st.DataObject) -> None:
    of = data.draw(graphs(max_nodes=5))
    request = data.draw(requests(of))
    try:
        shown, written = repeated(native_file.encode(of, "asked.tmmu.json"), request)
    except TmmuError:
        assume(False)
    assert written == msgspec.json.decode(plan_file.to_json(shown.plan))


@given(st.data())
def test_request_round_trips_through_a_link(data: st.DataObject) -> None:
    of = data.draw(graphs(max_nodes=3))
    request = data.draw(requests(of)).but(
        dims=data.draw(st.dictionaries(st.sampled_from(ODD) | st.text(max_size=4), sizes, max_size=3)),
        capacities=data.draw(st.dictionaries(st.sampled_from(ODD) | st.text(max_size=4), sizes, max_size=3)),
    )
    again, complaints = from_query(to_query(choice_of(request)))
    assert complaints == ()
    assert again.request == request


def oddly_named(name: str) -> Graph:
    """Return a chain whose dimension and arena have this name."""
    tensors = (
        Tensor("a", (name, 4), "float32", role="input", arena=name),
        Tensor("b", (name, 4), "float32", role="activation", arena=name),
    )
    nodes = (Node("n", inputs=("a",), outputs=("b",)),)
    return Graph(tensors=tensors, nodes=nodes, inputs=("a",), outputs=("b",), dims={name: Dim(1, 8)})


@pytest.mark.parametrize("name", ODD)
def test_name_with_any_characters_is_quoted(name: str) -> None:
    request = PlanRequest(arenas={name: {}, "activations": {}}, dims={name: 3}, capacities={name: 4096})
    _, plan = repeated(native_file.encode(oddly_named(name), "asked.tmmu.json"), request)
    assert plan["arenas"][name]["capacity_bytes"] == 4096
    assert next(row for row in plan["tensors"] if row["tensor_id"] == "b")["size_bytes"] >= 3 * 4 * 4


def test_capacity_of_an_arena_is_spelled_like_in_a_link(tmp_path: Path) -> None:
    (tmp_path / "graph.json").write_bytes(native_file.encode(oddly_named("a,b"), "graph.json"))
    (tmp_path / "arenas.json").write_text('{"a,b": {}}')
    shown_text = [
        "--arenas",
        str(tmp_path / "arenas.json"),
        "--capacity",
        '"a,b"=1KiB',
        "--dims",
        '"a,b"=3',
        "-o",
        str(tmp_path / "plan.json"),
    ]
    assert run(["plan", str(tmp_path / "graph.json"), *shown_text]) == 0
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert plan["arenas"]["a,b"]["capacity_bytes"] == 1024


INSTANCE = b"id,lower,upper,size\n0,0,2,64\n1,1,3,32\n2,2,4,96\n"
GIVEN = b"id,lower,upper,size,offset\n0,0,2,64,0\n1,1,3,32,64\n2,2,4,96,96\n"


@pytest.mark.parametrize("asked", [INSTANCE, GIVEN], ids=["without", "with offsets"])
@pytest.mark.parametrize(
    "request_",
    [
        PlanRequest(),
        PlanRequest(capacities={"arena": 4096}, seed=7),
        PlanRequest(capacities={"": 4096}, planner="greedy", options={"fit": "tightest"}),
        PlanRequest(arenas={"arena": {"capacity_bytes": 8192}}, alignment=64, planner="naive", token=bytes(32)),
    ],
)
def test_command_of_an_instance_gives_its_plan(asked: bytes, request_: PlanRequest) -> None:
    shown, written = repeated(asked, request_, "asked.csv")
    assert written == msgspec.json.decode(plan_file.to_json(shown.plan))


@pytest.mark.parametrize(
    ("query", "left"),
    [
        ({"token": "00" * 32, "seed": "1"}, PlanRequest(token=bytes(32))),
        ({"world": "0"}, PlanRequest()),
        ({"rank": "3", "world": "2"}, PlanRequest(world_size=2)),
    ],
)
def test_contradicting_link_is_reported(query: dict[str, str], left: PlanRequest) -> None:
    choice, complaints = from_query(query)
    assert choice.request == left
    assert len(complaints) == 1
    assert contradiction(choice) is None


ONLY_OF_GRAPHS: dict[str, Any] = {
    "mode": "inference",
    "preset": "inference",
    "order": ("a",),
    "rank": 1,
    "world_size": 2,
    "shard_spec": {"mesh": {"tp": 2}},
    "dims": {"B": 1},
    "budget": 4096,
    "addressing": "blake3_sparse",
}


@pytest.mark.parametrize("name", ONLY_OF_GRAPHS)
def test_graph_only_option_is_rejected_for_an_instance(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {name: ONLY_OF_GRAPHS[name]} | ({"world_size": 2} if name == "rank" else {})
    with pytest.raises(UnreadableInput, match=f"instance without a graph: it has no {name.replace('_', ' ')}"):
        tmmu.plan(INSTANCE, **asked)
    (tmp_path / "a.csv").write_bytes(INSTANCE)
    shown_text = []
    for field, value in asked.items():
        text = OPTION_SPECS[field].write(value)
        if OPTION_SPECS[field].file:
            (tmp_path / field).write_text(text)
            text = str(tmp_path / field)
        shown_text += [OPTION_SPECS[field].option, text]
    assert run(["plan", str(tmp_path / "a.csv"), *shown_text]) == 2
    assert f"it has no {name.replace('_', ' ')}" in capsys.readouterr().err


@pytest.mark.parametrize("sample", ["views", "A"])
def test_verdict_is_the_same_in_server_and_worker(sample: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = planning.make_plan(Choice(source=f"sample:{sample}"))
    monkeypatch.setattr(planning, "MAX_VERIFIED_HERE", 0)
    job = planning.verdicts_job(shown)
    assert job.wait(60)
    inside = tasks.verify_and_lint(TaskContext(lambda *_: True), shown.graph, shown.plan, None)
    assert job.result() == inside
    assert inside.verified.ok
