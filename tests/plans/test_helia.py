"""The planner helia: memories, rules, spills, and the render plan as C, checked by a C compiler."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.build import chain, graph, node, tensor
from tmmu_core.base.errors import ArenaTooSmall, InvalidIrShapes
from tmmu_core.formats.c_project.c_export import from_template, residency_json
from tmmu_core.formats.c_project.render_plan import build_render_plan
from tmmu_core.graph.model import Graph, Node, View
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.model import Plan


def model() -> Graph:
    """Return ``x → CONV(w) → h → RELU → y`` with a persistent running statistic, 1 KiB each."""
    return graph(
        [
            tensor("x", 256, role="input"),
            tensor("w", 256, role="parameter"),
            tensor("stat", 256, role="buffer"),
            tensor("h", 256),
            tensor("y", 256),
        ],
        [node("n0", "x w stat", "h", instr="CONV", inplace="none"), node("n1", "h", "y", instr="RELU", inplace="none")],
        "x",
        "y",
    )


def planned(g: Graph | None = None, **options: Any) -> Plan:
    return plan_graph(g or model(), planner="helia", options=options).plan


def arena_of(plan: Plan) -> dict[str, str]:
    return {row.tensor_id: row.arena for row in plan.rows()}


def test_each_role_has_its_own_arena() -> None:
    assert arena_of(planned()) == {
        "x": "scratch@SRAM",
        "h": "scratch@SRAM",
        "y": "scratch@SRAM",
        "w": "constant@SRAM",
        "stat": "persistent@SRAM",
    }


def test_view_of_a_weight_does_not_make_it_writable() -> None:
    w, t = tensor("w", 256, role="parameter"), tensor("t", 256, view=View("w", 0, 1024))
    nodes = [node("n0", "w", "t", instr="T", inplace="none"), node("n1", "x t", "y", instr="MM", inplace="none")]
    plan = planned(graph([tensor("x", 256, role="input"), w, t, tensor("y", 256)], nodes, "x", "y"))
    assert arena_of(plan) == {"x": "scratch@SRAM", "w": "constant@SRAM", "t": "constant@SRAM", "y": "scratch@SRAM"}


@pytest.mark.parametrize(
    ("rule", "moved"),
    [
        ({"role": "constant"}, {"w"}),
        ({"role": "buffer"}, {"stat"}),
        ({"operator": "CO*"}, {"h"}),
        ({"name": "[xy]"}, {"x", "y"}),
        ({"min_size": 1025}, set()),
        ({"max_size": 1024, "role": "scratch"}, {"x", "h", "y"}),
    ],
)
def test_rule_moves_matching_tensors(rule: dict[str, Any], moved: set[str]) -> None:
    plan = planned(memories=[{"name": "SRAM"}, {"name": "FAR"}], rules=[{**rule, "memory": "FAR"}])
    assert {name for name, arena in arena_of(plan).items() if arena.endswith("@FAR")} == moved


def test_arena_of_a_tensor_wins_over_rules() -> None:
    g = graph([tensor("x", 256, role="input"), tensor("y", 256, arena="fast")], [node("n", "x", "y")], "x", "y")
    memories = {"slow": {"capacity_bytes": 4096}, "fast": {"capacity_bytes": 4096}}
    plan = plan_graph(g, planner="helia", arenas=memories, options={"rules": [{"memory": "slow"}]}).plan
    assert arena_of(plan) == {"x": "scratch@slow", "y": "scratch@fast"}


def test_tensor_of_an_unknown_memory_is_rejected() -> None:
    g = graph([tensor("x", 256, role="input"), tensor("y", 256, arena="fast")], [node("n", "x", "y")], "x", "y")
    with pytest.raises(ArenaTooSmall, match="'fast'"):
        planned(g)


def test_tensor_that_does_not_fit_spills_with_a_reason() -> None:
    plan = planned(memories=[{"name": "TCM", "max_size": 3 * 1024}, {"name": "SRAM"}])
    # w and stat take 2 KiB, one scratch tensor the rest; its successor is alive beside it.
    assert arena_of(plan)["h"] == "scratch@SRAM"
    (spill,) = plan.notes["scratch@SRAM"]["spills"]
    assert spill["storage"] == "h"
    assert "TCM has 1,024 B for scratch, 2,048 B would be needed" in spill["reason"]


def test_rule_for_an_unknown_memory_is_rejected() -> None:
    with pytest.raises(InvalidIrShapes, match="'NOPE'"):
        planned(rules=[{"memory": "NOPE"}])


def test_constant_arena_has_one_source() -> None:
    tensors = [tensor("x", role="input"), tensor("a", role="constant"), tensor("b", role="constant"), tensor("y")]
    g = graph(tensors, [node("n0", "x a b", "y")], "x", "y")
    rules = [{"name": "a", "memory": "MRAM", "constant_destination_memory": "SRAM"}, {"name": "b", "memory": "SRAM"}]
    with pytest.raises(InvalidIrShapes) as caught:
        planned(g, memories=[{"name": "SRAM"}, {"name": "MRAM", "writable": False}], rules=rules)
    assert caught.value.diagnostics["reason"] == "constant_source"


def test_staged_and_cold_constants_are_distinguished() -> None:
    memories = [{"name": "SRAM"}, {"name": "MRAM", "writable": False}]
    cold = build_render_plan(planned(memories=memories, rules=[{"role": "constant", "memory": "MRAM"}]))
    staged_rule = {"role": "constant", "memory": "MRAM", "constant_destination_memory": "SRAM"}
    staged = build_render_plan(planned(memories=memories, rules=[staged_rule]))
    assert (cold.has_staged_constants, staged.has_staged_constants) == (False, True)
    assert staged.staged_constant_arenas[0].source_memory == "MRAM"


def test_region_ids_are_sorted_by_role_then_memory() -> None:
    memories = [{"name": "B"}, {"name": "A"}]
    render = build_render_plan(planned(memories=memories, rules=[{"name": "x", "memory": "A"}]))
    assert [(a.region_id, a.role, a.memory) for a in render.all_arenas] == [
        (0, "scratch", "A"),
        (1, "scratch", "B"),
        (2, "persistent", "B"),
        (3, "constant", "B"),
    ]


def test_arena_alignment_holds_for_every_slot() -> None:
    plan = planned(memories=[{"name": "SRAM", "arena_alignment": 512}])
    assert all(row.offset_bytes % 512 == 0 for row in plan.rows())
    assert {arena.alignment for arena in build_render_plan(plan).all_arenas} == {512}


def test_render_hash_ignores_offsets_inside_an_arena() -> None:
    tensors = [tensor("x", role="input"), tensor("a", role="constant"), tensor("b", role="constant"), tensor("y")]
    g = graph(tensors, [node("n0", "x a b", "y")], "x", "y")
    tensors = [*g.tensors[:1], *(tensor(n, role="constant") for n in ("c", "a")), tensor("y")]
    swapped = graph(tensors, [node("n0", "x a c", "y")], "x", "y")
    one, two = build_render_plan(planned(g)), build_render_plan(planned(swapped))
    assert one.plan_hash == two.plan_hash
    assert one.tensor_layout_hash != two.tensor_layout_hash


def test_constant_blob_holds_the_given_bytes() -> None:
    render = build_render_plan(planned(), constants={"w": bytes(range(256)) * 4})
    (blob,) = render.constant_blobs
    assert b"".join(blob.chunks()) == bytes(range(256)) * 4
    assert blob.sidecar_filename == "model_constant_sram__blob.bin"


def test_constant_of_wrong_length_is_rejected() -> None:
    with pytest.raises(InvalidIrShapes) as caught:
        build_render_plan(planned(), constants={"w": b"short"})
    assert caught.value.diagnostics["reason"] == "render_incomplete"


def test_residency_lists_every_tensor_once() -> None:
    document = json.loads(residency_json(build_render_plan(planned())))
    assert [t["tensor_id"] for t in document["tensors"]] == ["h", "stat", "w", "x", "y"]


AWKWARD = ["a/b", "a.b", "*/ int x; /*", "naïve", "9", "line\\", "REGION_X"]


def awkward() -> Graph:
    """Return names that are not identifiers in C."""
    tensors = [tensor("x", role="input"), *(tensor(name, 3) for name in AWKWARD)]
    names = ["x", *AWKWARD]
    nodes = [Node(f"n{i}", "", (names[i],), (names[i + 1],), inplace="none") for i in range(len(AWKWARD))]
    return Graph(tensors=tuple(tensors), nodes=tuple(nodes), inputs=("x",), outputs=(AWKWARD[-1],))


def compiled(folder: Path, plan: Plan, prefix: str, header: str | None = None) -> subprocess.CompletedProcess[str]:
    render = build_render_plan(plan, module_prefix=prefix)
    (folder / f"{prefix}_memory.h").write_text(header or from_template("memory.h", render))
    (folder / f"{prefix}_memory.c").write_text(from_template("memory.c", render))
    (folder / "main.c").write_text(
        f'#include "{prefix}_memory.h"\n#include <stdio.h>\nint main(void) {{\n'
        f"    for (size_t i = 0; i < {prefix.upper()}_TENSOR_COUNT; i++)\n"
        f'        printf("%u %llu %llu\\n", (unsigned){prefix}_tensors[i].region, '
        f"(unsigned long long){prefix}_tensors[i].offset, (unsigned long long){prefix}_tensors[i].size);\n"
        "    return 0;\n}\n"
    )
    command = ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", f"{prefix}_memory.c", "main.c", "-o", "it"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("g", [model(), awkward(), chain(3)], ids=["model", "awkward", "chain"])
@pytest.mark.parametrize("planner", ["helia", "slots", "portfolio"])
def test_header_and_source_compile(tmp_path: Path, g: Graph, planner: str) -> None:
    assert shutil.which("cc"), "the C header is checked by a C compiler: install one"
    plan = plan_graph(g, planner=planner).plan
    built = compiled(tmp_path, plan, "net")
    assert built.returncode == 0, built.stderr
    out = subprocess.run([tmp_path / "it"], capture_output=True, text=True, check=True).stdout
    render = build_render_plan(plan)
    assert out.splitlines() == [f"{t.region_id} {t.offset} {t.size}" for t in render.tensors]


def test_edited_offset_fails_a_static_assertion(tmp_path: Path) -> None:
    plan = planned()
    header = from_template("memory.h", build_render_plan(plan, module_prefix="net"))
    edited = header.replace("_OFFSET UINT64_C(0)", "_OFFSET UINT64_C(8)", 1)
    assert edited != header
    built = compiled(tmp_path, plan, "net", edited)
    assert "static assertion failed" in built.stderr


@pytest.mark.parametrize(
    "options",
    [
        {"memories": [{"name": "a", "max_size": 2**70}]},
        {"memories": [{"name": "a", "origin": 2**64}]},
        {"memories": [{"name": "a", "arena_alignment": 2**64}]},
        {"min_alignment": 2**70},
        {"rules": [{"memory": "SRAM", "min_size": 2**70}]},
        {"memories": [{"name": "\ud800"}]},
        {"rules": [{"memory": "SRAM", "name": "\udcff*"}]},
    ],
)
def test_option_out_of_range_is_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidIrShapes, match=r"planner 'helia'.*(64 bits|surrogate)"):
        plan_graph(model(), planner="helia", options=options)
