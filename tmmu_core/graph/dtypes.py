"""Bits per element and bytes per tensor: the only source of sizes.

A dtype has one name (``float32``); synonyms (``f32``, ``fp32``, ``float``, ``torch.float32``) are read but
not written. Elements below a byte are packed; the size of a tensor is rounded up to whole bytes (contract §3).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from tmmu_core.base.errors import U64_MAX, AllocationOverflow, InvalidIrShapes

BITS: dict[str, int] = {
    "bool": 8,
    **{f"{sign}int{width}": width for width in (1, 2, 4, 8, 16, 32, 64, 128) for sign in ("", "u")},
    "float4_e2m1fn": 4,
    "float6_e2m3fn": 6,
    "float6_e3m2fn": 6,
    "float8_e3m4": 8,
    "float8_e4m3": 8,
    "float8_e4m3fn": 8,
    "float8_e4m3fnuz": 8,
    "float8_e4m3b11fnuz": 8,
    "float8_e5m2": 8,
    "float8_e5m2fnuz": 8,
    "float8_e8m0fnu": 8,
    "float16": 16,
    "bfloat16": 16,
    "float32": 32,
    "float64": 64,
    "complex32": 32,
    "complex64": 64,
    "complex128": 128,
}
"""dtype → bits of one element (a bool takes a byte, as everywhere)."""

ALIASES: dict[str, str] = {
    "b": "bool",
    "boolean": "bool",
    "i1": "bool",
    "pred": "bool",
    **{f"i{width}": f"int{width}" for width in (2, 4, 8, 16, 32, 64, 128)},
    **{f"s{width}": f"int{width}" for width in (2, 4, 8, 16, 32, 64)},
    **{f"u{width}": f"uint{width}" for width in (2, 4, 8, 16, 32, 64, 128)},
    **{f"ui{width}": f"uint{width}" for width in (2, 4, 8, 16, 32, 64)},
    "byte": "uint8",
    "char": "int8",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "brain": "bfloat16",
    "bf16": "bfloat16",
    **{f"{prefix}{width}": f"float{width}" for width in (16, 32, 64) for prefix in ("f", "fp")},
    "chalf": "complex32",
    "cfloat": "complex64",
    "cdouble": "complex128",
    "c32": "complex32",
    "c64": "complex64",
    "c128": "complex128",
    "fp4": "float4_e2m1fn",
    "float4": "float4_e2m1fn",
    "float4e2m1": "float4_e2m1fn",
    "f4e2m1fn": "float4_e2m1fn",
    "f6e2m3fn": "float6_e2m3fn",
    "f6e3m2fn": "float6_e3m2fn",
    **{
        f"{prefix}{name[len('float8_') :]}": name
        for name in BITS
        if name.startswith("float8_")
        for prefix in ("f8", "fp8", "float8", "fp8_", "f8_")
    },
    "float8e8m0": "float8_e8m0fnu",
    "fp8": "float8_e4m3fn",
}
"""Other spellings, lower-case, → the one name. A dotted prefix (``torch.``, ``np.``, ``tf.``, ``jnp.``) is dropped."""

FLOATING: frozenset[str] = frozenset(name for name in BITS if "float" in name or name.startswith("complex"))


@lru_cache(maxsize=4096)
def canonical(dtype: str) -> str | None:
    """The one name of a dtype, whichever spelling is given; ``None`` when it is not known."""
    if dtype in BITS:
        return dtype
    word = dtype.strip().lower().rpartition(".")[2]
    return word if word in BITS else ALIASES.get(word)


def normalise(dtype: str) -> str:
    """The one name of a dtype. Raises ``InvalidIrShapes`` (reason ``unknown_dtype``) when it is not known."""
    name = canonical(dtype)
    if name is None:
        raise InvalidIrShapes(
            f'the dtype "{dtype}" is not known.',
            hint="Known are bool, int1 … int128, uint1 … uint128, float4 … float64, bfloat16, complex32 … complex128"
            " and their usual short names.",
            reason="unknown_dtype",
            dtype=dtype,
        )
    return name


def bits(dtype: str) -> int:
    """Bits of one element. Raises ``InvalidIrShapes`` (reason ``unknown_dtype``)."""
    return BITS[normalise(dtype)]


def itemsize(dtype: str) -> int:
    """Return the bytes of one element, at least 1: the alignment of a view's offset (contract §3)."""
    return -(-bits(dtype) // 8)


def is_floating(dtype: str) -> bool:
    """Whether a gradient can flow through it: real or complex floating point of any width."""
    return normalise(dtype) in FLOATING


def tensor_bytes(shape: Sequence[int], dtype: str) -> int:
    """Bytes of a tensor: elements × bits, rounded up to whole bytes. ``()`` is a scalar, any zero dimension means 0.

    Raises ``InvalidIrShapes`` (``unknown_dtype``, ``negative_dim``) and ``AllocationOverflow`` past 2^64 − 1 bytes.
    """
    width = bits(dtype)
    elements = 1
    for axis, dim in enumerate(shape):
        if dim < 0:
            raise InvalidIrShapes(
                f"dimension {axis} of the shape {list(shape)} is negative.",
                hint='Give an integer ≥ 0, or the name of a dimension declared in "dims".',
                reason="negative_dim",
                axis=axis,
            )
        elements *= dim
    size = (elements * width + 7) // 8
    if size > U64_MAX:
        raise AllocationOverflow(
            f"a tensor of shape {list(shape)} and dtype {dtype} has {size} bytes, past 2^64 − 1.",
            hint="Check the shape for a wrong dimension.",
            arena="unknown",
            offset=0,
            size=str(size),
        )
    return size
