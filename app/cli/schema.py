"""``tmmu schema``: the JSON Schemas of what goes in and out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.console import FINE, UsageFault, say, say_bytes
from tmmu_core import schemas

Name = Annotated[str | None, typer.Argument(metavar="[NAME]", help="Which; without a name they are listed.")]


def command(name: Name = None) -> int:
    """Write a JSON Schema: of graphs, plans, traces, error records and of what each --json writes."""
    if name is None:
        say(*(f"{known:<10}{schemas.title(known)}" for known in schemas.NAMES))
        return FINE
    if name not in schemas.NAMES:
        raise UsageFault(f"there is no schema {name!r}.", f"Schemas are: {', '.join(schemas.NAMES)}.")
    path: Path = schemas.file(name)
    say_bytes(path.read_bytes())
    return FINE
