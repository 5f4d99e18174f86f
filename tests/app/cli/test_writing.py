"""A file is written as a whole or not at all."""

import itertools
import os
import resource
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from tests.support.paths import SAMPLES
from tmmu_core.base.atomic_files import replace_file

CHAIN = str(SAMPLES / "linear_chain.tmmu.json")


def tmmu(*arguments: str, out: str = "/dev/null", most: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command in a process whose files cannot grow beyond ``most`` bytes."""
    code = "import signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); from app.cli.main import main; main()"
    with open(out, "w") as sink:
        return subprocess.run(
            [sys.executable, "-c", code, *arguments],
            stdout=sink,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=None if most is None else lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
        )


@pytest.mark.slow
def test_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("precious")
    done = tmmu("plan", CHAIN, "-o", str(tmp_path / "plan.json"), most=1024)
    assert (done.returncode, "file too large" in done.stderr) == (2, True)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("plan.json", "precious")]


@pytest.mark.slow
@pytest.mark.parametrize("how", [(), ("--json",), ("-o", "-")])
def test_full_standard_output_is_reported(how: tuple[str, ...]) -> None:
    done = tmmu("plan", CHAIN, *how, out="/dev/full")
    assert (done.returncode, done.stderr.count("standard output cannot be written"), "Traceback" in done.stderr) == (
        2,
        1,
        False,
    )


def test_replaced_file_keeps_its_mode_and_link(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    (tmp_path / "old").chmod(0o640)
    (tmp_path / "link").symlink_to("old")
    replace_file(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "old").read_text() == "new"
    assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == 0o640


def test_device_or_pipe_is_written_in_place(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        replace_file(tmp_path / "pipe", b"gone")
        assert os.read(reader, 99) == b"gone"
        assert (tmp_path / "pipe").is_fifo()
    finally:
        os.close(reader)


@pytest.mark.slow
def test_killed_writer_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    file, texts = tmp_path / "plan.json", (b"a" * 300_000, b"b" * 300_000)
    file.write_bytes(texts[0])
    random = Random(7)
    for _ in range(200):
        writer = os.fork()
        if not writer:
            for k in itertools.count():
                replace_file(file, texts[k % 2])
        time.sleep(random.uniform(0, 0.02))
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        assert file.read_bytes() in texts


@pytest.mark.slow
def test_concurrent_writers_in_one_folder_do_not_interfere(tmp_path: Path) -> None:

    def write(me: int) -> None:
        for k in range(200):
            replace_file(tmp_path / f"{me}.json", f"{me} {k}".encode())
            assert (tmp_path / f"{me}.json").read_text() == f"{me} {k}"

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{me}.json" for me in range(8)]


def test_unwritable_folder_keeps_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text("precious")
    file.chmod(0o666)
    tmp_path.chmod(0o555)
    other = os.fork()
    if not other:  # root may write anywhere
        try:
            if os.getuid() == 0:
                os.setuid(65534)
            replace_file(file, b"new")
        except PermissionError:
            os._exit(7)
        finally:
            os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(other, 0)[1])
    tmp_path.chmod(0o755)
    assert (code, file.read_text()) == (7, "precious")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[tuple[Path, int | None]]:
    """Yield a file system of 1 MiB with 64 KiB free, or a limit on file sizes where none can be mounted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)], capture_output=True)
    if mounted.returncode == 0:
        (disk / "filler").write_bytes(bytes(960 << 10))
    yield disk, None if mounted.returncode == 0 else 64 << 10
    if mounted.returncode == 0:
        subprocess.run(["umount", str(disk)], check=True)


LARGE = str(SAMPLES / "llama3_8b_train_b1_s2048.tmmu.cbor.gz")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("plan", LARGE, "-o"), "plan.json"),
        (("trace", LARGE, "-o"), "trace.jsonl"),
        (("report", LARGE, "-o"), "report.html"),
        (("checkpoint", LARGE, "-o"), "checkpoint.cbor"),
        (("export", LARGE, "--to", "csv", "-o"), "plan.csv"),
        (("convert", LARGE, "-o"), "graph.tmmu.json"),
    ],
)
def test_full_disk_keeps_the_old_files(
    command: tuple[str, ...], name: str, small_disk: tuple[Path, int | None]
) -> None:
    disk, most = small_disk
    (disk / name).write_text("precious")
    done = tmmu(*command, str(disk / name), most=most)
    assert done.returncode == 2, done.stderr
    assert "cannot be written" in done.stderr
    (disk / "filler").unlink(missing_ok=True)
    assert [(path.name, path.read_text()) for path in disk.iterdir()] == [(name, "precious")]


@pytest.mark.parametrize("closed", ["file", "folder"])
def test_read_only_file_or_folder_is_not_written(closed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = (tmp_path / "plan.json").resolve()
    file.write_text("precious")
    shut = file if closed == "file" else file.parent
    monkeypatch.setattr(os, "access", lambda path, _: path != shut)
    with pytest.raises(PermissionError):
        replace_file(file, b"new")
    assert file.read_text() == "precious"
    replace_file(tmp_path / "another.json", b"new")  # a new file needs no check
