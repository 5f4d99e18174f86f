"""Register msgspec types at import, because registration during a read is not thread-safe."""

from typing import Any

import msgspec


def register_types(*types: Any) -> None:
    """Register types with msgspec; a module calls it after it defines them.

    Otherwise msgspec registers a type when it first reads a value of it, and crashes if two threads do so at once.
    """
    for each in types:
        msgspec.json.Decoder(each)
