"""Run the C loops under the address and undefined-behaviour sanitizers: ``python -m tests.planners.sanitized N``.

Needs gcc with libasan and libubsan. Prints the digest of the results, equal to ``python -m tests.planners.alike N 0``.
"""

import ctypes
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.tools.native_library import SOURCES
from tmmu_core.planners import native as loading
from tmmu_core.planners.native import FOLDER

FLAGS = ("-std=c11", "-O1", "-g", "-shared", "-fPIC", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
MARK = "TESTS_SANITIZED"


def main(count: int) -> None:
    """Compile the loops, restart under the sanitizers, and print the digest of the results."""
    if MARK not in os.environ:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "sanitized.so"
            sources = [str(FOLDER / name) for name in SOURCES if name.endswith(".c")]
            subprocess.run(["gcc", *FLAGS, "-o", str(path), *sources], check=True)
            names = [f"-print-file-name={name}.so" for name in ("libasan", "libubsan")]
            found = [
                subprocess.run(["gcc", n], capture_output=True, text=True, check=True).stdout.strip() for n in names
            ]
            more = {"LD_PRELOAD": ":".join(found), "ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc"}
            command = [sys.executable, "-m", "tests.planners.sanitized", str(count)]
            sys.exit(subprocess.run(command, env={**os.environ, **more, MARK: str(path)}).returncode)
    found = ctypes.CDLL(os.environ[MARK])
    loading.prebuilt = lambda: found  # type: ignore[assignment]
    from tests.planners.alike import answers

    lines = "".join(f"{json.dumps(answers(seed))}\n" for seed in range(count))
    assert loading.library() is found
    print(count, hashlib.sha256(lines.encode()).hexdigest())


if __name__ == "__main__":
    main(int(sys.argv[1]))
