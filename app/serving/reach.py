"""Environment variables of access control, and the check for loopback addresses."""

from __future__ import annotations

import ipaddress

TOKEN, PROXY_HEADER = "TMMU_TOKEN", "TMMU_PROXY_HEADER"
"""Environment variables: access token; header that an authenticating proxy sets."""


def is_here(host: str) -> bool:
    """Return whether a host name or address is loopback."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
