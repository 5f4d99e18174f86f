"""``tmmu``, and ``python -m tmmu_core``: the way to the command line, wherever that is installed."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from tmmu_core import version_line
from tmmu_core.base.app_package import face


def main() -> None:
    """The console script. The version is said before anything is loaded."""
    if sys.argv[1:] == ["--version"]:
        with suppress(OSError, AttributeError):  # a standard output that cannot be written is the command line's affair
            os.write(sys.stdout.fileno(), f"{version_line()}\n".encode())
            return
    face("cli.main").main()


if __name__ == "__main__":
    main()
