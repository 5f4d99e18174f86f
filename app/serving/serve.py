"""The server process: ``streamlit run`` without the message ``Aborted!`` after Ctrl-C."""

from __future__ import annotations

import sys
from pathlib import Path

INTERRUPTED = 130


def serve(arguments: list[str]) -> int:
    """Run Streamlit's command line and return its exit code."""
    from click import Abort, ClickException
    from streamlit.web.cli import main

    try:
        main(arguments, prog_name="streamlit", standalone_mode=False)
    except ClickException as error:
        error.show()
        return error.exit_code
    except (Abort, KeyboardInterrupt):
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    own = Path(__file__).resolve().parent  # modules are imported by their package
    sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != own]
    sys.exit(serve(sys.argv[1:]))
