"""``tmmu``, and ``python -m tmmu_core``: the way to the command line, wherever that is installed."""

from __future__ import annotations

import sys

from tmmu_core import version_line
from tmmu_core.door import face


def main() -> None:
    """The console script. The version is said before anything is loaded."""
    if sys.argv[1:] == ["--version"]:
        print(version_line())
        return
    face("cli.main").main()


if __name__ == "__main__":
    main()
