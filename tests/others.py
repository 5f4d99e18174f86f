"""``python -m tests.others``: write anew what the readers of other tools' plans make of files with one thing changed.

Where ``tests/refusals.py`` damages files at random, here each line, value, word or byte of small files is changed in
turn: ``golden/others.json`` has a line for every twenty of them, how many are read and refused, and a digest of what is
read (lives, places, notes) or of the refusal's place, way out and, where they are our own, words. Beside them: who of
all readers takes which beginning of which file for its own.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import pickle
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import cbor2

from tests.build import chain
from tests.fuzz import flat_program as flat
from tests.fuzz import mutation
from tests.fuzz.targets import GAPPED, GIVEN, PLACED, PLAIN, _given
from tests.importers.test_xla import ASSIGNMENT, LIVE_RANGE
from tests.odd import digest
from tests.plan.examples import chain_plan, views_graph
from tests.plan.test_torch_snapshot import KERNEL, TORCH, USER, event, segment
from tests.verdicts import GOLDEN, written
from tmmu_core.cbor import H
from tmmu_core.errors import TmmuError, UnreadableInput
from tmmu_core.graph import document, native
from tmmu_core.plan.formats import (
    checkpoint,
    executorch,
    files,
    parquet,
    pickled,
    table,
    tflm,
    torch_snapshot,
    trace,
    vela,
    xla_folder,
    xla_report,
)
from tmmu_core.plan.formats.reading import READERS, read_any
from tmmu_core.plan.making.engine import plan_graph
from tmmu_core.plan.model import Plan

OTHERS = GOLDEN / "others.json"
TOGETHER = 20
MOST = 600
"""Changes of one file: evenly spread over all of them, where there are more."""


# --- what is changed -----------------------------------------------------------------------------------------------


def lines(data: bytes) -> Iterator[bytes]:
    """A text with each line left out, doubled, swapped with the next, and with each number in it changed."""
    rows = data.split(b"\n")
    for k, row in enumerate(rows):
        yield b"\n".join([*rows[:k], *rows[k + 1 :]])
        yield b"\n".join([*rows[: k + 1], *rows[k:]])
        yield b"\n".join([*rows[:k], *rows[k : k + 2][::-1], *rows[k + 2 :]])
        for found in re.finditer(rb"\d+", row):
            for other in (b"0", b"%d" % (int(found[0]) + 1), b"-1", b"9" * 20, b"x"):
                changed = row[: found.start()] + other + row[found.end() :]
                yield b"\n".join([*rows[:k], changed, *rows[k + 1 :]])


def values(document_: Any) -> Iterator[Any]:
    """A document with each of its values changed, left out, or doubled."""
    for way in mutation.places(document_):
        here = mutation.at(document_, way)
        others: list[Any] = [None, "é", -1, [], {}]
        if isinstance(here, int):
            others = [here + 1, here - 1, 0, str(here), -here - 1, 2**63]
        elif isinstance(here, str):
            others = ["", f"{here}x", 7, None]
        for other in others:
            changed = copy.deepcopy(document_)
            mutation.at(changed, way[:-1])[way[-1]] = other
            yield changed
        for twice in (False, True):
            changed = copy.deepcopy(document_)
            holder = mutation.at(changed, way[:-1])
            if not twice:
                del holder[way[-1]]
                yield changed
            elif isinstance(holder, list):
                holder.insert(way[-1], copy.deepcopy(here))
                yield changed


def words(data: bytes) -> Iterator[bytes]:
    """Bytes with each of their little-endian words of four bytes a little more or less, or none."""
    for at in range(0, len(data) - 3, 4):
        here = int.from_bytes(data[at : at + 4], "little")
        for other in {0, (here + 1) % 2**32, (here - 1) % 2**32, (here + 4) % 2**32} - {here}:
            yield data[:at] + other.to_bytes(4, "little") + data[at + 4 :]


def single(data: bytes) -> Iterator[bytes]:
    """Bytes with each of them another, left out or doubled; and cut short there."""
    for at, here in enumerate(data):
        for other in (here ^ 1, here ^ 32, 0x2E):
            yield data[:at] + bytes([other]) + data[at + 1 :]
        yield data[:at] + data[at + 1 :]
        yield data[: at + 1] + data[at:]
        yield data[:at]


def beginnings(data: bytes) -> Iterator[bytes]:
    """A file cut, and with something in front of it."""
    for size in (0, 1, 4, 7, 8, 16, 64, 200, len(data) // 2, len(data) - 1, len(data)):
        yield data[:size]
    for before in (b"\xef\xbb\xbf", b"\n", b"  ", b"x", b"{", b"[", b"\x80", b"# a\n"):
        yield before + data
    for word in sorted(set(re.findall(rb"[A-Za-z_/]{5,}", data[:2000])))[:40]:
        yield data.replace(word, word[1:])
        yield data.replace(word, word + b"x", 1)


# --- what is read --------------------------------------------------------------------------------------------------


def outcome(read: Callable[[bytes], Any], data: bytes, *, own_words: bool) -> tuple[bool, str]:
    """Whether it is read, and the digest of what was read, or of the refusal."""
    try:
        return True, digest(read(data))
    except UnreadableInput as error:
        tried = [name for name, _ in error.tried]
        return False, digest([error.place, error.hint, error.source, tried, error.message if own_words else ""])
    except TmmuError as error:
        return False, digest([type(error).__name__, str(error) if own_words else ""])


SNAPSHOT: dict[str, Any] = {
    "segments": [
        segment(0, 2048, (512, "inactive"), (512, "active_allocated"), (1024, "active_pending_free")),
        segment(1 << 21, 512, (512, "active_allocated"), device=1),
    ],
    "device_traces": [
        [
            event("segment_alloc", 0, 2048),
            event("alloc", 0, 1024, KERNEL, TORCH, USER),
            event("alloc", 1024, 512, KERNEL, TORCH),
            event("free_requested", 0, 1024),
            event("free_completed", 0, 1024),
            event("alloc", 0, 512, KERNEL, USER),
            event("segment_map", 4096, 1024),
            event("alloc", 4096, 1000),
            event("oom", 0, 9),
            event("free_completed", 1024, 512),
            event("free_completed", 4096, 1000),
            event("segment_unmap", 4096, 1024),
            event("free_completed", 512, 512),
        ],
        [event("snapshot", 0, 0), event("alloc", 1 << 21, 256), event("free", 1 << 21, 256)],
    ],
}


def pickled_value(data: bytes) -> Any:
    """What a pickle of plain data holds, its kinds told apart; Python's own words are not ours to hold."""
    try:
        found = pickled.PlainData(io.BytesIO(data), len(data), lambda text: UnreadableInput(text)).load()
    except UnreadableInput as error:
        return ["refused", error.message]
    except pickled.Damaged as error:
        return ["damaged", str(error)]
    except Exception as error:
        return type(error).__name__
    return kinds(found)


def kinds(value: Any) -> Any:
    """A plain value as a list in which 1 and True, a text and bytes, a set and a list are told apart."""
    if isinstance(value, dict):
        return ["dict", [[kinds(key), kinds(item)] for key, item in value.items()]]
    if isinstance(value, list | tuple):
        return [kinds(item) for item in value]
    if isinstance(value, set | frozenset):
        return [type(value).__name__, sorted(repr(item) for item in value)]
    return f"{type(value).__name__} {value!r}"


PLAIN_VALUES = {
    "n": [0, 1, 255, 256, 65_535, 65_536, -1, 2**31, 2**70, -(2**70)],
    "t": ["", "a", "é\udc80", "x" * 300, b"", b"\x00\xff", b"y" * 300],
    "k": [None, True, False, 1.5, (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), {"s"}, frozenset({"f"}), {}, {1: {}}],
}


def _snapshot(data: bytes) -> Any:
    return torch_snapshot.read(data, "given.pickle")


def programs() -> dict[str, bytes]:
    """ExecuTorch programs of each kind of instruction."""
    call = [("aten::neg.out", [0, 1, 1]), ("aten::relu.out", [1, 2, 2]), ("aten::add.out", [1, 2, 3, 3])]
    tensors = [flat.tensor(0, (4,)), flat.tensor(16, (4,)), flat.tensor(0, (4,)), flat.tensor(32, (2, 3), kind=0)]
    extra = [flat.tensor(64, (4,), memory=2), flat.tensor(16, (2,))]
    moved = flat.method("forward", [*tensors, *extra], [0], [3], [*call, 1, ("aten::mul.out", [4, 5, 3])])
    chain_ = moved[5][0]  # type: ignore[index]
    kinds = (
        (2, {0: flat.Scalar("Int32", 0), 1: [1, 3]}),
        (3, {0: flat.Scalar("Int32", 1), 1: flat.Scalar("Int32", 5)}),
    )
    more = [{0: flat.Scalar("Uint8", kind), 1: said} for kind, said in (*kinds, (5, {0: flat.Scalar("Int32", 4)}))]
    every = {**moved, 5: [{2: [*chain_[2], *more]}]}
    return {"calls": flat.program(tensors, [0], [3], call), "every instruction": flat.file([every])}


TABLES = {
    "commas": b'Name,From,To,Bytes,At,Same\na,0,2,8,0x0,\nb,1,3,4,0x8,s\nc,2,5,"1,024",64,s\n',
    "semicolons": b"buffer;start;end;Size (KiB);address\na;0;2;1,5;0\nb;1;3;2;4 KiB\nc;2;9;0,25;8\n",
    "tabs": b"id\tsize\nx\t1.5 MiB\ny\t64.0\nz\t1_000\n",
}


def _table(data: bytes) -> Any:
    columns = table.columns_of(data, "given.csv")
    found = table.likely(columns)
    return [columns, found, table.read(data, found, "given.csv")]


def _csv(data: bytes) -> Any:
    return read_any(data, "given.csv")


def _xla(data: bytes) -> Any:
    return read_any(data, "given.txt")


def _refusing(data: bytes) -> Any:
    """Which readers take these bytes for their own, and why the others do not."""
    said = []
    for reader in READERS:
        with contextlib.suppress(TmmuError):
            said.append([reader.name, reader.refuses(data)])
    return [said, document.kind(data)]


Question = tuple[Callable[[bytes], Any], Callable[[], Iterator[bytes]], bool]
"""The reader, the changed files, and whether all its words are ours."""


@cache
def questions() -> dict[str, Question]:
    """Name → what is asked."""
    asked: dict[str, Question] = {}

    def ask(
        name: str, read: Callable[[bytes], Any], made: Callable[[], Iterator[bytes]], own_words: bool = True
    ) -> None:
        asked[name] = (read, made, own_words)

    def given(name: str) -> bytes:
        return (GIVEN / name).read_bytes()

    for name, read in (("tflm_planner.txt", tflm.read), ("tflm_recorded.txt", tflm.read), ("vela_core.txt", vela.read)):
        ask(name, lambda data, read=read: read(data, "given.log"), lambda name=name: lines(given(name)))  # type: ignore[misc]
    ask("vela_regor.txt", lambda data: vela.read(data, "given.log"), lambda: lines(given("vela_regor.txt")))
    report = "xla_step-memory-usage-report.txt"
    ask(report, lambda data: xla_report.read(data, "given.txt"), lambda: lines(given(report)))
    ask("xla dump", _xla, lambda: lines(ASSIGNMENT.encode() + LIVE_RANGE.encode()))
    for name, data in TABLES.items():
        ask(f"table with {name}", _table, lambda data=data: lines(data), False)  # type: ignore[misc]
        ask(f"bytes of a table with {name}", _table, lambda data=data: single(data), False)  # type: ignore[misc]
    for k, data in enumerate((PLAIN, PLACED, GAPPED)):
        ask(f"instance {k}", _csv, lambda data=data: lines(data))  # type: ignore[misc]
    for name in ("executorch_trace.json", "executorch_trace_stacked.json"):

        def events(name: str = name) -> Iterator[bytes]:
            whole = _given(name)
            for changed in values({**whole, "traceEvents": whole["traceEvents"][:14]}):
                yield mutation.as_json(changed)

        ask(name, lambda data: executorch.read_trace(data, "given.json"), events, False)
    for name, data in programs().items():
        ask(f"program of {name}", lambda data: executorch.read(data, "given.pte"), lambda data=data: words(data))  # type: ignore[misc]
    ask("snapshot as a pickle", _snapshot, lambda: (pickle.dumps(each, 4) for each in values(SNAPSHOT)), False)
    ask("snapshot as JSON", _snapshot, lambda: (mutation.as_json(each) for each in values(SNAPSHOT)), False)
    for protocol in (0, 2, 4, 5):

        def plain(protocol: int = protocol) -> Iterator[bytes]:
            for value in PLAIN_VALUES.values():
                yield pickle.dumps(value, protocol)
                yield from single(pickle.dumps(value, protocol)[:700])

        ask(f"pickles of protocol {protocol}", pickled_value, plain)
    ask("who takes what", _refusing, _sniffed)
    ask("what is opened", lambda data: read_any(data, "given"), _sniffed, False)
    solution = plan_graph(views_graph(), arenas={"activations": {"page_size": 4096}, "parameters": {}})
    memories = {"memories": [{"name": "MRAM", "writable": False}, {"name": "TCM", "max_size": 30}, {"name": "SRAM"}]}
    over = plan_graph(views_graph(), planner="helia", options=memories).plan
    greedy = plan_graph(chain(2, "any"), planner="greedy").plan
    for which, plan in (("slots", solution.plan), ("memories", over), ("bytes", greedy)):
        ask(f"plan of {which}", lambda data: files.from_document(data, "given"), partial(_plan_files, plan), False)
        ask(f"trace of {which}", lambda data: trace.read_trace(data, "given"), partial(_trace_files, plan), False)
    kept = checkpoint.checkpoint(solution.plan, solution.liveness)
    ask("checkpoint", lambda data: checkpoint.restore(data, "given"), partial(_checkpoint_files, kept), False)
    ask("modules of a dump", _modules, _folders)
    return asked


def _sniffed() -> Iterator[bytes]:
    solution = plan_graph(views_graph())
    plan = solution.plan
    yield from beginnings(native.encode_json(chain(2)))
    yield from beginnings(native.encode_cbor(chain(2)))
    for write in (files.to_json, files.to_cbor, files.to_csv, trace.to_json_lines, trace.to_cbor_sequence):
        yield from beginnings(write(plan))
    yield from beginnings(checkpoint.checkpoint(plan, solution.liveness))
    yield from beginnings(parquet.to_parquet(plan)[:100])
    yield from beginnings(programs()["calls"])
    yield from beginnings(mutation.as_json(SNAPSHOT))
    yield from beginnings(pickle.dumps(SNAPSHOT, 4))
    for part in ("segments", "device_traces"):
        yield from beginnings(mutation.as_json({part: SNAPSHOT[part]}))
        yield from beginnings(pickle.dumps({part: SNAPSHOT[part]}, 4))
        yield from beginnings(mutation.as_json(SNAPSHOT[part]))
    for name in sorted(path.name for path in GIVEN.iterdir() if path.suffix in (".txt", ".json")):
        yield from beginnings((GIVEN / name).read_bytes())
    yield from (PLAIN, PLACED, GAPPED, files.to_instance(chain_plan(2), "activations"))


def _plan_files(plan: Plan) -> Iterator[bytes]:
    """A plan file with each of its values changed; half of them without the hashes that would tell it."""
    said = json.loads(files.to_json(plan))
    for k, changed in enumerate(values(said)):
        if k % 2:
            changed.pop("digests", None)
        yield (mutation.as_json if k % 3 else mutation.as_cbor)(changed)


def _trace_files(plan: Plan) -> Iterator[bytes]:
    said = [json.loads(line) for line in trace.to_json_lines(plan).splitlines()]
    for k, changed in enumerate(values(said)):
        if k % 2 and changed and isinstance(changed[0], dict):
            changed[0].pop("digests", None)
        records = changed if isinstance(changed, list) else [changed]
        yield b"\n".join(map(mutation.as_json, records)) if k % 3 else b"".join(map(mutation.as_cbor, records))


def _checkpoint_files(kept: bytes) -> Iterator[bytes]:
    """Its body changed under a digest that fits, so that what is behind it is reached."""
    whole = cbor2.loads(kept)
    for changed in values(whole):
        if isinstance(changed, dict) and changed.get("body") != whole["body"]:
            with contextlib.suppress(Exception):  # what cannot be hashed stays under the old digest
                changed["digest"] = H(changed.get("body"))
        yield mutation.as_cbor(changed)


def _folders() -> Iterator[bytes]:
    """Folders of dumps, as a JSON list of file names."""
    for module in ("m", "module_0001.jit_step", "a.b"):
        ends = ("buffer-assignment.txt", "live-range.txt", "memory-usage-report.txt", "after_optimizations.txt")
        names = [
            f"{module}.{part}after_optimizations-{end}" for part in ("", "cpu_", "gpu_", "sm_8.0_gpu_") for end in ends
        ]
        names += [f"{module}.{end}" for end in ends] + ["other.txt", f"{module}.hlo.pb"]
        for k in range(len(names)):
            yield json.dumps([*names[:k], *names[k + 1 : k + 4], *names[:2]]).encode()


def _modules(data: bytes) -> Any:
    names = json.loads(data)
    found = xla_folder.modules({name: 100 + k for k, name in enumerate(names)})
    return [found, xla_folder.only(found, "a folder")]


def asked_of(question: str) -> list[bytes]:
    """The changed files of one question, evenly drawn."""
    every = list(questions()[question][1]())
    first = question.split()[0]
    most = {"pickles": 3 * MOST, "plan": MOST // 2, "trace": MOST // 3, "checkpoint": MOST // 3}.get(first, MOST)
    return every[:: -(-len(every) // most)]


def answer(question: str) -> list[str]:
    """A line for every twenty of them."""
    read, _, own_words = questions()[question]
    outcomes = [outcome(read, data, own_words=own_words) for data in asked_of(question)]
    found = []
    for first in range(0, len(outcomes), TOGETHER):
        here = outcomes[first : first + TOGETHER]
        found.append(f"{sum(ok for ok, _ in here)} of {len(here)} read · {digest([said for _, said in here])}")
    return found


def main() -> None:
    """Write the file."""
    written(OTHERS, ((question, answer(question)) for question in questions()))


if __name__ == "__main__":
    main()
