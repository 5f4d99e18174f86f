import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from app.cli.commands.explore import arguments
from app.cli.main import run
from tests.support.paths import SAMPLES
from tests.support.served import free_port

CHAIN = str(SAMPLES / "linear_chain.tmmu.json")


def healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://localhost:{port}/_stcore/health", timeout=2) as answer:
            return bool(answer.read() == b"ok")
    except (urllib.error.URLError, OSError):
        return False


def test_files_are_passed_to_the_app() -> None:
    command = arguments(["/a.json", "/b.json"], True, 9000, "localhost")
    assert command[command.index("--") + 1 :] == ["/a.json", "/b.json"]
    assert command[command.index("--server.port") + 1] == "9000"
    assert command[command.index("--server.headless") + 1] == "true"


@pytest.mark.slow
def test_explorers_that_start_together_listen_on_different_ports() -> None:
    command = [sys.executable, "-m", "app.cli.main", "explore", CHAIN, "--no-browser"]
    servers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        addresses = [server.stdout.readline().split()[3] for server in servers if server.stdout]
        assert len(set(addresses)) == 2
        assert all(healthy(int(address.rpartition(":")[2])) for address in addresses)
    finally:
        for server in servers:
            server.terminate()
            server.wait(30)


@pytest.mark.parametrize("has_snapshot", [False, True])
def test_folder_of_snapshots_can_be_opened(
    has_snapshot: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if has_snapshot:
        (tmp_path / "job_rank0.json").write_text('{"segments": [], "device_traces": [[]]}')
    with socket.socket() as held:
        held.bind(("localhost", 0))
        held.listen()
        assert run(["explore", str(tmp_path), "--no-browser", "--port", str(held.getsockname()[1])]) == 2
    assert ("is in use" if has_snapshot else "has no XLA dump and no PyTorch snapshots") in capsys.readouterr().err


def test_named_port_that_is_taken_is_reported_first(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as held:
        held.bind(("localhost", 0))
        held.listen()
        taken: int = held.getsockname()[1]
        assert run(["explore", CHAIN, "--no-browser", "--port", str(taken)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"tmmu: port {taken} is in use at localhost. Set another --port")


@pytest.mark.slow
def test_explorer_runs_until_it_is_stopped() -> None:
    port = free_port()
    command = [sys.executable, "-m", "app.cli.main", "explore", CHAIN, "--no-browser", "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(240):
            if healthy(port) or server.poll() is not None:
                break
            time.sleep(0.25)
        assert healthy(port)
    finally:
        server.terminate()
        server.wait(30)
    assert not healthy(port)
