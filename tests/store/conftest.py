"""Stores of each kind: SQLite in a file, and PostgreSQL in a schema of one server that the tests start."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest

SECONDS = 60
_numbers = count()


def _programs() -> Path | None:
    """Return the folder of PostgreSQL's server programs; on Debian it is not on the path."""
    found = [Path(p).parent for p in filter(None, [shutil.which("initdb")])]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: path.parent.name.zfill(4))
    return next((path for path in reversed(found) if (path / "initdb").exists()), None)


def _prefix() -> list[str]:
    """Return the prefix of PostgreSQL's commands, so that they end with the tests and do not run as root."""
    ending = ["setpriv", "--pdeathsig", "INT"]
    if os.geteuid() != 0:
        return ending
    return [*ending, "--reuid=postgres", "--regid=postgres", "--clear-groups"]


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Yield the folder of the socket of a server without network access and without fsync."""
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    folder = Path(tempfile.mkdtemp(prefix="tmmu-pg-"))
    if os.geteuid() == 0:
        user = pwd.getpwnam("postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)
    made = [programs / "initdb", "-D", folder / "data", "-U", "tmmu", "-A", "trust", "-E", "UTF8", "--no-sync"]
    subprocess.run([*_prefix(), *map(str, made), "--no-instructions"], check=True, capture_output=True)
    settings = {"listen_addresses": "", "unix_socket_directories": folder, "fsync": "off", "max_connections": 60}
    server = [str(programs / "postgres"), "-D", str(folder / "data")]
    server += [f"--{name}={value}" for name, value in settings.items()]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*_prefix(), *server], stdout=log, stderr=log, cwd=folder)
    until = time.monotonic() + SECONDS
    while True:
        try:
            psycopg.connect(host=str(folder), user="tmmu", dbname="postgres").close()
            break
        except psycopg.OperationalError:
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < until, (folder / "log").read_text()
            time.sleep(0.05)
    yield str(folder)
    process.send_signal(signal.SIGQUIT)  # immediate shutdown: the data are discarded
    process.wait(SECONDS)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store that does not exist yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    folder = request.getfixturevalue("postgres")
    schema = f"store_{next(_numbers)}"
    with psycopg.connect(host=folder, user="tmmu", dbname="postgres") as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
    return f"postgresql://tmmu@/postgres?host={folder}&options=-csearch_path%3D{schema}"
