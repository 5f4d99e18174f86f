"""``python -m tests.support.versions PYTHON…``: byte for byte the same, whichever Python makes it.

Each interpreter does the same work as this one, under a hash seed of its own: every sample under every planner (plan
and trace), the commands that write (reports, tables, C, checkpoints, graphs, schemas, help, what the shell completes),
the report's pictures, what a store holds, and what is said of damaged files. A line for each output that differs, by
what it is called; the exit code is 1 where there is one. Each PYTHON has what ``requirements-dev.lock`` pins.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, get_args

from tests.support.paths import ROOT

SEARCHED = 500
"""Tensors up to which a sample is planned by the searches too, which are kept short."""
SHORT: dict[str, dict[str, Any]] = {
    "exact": {"budget": 200},
    "search": {"iterations": 2},
    "portfolio": {},
    "auto": {},
}
TAKEN_AWAY = ("mixed_sizes", "must_not_alias", "views", "training_step", "resnet50")
"""Samples of which everything is written that a command writes."""
"""Inputs of each reader."""
NESTED = {
    "params": ('{"tensors":[],"nodes":[{"node_id":"n","instr":"X","params":{"a":', "[", "]", "}}]}"),
    "unknown": ('{"tensors":[],"nodes":[],"zzz":', "[", "]", "}"),
    "maps": ('{"tensors":[],"nodes":[],"zzz":', '{"a":', "1}", "}"),
    "lists": ("", "[", "]", ""),
    "notes": ('{"schema":"tmmu_plan/1","notes":', '{"a":', "1}", "}"),
}
"""Where a document may be deep: its beginning, what opens, what closes, its end."""
AT = "2026-01-02T03:04:05+00:00"


class Made(NamedTuple):
    """What one interpreter made."""

    python: str
    """Its version, as it says itself."""
    digests: Mapping[str, str]
    """What an output is called → SHA-256 of its bytes."""


def differences(one: Made, other: Made) -> list[str]:
    """A line for each output that the two do not share, by name."""
    lines = []
    for name in sorted({*one.digests, *other.digests}):
        left, right = one.digests.get(name), other.digests.get(name)
        if left != right:
            why = "differs" if left and right else f"is made by {(one if left else other).python} alone"
            lines.append(f"{name}: {why} ({one.python} and {other.python})")
    return lines


def outputs(parts: Sequence[str] = ()) -> Iterator[tuple[str, bytes]]:
    """``(what it is called, its bytes)``, made now, in this interpreter; of some parts, or all of them."""
    for name, make in PARTS.items():
        if name in parts or not parts:
            for what, data in make():
                yield f"{name} {what}", data


def plans() -> Iterator[tuple[str, bytes]]:
    """Every sample under every planner: plan and trace."""
    from tests.support.golden import SAMPLES, sample_files
    from tmmu_core.formats.open_file import read_graph_file
    from tmmu_core.formats.planfile import plan_file, trace
    from tmmu_core.planners import PLANNERS
    from tmmu_core.plans.making.engine import plan_graph

    for file in sample_files():
        graph = read_graph_file(SAMPLES / file)
        for planner in PLANNERS:
            if planner in SHORT and len(graph.tensors) > SEARCHED:
                continue
            plan = plan_graph(graph, planner=planner, options=SHORT.get(planner, {})).plan
            yield f"{file} {planner} json", plan_file.to_json(plan)
            yield f"{file} {planner} cbor", plan_file.to_cbor(plan)
            yield f"{file} {planner} trace", trace.to_json_lines(plan)


def commands() -> Iterator[tuple[str, bytes]]:
    """What every command writes of some samples: to files, to standard output and to standard error."""
    from app.cli.first.export import FORMATS, PROJECT
    from app.cli.main import COMMANDS
    from tests.support.golden import SAMPLES, sample_files

    for command in ("", *COMMANDS):
        yield from _ran(f"{command} --help", [*filter(None, [command]), "--help"])
    for shell in ("bash", "zsh", "fish"):
        yield from _completed(shell)
    yield from _ran("schema", ["schema"])
    for stem in TAKEN_AWAY:
        (file,) = [str(SAMPLES / file) for file in sample_files() if file.split(".")[0] == stem]
        for form in FORMATS:
            arena = ["--arena", "activations"] if form == "instance" else []
            yield from _ran(f"{stem} export {form}", ["export", file, "--to", form, *arena], into="out", tree=PROJECT)
        for ending in ("html", "md", "html.gz"):
            yield from _ran(f"{stem} report {ending}", ["report", file], into=f"out.{ending}")
        for ending in ("tmmu.json", "tmmu.cbor", "tmmu.json.gz"):
            yield from _ran(f"{stem} convert {ending}", ["convert", file], into=f"out.{ending}")
        yield from _ran(f"{stem} checkpoint", ["checkpoint", file], into="out.cbor")
        for asked in (
            ["plan", file],
            ["plan", file, "--json"],
            ["lint", file],
            ["lint", file, "--json"],
            ["verify", file, "--json"],
            ["gate", file, "--max-gap", "5%"],
            ["gate", file, "--max-extent", "1KiB", "--json"],
            ["compare", file, file, "--json"],
            ["compare", file, str(SAMPLES / "node_centric.json")],
            ["fit", file, "--capacity", "1GiB", "--json"],
            ["sweep", file, "--planners", "slots,naive,ffd,greedy,helia", "--json"],
        ):
            yield from _ran(" ".join([stem, *asked]).replace(file, "FILE"), asked)


def _completed(shell: str) -> Iterator[tuple[str, bytes]]:
    """What the shell is told to run, and what it is offered for ``tmmu p`` and ``tmmu plan --pl``."""
    for words, which in (("tmmu p", "1"), ("tmmu plan --pl", "2")):
        asked = {"_TMMU_COMPLETE": f"complete_{shell}", "COMP_WORDS": words, "COMP_CWORD": which}
        asked |= {"_TYPER_COMPLETE_ARGS": words, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
        yield f"{shell} completes {words}", _child(asked)
    yield f"{shell} completion", _child({"_TMMU_COMPLETE": f"source_{shell}"})


def _child(more: Mapping[str, str]) -> bytes:
    code = "import sys; sys.argv = ['tmmu']; from app.cli.main import build; build()(prog_name='tmmu')"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={**os.environ, **more}, capture_output=True)
    return ran.stdout + b"\0" + ran.stderr


def _ran(called: str, asked: list[str], *, into: str = "", tree: str = "") -> Iterator[tuple[str, bytes]]:
    """A command's exit code and words, and what it wrote to the file or folder named ``into``."""
    from app.cli.main import run

    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = run([*asked, *(["-o", into] if into else [])])
            said = out.buffer.getvalue() + b"\0" + err.buffer.getvalue()  # type: ignore[attr-defined]
            said = re.sub(rb'"allocation_time_ns": \d+', b'"allocation_time_ns": TIME', said)
            yield called, b"%d\0" % code + said.replace(str(ROOT).encode(), b"ROOT")
            for file in sorted(Path(folder).rglob("*")) if into else []:
                if file.is_file():
                    yield f"{called} → {file.relative_to(folder).as_posix()}", file.read_bytes()
        finally:
            os.chdir(before)


def pictures() -> Iterator[tuple[str, bytes]]:
    """The report's still pictures, and what the canvas draws from."""
    from app.canvas.pack import pack_plan
    from app.report.report_theme import Sheet
    from app.report.still_pictures import Kind, still
    from tests.support.golden import SAMPLES, sample_files
    from tmmu_core.formats.open_file import read_graph_file
    from tmmu_core.plans.making.engine import plan_graph

    for file in sample_files():
        graph = read_graph_file(SAMPLES / file)
        if len(graph.tensors) > SEARCHED:
            continue
        plan = plan_graph(graph).plan
        yield f"{file} canvas", pack_plan(plan).data
        for arena in plan.arenas:
            for kind in get_args(Kind):
                if kind != "slots" or plan.has_slots:
                    yield f"{file} {arena.name} {kind}", str(still(plan, arena.name, kind, Sheet())).encode()


def store() -> Iterator[tuple[str, bytes]]:
    """What a store holds of some plans, as SQL, and what is told of it."""
    import sqlite3

    from tests.support.golden import SAMPLES, sample_files

    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/s.db"
        for k, stem in enumerate(TAKEN_AWAY):
            (file,) = [str(SAMPLES / file) for file in sample_files() if file.split(".")[0] == stem]
            asked = ["record", file, "--store", url, "--as", f"m@{k}", "--at", AT.replace("03", f"{k:02}")]
            yield from ((name, data.replace(folder.encode(), b"FOLDER")) for name, data in _ran(f"record {k}", asked))
        for asked in (["history", "m"], ["history", "m", "--json"], ["history"]):
            for name, data in _ran(" ".join(asked), [*asked, "--store", url]):
                yield name, data.replace(folder.encode(), b"FOLDER")
        with contextlib.closing(sqlite3.connect(f"{folder}/s.db")) as held:
            yield "rows", "\n".join(held.iterdump()).encode()


def refusals() -> Iterator[tuple[str, bytes]]:
    """What is said of damaged files, and what is read of them all the same; and of ends that Python itself has."""
    from tests.support.refusal_table import readers, refusals_of
    from tmmu_core.base.errors import TmmuError
    from tmmu_core.formats.open_file import read_any
    from tmmu_core.plans.making.request_options import option_pairs, read_json_object

    for reader in readers():
        yield reader, "\n".join(refusals_of(reader)).encode()
    asked: dict[str, Callable[[], Any]] = {}
    for text in ("[1,]", '{"a":1,}', "{'a':1}", '{"a":NaN}', '{"a":' + "9" * 5000 + "}", "{", '"\\ud800"', '{"a" 1}'):
        asked[f"object {text[:20]}"] = partial(read_json_object, text, "thing")
        asked[f"option {text[:20]}"] = partial(option_pairs, [f"x={text}"])
        asked[f"file {text[:20]}"] = partial(read_any, text.encode(), "g.json")
    for depth in (100, 190, 210, 900, 2_000, 9_000, 100_000):
        for name, (head, left, right, tail) in NESTED.items():
            text = head + left * depth + right * depth + tail
            asked[f"{name} {depth}"] = partial(read_any, text.encode(), "g.json")
            asked[f"{name} {depth} as an option"] = partial(option_pairs, [f"x={text}"])
    for name, ask in asked.items():
        try:
            yield name, repr(ask()).encode("utf-8", "backslashreplace")
        except TmmuError as error:
            yield name, str(error).encode("utf-8", "backslashreplace")


PARTS: dict[str, Callable[[], Iterator[tuple[str, bytes]]]] = {
    "plans": plans,
    "commands": commands,
    "pictures": pictures,
    "store": store,
    "refusals": refusals,
}
"""Where an output's name begins with the part's."""


def asked_of(python: str, parts: Sequence[str] = (), seed: int = 0) -> Made:
    """What the interpreter ``python`` makes, in a process of its own, under this hash seed."""
    setting = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": str(seed), "COLUMNS": "80", "NO_COLOR": "1"}
    command = [python, "-m", "tests.support.versions", "--made", *parts]
    ran = subprocess.run(command, cwd=ROOT, env=setting, stdout=subprocess.PIPE, check=True)
    version, digests = json.loads(ran.stdout.splitlines()[-1])
    return Made(version, digests)


def main(given: Sequence[str]) -> int:
    """Say what differs; with ``--made``, what this interpreter makes."""
    if given and given[0] == "--made":
        digests = {name: sha256(data).hexdigest() for name, data in outputs(given[1:])}
        print(json.dumps([".".join(map(str, sys.version_info[:3])), digests]))
        return 0
    here = asked_of(sys.executable)
    print(f"{here.python}: {len(here.digests)} outputs", flush=True)
    found = 0
    for seed, python in enumerate(given, start=1):
        there = asked_of(python, seed=seed)
        lines = differences(here, there)
        found += len(lines)
        print("\n".join([*lines, f"{there.python}: {len(lines)} of {len(there.digests)} outputs differ"]), flush=True)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
