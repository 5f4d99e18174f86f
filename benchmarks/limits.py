"""Read files that attack the limits on time and memory: ``python -m benchmarks.limits [ATTACK …]``.

The command writes ``docs/measured/limits.md``. Each attack of ``tests/support/exhausting.py`` is a file that one
``tmmu`` process reads, with limits of 6 GiB of address space and 60 s of processor time. The processor time on the page
includes the start of the process, about half a second.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.serving import ROOT
from tests.support.exhausting import ATTACKS, Attack

PAGE = ROOT / "docs" / "measured" / "limits.md"
COMMAND = "import sys; from app.cli.main import run; sys.exit(run(sys.argv[1:]))"
ANSWERS = {0: "answered", 1: "a finding", 2: "refused", 3: "not comparable"}
HEAD = """# Attacks on memory and time

Written by `python -m benchmarks.limits`; `tests/formats/test_exhausting.py` runs smaller forms below 1 GiB. A row is
one file and one `tmmu` process. CPU seconds include its start (about half a second); memory is the resident
peak. A limit is raised with `--max-NAME N` or `TMMU_MAX_NAME=N`.

| attack | file, bytes | command | result | limit | CPU s | memory, MiB |
|---|---:|---|---|---|---:|---:|
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("attack", nargs="*", default=list(ATTACKS), help="names of attacks [all]")
    given = parser.parse_args()
    lines = []
    for name in given.attack:
        lines.append(row(ATTACKS[name]))
        print(lines[-1], flush=True)
    if given.attack == list(ATTACKS):
        PAGE.write_text(HEAD + "\n".join(lines) + "\n")


def row(attack: Attack) -> str:
    """Read the file of an attack in a process of its own, and return the row of the page."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"attack.{attack.ending}"
        file.write_bytes(attack.make(attack.size))
        command = [sys.executable, "-c", COMMAND, attack.command[0], str(file), *attack.command[1:]]
        with (Path(folder) / "err").open("wb") as err:
            process = subprocess.Popen(
                command,
                stdout=subprocess.DEVNULL,
                stderr=err,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                preexec_fn=_bounded,
            )
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        errors = (Path(folder) / "err").read_text(errors="replace")
        size = file.stat().st_size
    ended = ANSWERS.get(process.returncode, f"**{process.returncode}**")
    limit = f"`{attack.limit}`" if attack.limit and f"--max-{attack.limit} " in errors else ""
    seconds, memory = used.ru_utime + used.ru_stime, used.ru_maxrss // 1024
    return f"| {attack.what} | {size:,} | `{attack.command[0]}` | {ended} | {limit} | {seconds:.1f} | {memory} |"


def _bounded() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))


if __name__ == "__main__":
    main()
