import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tmmu_core.base.errors import U64_MAX, AllocationOverflow, InvalidIrShapes
from tmmu_core.graph import dtypes


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        *[("int2", 2), ("uint2", 2), ("int4", 4), ("uint4", 4), ("float4_e2m1fn", 4), ("float6_e2m3fn", 6)],
        *[("float8_e4m3fn", 8), ("float8_e4m3fnuz", 8), ("float8_e5m2", 8), ("float8_e5m2fnuz", 8)],
        *[("float8_e8m0fnu", 8), ("bfloat16", 16), ("complex32", 32), ("int128", 128), ("complex128", 128)],
    ],
)
def test_bits_of_types_unknown_to_numpy(name: str, bits: int) -> None:
    assert dtypes.bits(name) == bits


@pytest.mark.parametrize("spelling", dtypes.ALIASES)
def test_alias_maps_to_a_dtype_and_is_none(spelling: str) -> None:
    assert dtypes.ALIASES[spelling] in dtypes.BITS
    assert spelling not in dtypes.BITS


def test_unknown_dtype_is_rejected_by_name() -> None:
    with pytest.raises(InvalidIrShapes) as caught:
        dtypes.bits("float99")
    assert (caught.value.diagnostics["reason"], caught.value.diagnostics["dtype"]) == ("unknown_dtype", "float99")


@pytest.mark.parametrize(
    ("shape", "dtype", "size"),
    [
        ((), "float32", 4),
        ((2, 3), "float32", 24),
        ((3,), "int4", 2),
        ((1,), "int2", 1),
        ((5,), "uint2", 2),
        ((3,), "float6_e2m3fn", 3),
        ((0,), "float32", 0),
        ((4, 0, 4), "complex128", 0),
        ((2**63, 2**63, 0), "float64", 0),
        ((2**64 - 1,), "int8", U64_MAX),
        ((2**61 - 1,), "float64", U64_MAX - 7),
    ],
)
def test_bytes_of_a_tensor(shape: tuple[int, ...], dtype: str, size: int) -> None:
    assert dtypes.tensor_bytes(shape, dtype) == size


@pytest.mark.parametrize(("shape", "dtype"), [((2**64,), "int8"), ((2**61,), "float64"), ((2**32, 2**32), "bool")])
def test_size_past_64_bits_overflows(shape: tuple[int, ...], dtype: str) -> None:
    with pytest.raises(AllocationOverflow):
        dtypes.tensor_bytes(shape, dtype)


@given(st.lists(st.integers(0, 9), max_size=4), st.sampled_from(sorted(dtypes.BITS)))
def test_tensor_has_the_fewest_bytes_that_hold_its_bits(shape: list[int], dtype: str) -> None:
    size, bits = dtypes.tensor_bytes(shape, dtype), int(np.prod(shape, dtype=np.int64)) * dtypes.bits(dtype)
    assert 8 * size - 8 < bits <= 8 * size or size == bits == 0
