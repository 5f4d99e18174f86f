"""Registration of msgspec types at import."""

from typing import Any

import msgspec


def register_types(*types: Any) -> None:
    """Register types with msgspec; called at the end of the module that defines them.

    msgspec otherwise registers a type when it first reads a value of it, which crashes if two threads do so at once.
    """
    for each in types:
        msgspec.json.Decoder(each)
