"""Fill memory with debug patterns (``DebugFillTensor_v1``): Philox4x32-10 (TMMU v2 0.B), or BLAKE3 (superseded draft).

Philox is a counter-based generator: block i of a stream depends only on (key, i), so that any part of a pattern can be
computed alone. Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. numpy has
the variant 4x64, a different function.
"""

import numpy as np
from numpy.typing import NDArray

from tmmu_core.base.cbor import H
from tmmu_core.base.errors import need

U8 = NDArray[np.uint8]
U32 = NDArray[np.uint32]
ROUNDS = 10
_MULTIPLY_0, _MULTIPLY_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL_0, _WEYL_1 = 0x9E3779B9, 0xBB67AE85
_LOW_WORD = np.uint64(0xFFFFFFFF)
_WORD_BITS = np.uint64(32)
BLOCK_BYTES = 16
CHUNK_BLOCKS = 1 << 16  # maximum number of blocks that are generated at once


def philox4x32(counter: U32, key: tuple[int, int], rounds: int = ROUNDS) -> U32:
    """Return n blocks of four words, shape (n, 4), for ``counter`` of shape (n, 4) and two key words."""
    c0, c1, c2, c3 = (counter[:, word].astype(np.uint64) for word in range(4))
    k0, k1 = key
    for _ in range(rounds):
        product_0, product_1 = _MULTIPLY_0 * c0, _MULTIPLY_1 * c2
        c0 = (product_1 >> _WORD_BITS) ^ c1 ^ np.uint64(k0)
        c1 = product_1 & _LOW_WORD
        c2 = (product_0 >> _WORD_BITS) ^ c3 ^ np.uint64(k1)
        c3 = product_0 & _LOW_WORD
        k0, k1 = (k0 + _WEYL_0) & 0xFFFFFFFF, (k1 + _WEYL_1) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=1).astype(np.uint32)


def write_pattern(target: U8, arena: str, offset: int, seed: int) -> None:
    """Fill ``target`` with the pattern of a logical address and a seed; ``target`` can end inside a block.

    The key is the seed (uint64, low word first). The counter is (block low, block high, stream low, stream high); the
    stream is the first 8 bytes of ``H(["debug_fill_v1", [arena, offset]])``. Words are written low byte first.
    """
    assert 0 <= seed < 2**64, "a seed is a uint64"
    stream = int.from_bytes(H(["debug_fill_v1", [arena, offset]])[:8], "little")
    key = (seed & 0xFFFFFFFF, seed >> 32)
    for first in range(0, -(-len(target) // BLOCK_BYTES), CHUNK_BLOCKS):
        part = target[first * BLOCK_BYTES : (first + CHUNK_BLOCKS) * BLOCK_BYTES]
        block = np.arange(first, first + -(-len(part) // BLOCK_BYTES), dtype=np.uint64)
        counter = np.empty((len(block), 4), np.uint32)
        counter[:, 0], counter[:, 1] = block & _LOW_WORD, block >> _WORD_BITS
        counter[:, 2], counter[:, 3] = stream & 0xFFFFFFFF, stream >> 32
        part[:] = philox4x32(counter, key).astype("<u4").view(np.uint8).ravel()[: len(part)]


def write_draft_pattern(target: U8, token: bytes, address: int, seed: int) -> None:
    """Fill ``target`` with the draft's pattern of a token, a logical address and a seed (address and seed: uint64).

    The pattern is BLAKE3's extended output over ``replay_token ‖ "tmmu_fill" ‖ address ‖ seed``, address and seed as
    eight bytes each, most significant first (draft 0.C).
    """
    blake3 = need("blake3", "the superseded draft's fill").blake3
    stream = blake3(token + b"tmmu_fill" + address.to_bytes(8, "big") + seed.to_bytes(8, "big"))
    target[:] = np.frombuffer(stream.digest(length=len(target)), np.uint8)
