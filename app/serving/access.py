"""Settings of the access control, for the command line and the server."""

import ipaddress

TOKEN, PROXY_HEADER = "TMMU_TOKEN", "TMMU_PROXY_HEADER"
"""Names of the environment variables with the access token, and with the header that an authenticating proxy sets."""


def is_loopback(host: str) -> bool:
    """Return whether ``host`` is ``localhost`` or a loopback address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
