"""Join the JavaScript modules below ``js/`` into one script for the explorer, the report and the plan viewer.

Each module becomes the body of a function, so that the script works inline, without loading files. File names of
modules must be unique across folders.
"""

import json
import re
from functools import cache
from importlib.resources import files
from pathlib import Path

from app.texts import palette

PLAN, GRAPH, VIEWER = "tmmuCanvas", "tmmuGraph", "tmmuViewer"
MAIN_MODULES = {PLAN: "page.js", GRAPH: "graph_chart.js", VIEWER: "viewer.js"}
"""Global variable → the main module, whose exports are the value of the variable."""
PALETTE = "palette.js"  # generated module: the constants of app.texts.palette
WORKER = "worker.js"  # generated module: the script of the layout worker as a string
WORKER_MODULE = "layout.js"  # the module of the layout worker; it runs after the layout library
LIBRARY = "dagre.min.js"  # unchanged; its licence is in the same folder (docs/decisions/03-one-canvas.md)

_IMPORT = re.compile(r'^import \{([^}]*)\} from "\.[\w./]*/(\w+\.js)";\n', re.M)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:const|function|class) (\w+))", re.M)
_EXPORT_LIST = re.compile(r"^export \{([^}]*)\};\n", re.M)


@cache
def canvas_script(variable: str = PLAN) -> str:
    """Return JavaScript that sets a global variable of :data:`MAIN_MODULES` if it is not defined."""
    module = MAIN_MODULES[variable]
    body = "\n".join(_scoped(name, text) for name, text in ordered(sources(), module))
    return f'globalThis.{variable} ??= (() => {{\n"use strict";\n{body}\nreturn {_variable(module)};\n}})();\n'


def sources() -> dict[str, str]:
    """Return file name → text of each module, including the generated modules of the palette and of the worker."""
    paths = Path(str(files(__package__) / "js")).rglob("*.js")
    texts = {path.name: path.read_text(encoding="utf-8") for path in paths}
    worker = f"{library()}\n{_EXPORT.sub('', texts[WORKER_MODULE])}"
    colours = {name: value for name, value in vars(palette).items() if name.isupper()}
    constants = [f"export const {name} = {json.dumps(value)};\n" for name, value in colours.items()]
    return {**texts, PALETTE: "".join(constants), WORKER: f"export const WORKER = {json.dumps(worker)};\n"}


def library() -> str:
    """Return the script of the layout library."""
    return (files(__package__) / "vendor" / LIBRARY).read_text(encoding="utf-8")


def ordered(modules: dict[str, str], module: str) -> list[tuple[str, str]]:
    """Return ``(name, text)`` of ``module`` and of its direct and indirect imports, each module after its imports."""
    ordered_modules: dict[str, str] = {}

    def add(name: str) -> None:
        if name not in ordered_modules:
            for _, imported in _IMPORT.findall(modules[name]):
                add(imported)
            ordered_modules[name] = modules[name]

    add(module)
    return list(ordered_modules.items())


def _scoped(name: str, text: str) -> str:
    """Return JavaScript that declares a constant with the exports of a module. Imports become reads of constants."""
    exported = [*_EXPORT.findall(text)]
    for names in _EXPORT_LIST.findall(text):
        exported += [part.strip() for part in names.split(",") if part.strip()]
    body = _IMPORT.sub(lambda match: f"const {{{match[1]}}} = {_variable(match[2])};\n", text)
    body = _EXPORT_LIST.sub("", _EXPORT.sub("", body))
    return f"const {_variable(name)} = (() => {{\n{body}\nreturn {{ {', '.join(exported)} }};\n}})();"


def _variable(module: str) -> str:
    return f"in_{module.removesuffix('.js')}"
