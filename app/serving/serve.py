"""The server process: Streamlit's command line, with exit code 130 after Ctrl-C."""

import ipaddress
import sys

INTERRUPTED = 130
TOKEN, PROXY_HEADER = "TMMU_TOKEN", "TMMU_PROXY_HEADER"
"""Names of the environment variables with the access token, and with the header that an authenticating proxy sets."""


def is_loopback(host: str) -> bool:
    """Return whether ``host`` is ``localhost`` or a loopback address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serve(arguments: list[str]) -> int:
    """Run Streamlit's command line and return its exit code; Ctrl-C ends it without the message ``Aborted!``."""
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
