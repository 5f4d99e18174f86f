"""The canvas script: the modules of ``js/`` as one text, the very same for the explorer and for the report.

The modules are plain JavaScript that a browser or a linter reads as it is. To travel inside a page without a network
they are joined here, each in a scope of its own: ``import { a } from "./b.js"`` reads what that module left behind.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files

ENTRY = "tmmuCanvas"
"""The one name the script leaves behind: an object with ``decode, keep, show, streamlit``."""
DOOR = "page.js"
"""The module whose exports are that object."""
WALK_ENTRY, WALK_DOOR = "tmmuWalk", "walk.js"
"""The same for the graph that is walked; a script of its own, for reports have no use for it."""
WORKER = "worker.js"
"""A module made here: the text of the worker that lays graphs out, with the library that does it."""
LAYOUT = "dagre.min.js"
"""The library, as its authors publish it, with its licence beside it (``docs/decisions/0093-walking-the-graph.md``)."""

_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w.]+)";\n', re.M)
_NAMED = re.compile(r"^export (?=(?:async )?(?:const|function|class) (\w+))", re.M)
_LIST = re.compile(r"^export \{([^}]*)\};\n", re.M)


@cache
def canvas_script() -> str:
    """Plain JavaScript that defines ``globalThis.tmmuCanvas`` (once: a second run finds the first's plans)."""
    return _joined(ENTRY, DOOR)


@cache
def walk_script() -> str:
    """Plain JavaScript that defines ``globalThis.tmmuWalk``."""
    return _joined(WALK_ENTRY, WALK_DOOR)


def _joined(entry: str, door: str) -> str:
    body = "\n".join(_scoped(name, text) for name, text in ordered(sources(), door))
    return f'globalThis.{entry} ??= (() => {{\n"use strict";\n{body}\nreturn {_variable(door)};\n}})();\n'


def sources() -> dict[str, str]:
    """The modules by file name."""
    parts = (files(__package__) / "js").iterdir()
    found = {part.name: part.read_text(encoding="utf-8") for part in parts if part.name.endswith(".js")}
    return {**found, WORKER: f"export const WORKER = {json.dumps(_worker(found))};\n"}


def library() -> str:
    """The layout library's text."""
    return (files(__package__) / "vendor" / LAYOUT).read_text(encoding="utf-8")


def _worker(modules: dict[str, str]) -> str:
    """What the worker runs: the library, what asks it, and who answers the page."""
    return f"{library()}\n{_NAMED.sub('', modules['arrange.js'])}\n{modules['answer.js']}"


def ordered(modules: dict[str, str], door: str = DOOR) -> list[tuple[str, str]]:
    """The modules that a door needs, each after those that it imports. ``ValueError`` where they go in a circle."""
    done: dict[str, str] = {}
    under_way: list[str] = []

    def visit(name: str) -> None:
        if name in done:
            return
        if name in under_way:
            raise ValueError(f"these modules import one another: {' → '.join([*under_way, name])}")
        under_way.append(name)
        for _, needed in _IMPORT.findall(modules[name]):
            visit(needed)
        done[under_way.pop()] = modules[name]

    visit(door)
    return list(done.items())


def _scoped(name: str, text: str) -> str:
    exported = [*_NAMED.findall(text)]
    for listed in _LIST.findall(text):
        exported += [part.strip() for part in listed.split(",") if part.strip()]
    body = _IMPORT.sub(lambda found: f"const {{{found[1]}}} = {_variable(found[2])};\n", text)
    body = _LIST.sub("", _NAMED.sub("", body))
    return f"const {_variable(name)} = (() => {{\n{body}\nreturn {{ {', '.join(exported)} }};\n}})();"


def _variable(module: str) -> str:
    return f"in_{module.removesuffix('.js')}"
