"""``tmmu explore``: the explorer in the browser."""

from __future__ import annotations

import errno
import os
import secrets
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from app.cli.console import STREAM, UsageFault
from app.cli.options import modules_in
from app.cli.stores import VARIABLE, StoreUrl, open_store
from app.serving.reach import PROXY_HEADER, TOKEN, is_here
from tmmu_core.extras import require

FIRST_PORT = 8501
BASE_PATH = "TMMU_BASE_PATH"
"""The environment variable that says the path where no option does."""
MAIN = Path(__file__).resolve().parents[1] / "main.py"
SERVE = MAIN.parent / "serving" / "serve.py"

Files = Annotated[
    list[str] | None, typer.Argument(metavar="[FILE]...", help="Graphs, plans, traces, instances or XLA dumps to open.")
]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Serve, and open no browser.")]
Port = Annotated[int | None, typer.Option(min=1, max=65535, help="The port to serve on [8501, or the next free].")]
BasePath = Annotated[
    str,
    typer.Option("--base-path", metavar="PATH", help=f"The path under which a reverse proxy serves it [{BASE_PATH}]."),
]
Address = Annotated[
    str, typer.Option(metavar="HOST", help="The address to serve on; others than this machine's own ask for a token.")
]


def command(
    files: Files = None,
    no_browser: NoBrowser = False,
    port: Port = None,
    address: Address = "localhost",
    base_path: BasePath = "",
    store: StoreUrl = None,
) -> int:
    """Open the explorer on the files named, or on a sample. Stop it with Ctrl-C."""
    names = [str(Path(name).resolve()) for name in files or () if name != STREAM]
    if len(names) != len(files or ()):
        raise UsageFault("the explorer reads no standard input.", "Name files, or open them in the browser.")
    for name in names:
        if os.path.isdir(name):
            if not modules_in(Path(name)):
                raise UsageFault(f"{name} is a folder, and no XLA dump.", "Name the files in it.")
        elif not os.path.isfile(name):
            raise UsageFault(f"there is no file {name}.", "Check the name.")
    require("streamlit", "the explorer")
    if store or os.environ.get(VARIABLE):
        open_store(store, create=True).close()  # what is wrong with it is told here, not on every page
        os.environ[VARIABLE] = store or os.environ[VARIABLE]
    path = (base_path or os.environ.get(BASE_PATH, "")).strip("/")
    if path:
        os.environ["STREAMLIT_SERVER_BASE_URL_PATH"] = path
    if port is None:
        port = free_port(address)
    elif not is_free(address, port):
        raise UsageFault(f"port {port} is in use at {address}.", "Name another --port, or none for the next free one.")
    else:
        _called_for(port)
    token = os.environ.get(TOKEN, "")
    if not (token or os.environ.get(PROXY_HEADER) or is_here(address)):
        token = os.environ[TOKEN] = secrets.token_urlsafe(16)
    rest = ("/" + path if path else "") + (f"/?token={token}" if token else "")
    print(f"TMMU Plan Explorer: http://{address}:{port}{rest}  (Ctrl-C stops it)", flush=True)
    # Replaced, not called: whoever stops this process stops the server.
    os.execv(sys.executable, arguments(names, no_browser, port, address))


def free_port(address: str, first: int = FIRST_PORT) -> int:
    """The first port from ``first`` on that nobody listens on at ``address``, and that no other of us is about to."""
    for port in range(first, 65536):
        if _called_for(port) and is_free(address, port):
            return port
    raise UsageFault("every port is taken.", "Name one with --port.")


def is_free(address: str, port: int) -> bool:
    """Whether nobody listens on a port. Raises :class:`UsageFault` for an address at which nothing can be served."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise UsageFault(f"nothing can be served at {address}: {error}.", _way_out(error)) from None
    return True


def _way_out(error: OSError) -> str:
    return "Name a --port of 1024 or more." if error.errno == errno.EACCES else "Name another --address."


def _called_for(port: int) -> bool:
    """Say, for as long as this process lives, that it will serve on a port; false where another said so.

    From here to where the server listens it is seconds, in which the next explorer would find the same port free.
    """
    with socket.socket(getattr(socket, "AF_UNIX", socket.AF_INET)) as mark:
        try:
            mark.bind(f"\0tmmu-explore-{port}")  # a name without a file, seen where the port is; Linux has such
        except (OSError, TypeError, ValueError) as error:
            return getattr(error, "errno", None) != errno.EADDRINUSE
        mark.set_inheritable(True)  # this process is replaced by the server
        mark.detach()
    return True


def arguments(names: list[str], no_browser: bool, port: int, address: str) -> list[str]:
    """The command that serves the explorer."""
    return [
        sys.executable,
        *(str(SERVE), "run", str(MAIN)),
        *("--server.port", str(port)),
        *("--server.address", address),
        *("--server.fileWatcherType", "none"),  # nobody edits the explorer while it runs
        *("--server.headless", "true" if no_browser else "false"),
        *("--server.showEmailPrompt", "false"),
        *("--browser.gatherUsageStats", "false"),
        # Streamlit's own greeting, on the terminal and on the page, is about building apps; ours says the address.
        *("--logger.hideWelcomeMessage", "true"),
        "--",
        *names,
    ]
