"""Entry point of ``tmmu`` and ``python -m tmmu_core``."""

import os
import sys
from contextlib import suppress

from tmmu_core import version_line
from tmmu_core.base.app_package import app_module


def main() -> None:
    """Run the console script; ``--version`` needs no other imports."""
    if sys.argv[1:] == ["--version"]:
        with suppress(OSError, AttributeError):  # the command line reports an unwritable standard output
            os.write(sys.stdout.fileno(), f"{version_line()}\n".encode())
            return
    try:
        app_module("cli.main").main()
    except KeyboardInterrupt:  # during the imports; the command line handles a later one
        sys.exit(130)


if __name__ == "__main__":
    main()
