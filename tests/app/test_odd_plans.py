"""The pages say of an odd plan what ``tmmu plan --json`` says of it: bound, extent, gap, headroom, totals."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import streamlit as st

from app.cli.main import run
from app.say import totals, words
from app.session import opening, planning, repeat
from app.session.choice import Choice, to_query
from tests.app.test_pages import claim, html, opened
from tests.one_value import cells
from tmmu_core.graph import native
from tmmu_core.graph.model import Dim, Graph, Node, Tensor

pytestmark = pytest.mark.usefixtures("_fresh")


@pytest.fixture
def _fresh() -> Iterator[None]:
    st.cache_resource.clear()
    yield
    st.cache_resource.clear()


def several() -> Graph:
    """Three arenas, one of them declared and empty; two orders of its branches, of different peaks."""
    sizes = {"x": 100, "a": 300, "b": 7, "c": 500, "d": 9, "y": 5}
    tensors = [Tensor(k, (n,), "float32", role="input" if k == "x" else "activation") for k, n in sizes.items()]
    tensors += [Tensor("w", (33,), "float32", role="parameter"), Tensor("s", (77,), "float32", arena="fast, small")]
    reads = {"a": "x w", "b": "a", "c": "x", "d": "c s", "s": "x", "y": "b d"}
    nodes = [Node(f"n{k}", inputs=tuple(of.split()), outputs=(k,), inplace="none") for k, of in reads.items()]
    return Graph(tensors=tuple(tensors), nodes=tuple(nodes), inputs=("x",), outputs=("y",), name="several")


ARENAS: dict[str, Any] = {"activations": {}, "parameters": {}, "fast, small": {}, "empty": {"capacity_bytes": 512}}
OTHER_ORDER = ("nc", "ns", "nd", "na", "nb", "ny")


def planned(choice: Choice, folder: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> dict[str, Any]:
    """What the command of the page says with ``--json``."""
    shown = planning.make_plan(choice)
    folder.mkdir(exist_ok=True)
    (folder / repeat.file_of(shown)).write_bytes(opening.content_of(choice.source)[0])
    for name, data in repeat.files(shown).items():
        (folder / name).write_bytes(data)
    said = shlex.split(repeat.command(shown))[1:-2]
    capsysbinary.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run([*said, "--json"]) == 0, said
    document: dict[str, Any] = json.loads(capsysbinary.readouterr().out)
    return document


def rows_of(page: str) -> dict[str, list[str]]:
    return {row[0]: row for row in cells(page) if row}


def overview_says(choice: Choice, plan: dict[str, Any]) -> None:
    """The overview's strip and chips."""
    page = html(opened(**to_query(choice)))
    rows = rows_of(page)
    for name, arena in plan["arenas"].items():
        row = rows[name]
        bound, extent = arena["lower_bound_bytes"], arena["extent_bytes"]
        assert row[2] == words.short_bytes(bound)
        assert row[3] == words.short_bytes(extent)
        at = 5 if any(one["page_size"] for one in plan["arenas"].values()) else 4
        assert row[at] == words.over_bound(extent - bound, bound)
        capacity = arena["capacity_bytes"]
        limited = capacity < words.UNLIMITED
        assert row[at + 1] == (words.short_bytes(capacity) if limited else "unlimited")
        assert row[at + 2] == (words.short_bytes(capacity - extent) if limited else "no capacity given")
    sums = plan["metrics"]["totals"]
    plain = unescape(re.sub(r"<[^>]+>", "", page))
    assert f"{totals.PEAK} {words.short_bytes(sums['peak_live_bytes'])} at {words.step(sums['peak_step'])}" in plain
    assert f"{totals.EXTENT} {words.short_bytes(sums['extent_bytes'])}" in plain


def planners_says(choice: Choice, plan: dict[str, Any]) -> None:
    """The row of the current planner."""
    at = opened("planners", seconds=120, **to_query(choice))
    until = time.monotonic() + 120
    while plan["planner"] not in (rows := {row[0].split()[0]: row for row in cells(html(at)) if len(row) == 9}):
        assert time.monotonic() < until, claim(at)
        at.run()
    found = re.search(r"Extent of (.+?) over its lower bound", html(at))
    assert found
    arena, row, sums = plan["arenas"][unescape(found[1])], rows[plan["planner"]], plan["metrics"]["totals"]
    bound, extent = arena["lower_bound_bytes"], arena["extent_bytes"]
    figures = (words.short_bytes(extent), words.short_bytes(extent - bound), words.gap(extent, bound))
    assert tuple(row[1:4]) == figures
    assert tuple(row[6:8]) == (words.short_bytes(sums["peak_live_bytes"]), words.short_bytes(sums["extent_bytes"]))


def compare_says(choice: Choice, plan: dict[str, Any]) -> None:
    """Both sides and the totals, the plan set against itself."""
    at = opened("compare", seconds=120, **to_query(choice.but(baseline=f"planner:{plan['planner']}")))
    rows = rows_of(html(at))
    sums = plan["metrics"]["totals"]
    assert rows[totals.EXTENT][1] == words.full_bytes(sums["extent_bytes"])
    assert rows[totals.BOUND][1] == words.full_bytes(sums["lower_bound_bytes"])
    assert rows[totals.PEAK][1].startswith(f"{words.full_bytes(sums['peak_live_bytes'])} at #{sums['peak_step']}")
    for name, arena in plan["arenas"].items():
        assert rows[name][1] == words.short_bytes(arena["lower_bound_bytes"])
        assert rows[name][2] == words.short_bytes(arena["extent_bytes"])


def odd(folder: Path) -> dict[str, tuple[bytes, dict[str, Any]]]:
    """Name → the graph's file and what is chosen."""
    plain = native.encode(several(), "g.tmmu.json")
    (folder / "g.tmmu.json").write_bytes(plain)
    (folder / "arenas.json").write_text(json.dumps(ARENAS))
    return {
        "several arenas, one empty": (plain, {"arenas": ARENAS}),
        "order": (plain, {"arenas": ARENAS, "order": OTHER_ORDER}),
        "pages": (plain, {"arenas": {name: {**said, "page_size": 1000} for name, said in ARENAS.items()}}),
    }


@pytest.mark.parametrize("name", ["several arenas, one empty", "order", "pages", "exactly met", "rank", "fitted"])
def test_every_page_says_what_the_command_says(
    name: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    choice = chosen(name, tmp_path, capsysbinary)
    plan = planned(choice, tmp_path / "again", capsysbinary)
    overview_says(choice, plan)
    planners_says(choice, plan)
    compare_says(choice, plan)


def chosen(name: str, folder: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> Choice:
    """An odd choice, its file on the shelf."""
    if name == "rank":
        return rank_of_a_mesh()
    if name == "fitted":
        return fitted(folder)
    asked, how = odd(folder)["several arenas, one empty" if name == "exactly met" else name]
    choice = Choice(source=opening.shelf().put("g.tmmu.json", asked), **how)
    if name != "exactly met":
        return choice
    arenas = planned(choice, folder / "first", capsysbinary)["arenas"]
    return choice.but(capacities={one: arenas[one]["extent_bytes"] for one in ("activations", "fast, small")})


def rank_of_a_mesh() -> Choice:
    """Rank 1 of two, of a batch that both share."""
    tensors = (
        Tensor("x", ("B", 64), "float32", role="input"),
        Tensor("h", ("B", 64), "float32", role="activation"),
        Tensor("y", ("B", 64), "float32", role="output"),
    )
    nodes = (Node("n0", inputs=("x",), outputs=("h",)), Node("n1", inputs=("h",), outputs=("y",)))
    graph = Graph(tensors=tensors, nodes=nodes, inputs=("x",), outputs=("y",), name="mesh", dims={"B": Dim(2, 8)})
    source = opening.shelf().put("mesh.tmmu.json", native.encode(graph, "mesh.tmmu.json"))
    return Choice(source=source, shard_spec={"mesh": {"tp": 2}}, rank=1, dims={"B": 4}, budget=1 << 20)


def fitted(folder: Path) -> Choice:
    """What ``tmmu fit`` wrote of a graph that takes 3,028 bytes as given: it names its planner."""
    odd(folder)
    file, out = folder / "g.tmmu.json", folder / "fitted.tmmu.json"
    arenas = ["--arenas", str(folder / "arenas.json")]
    assert run(["fit", str(file), *arenas, "--capacity", "3020", "-o", str(out)]) == 0
    return Choice(source=opening.shelf().put(out.name, out.read_bytes()), arenas=ARENAS | {"offload": {}})


def test_a_plan_over_its_capacity_says_the_figures_of_the_plan_without() -> None:
    """The command refuses it; the page shows the plan that there would be, and by how much it is over."""
    source = opening.shelf().put("g.tmmu.json", native.encode(several(), "g.tmmu.json"))
    free = Choice(source=source, arenas=ARENAS)
    arena = planning.make_plan(free).plan.arena_of["activations"]
    tight = arena.extent_bytes - 128
    page = html(opened(**to_query(free.but(capacities={"activations": tight}))))
    row = rows_of(page)["activations"]
    assert row[2] == words.short_bytes(arena.bound_bytes)
    assert row[3] == words.short_bytes(arena.extent_bytes)
    assert row[5] == words.short_bytes(tight)
    assert row[6] == words.short_bytes(-128)
    assert "over its capacity" in page


def test_what_is_over_its_capacity_is_found_once() -> None:
    """The lint says it in the verifier's words."""
    source = opening.shelf().put("g.tmmu.json", native.encode(several(), "g.tmmu.json"))
    free = Choice(source=source, arenas=ARENAS)
    tight = planning.make_plan(free).plan.arena_of["activations"].extent_bytes - 128
    at = opened(**to_query(free.but(capacities={"activations": tight})))
    at.run()
    says = [text for table in at.dataframe if "rule" in table.value for text in table.value["says"]]
    assert len([text for text in says if "and has" in text]) == 1
