"""Register msgspec types when their module is imported."""

from typing import Any

import msgspec


def register_types(*types: Any) -> None:
    """Register types with msgspec. A module calls this after it defines them."""
    for kind in types:  # else msgspec registers a type at its first use, and crashes if two threads do this at once
        msgspec.json.Decoder(kind)
