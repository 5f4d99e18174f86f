"""The debug fill of the superseded draft: deterministic, seeded by the replay token (BLAKE3, draft 0.C).

The pattern of an address is BLAKE3's extended output over ``replay_token ‖ "tmmu_fill" ‖ address ‖ seed``, both numbers
as eight bytes, most significant first.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tmmu_core.base.extras import need

TAG = b"tmmu_fill"
CHUNK = 1 << 20
"""Bytes generated at once."""


def write_pattern(target: NDArray[np.uint8], token: bytes, address: int, seed: int) -> None:
    """Fill ``target`` with the pattern of a logical address, a token and a seed (both uint64)."""
    blake3 = need("blake3", "the superseded draft's fill").blake3
    stream = blake3(token + TAG + address.to_bytes(8, "big") + seed.to_bytes(8, "big"))
    for at in range(0, len(target), CHUNK):
        part = target[at : at + CHUNK]
        part[:] = np.frombuffer(stream.digest(length=len(part), seek=at), np.uint8)
