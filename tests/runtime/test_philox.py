"""Philox4x32-10 compared with its published results, and the debug pattern."""

import numpy as np
import pytest

from tmmu_core.runtime.philox import philox4x32, write_pattern

PI = ([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], (0xA4093822, 0x299F31D0))
ONES = ([0xFFFFFFFF] * 4, (0xFFFFFFFF, 0xFFFFFFFF))
ZEROS = ([0] * 4, (0, 0))

# The known-answer file of the Random123 distribution, kat_vectors, lines "philox4x32 10" and "philox4x32 7".
KNOWN = [
    (10, ZEROS, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    (10, ONES, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (10, PI, [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]),
    (7, ZEROS, [0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48]),
    (7, ONES, [0x5207DDC2, 0x45165E59, 0x4D8EE751, 0x8C52F662]),
    (7, PI, [0x4DFCCABA, 0x190A87F0, 0xC47362BA, 0xB6B5242A]),
]


@pytest.mark.parametrize(("rounds", "given_", "answer"), KNOWN)
def test_output_equals_the_published_one(rounds, given_, answer):
    counter, key = given_
    assert philox4x32(np.array([counter], np.uint32), key, rounds).tolist() == [answer]


def pattern(length, arena, offset, seed):
    target = np.empty(length, np.uint8)
    write_pattern(target, arena, offset, seed)
    return target


def test_seed_address_and_arena_change_the_pattern():
    patterns = [pattern(32, "a", 0, 1), pattern(32, "a", 0, 2), pattern(32, "a", 128, 1), pattern(32, "b", 0, 1)]
    assert len({p.tobytes() for p in patterns}) == 4


def test_pattern_does_not_depend_on_the_chunk_size(monkeypatch):
    whole = pattern(1000, "a", 0, 5)
    monkeypatch.setattr("tmmu_core.runtime.philox.CHUNK_BLOCKS", 3)
    assert (pattern(1000, "a", 0, 5) == whole).all()
