"""One target per reader: valid files, and functions that make hostile files from them."""

import contextlib
import gzip
import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import cbor2
from onnx import ModelProto

from tests.formats.onnx.test_onnx_scopes import CASES
from tests.formats.pytorch.test_kineto_trace import PROFILE
from tests.formats.xla.test_xla import ASSIGNMENT, LIVE_RANGE
from tests.formats.xla.test_xla import PROGRAM as HLO
from tests.planners.test_reuse import KINDS
from tests.planners.test_reuse import document as structured_document
from tests.plans.examples import chain_plan, views_graph
from tests.support.build import chain, graph, node, tensor, view
from tests.support.paths import DATA, SAMPLES
from tests.tools.fuzz import flat_program, links, mutation, parts
from tests.tools.fuzz.uses import use
from tmmu_core.base.errors import TmmuError
from tmmu_core.formats.planfile import plan_file, trace
from tmmu_core.graph.model import Graph
from tmmu_core.graph.native import native_file
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.making.plan_sets import plan_rank, plan_ranks
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.making.request_options import OPTION_SPECS, read_arenas_text
from tmmu_core.plans.making.sparse_addresses import with_sparse_addresses
from tmmu_core.plans.model import Plan

GIVEN = DATA / "given"
FOUND = DATA / "fuzz"
"""Files that crashed the program in the past."""
TRACES = ("executorch_trace.json", "executorch_trace_stacked.json")
SMALL = ("alias_group", "dynamic_batch", "in_place", "loop", "must_not_alias", "remat", "training_step", "two_arenas")

Make = Callable[[Random], bytes]


@dataclass(frozen=True)
class Target:
    """A reader to test."""

    name: str
    make: Make
    """Return a hostile input, which depends only on the state of the random numbers."""
    use: Callable[[bytes], None] = use


def outcome(target: Target, data: bytes) -> str:
    """Read an input; return ``read`` or ``refused``. Every other exception is a finding."""
    try:
        target.use(data)
    except TmmuError as error:
        str(error)
        json.dumps(error.record())  # type: ignore[attr-defined]
        return "refused"
    return "read"


def _documents(*documents: Any, cbor: bool = True) -> Make:
    def make(random: Random) -> bytes:
        document = mutation.changed(random.choice(documents), random)
        return (mutation.as_cbor if cbor and random.randrange(3) == 0 else mutation.as_json)(document)

    return make


def _bytes(*files_: bytes) -> Make:
    def make(random: Random) -> bytes:
        return mutation.damaged(random.choice(files_), random)

    return make


def _words(*files_: bytes) -> Make:
    def make(random: Random) -> bytes:
        how = mutation.words_changed if random.randrange(3) else mutation.damaged
        return how(random.choice(files_), random)

    return make


def _messages(kind: Any, *files_: bytes) -> Make:
    def make(random: Random) -> bytes:
        data = random.choice(files_)
        return mutation.message_changed(data, kind, random) if random.randrange(4) else mutation.damaged(data, random)

    return make


def _text(*texts: bytes) -> Make:
    def make(random: Random) -> bytes:
        data = random.choice(texts)
        for _ in range(random.choice((1, 1, 2, 4))):
            what = mutation.damaged if random.randrange(4) == 0 else mutation.lines_changed
            data = what(data, random)
        return data

    return make


PROGRAM_WORDS = (
    *(
        b"(",
        b")" * 40,
        b"jvp(" * 70,
        b"transpose(",
        b"/",
        b'"',
        b"\\",
        b", metadata={",
        b", calls=%inner",
        b"ROOT %a = ",
    ),
    *(
        b"HloModule x",
        b"ENTRY %e (",
        b"StackFrames",
        b"['",
        b"']",
        b"%a",
        b"%inner",
        b"\n",
        b" = ",
        b"9" * 30,
        b"{}",
        b"+",
    ),
)
"""Parts of the text of an XLA program."""


def _xla(random: Random) -> bytes:
    """Return the files of a dump, with or without the program, with words of the program at random places."""
    parts_ = [ASSIGNMENT.encode(), LIVE_RANGE.encode()]
    program = HLO.encode()
    for _ in range(random.randrange(4)):
        place = random.randrange(len(program) + 1)
        program = program[:place] + random.choice(PROGRAM_WORDS) + program[place + random.choice((0, 0, 1, 9)) :]
    if random.randrange(3):
        parts_.insert(random.randrange(3), program)
    data = b"".join(parts_)
    for _ in range(random.choice((0, 1, 1, 2))):
        data = (mutation.damaged if random.randrange(4) == 0 else mutation.lines_changed)(data, random)
    return data


def _sample(name: str) -> Any:
    return json.loads((SAMPLES / f"{name}.tmmu.json").read_bytes())


def _given(name: str) -> Any:
    return json.loads((GIVEN / name).read_bytes())


def _csv(random: Random) -> bytes:
    data = random.choice((PLAIN, PLACED, GAPPED))
    if random.randrange(3) == 0:
        return mutation.damaged(data, random)
    rows = [line.split(b",") for line in data.splitlines()]
    for _ in range(random.randrange(1, 4)):
        row = random.choice(rows)
        row[random.randrange(len(row))] = str(random.choice((*mutation.EDGES, *mutation.WORDS))).encode()
    return b"\n".join(b",".join(row) for row in rows)


SMALL_PROGRAM = flat_program.program(
    [flat_program.tensor(0, (4,)), flat_program.tensor(16, (4,)), flat_program.tensor(0, (4,))],
    [0],
    [2],
    [("aten::neg.out", [0, 1, 1]), ("aten::relu.out", [1, 2, 2])],
)
PLAIN = b"id,lower,upper,size\na,0,3,4\nb,1,2,8\nc,2,9,1\n"
PLACED = b"id,lower,upper,size,alignment,offset\na,0,3,4,4,0\nb,1,2,8,8,8\n"
GAPPED = b"buffer,start,end,size,gaps\na,0,30,4,7-9 12-14\nb,1,2,8,\n"


def _cbor(random: Random) -> bytes:
    """Return CBOR bytes: damaged, or random items one after the other."""
    if random.randrange(2):
        return mutation.damaged(
            random.choice((native_file.encode_cbor(views_graph()), plan_file.to_cbor(chain_plan(2)))), random
        )
    out = bytearray(b"\xa3\x67tensors")
    for _ in range(random.randrange(1, 12)):
        major, small = random.randrange(8), random.choice((*range(24), 24, 25, 26, 27, 28, 31))
        out.append(major << 5 | small)
        out += random.randbytes({24: 1, 25: 2, 26: 4, 27: 8}.get(small, 0))
    return bytes(out)


def _gzip(random: Random) -> bytes:
    data = random.choice((native_file.encode_json(chain(3)), native_file.encode_cbor(views_graph()), PLACED))
    if random.randrange(2):
        return gzip.compress(mutation.damaged(data, random), 1, mtime=0)
    inner = gzip.compress(data, 1, mtime=0)
    return mutation.damaged(inner + (inner if random.randrange(3) == 0 else b""), random)


def _archive(random: Random) -> bytes:
    names = ("tied", "tied", "open_sizes", "open_sizes", "two_layers", "convolution")  # small files more often
    file = DATA / "torch" / f"{random.choice(names)}.pt2"
    if random.randrange(4) == 0:
        return mutation.damaged(file.read_bytes(), random)
    out = io.BytesIO()
    with zipfile.ZipFile(file) as archive, zipfile.ZipFile(out, "w") as changed:
        for name in archive.namelist():
            data = archive.read(name)
            if name.endswith("model.json"):
                data = mutation.as_json(mutation.changed(json.loads(data), random))
            changed.writestr(name, data)
    return out.getvalue()


def _use_archive(data: bytes) -> None:
    from tests.tools.fuzz.uses import use_graph
    from tmmu_core.formats.pytorch.exported_program import pt2_archive, pt2_graph

    use_graph(pt2_graph.saved_graph(pt2_archive.read_program(data), "given"))


def _use_arenas(data: bytes) -> None:
    plan_graph(chain(2), arenas=read_arenas_text(data.decode("utf-8", "replace")))


def _use_spec(data: bytes) -> None:
    request = PlanRequest(shard_spec=OPTION_SPECS["shard_spec"].read(data.decode("utf-8", "replace")))
    plan_rank(sharded(), request)
    plan_ranks(sharded(), request)


def sharded() -> Graph:
    """Return the graph ``x @ w → h``, a view of h, and its sum."""
    tensors = [tensor("x", 64, role="input"), tensor("w", 32, role="parameter"), tensor("h", 96), view("v", "h", 96)]
    return graph([*tensors, tensor("y", 8)], [node("n0", "x w", "h"), node("n1", "v", "y")], "x", "y")


SPEC = {
    "mesh": [{"name": "dp", "size": 2}, {"name": "tp", "size": 4}],
    "tensors": {"w": {"axis": 0, "mesh": "tp"}, "y": None},
    "rules": [{"match": "x*", "axis": 0, "mesh": "tp"}],
    "contracts": {"parameters": None, "activations": {"axis": 0, "mesh": "dp"}},
}


@cache
def targets() -> dict[str, Target]:
    """Return every target by its name."""
    graphs = [_sample(name) for name in SMALL]
    solution = plan_graph(views_graph())
    kept = plan_file.checkpoint(solution.plan, solution.liveness)
    onnx = [case.model.SerializeToString() for case in CASES]
    tflite = [(DATA / "tflite" / "hello_world_int8.tflite").read_bytes()] * 8
    tflite.append((DATA / "tflite" / "kws_ref_model.tflite").read_bytes())
    plans = [solution.plan, chain_plan(2, planner="greedy"), chain_plan(3, planner="exact"), *noting_plans()]
    all_targets = (
        Target("native", _documents(*graphs)),
        Target("node-centric", _documents(json.loads((SAMPLES / "node_centric.json").read_bytes()))),
        Target("plan", _documents(*(json.loads(plan_file.to_json(each)) for each in plans))),
        Target("trace", _trace(*map(trace.to_json_lines, plans))),
        Target("checkpoint", _checkpoint(cbor2.loads(kept))),
        Target("cbor", _cbor),
        Target("gzip", _gzip),
        Target("instance", _csv),
        Target("structured-problem", _documents(structured_document(Random(0), KINDS), cbor=False)),
        Target("xla", _xla),
        Target("executorch", _words((GIVEN / "executorch_small.pte").read_bytes(), SMALL_PROGRAM)),
        Target("executorch-trace", _documents(*(_given(name) for name in TRACES), cbor=False)),
        Target("xla-report", _text((GIVEN / "xla_step-memory-usage-report.txt").read_bytes())),
        Target("vela", _text((GIVEN / "vela_core.txt").read_bytes())),
        Target("tflm", _text((GIVEN / "tflm_planner.txt").read_bytes() + (GIVEN / "tflm_recorded.txt").read_bytes())),
        Target("onnx", _messages(ModelProto, *onnx)),
        Target("tflite", _words(*tflite)),
        Target("torch", _archive, _use_archive),
        Target(
            "arenas",
            _documents({"activations": {"capacity_bytes": 4096, "alignment_bytes": 64, "page_size": 16}}),
            _use_arenas,
        ),
        Target("shards", _documents(SPEC), _use_spec),
        Target("torch-snapshot", parts.snapshot),
        Target("torch-profile", _documents(PROFILE, cbor=False)),
        Target("platform", _documents(parts.PLATFORM, cbor=False), parts.use_platform),
        Target("table", parts.table, parts.use_table),
        Target("sidecar", parts.sidecar, parts.use_sidecar),
        Target("stored", parts.stored, parts.use_stored),
        *(Target(f"link-{key}", links.make_of(key), links.use_of(key)) for key in links.parameters()),
    )
    return {target.name: target for target in all_targets}


def found(ending: str = "*") -> list[Path]:
    """Return files that crashed the program in the past."""
    return sorted(FOUND.glob(f"*.{ending}"))


def noting_plans() -> list[Plan]:
    """Return plans with many notes on memories and hashed addresses."""
    memories = [{"name": "MRAM", "writable": False}, {"name": "TCM", "max_size": 300}, {"name": "SRAM"}]
    over = plan_graph(sharded(), planner="helia", options={"memories": memories}).plan
    return [over, with_sparse_addresses(plan_graph(chain(3)).plan)]


def _trace(*traces: bytes) -> Make:
    records = {lines: [json.loads(line) for line in lines.splitlines()] for lines in traces}

    def make(random: Random) -> bytes:
        lines = random.choice(traces)
        if random.randrange(4) == 0:
            return mutation.damaged(lines, random)
        changed = mutation.changed(records[lines], random)
        if not isinstance(changed, list):
            changed = [changed]
        if random.randrange(2):
            return b"".join(mutation.as_cbor(record) for record in changed)
        return b"\n".join(map(mutation.as_json, changed))

    return make


def _checkpoint(document: Any) -> Make:
    from tmmu_core.base.cbor import H

    def make(random: Random) -> bytes:
        changed = mutation.changed(document, random)
        if isinstance(changed, dict) and random.randrange(2):
            with contextlib.suppress(Exception):  # a body that cannot be hashed keeps its digest
                changed["digest"] = H(changed.get("body"))  # the checks after the digest run too
        return mutation.as_cbor(changed)

    return make
