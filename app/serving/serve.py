"""The server process: ``streamlit run`` without the message ``Aborted!`` after Ctrl-C."""

from __future__ import annotations

import sys

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
    sys.exit(serve(sys.argv[1:]))
