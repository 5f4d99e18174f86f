"""``tmmu schema``: print the JSON Schemas of files and of ``--json`` output."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.console import SUCCESS, UsageError, print_lines, write_bytes
from tmmu_core.base import schemas, strict

Name = Annotated[str | None, typer.Argument(metavar="[NAME]", help="Schema name; omit to list all.")]


def command(name: Name = None) -> int:
    """Print a JSON Schema of a file or of --json output."""
    if name is None:
        print_lines(*(f"{known:<10}{schemas.title(known)}" for known in schemas.NAMES))
        return SUCCESS
    if name not in schemas.NAMES:
        raise UsageError(f"unknown schema {name!r}.", strict.closest_hint(name, schemas.NAMES))
    path: Path = schemas.file(name)
    write_bytes(path.read_bytes())
    return SUCCESS
