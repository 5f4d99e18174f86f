"""The superseded draft's fill: deterministic, seeded by the replay token, made by BLAKE3 (draft 0.C).

The draft says no more. Here: the pattern of an address is BLAKE3's extended output over ``replay_token ‖ "tmmu_fill" ‖
address ‖ seed``, both numbers as eight bytes, most significant first. The draft's own ``ZeroTensor_v1`` is
a zero-fill, and stays one: the pattern is what debug fill writes into a plan of that era.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tmmu_core.extras import need

TAG = b"tmmu_fill"
CHUNK = 1 << 20
"""Bytes that are made at once."""


def write_pattern(target: NDArray[np.uint8], token: bytes, address: int, seed: int) -> None:
    """Fill ``target`` with the pattern of a logical address under a token and a seed (both uint64)."""
    blake3 = need("blake3", "the superseded draft's fill").blake3
    stream = blake3(token + TAG + address.to_bytes(8, "big") + seed.to_bytes(8, "big"))
    for at in range(0, len(target), CHUNK):
        part = target[at : at + CHUNK]
        part[:] = np.frombuffer(stream.digest(length=len(part), seek=at), np.uint8)
