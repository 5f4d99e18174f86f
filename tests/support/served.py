"""The explorer as a server of its own, and visitors without a browser: a tab is a websocket."""

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import ClientConnection, connect

from app.cli.commands.explore import is_free
from tests.support.paths import ROOT

MAIN = ROOT / "app" / "main.py"
SECONDS = 120


@dataclass(frozen=True)
class Served:
    """A server that runs."""

    process: subprocess.Popen[bytes]
    port: int

    @property
    def address(self) -> str:
        """Its address."""
        return f"http://localhost:{self.port}"


FIRST_PORT = 21_000
"""The system gives higher ports to clients. A browser could get one between the check and the start of a server."""


def free_port() -> int:
    """Return a free port. Each worker has a range of its own, because a server takes seconds to bind its port."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return next(port for port in range(FIRST_PORT + 1000 * worker, 65536) if is_free("localhost", port))


@contextmanager
def served(folder: Path, options: Sequence[str] = (), setting: Mapping[str, str] | None = None) -> Iterator[Served]:
    """Run ``streamlit run app/main.py`` from ``folder`` until the block ends."""
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STREAMLIT_")}
    with (folder / f"{port}.log").open("wb") as log:
        command = [sys.executable, "-m", "streamlit", "run", str(MAIN), "--server.headless", "true"]
        process = subprocess.Popen(
            [*command, "--server.port", str(port), *options],
            cwd=folder,
            env={**environment, "HOME": str(folder), **(setting or {})},
            stdout=log,
            stderr=log,
        )
    try:
        until = time.monotonic() + SECONDS
        while status(f"http://localhost:{port}/_stcore/health") != 200:
            assert process.poll() is None, (folder / f"{port}.log").read_text()
            assert time.monotonic() < until, "the server did not come up"
            time.sleep(0.1)
        yield Served(process, port)
    finally:
        process.kill()
        process.wait(30)


def status(address: str, headers: Mapping[str, str] | None = None, method: str = "GET") -> int:
    """Return the HTTP status of an address; 0 without an answer."""
    asked = urllib.request.Request(address, headers=dict(headers or {}), method=method)
    try:
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


class Tab:
    """An open tab at a link."""

    def __init__(self, server: Served, headers: Mapping[str, str] | None = None, **query: str) -> None:
        self._open = connect(
            f"ws://localhost:{server.port}/_stcore/stream",
            additional_headers=dict(headers or {}),
            subprotocols=["streamlit"],  # type: ignore[list-item]
            max_size=None,
            open_timeout=SECONDS,
            ping_interval=None,
            max_queue=None,  # a client that does not read still replies, as a tab does
        )
        self.line: ClientConnection = self._open.__enter__()
        self.ask(**query)

    def ask(self, **query: str) -> None:
        """Ask for the page at a link."""
        asked = BackMsg()
        asked.rerun_script.query_string = urlencode(query)
        self.line.send(asked.SerializeToString())

    def drawn(self, seconds: float = SECONDS) -> str:
        """Wait for the end of the script and return the HTML of the page."""
        found: list[str] = []
        until = time.monotonic() + seconds
        while True:
            message = ForwardMsg()
            message.ParseFromString(self.line.recv(timeout=max(0.0, until - time.monotonic())))  # type: ignore[arg-type]
            kind = message.WhichOneof("type")
            if kind == "delta" and message.delta.new_element.WhichOneof("type") == "html":
                found.append(message.delta.new_element.html.body)
            if kind == "script_finished" and found:
                return "\n".join(found)

    def close(self) -> None:
        """Close the tab."""
        with suppress(OSError):
            self._open.__exit__(None, None, None)


def descendants(process: int) -> set[int]:
    """Return the processes below a process."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                parents[int(stat.parent.name)] = int(parent)
    found = {process}
    while more := {one for one, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {process}


def resident(process: int) -> int:
    """Return the resident bytes of a process."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def until(fact, seconds: float = SECONDS) -> bool:  # type: ignore[no-untyped-def]
    """Return whether a condition becomes true before the time limit."""
    end = time.monotonic() + seconds
    while not (true := fact()) and time.monotonic() < end:
        time.sleep(0.05)
    return bool(true)
