"""How storages are numbered: by arena, slot and birth, beside the plainest way to do so."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from tmmu_core.plans.making.plan_rows import storage_numbers


def plainly(arena: list[int], slot: list[int], birth: list[int]) -> tuple[list[int], list[int]]:
    order = sorted(range(len(slot)), key=lambda i: (arena[i], slot[i], birth[i], i))
    number = [order.index(i) for i in range(len(slot))]
    before = [[j for j in order[: number[i]] if (arena[j], slot[j]) == (arena[i], slot[i])] for i in range(len(slot))]
    return number, [len(tenants) for tenants in before]


@pytest.mark.parametrize("in_order", [False, True])
def test_storages_are_numbered_by_arena_slot_and_birth(in_order: bool) -> None:
    random = Random("numbers")
    for _ in range(60):
        count = random.randrange(9)
        arena, slot, birth = ([random.randrange(most) for _ in range(count)] for most in (3, 4, 6))
        birth = sorted(birth) if in_order else birth
        columns = np.array(arena, np.int32), np.array(slot, np.int64), np.array(birth, np.int64)
        number, generation = storage_numbers(*columns)
        assert (number.tolist(), generation.tolist()) == plainly(arena, slot, birth)
