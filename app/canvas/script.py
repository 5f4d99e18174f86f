"""The canvas script: the rooms of ``js/`` in one scope, the very same text for the explorer and for the report."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

ENTRY = "tmmuCanvas"
"""The one name the script leaves behind: an object with ``decode, keep, show, streamlit``."""


@cache
def canvas_script() -> str:
    """Plain JavaScript that defines ``globalThis.tmmuCanvas`` (once: a second run finds the first's plans)."""
    rooms = sorted((part for part in (files("app.canvas") / "js").iterdir() if part.name.endswith(".js")), key=_name)
    body = "\n".join(part.read_text(encoding="utf-8") for part in rooms)
    return f'globalThis.{ENTRY} ??= (() => {{\n"use strict";\n{body}\n}})();\n'


def _name(part: object) -> str:
    return str(getattr(part, "name", ""))
