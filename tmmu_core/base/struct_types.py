"""Register msgspec types when their module is imported."""

from typing import Any

import msgspec


def register_types(*types: Any) -> None:
    """Register types with msgspec. A module calls this after it defines them."""
    for kind in types:  # else msgspec does so when it first reads a value of the type, and crashes in two threads
        msgspec.json.Decoder(kind)
