"""``tmmu explore``: start the explorer."""

import errno
import os
import secrets
import socket
import sys
from pathlib import Path

from app.cli.console import STREAM, SUCCESS, UsageError, write_output
from app.cli.options import STORE, STORE_ENV, argument, flag, option
from app.cli.resolve import modules_in, open_store
from app.serving.access import PROXY_HEADER, TOKEN, is_loopback
from tmmu_core.base.errors import require
from tmmu_core.formats.pytorch.snapshot.torch_snapshot import snapshot_files

BASE_PATH = "TMMU_BASE_PATH"  # environment variable with the default of --base-path
MAIN = Path(__file__).resolve().parents[2] / "main.py"


def explore_command(
    files: list[str] | None = argument("Graphs, plans, traces, instances, XLA dumps, snapshot folders.", "FILE", None),
    port: int | None = option("Port [8501, or the next free port].", "N", min=1, max=65535),
    address: str = option(
        f"Address to listen on. A non-local address requires a token [${TOKEN}, or a random one] or ${PROXY_HEADER}.",
        "HOST",
        default="localhost",
    ),
    base_path: str = option(f"URL path behind a reverse proxy [${BASE_PATH}].", "PATH", default=""),
    no_browser: bool = flag("--no-browser", "Do not open a browser."),
    store: str | None = STORE,
    viewer: str | None = option("Write a page that opens plans and review files without a server, and stop.", "FILE"),
) -> int:
    """Open the explorer in the browser, with these files or a sample. Ctrl-C stops it."""
    if viewer is not None and files:
        raise UsageError("--viewer writes a page without files.", "Omit the files, and open them in the page.")
    if viewer is not None:
        from app.report.html_report import viewer_page

        write_output(viewer, viewer_page(), "the page")
        return SUCCESS
    names = [str(Path(name).resolve()) for name in files or () if name != STREAM]
    if len(names) != len(files or ()):
        raise UsageError("the explorer cannot read standard input.", "Pass file names, or open files in the browser.")
    for name in names:
        if os.path.isdir(name):
            if not (modules_in(Path(name)) or snapshot_files(Path(name))):
                raise UsageError(f"the folder {name} has no XLA dump and no PyTorch snapshots.", "Pass single files.")
        elif not os.path.isfile(name):
            raise UsageError(f"file not found: {name}.", "Check the name.")
    require("streamlit", "the explorer")
    if store or os.environ.get(STORE_ENV):
        open_store(store, create=True).close()  # report an error here instead of on every page
        os.environ[STORE_ENV] = store or os.environ[STORE_ENV]
    if path := (base_path or os.environ.get(BASE_PATH, "")).strip("/"):
        os.environ["STREAMLIT_SERVER_BASE_URL_PATH"] = path
    if not is_free(address, port or 0):  # with 0, only the address is checked
        raise UsageError(f"port {port} is in use at {address}.", "Set another --port, or omit it for a free port.")
    if not (os.environ.get(TOKEN) or os.environ.get(PROXY_HEADER) or is_loopback(address)):
        os.environ[TOKEN] = secrets.token_urlsafe(16)
    # With exec, signals to this process reach the server.
    os.execv(sys.executable, arguments(names, no_browser, port, address))


def is_free(address: str, port: int) -> bool:
    """Return whether a port is free. Raises :class:`UsageError` if the address or the port cannot be used."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            hint = "Use another --address, or a --port of 1024 or more."
            raise UsageError(f"cannot listen on {address}: {error}.", hint) from None
    return True


def arguments(names: list[str], no_browser: bool, port: int | None, address: str) -> list[str]:
    """Return the command line of the server. Without a port, the server uses the first free port from 8501 on."""
    return [
        *(sys.executable, "-P"),  # import no modules from the current folder
        *("-m", "streamlit", "run", str(MAIN)),
        *([] if port is None else ["--server.port", str(port)]),
        *("--server.address", address),
        *("--server.fileWatcherType", "none"),  # the source files do not change
        *("--runner.postScriptGC", "false"),  # a full collection after each click takes longer than the click
        *("--server.headless", "true" if no_browser else "false"),
        *("--server.showEmailPrompt", "false"),
        *("--browser.gatherUsageStats", "false"),
        *("--logger.hideWelcomeMessage", "true"),  # the message is for app developers
        "--",
        *names,
    ]
