"""Targets for other inputs than models: snapshots, tables, platforms, sidecars, rows of a store."""

import json
import pickle
import struct
import tempfile
import zlib
from pathlib import Path
from random import Random
from typing import Any

from tests.formats.pytorch.test_torch_snapshot import EVENTS, segment
from tests.plans.examples import views_graph
from tests.support.build import chain, graph, node, tensor
from tests.tools.fuzz import mutation
from tests.tools.fuzz.uses import use_plan
from tmmu_core.formats.csv import instance_csv as tables
from tmmu_core.formats.planfile import plan_file
from tmmu_core.graph.constants import Constants, sidecar_constants, sidecar_parts
from tmmu_core.graph.model import Graph
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.making.instance import plan_problem
from tmmu_core.plans.making.request_options import read_json_object
from tmmu_core.store.store import unpacked

SNAPSHOT: dict[str, Any] = {
    "segments": [segment(0, 2048, (512, "inactive"), (512, "active_allocated"))],
    "device_traces": [EVENTS],
}


def snapshot(random: Random) -> bytes:
    """Return an allocator snapshot as pickle or JSON."""
    document = mutation.changed(SNAPSHOT, random)
    what = random.randrange(4)
    if what == 0:
        return mutation.as_json(document)
    data = pickle.dumps(document, protocol=random.choice((2, 4, 5)))
    if what == 1:
        return mutation.damaged(data, random)
    if what == 2:  # insert one pickle operation: a memo, a frame or a length
        place = random.randrange(2, len(data))
        length = random.choice((*mutation.EDGES[:16], 1 << 30)) & 0xFFFFFFFF
        made = random.choice((b"r", b"j", b"X", b"B", b"\x8a", b"\x8b", b"p", b"\x95")) + struct.pack("<I", length)
        return data[:place] + made + data[place:]
    return data


PLATFORM = {
    "memories": [
        {"name": "fast", "max_size": 64, "arena_alignment": 16, "origin": 4096},
        {"name": "slow", "writable": True},
    ],
    "rules": [{"memory": "slow", "role": "scratch", "min_size": 8}, {"memory": "fast", "operator": "RELU"}],
}


def use_platform(data: bytes) -> None:
    """Plan a small graph on the memories of a platform."""
    options = read_json_object(data.decode("utf-8", "replace"), "planner's options")
    use_plan(plan_graph(chain(4), planner="helia", options=options).plan)


TABLE = b"name,from,to,bytes,at,same\na,0,3,64,0,a\nb,1,2,32,64,b\nc,2,9,16,64,c\n"
ROWS = {"rows": [{"name": "a", "from": 0, "to": 3, "bytes": 64, "at": 0}, {"name": "b", "bytes": 8, "to": 2}]}
COLUMNS = {"id": "name", "lower": "from", "upper": "to", "size": "bytes", "offset": "at", "alias": "same"}


def table(random: Random) -> bytes:
    """Return a table of another tool with changed values, lines or bytes."""
    if random.randrange(3) == 0:
        return mutation.as_json(mutation.changed(ROWS, random))
    return (mutation.damaged if random.randrange(2) else mutation.lines_changed)(TABLE, random)


def use_table(data: bytes) -> None:
    """Plan the instance of a table, with its offsets or with a planner."""
    columns = {field: own for field, own in COLUMNS.items() if own.encode() in data}
    found = tables.read_table(data, columns, "given")
    use_plan(plan_problem(found))


def _weights() -> Graph:
    tensors = [tensor("x", role="input"), tensor("w", role="parameter"), tensor("y")]
    return graph(tensors, [node("n0", "x w", "y")], "x", "y", sidecar="given.safetensors")


def sidecar(random: Random) -> bytes:
    """Return a sidecar with damaged bytes or with changed values of its header."""
    data = b"".join(sidecar_parts(_weights(), Constants.of({"w": bytes(16)})))
    if random.randrange(3) == 0:
        return mutation.damaged(data, random)
    length = int.from_bytes(data[:8], "little")
    head = mutation.as_json(mutation.changed(json.loads(data[8 : 8 + length]), random))
    size = len(head) if random.randrange(4) else random.choice(mutation.EDGES) % (1 << 64)
    return size.to_bytes(8, "little") + head + data[8 + length :]


def use_sidecar(data: bytes) -> None:
    """Read all constants of a sidecar."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "given.safetensors").write_bytes(data)
        held = sidecar_constants(_weights(), Path(folder) / "given.tmmu.json")
        if "w" in held:
            b"".join(held.chunks("w"))


PLAN = plan_file.to_cbor(plan_graph(views_graph()).plan)


def stored(random: Random) -> bytes:
    """Return the stored bytes of a plan."""
    return mutation.damaged(zlib.compress(PLAN), random)


def use_stored(data: bytes) -> None:
    """Unpack a stored plan, or raise that it is damaged."""
    assert unpacked(data, len(PLAN)) in (PLAN, None)
