"""The server's process: Streamlit as ``streamlit run`` starts it, which ends without a word when it is interrupted.

Streamlit's own command says ``Aborted!`` then, with the exit code of a failure.
"""

from __future__ import annotations

import sys
from pathlib import Path

INTERRUPTED = 130


def serve(arguments: list[str]) -> int:
    """Run Streamlit's command line until it ends; the exit code."""
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
    own = Path(__file__).resolve().parent  # its modules go by the names of their package
    sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != own]
    sys.exit(serve(sys.argv[1:]))
