"""Entry point of ``tmmu`` and ``python -m tmmu_core``."""

import os
import sys
from contextlib import suppress

from tmmu_core import version_line
from tmmu_core.base.app_package import app_module


def main() -> None:
    """Run the command line; for ``--version``, print the version without importing the command line."""
    if sys.argv[1:] == ["--version"]:
        with suppress(OSError, AttributeError):  # if standard output cannot be written, the command line reports it
            os.write(sys.stdout.fileno(), f"{version_line()}\n".encode())
            return
    try:
        app_module("cli.main").main()
    except KeyboardInterrupt:  # pressed during the imports; afterwards the command line handles the key
        sys.exit(130)


if __name__ == "__main__":
    main()
