"""Start a server and a browser for measurements."""

import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
HOST = "127.0.0.1"


@contextmanager
def served(command: Callable[[str, int], list[str]]) -> Iterator[str]:
    """Start the server of ``command(host, port)`` on a free port, yield its address, and end it after the block."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    running = subprocess.Popen(command(HOST, port), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://{HOST}:{port}"
    try:
        while True:
            assert running.poll() is None, "the server ended"
            try:
                urllib.request.urlopen(f"{address}/_stcore/health", timeout=1).close()
                break
            except OSError:
                time.sleep(0.2)
        yield address
    finally:
        running.terminate()
        running.wait(10)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Yield the Chromium of the system in headless mode."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()
