"""``tmmu explore``: the explorer in the browser."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from app.cli.console import STREAM, UsageFault

MAIN = Path(__file__).resolve().parents[1] / "main.py"

Files = Annotated[
    list[str] | None, typer.Argument(metavar="[FILE]...", help="Graphs, plans, traces or instances to open.")
]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Serve, and open no browser.")]
Port = Annotated[int | None, typer.Option(min=1, max=65535, help="The port to serve on [8501, or the next free].")]
Address = Annotated[str, typer.Option(metavar="HOST", help="The address to serve on.")]


def command(
    files: Files = None,
    no_browser: NoBrowser = False,
    port: Port = None,
    address: Address = "localhost",
) -> int:
    """Open the explorer on the files named, or on a sample. Stop it with Ctrl-C."""
    names = [str(Path(name).resolve()) for name in files or () if name != STREAM]
    if len(names) != len(files or ()):
        raise UsageFault("the explorer reads no standard input.", "Name files, or open them in the browser.")
    for name in names:
        if not Path(name).is_file():
            raise UsageFault(f"there is no file {name}.", "Check the name.")
    # Replaced, not called: whoever stops this process stops the server.
    os.execv(sys.executable, arguments(names, no_browser, port, address))


def arguments(names: list[str], no_browser: bool, port: int | None, address: str) -> list[str]:
    """The command that serves the explorer."""
    return [
        sys.executable,
        *("-m", "streamlit", "run", str(MAIN)),
        *(("--server.port", str(port)) if port is not None else ()),
        *("--server.address", address),
        *("--server.headless", "true" if no_browser else "false"),
        *("--server.showEmailPrompt", "false"),
        *("--browser.gatherUsageStats", "false"),
        "--",
        *names,
    ]
