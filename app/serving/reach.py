"""From where the explorer can be reached: what its server and the command that starts it agree on."""

from __future__ import annotations

import ipaddress

TOKEN, PROXY_HEADER = "TMMU_TOKEN", "TMMU_PROXY_HEADER"
"""The environment variables that say who may."""


def is_here(host: str) -> bool:
    """Whether a name or an address is this machine's own loopback."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
