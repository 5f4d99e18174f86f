"""Register msgspec types when their module is imported."""

from typing import Any

import msgspec


def register_types(*types: Any) -> None:
    """Register types with msgspec. A module calls this after it defines them.

    Otherwise msgspec registers a type when it first reads a value of it, and crashes if two threads do so at once.
    """
    for kind in types:
        msgspec.json.Decoder(kind)
