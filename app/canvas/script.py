"""The canvas script: the modules below ``js/`` joined into one text, for the explorer and for the report.

The modules are plain JavaScript that a browser or a linter reads as it is. Each becomes a function scope, so that the
result works inside a page without a network. Module names are unique, whatever their folder.
"""

import json
import re
from functools import cache
from importlib.resources import files
from pathlib import Path

ENTRY = "tmmuCanvas"
"""Global name of the plan script: an object with ``decode, keep, show, streamlit``."""
PLAN_MODULE = "page.js"
"""The module whose exports are that object."""
WALK_ENTRY, WALK_MODULE = "tmmuWalk", "graph_chart.js"
"""The same for the graph drawing, a separate script that reports do not need."""
VIEWER_ENTRY, VIEWER_MODULE = "tmmuViewer", "viewer.js"
"""The same for the page that opens plan files without a server."""
WORKER = "worker.js"
"""A generated module: the text of the layout worker."""
WORKER_MODULES = ("layout.js", "worker_main.js")
"""The modules that run in the worker, after the layout library."""
LAYOUT = "dagre.min.js"
"""The layout library as published, with its licence in the same folder (``docs/decisions/03-one-canvas.md``)."""

_IMPORT = re.compile(r'^import \{([^}]*)\} from "\.[\w./]*/(\w+\.js)";\n', re.M)
_NAMED = re.compile(r"^export (?=(?:async )?(?:const|function|class) (\w+))", re.M)
_LIST = re.compile(r"^export \{([^}]*)\};\n", re.M)


@cache
def canvas_script() -> str:
    """Return JavaScript that defines ``globalThis.tmmuCanvas``; a second run keeps the first object."""
    return _joined(ENTRY, PLAN_MODULE)


@cache
def walk_script() -> str:
    """Return JavaScript that defines ``globalThis.tmmuWalk``."""
    return _joined(WALK_ENTRY, WALK_MODULE)


@cache
def viewer_script() -> str:
    """Return JavaScript that defines ``globalThis.tmmuViewer``: ``open`` a file in the page."""
    return _joined(VIEWER_ENTRY, VIEWER_MODULE)


def _joined(entry: str, module: str) -> str:
    body = "\n".join(_scoped(name, text) for name, text in ordered(sources(), module))
    return f'globalThis.{entry} ??= (() => {{\n"use strict";\n{body}\nreturn {_variable(module)};\n}})();\n'


def sources() -> dict[str, str]:
    """Return the text of each module by file name."""
    paths = Path(str(files(__package__) / "js")).rglob("*.js")
    found = {path.name: path.read_text(encoding="utf-8") for path in paths}
    worker = "\n".join([library(), *(_NAMED.sub("", found[name]) for name in WORKER_MODULES)])
    return {**found, WORKER: f"export const WORKER = {json.dumps(worker)};\n"}


def library() -> str:
    """Return the text of the layout library."""
    return (files(__package__) / "vendor" / LAYOUT).read_text(encoding="utf-8")


def ordered(modules: dict[str, str], module: str = PLAN_MODULE) -> list[tuple[str, str]]:
    """Return the modules that ``module`` needs, each after its imports. Raises ``ValueError`` for an import cycle."""
    done: dict[str, str] = {}
    open_: list[str] = []

    def visit(name: str) -> None:
        if name in done:
            return
        if name in open_:
            raise ValueError(f"these modules import one another: {' → '.join([*open_, name])}")
        open_.append(name)
        for _, needed in _IMPORT.findall(modules[name]):
            visit(needed)
        done[open_.pop()] = modules[name]

    visit(module)
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
