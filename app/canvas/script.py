"""The canvas script: the modules of ``js/`` as one text, the very same for the explorer and for the report.

The modules are plain JavaScript that a browser or a linter reads as it is. To travel inside a page without a network
they are joined here, each in a scope of its own: ``import { a } from "./b.js"`` reads what that module left behind.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

ENTRY = "tmmuCanvas"
"""The one name the script leaves behind: an object with ``decode, keep, show, streamlit``."""
DOOR = "page.js"
"""The module whose exports are that object."""

_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w.]+)";\n', re.M)
_NAMED = re.compile(r"^export (?=(?:async )?(?:const|function|class) (\w+))", re.M)
_LIST = re.compile(r"^export \{([^}]*)\};\n", re.M)


@cache
def canvas_script() -> str:
    """Plain JavaScript that defines ``globalThis.tmmuCanvas`` (once: a second run finds the first's plans)."""
    body = "\n".join(_scoped(name, text) for name, text in ordered(sources()))
    return f'globalThis.{ENTRY} ??= (() => {{\n"use strict";\n{body}\nreturn {_variable(DOOR)};\n}})();\n'


def sources() -> dict[str, str]:
    """The modules by file name."""
    parts = (files(__package__) / "js").iterdir()
    return {part.name: part.read_text(encoding="utf-8") for part in parts if part.name.endswith(".js")}


def ordered(modules: dict[str, str]) -> list[tuple[str, str]]:
    """The modules that the door needs, each after those that it imports. ``ValueError`` where they go in a circle."""
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

    visit(DOOR)
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
