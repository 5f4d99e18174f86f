"""What a plan is rendered to, room by room: beside the plainest that says the same, or by eye."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from tests.build import graph, node, tensor
from tests.plan.examples import chain_plan
from tests.plan.test_c_project import BOARD, W, model, rendered
from tmmu_core.cbor import H
from tmmu_core.graph.constants import Constants, Held, Piece
from tmmu_core.judge.verifier import verify_plan
from tmmu_core.plan.formats import c_names, c_project, render, render_c
from tmmu_core.plan.formats.c_names import RegionNames, c_prefix, identifier, region_names, tensor_stems
from tmmu_core.plan.formats.render import (
    Image,
    RenderArena,
    RenderConstantBlob,
    RenderIncomplete,
    RenderMemoryPlan,
    RenderTensor,
    build_render_plan,
    residency,
)
from tmmu_core.plan.making.engine import plan_graph
from tmmu_core.plan.model import ArenaSummary, Plan

Row = dict[str, Any]
STEPS = 3
ROLES = ("buffer", "constant", "parameter")
PLANNED = chain_plan(1)


def summary(name: str, extent: int = 64, alignment: int = 1) -> ArenaSummary:
    return ArenaSummary(name, 2**64 - 1, alignment, 0, extent, extent, extent, 1, 1, 1)


def plan_of(*arenas: list[Row], extent: int = 64, notes: dict[str, Any] | None = None) -> Plan:
    """A plan of arenas ``a0``, ``a1`` …, each of these rows; what a row does not say it has of a constant at 0."""
    rows = sorted(
        ({"arena": k, **row} for k, some in enumerate(arenas) for row in some), key=lambda row: str(row["id"])
    )

    def column(field: str, otherwise: Any) -> tuple[Any, ...]:
        return tuple(row.get(field, otherwise) for row in rows)

    n = len(rows)
    return replace(
        PLANNED,
        tensor_ids=column("id", ""),
        arena=np.array(column("arena", 0), np.int32),
        logical_slot=np.arange(n),
        offset=np.array(column("offset", 0), np.uint64),
        size=np.array(column("size", 4), np.uint64),
        alignment=np.array(column("alignment", 1), np.uint64),
        birth=np.array(column("birth", 0), np.int64),
        death=np.array(column("death", STEPS), np.int64),
        generation=np.zeros(n, np.int64),
        storage=np.arange(n),
        roles=column("role", "constant"),
        dtypes=("u8",) * n,
        shapes=((),) * n,
        alias_group_ids=(None,) * n,
        base_tensor_uids=column("base", None),
        handoffs=(),
        taken=(),
        steps=STEPS,
        arenas=tuple(summary(f"a{k}", extent) for k in range(len(arenas))),
        notes=notes or {},
    )


# --- roles of arenas ---------------------------------------------------------------------------------------------


def role_plainly(rows: list[Row], known: set[str]) -> str:
    if not rows:
        return "scratch"
    if all(row["role"] in ("parameter", "constant") for row in rows):
        return "constant"
    whole = [row for row in rows if row["birth"] == 0 and row["death"] == STEPS]
    if len(whole) < len(rows):
        return "scratch"
    if any(row["role"] == "activation" for row in rows):
        return "persistent"
    there = [row for row in rows if row["id"] in known or row["base"] or not row["size"]]
    return "constant" if len(there) == len(rows) else "persistent"


def test_an_arena_is_what_lies_in_it() -> None:
    random = Random("roles")
    met = set()
    for _ in range(400):
        of = random.choice((("parameter", "constant"), ROLES[:2], ROLES, ("activation", "buffer"), ("buffer",)))
        rows = [
            {
                "id": name,
                "role": random.choice(of),
                "birth": random.choice((0, 0, 0, 0, 1)),
                "death": random.choice((STEPS, STEPS, STEPS, STEPS - 1)),
                "base": random.choice((None, None, "base")),
                "size": random.choice((4, 4, 0)),
            }
            for name in random.sample("pqrs", random.randint(0, 3))
        ]
        known = set(random.sample("pqrs", random.randint(0, 4)))
        plan = plan_of([{"id": "another", "role": "activation", "birth": 1}], rows)
        constants = Constants.of(dict.fromkeys(known, b""))
        found = render._describe(plan, 1, constants)
        assert found == (role_plainly(rows, known), "a1", "a1", 1), (rows, known)
        met.add((found[0], bool(rows), "buffer" in {row["role"] for row in rows}))
    assert len(met) == 7


def noted(role: str, memory: str, source: str, **rest: Any) -> dict[str, Any]:
    return {"role": role, "memory": memory, "source_memory": source, **rest}


def test_regions_stand_by_role_and_then_by_the_memory_that_they_lie_in() -> None:
    notes = {
        "a0": noted("constant", "B", "Y"),
        "a1": noted("constant", "A", "Z", origin=0),
        "a2": noted("persistent", "A", "A"),
        "a3": noted("scratch", "C", "C", origin=64),
        "a4": {"picked": "greedy"},
    }
    plan = plan_of(
        [{"id": "b", "alignment": 32}, {"id": "z", "alignment": 64}],
        [],
        [{"id": "s", "role": "buffer"}],
        [{"id": "x", "role": "activation", "alignment": 8}],
        [{"id": "y", "role": "activation", "birth": 1}],
        notes=notes,
    )
    plan = replace(plan, arenas=(*plan.arenas[:3], summary("a3", 9, 48), summary("a4")))
    made = build_render_plan(plan)
    assert [
        (a.region_id, a.name, a.role, a.memory, a.source_memory, a.size, a.alignment, a.is_staged, a.origin)
        for a in made.all_arenas
    ] == [
        (0, "a3", "scratch", "C", "C", 9, 48, False, 64),
        (1, "a4", "scratch", "a4", "a4", 64, 16, False, None),
        (2, "a2", "persistent", "A", "A", 64, 16, False, None),
        (3, "a1", "constant", "A", "Z", 64, 16, True, 0),
        (4, "a0", "constant", "B", "Y", 64, 64, True, None),
    ]
    assert [(t.tensor_id, t.region_id) for t in made.tensors] == [("b", 4), ("s", 2), ("x", 0), ("y", 1), ("z", 4)]
    assert [len(made.of_role(role)) for role in render.ROLES] == [2, 1, 2]
    assert made.arenas == made.scratch_arenas + made.persistent_arenas + made.constant_arenas
    assert [a.region_id for a in made.staged_constant_arenas] == [3, 4]
    assert (made.constant_blobs, made.lifted, dict(made.blob_of)) == ((), (), {})
    envelope = [
        ["scratch", "C", "C", 9, 48, False],
        ["scratch", "a4", "a4", 64, 16, False],
        ["persistent", "A", "A", 64, 16, False],
        ["constant", "A", "Z", 64, 16, True],
        ["constant", "B", "Y", 64, 64, True],
    ]
    assert made.plan_hash == H(["render_plan_v1", envelope]).hex()
    placed = [[t.tensor_id, *envelope[t.region_id][:2], t.offset, t.size] for t in made.tensors]
    assert made.tensor_layout_hash == H(["render_layout_v1", placed]).hex()


def refused(plan: Plan, constants: Mapping[str, bytes] | None = None) -> tuple[str, str]:
    with pytest.raises(RenderIncomplete) as caught:
        build_render_plan(plan, constants)
    assert caught.value.diagnostics["reason"] == "render_incomplete"
    return caught.value.message.removeprefix("the plan cannot be rendered: "), caught.value.hint


def test_a_tensor_ends_within_its_region_and_begins_on_its_grid() -> None:
    x = {"id": "x", "alignment": 16, "offset": 48, "size": 16}
    build_render_plan(plan_of([x]))
    build_render_plan(plan_of([{**x, "offset": 64, "size": 0}]))
    hint = "Verify the plan (tmmu verify) and give every constant's bytes, or none."
    assert refused(plan_of([{**x, "size": 17}])) == ("tensor 'x' ends at byte 65 of 64.", hint)
    assert refused(plan_of([{**x, "offset": 8}])) == ("tensor 'x' lies at byte 8, no multiple of 16.", hint)


# --- bytes -------------------------------------------------------------------------------------------------------


class Parts:
    """Bytes in these parts; ``asked`` counts those that were asked for."""

    def __init__(self, *parts: bytes) -> None:
        self.parts, self.asked = parts, 0

    def chunks(self) -> Iterator[bytes]:
        for part in self.parts:
            self.asked += 1
            yield part


def image(size: int, *parts: tuple[str, int, int], **pieces: Piece) -> Image:
    return Image(size, tuple(RenderTensor(name, 0, offset, of, 1) for name, offset, of in parts), Constants(pieces))


def test_an_image_is_its_parts_with_zeros_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "CHUNK", 3)
    random = Random("image")
    for _ in range(200):
        whole, parts = b"", []
        pieces: dict[str, Piece] = {}
        for name in "abc"[: random.randint(0, 3)]:
            data = random.randbytes(random.randint(0, 5))
            whole += bytes(random.choice((0, 0, 1, 3, 7)))
            parts.append((name, len(whole), len(data)))
            cut = random.randint(0, len(data))
            pieces[name] = Parts(data[:cut], data[cut:])
            whole += data
        whole += bytes(random.randint(0, 7))
        made = image(len(whole), *parts, **pieces)
        assert b"".join(made.chunks()) == whole
        assert made.sha256 == hashlib.sha256(whole).digest()
        made.check()
        digests = [hashlib.sha256(whole[at : at + size]).digest() for _, at, size in parts]
        assert list(made.digests()) == list(zip(made.parts, digests, strict=True))
    assert [list(map(len, render._zeros(count))) for count in (-1, 0, 1, 3, 4, 7)] == [
        [],
        [],
        [1],
        [3],
        [3, 1],
        [3, 3, 1],
    ]


@pytest.mark.parametrize(
    ("parts", "words", "asked"),
    [
        ((b"abc",), "has 3 bytes given and takes 4", 1),
        ((b"ab", b"c"), "has 3 bytes given and takes 4", 2),
        ((), "has 0 bytes given and takes 4", 0),
        ((b"abcde",), "has more bytes given and takes 4", 1),
        ((b"abcd", b"e", b"f"), "has more bytes given and takes 4", 2),
        ((b"ab", b"cd"), "", 2),
    ],
)
def test_a_constant_has_the_bytes_that_it_takes_and_no_more_are_read(
    parts: tuple[bytes, ...], words: str, asked: int
) -> None:
    piece = Parts(*parts)
    made = image(4, ("w", 0, 4), w=piece)
    if words:
        with pytest.raises(RenderIncomplete, match=f"tensor 'w' {words}"):
            made.check()
    else:
        made.check()
    assert piece.asked == asked


def test_a_blob_is_bytes_or_an_image_of_them() -> None:
    for payload in (b"abcd", image(4, ("w", 1, 2), w=Parts(b"bc"))):
        blob = RenderConstantBlob("M", True, "it.bin", payload)
        whole = b"abcd" if payload == b"abcd" else b"\0bc\0"
        assert (blob.memory, blob.is_staged, blob.sidecar_filename, blob.image) == ("M", True, "it.bin", payload)
        assert (blob.size, blob.payload, b"".join(blob.chunks())) == (4, whole, whole)
        assert blob.sha256 == hashlib.sha256(whole).digest()


CONSTANT, SCRATCH = {"role": "constant"}, {"role": "activation", "birth": 1}
AMONG = "tensor 'w' is a constant among what is written, in arena 'a0'."
MISSING = "tensor 'w' is a constant whose bytes were not given, while others' were."


@pytest.mark.parametrize(
    ("rows", "given", "says"),
    [
        ([{"id": "w", **CONSTANT}], "w", [("w", 0, 4)]),
        ([{"id": "w", **CONSTANT}, {"id": "x", **SCRATCH, "offset": 4}], "w", AMONG),
        ([{"id": "w", "role": "parameter"}, {"id": "x", **SCRATCH, "offset": 4}], "w", AMONG),
        ([{"id": "w", "role": "buffer"}, {"id": "x", **SCRATCH, "offset": 4}], "w", []),
        ([{"id": "w", **CONSTANT}, {"id": "x", **SCRATCH, "offset": 4}], "o", []),
        ([{"id": "w", **CONSTANT, "base": "x"}, {"id": "x", **SCRATCH}], "w", []),
        ([{"id": "w", **CONSTANT}], "o", MISSING),
        ([{"id": "w", **CONSTANT}], "ww", "tensor 'w' has more bytes given and takes 4."),
        ([{"id": "w", **CONSTANT, "base": "v"}, {"id": "v", **CONSTANT}], "v", [("v", 0, 4)]),
        ([{"id": "w", **CONSTANT, "size": 0}, {"id": "v", **CONSTANT}], "v", [("v", 0, 4)]),
        ([{"id": "w", **CONSTANT, "size": 0}, {"id": "v", **CONSTANT}], "vw", [("v", 0, 4)]),
        ([{"id": "w", **CONSTANT, "size": 0, "offset": 4}, {"id": "v", **CONSTANT}], "vw", [("v", 0, 4)]),
        ([{"id": "w", **CONSTANT, "size": 2}, {"id": "v", **CONSTANT}], "vw", [("v", 0, 4)]),
        ([{"id": "v", **CONSTANT, "size": 2}, {"id": "w", **CONSTANT}], "vw", [("w", 0, 4)]),
        ([{"id": "v", **CONSTANT, "offset": 8}, {"id": "w", **CONSTANT}], "vw", [("w", 0, 4), ("v", 8, 4)]),
        ([{"id": "v", **CONSTANT}, {"id": "w", **CONSTANT, "offset": 4}], "vw", [("v", 0, 4), ("w", 4, 4)]),
        ([{"id": "v", **CONSTANT}, {"id": "w", **CONSTANT, "offset": 3}], "vw", [("v", 0, 4)]),
    ],
)
def test_the_bytes_of_constants_are_given_all_or_none_and_written_once(
    rows: list[Row], given: str, says: str | list[tuple[str, int, int]]
) -> None:
    sizes = {row["id"]: row.get("size", 4) for row in rows}
    plan, constants = plan_of(rows), {name: name.encode() * sizes.get(name, 4) * given.count(name) for name in given}
    if isinstance(says, str):
        message, hint = refused(plan, constants)
        assert message == says
        assert hint.startswith("Plan with --planner helia, which" if says == AMONG else "Verify the plan")
        return
    made = build_render_plan(plan, constants, module_prefix="it")
    parts = [part for blob in made.constant_blobs if isinstance(blob.image, Image) for part in blob.image.parts]
    assert [(part.tensor_id, part.offset, part.size) for part in parts] == says
    assert [blob.sidecar_filename for blob in made.constant_blobs] == ["it_constant_a0__blob.bin"] * bool(parts)
    assert [blob.size for blob in made.constant_blobs] == [64] * bool(parts)


def test_a_residency_says_all_that_is_rendered() -> None:
    board = {"memories": [{"name": "A", "max_size": 2048}, {"name": "B"}, {"name": "C", "writable": False}]}
    staged = {"role": "constant", "memory": "C", "constant_destination_memory": "B"}
    rules = [staged, {"role": "buffer", "memory": "B"}]
    made = rendered(model(), W, **board, rules=rules)
    found = residency(made)
    assert (found["schema"], found["module_prefix"]) == ("tmmu_residency/1", "net")
    assert (found["plan_hash"], found["tensor_layout_hash"]) == (made.plan_hash, made.tensor_layout_hash)
    assert [list(arena.values()) for arena in found["arenas"]] == [
        [*(0, "scratch", "A", "A", 2048, 16, False), "NET_REGION_SCRATCH_A", "net_scratch_a", None, None, None],
        [
            *(1, "persistent", "B", "B", 1024, 16, False),
            "NET_REGION_PERSISTENT_B",
            "net_persistent_b",
            None,
            None,
            None,
        ],
        [
            *(2, "constant", "B", "C", 1024, 16, True, "NET_REGION_CONSTANT_B", "net_constant_b"),
            *("net_constant_b__source.bin", "net_constant_b__source", hashlib.sha256(W["w"]).hexdigest()),
        ],
    ]
    rows = [list(row.values()) for row in found["tensors"]]
    assert rows == [
        ["h", 0, "scratch", "A", 1024, 1024, "NET_T_H", "order", "", ""],
        ["stat", 1, "persistent", "B", 0, 1024, "NET_T_STAT", "rule 2", "A", 1024],
        ["w", 2, "constant", "B", 0, 1024, "NET_T_W", "rule 1", "A", 1024],
        ["x", 0, "scratch", "A", 0, 1024, "NET_T_X", "order", "", ""],
        ["y", 0, "scratch", "A", 0, 1024, "NET_T_Y", "order", "", ""],
    ]
    bare = residency(build_render_plan(chain_plan(1)))
    assert list(bare["tensors"][0].values()) == ["t0", 0, "scratch", "activations", 0, 16, "MODEL_T_T0"]
    assert [arena["blob_symbol"] for arena in residency(rendered(model()))["arenas"]] == [
        *(None, None, "net_constant_fast_mem__source")
    ]


# --- names in C --------------------------------------------------------------------------------------------------


def test_an_identifier_keeps_80_letters_of_the_first_320() -> None:
    cases = {
        "": "",
        "__": "",
        "A.b//C": "a_b_c",
        "_x_": "x",
        "naïve 9": "na_ve_9",
        "x" * 81: "x" * 80,
        "x" * 79 + "_y": "x" * 79,
        "." * 319 + "ab": "a",
        "." * 320 + "ab": "",
    }
    assert {text: identifier(text) for text in cases} == cases
    assert c_names.LONGEST == 80


def test_a_prefix_is_at_most_40_letters_and_begins_with_one() -> None:
    cases = {
        "": "model",
        "模型": "model",
        "9": "m_9",
        "a9": "a9",
        "9a": "m_9a",
        "x" * 41: "x" * 40,
        "x" * 39 + " y": "x" * 39,
        "x" * 38 + " y": "x" * 38 + "_y",
    }
    assert {text: c_prefix(text) for text in cases} == cases


def test_what_looks_alike_in_c_is_told_apart_by_its_number() -> None:
    regions = [
        *(("scratch", "a", False), ("scratch", "A", False), ("scratch", "a_2", False), ("scratch", "a", False)),
        *(
            ("scratch", "模", False),
            ("constant", "a", False),
            ("constant", "b", True),
            ("constant", "a alignment", True),
        ),
    ]
    names = region_names("it", regions)
    assert [name.stem for name in names] == [
        *("IT_REGION_SCRATCH_A", "IT_REGION_SCRATCH_A_1", "IT_REGION_SCRATCH_A_2", "IT_REGION_SCRATCH_A_3"),
        *("IT_REGION_SCRATCH_4", "IT_REGION_CONSTANT_A", "IT_REGION_CONSTANT_B", "IT_REGION_CONSTANT_A_ALIGNMENT_7"),
    ]
    assert names[4] == RegionNames("IT_REGION_SCRATCH_4", "it_scratch_4")
    assert names[5] == RegionNames("IT_REGION_CONSTANT_A", "it_constant_a__blob")
    assert names[6] == RegionNames("IT_REGION_CONSTANT_B", "it_constant_b", "it_constant_b__source")
    taken = [("scratch", "b_1", False), ("scratch", "b", False), ("scratch", "b", False), ("scratch", "b_2", False)]
    assert [name.symbol for name in region_names("it", taken)] == [
        *("it_scratch_b_1", "it_scratch_b", "it_scratch_b_2", "it_scratch_b_2_3")
    ]
    twice = [("scratch", "c_1", False), ("scratch", "c", False), ("scratch", "c 1", False), ("scratch", "c_1_2", False)]
    assert [name.symbol for name in region_names("it", twice)] == [
        *("it_scratch_c_1", "it_scratch_c", "it_scratch_c_1_2", "it_scratch_c_1_2_3")
    ]
    behind = [("scratch", "d_1", False), ("scratch", "D", False), ("scratch", "d_3", False), ("scratch", "d", False)]
    assert [name.symbol for name in region_names("it", behind)][3] == "it_scratch_d_3_0"
    assert tensor_stems("it", ["a b", "a.b", "c", "模", "d_"]) == {
        "a b": "IT_T0_A_B",
        "a.b": "IT_T1_A_B",
        "c": "IT_T_C",
        "模": "IT_T3",
        "d_": "IT_T_D",
    }


def test_no_text_ends_its_comment_or_opens_another() -> None:
    cases = {
        "a b": "a b",
        "*/": "* /",
        "/*": "/ *",
        "*\\": "* /",
        "??/": "? ?/",
        "a\tb\n": "a b ",
        "模": "模",
    }
    assert {text: render_c.comment(text) for text in cases} == cases


# --- texts -------------------------------------------------------------------------------------------------------


def arena(number: int, role: str, memory: str, source: str = "", **rest: Any) -> RenderArena:
    source = source or memory
    values = {"size": 64, "alignment": 16, **rest}
    return RenderArena(number, role, memory, source, is_staged=source != memory, **values)


def blob(made: RenderArena, payload: Image | bytes) -> RenderConstantBlob:
    return RenderConstantBlob(made.memory, made.is_staged, f"{made.memory}.bin", payload)


SCRATCH_ARENA = arena(0, "scratch", "fast mem", origin=0, alignment=32)
STATES = arena(1, "persistent", "slow")
COLD = arena(2, "constant", "ROM")
STAGED = arena(3, "constant", "fast mem", "ROM")
PART = RenderTensor("w", 3, 1, 2, 1)
BLOBS = (blob(COLD, image(0)), blob(STAGED, Image(4, (PART,), Constants({"w": Held(b"ab")}))))
EMPTY = RenderMemoryPlan()
HASHES = {"plan_hash": "0123456789abcdef99", "tensor_layout_hash": "fedcba987654321000"}
BARE = RenderMemoryPlan((SCRATCH_ARENA,), (STATES,), (COLD, STAGED), module_prefix="it", **HASHES)
WHOLE = replace(BARE, constant_blobs=BLOBS, tensors=(PART,))


def test_the_header_says_regions_tensors_and_statuses() -> None:
    lines = render_c.c_header(WHOLE).splitlines()
    assert lines[18:24] == [
        "    IT_REGION_SCRATCH_FAST_MEM = 0,",
        "    IT_REGION_PERSISTENT_SLOW = 1,",
        "    IT_REGION_CONSTANT_ROM = 2,",
        "    IT_REGION_CONSTANT_FAST_MEM = 3,",
        "    IT_REGION_COUNT = 4",
        "} it_region_t;",
    ]
    said = [line for line in lines if line.startswith("/* ") and " in " in line and "assertions" not in line]
    assert said == [
        "/* scratch in fast mem */",
        "/* persistent in slow */",
        "/* constant in ROM */",
        "/* constant in fast mem, staged from ROM */",
    ]
    at = lines.index("    IT_OK = 0,")
    assert lines[at - 1 : at + 6] == [
        "typedef enum {",
        *(f"    IT_{status} = {k}," for k, status in enumerate(("OK", "ERROR_REGION", "ERROR_UNBOUND"))),
        "    IT_ERROR_ALIGNMENT = 3,",
        "    IT_ERROR_BLOB_HASH = 4",
        "} it_status_t;",
    ]
    declared = [line for line in lines if line.startswith("extern const uint8_t")]
    assert declared == [f"extern const uint8_t it_constant_{name}[];" for name in ("rom__blob", "fast_mem__source")]
    assert [line for line in render_c.c_header(BARE).splitlines() if line.startswith("extern const uint8_t")] == []
    assert "#define IT_PLAN_HASH_32 0x01234567u" in lines
    assert "#define IT_PLAN_SYMBOL it_plan_0123456789abcdef_fedcba9876543210" in lines


def test_the_source_has_a_row_for_each_region_and_tensor_and_one_where_there_is_none() -> None:
    assert render_c.c_source(WHOLE).splitlines()[3:] == [
        "const uint64_t it_region_size[] = {",
        *(f"    IT_REGION_{name}_SIZE," for name in ("SCRATCH_FAST_MEM", "PERSISTENT_SLOW", "CONSTANT_ROM")),
        "    IT_REGION_CONSTANT_FAST_MEM_SIZE,",
        "};",
        "",
        "const uint64_t it_region_alignment[] = {",
        *(f"    IT_REGION_{name}_ALIGNMENT," for name in ("SCRATCH_FAST_MEM", "PERSISTENT_SLOW", "CONSTANT_ROM")),
        "    IT_REGION_CONSTANT_FAST_MEM_ALIGNMENT,",
        "};",
        "",
        "const it_slot_t it_tensors[] = {",
        "    {(uint32_t)IT_T_W_REGION, IT_T_W_OFFSET, IT_T_W_SIZE},",
        "};",
        "",
        "const char it_plan_hash[] = IT_PLAN_HASH;",
        "const uint32_t it_plan_0123456789abcdef_fedcba9876543210 = IT_PLAN_HASH_32;",
        "",
        "void *it_address(uint8_t *const bases[], size_t index) {",
        "    if (index >= (size_t)IT_TENSOR_COUNT || bases[it_tensors[index].region] == NULL) {",
        "        return NULL;",
        "    }",
        "    return bases[it_tensors[index].region] + (size_t)it_tensors[index].offset;",
        "}",
    ]
    assert render_c.c_source(EMPTY).splitlines()[3:12] == [
        *("const uint64_t model_region_size[] = {", "    0,", "};", ""),
        *("const uint64_t model_region_alignment[] = {", "    0,", "};", ""),
        "const model_slot_t model_tensors[] = {",
    ]
    assert render_c.c_source(EMPTY).splitlines()[12] == "    {0u, 0u, 0u},"
    assert render_c.c_source(EMPTY).splitlines()[-4:] == [
        "    (void)bases;",
        "    (void)index;",
        "    return NULL;",
        "}",
    ]


def test_a_linker_script_lays_what_is_written_and_what_is_stored_into_its_memory() -> None:
    written = [
        "/*   fast_mem: fast mem, at 0x0 */",
        "/*   slow: slow */",
        "/*   ROM: ROM */",
        ".tmmu_fast_mem (NOLOAD) :",
        "{",
        "    . = ALIGN(32);",
        "    KEEP(*(.bss.it_scratch_fast_mem))",
        "    . = ALIGN(16);",
        "    KEEP(*(.bss.it_constant_fast_mem))",
        "} > fast_mem",
        ".tmmu_slow (NOLOAD) :",
        "{",
        "    . = ALIGN(16);",
        "    KEEP(*(.bss.it_persistent_slow))",
        "} > slow",
    ]
    stored = [
        ".tmmu_ROM_constants :",
        "{",
        "    . = ALIGN(16);",
        "    KEEP(*(.rodata.it_constant_rom__blob))",
        "    . = ALIGN(16);",
        "    KEEP(*(.rodata.it_constant_fast_mem__source))",
        "} > ROM",
    ]
    assert c_project.linker_fragment(BARE).splitlines()[2:] == written
    assert c_project.linker_fragment(WHOLE).splitlines()[2:] == written + stored
    assert len(c_project.linker_fragment(EMPTY).splitlines()) == 2


def test_a_memory_is_called_as_it_is_where_that_is_a_word() -> None:
    assert c_project._memory_words(["a", "_a", "a1", "9", "", "a b", "é", "a-b", "a.b", "x" * 65, "x" * 64]) == [
        *("a", "M_a", "a1", "M9", "M", "a_b", "M_", "a_b_7", "a_b_8", "x" * 64 + "_9", "x" * 64)
    ]
    assert c_project._memory_words(["b 1", "b_1_1", "b.1", "b_1_2"]) == ["b_1", "b_1_1", "b_1_3", "b_1_2"]
    assert c_project._memory_words(["1.", "1-", "1_"]) == ["M1_", "M1__1", "M1__2"]


def hexed(digest: bytes) -> str:
    return "{" + ", ".join(f"0x{byte:02x}u" for byte in digest) + "}"


def test_arenas_are_the_programs_own_where_they_are_written() -> None:
    nothing, zeros = hexed(hashlib.sha256(b"").digest()), hexed(hashlib.sha256(b"\0ab\0").digest())
    room = [
        "/* scratch in fast mem */",
        'IT_ALIGNAS(IT_REGION_SCRATCH_FAST_MEM_ALIGNMENT) IT_SECTION(".bss.it_scratch_fast_mem")',
        "uint8_t it_scratch_fast_mem[64u];",
        "/* persistent in slow */",
        'IT_ALIGNAS(IT_REGION_PERSISTENT_SLOW_ALIGNMENT) IT_SECTION(".bss.it_persistent_slow")',
        "uint8_t it_persistent_slow[64u];",
        "/* constant in fast mem */",
        'IT_ALIGNAS(IT_REGION_CONSTANT_FAST_MEM_ALIGNMENT) IT_SECTION(".bss.it_constant_fast_mem")',
        "uint8_t it_constant_fast_mem[64u];",
    ]
    own = [f"    IT_OWN(it_{name})," for name in ("scratch_fast_mem", "persistent_slow", "constant_fast_mem")]
    found = c_project._arenas(WHOLE)
    assert found == {
        "EXTERNAL_DEFAULT": "0",
        "ROOM": "\n".join(room),
        "BUFFERS": "\n".join([*own[:2], "    (uint8_t *)it_constant_rom__blob,", own[2]]),
        "SOURCES": "    NULL,\n    NULL,\n    it_constant_rom__blob,\n    it_constant_fast_mem__source,",
        "FACTS": "\n".join(
            ["    {0u, 0u, 0u, {0}},"] * 2 + [f"    {{1u, 0u, 1u, {nothing}}},", f"    {{1u, 1u, 1u, {zeros}}},"]
        ),
    }
    bare = c_project._arenas(BARE)
    assert bare["BUFFERS"].splitlines()[2] == "    NULL,"
    assert bare["SOURCES"] == "\n".join(["    NULL,"] * 4)
    assert bare["FACTS"].splitlines()[2:] == ["    {1u, 0u, 0u, {0}},", "    {1u, 1u, 0u, {0}},"]
    empty = c_project._arenas(EMPTY)
    assert (empty["BUFFERS"], empty["SOURCES"], empty["FACTS"]) == ("    NULL,", "    NULL,", "    {0u, 0u, 0u, {0}},")


def test_arenas_that_are_too_large_for_an_image_are_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, default in ((192, "0"), (191, "1")):
        monkeypatch.setattr(c_project, "STATIC_UP_TO", limit)
        assert c_project._arenas(WHOLE)["EXTERNAL_DEFAULT"] == default


def test_every_part_of_a_blob_is_checked_by_its_own_bytes() -> None:
    row = f"    {{3u, UINT64_C(1), UINT64_C(2), {hexed(hashlib.sha256(b'ab').digest())}}},"
    assert c_project._checks(WHOLE) == {"COUNT": "1", "CHECKS": row}
    assert c_project._checks(BARE) == {"COUNT": "0", "CHECKS": "    {0u, 0u, 0u, {0}},"}


def test_bytes_stand_sixteen_in_a_line_however_they_are_read() -> None:
    random = Random("hex")
    for size in (*range(36), 100):
        data = random.randbytes(size)
        cuts = sorted(random.randint(0, size) for _ in range(3))
        pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, size], strict=True)]
        lines = ["    " + "".join(f"0x{byte:02x}," for byte in data[k : k + 16]) + "\n" for k in range(0, size, 16)]
        held: Any = Parts(*pieces)
        assert b"".join(c_project._hex_lines(held)).decode() == "".join(lines)


def test_constants_stand_in_a_source_or_beside_one() -> None:
    inline = b"".join(c_project._Inline(WHOLE).chunks()).decode()
    assert inline.startswith(
        '/* Generated from a memory plan: the constants\' bytes. */\n#include "it_memory.h"\n\n#ifdef'
    )
    assert "@" not in inline
    assert inline.split("#endif\n\n")[-1].splitlines()[1:] == [
        "/* constant for ROM, stored in ROM */",
        'IT_ALIGNAS(IT_REGION_CONSTANT_ROM_ALIGNMENT) IT_SECTION(".rodata.it_constant_rom__blob")',
        "const uint8_t it_constant_rom__blob[1u] = {",
        "    0x00,",
        "};",
        "",
        "/* constant for fast mem, stored in ROM */",
        'IT_ALIGNAS(IT_REGION_CONSTANT_FAST_MEM_ALIGNMENT) IT_SECTION(".rodata.it_constant_fast_mem__source")',
        "const uint8_t it_constant_fast_mem__source[4u] = {",
        "    0x00,0x61,0x62,0x00,",
        "};",
    ]
    assert c_project._assembler(WHOLE).splitlines()[8:15] == [
        '    .section .rodata.it_constant_fast_mem__source,"a",%progbits',
        "    .balign 16",
        "    .global it_constant_fast_mem__source",
        "    .type it_constant_fast_mem__source, %object",
        "it_constant_fast_mem__source:",
        '    .incbin "fast mem.bin"',
        "    .size it_constant_fast_mem__source, 4",
    ]


FILES = ["it_memory.h", "it_memory.c", "it_arenas.c", "it_selftest.c", "memory.ld", "CMakeLists.txt", "residency.json"]


@pytest.mark.parametrize(
    ("made", "blobs", "beside", "languages"),
    [
        (WHOLE, "inline", ["it_blobs.c"], "C"),
        (WHOLE, "sidecar", ["it_blobs.S", "ROM.bin", "fast mem.bin"], "C ASM"),
        (BARE, "inline", [], "C"),
        (BARE, "sidecar", [], "C"),
        (BARE, "auto", [], "C"),
    ],
)
def test_a_project_is_these_files(made: RenderMemoryPlan, blobs: Any, beside: list[str], languages: str) -> None:
    files = c_project.c_project(made, blobs)
    assert list(files) == FILES + beside
    texts = {name: b"".join(piece.chunks()).decode() for name, piece in files.items()}
    built = texts["CMakeLists.txt"].splitlines()
    assert built[2] == f"project(it_memory LANGUAGES {languages})"
    source = f" {beside[0]}" if beside else ""
    assert f"add_library(it_memory STATIC it_memory.c it_arenas.c{source})" in built
    assert ("set_source_files_properties(it_blobs.S PROPERTIES" in built) == (languages != "C")
    depends = '"${CMAKE_CURRENT_SOURCE_DIR}/ROM.bin;${CMAKE_CURRENT_SOURCE_DIR}/fast mem.bin")'
    assert any(line.endswith(f"OBJECT_DEPENDS {depends}") for line in built) == (languages != "C")
    assert texts["residency.json"] == json.dumps(residency(made), indent=2) + "\n"


def test_few_bytes_stand_inline_and_more_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """0 and 4 bytes."""
    for limit, name in ((4, "it_blobs.c"), (3, "it_blobs.S")):
        monkeypatch.setattr(c_project, "INLINE_UP_TO", limit)
        assert list(c_project.c_project(WHOLE))[7] == name
        assert list(c_project.c_project(WHOLE, "inline"))[7] == "it_blobs.c"
        assert list(c_project.c_project(WHOLE, "sidecar"))[7] == "it_blobs.S"


# --- to disk -----------------------------------------------------------------------------------------------------


def test_a_project_is_written_into_a_folder_that_is_there_or_made(tmp_path: Path) -> None:
    files: dict[str, Piece] = {"a.c": Parts(b"ab", b"c"), "b.c": Held(b"")}
    there = tmp_path / "there"
    there.mkdir()
    (there / "a.c").write_bytes(b"old")
    (there / "own").write_bytes(b"own")
    for folder in (there, tmp_path / "in" / "it" / "c", tmp_path / "in" / "beside"):
        assert c_project.write_project(folder, files) == 3
        assert ((folder / "a.c").read_bytes(), (folder / "b.c").read_bytes()) == (b"abc", b"")
    assert (there / "own").read_bytes() == b"own"
    assert sorted(path.name for path in (tmp_path / "in").iterdir()) == ["beside", "it"]
    with pytest.raises(NotADirectoryError):
        c_project.write_project(there / "own", files)


def test_a_zipped_project_says_whose_rights_its_files_have() -> None:
    archive = zipfile.ZipFile(io.BytesIO(c_project.zipped({"a.c": Parts(b"ab", b"c"), "b.c": Held(b"")})))
    assert [
        (entry.filename, entry.external_attr, entry.create_system, entry.compress_type) for entry in archive.infolist()
    ] == [(name, 0o644 << 16, 3, zipfile.ZIP_DEFLATED) for name in ("a.c", "b.c")]
    assert archive.read("a.c") == b"abc"


def test_planned_over_memories_what_is_rendered_is_verified() -> None:
    """The example of all these rooms, from a model: its words are those of its regions."""
    made = rendered(model(), W, **BOARD)
    assert made.has_staged_constants
    assert c_project._memory_words([a.memory for a in made.all_arenas][:1]) == ["fast_mem"]
    one = graph([tensor("x", role="input"), tensor("y")], [node("n", "x", "y")], "x", "y")
    plan = plan_graph(one).plan
    assert verify_plan(plan, one).ok
    assert not build_render_plan(plan).has_staged_constants
