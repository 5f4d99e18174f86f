"""Bits per element and bytes per tensor: the only source of sizes.

A dtype has one name (``float32``); synonyms (``f32``, ``fp32``, ``float``, ``torch.float32``) are read but
not written. Elements below a byte are packed; the size of a tensor is rounded up to whole bytes (contract §3).
"""

from collections.abc import Sequence

from tmmu_core.base.errors import U64_MAX, AllocationOverflow, InvalidIrShapes

_FLOATS = (
    *("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3", "float8_e4m3fn"),
    *("float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    *("float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128"),
)

BITS: dict[str, int] = {
    "bool": 8,
    **{f"{sign}int{width}": width for width in (1, 2, 4, 8, 16, 32, 64, 128) for sign in ("", "u")},
    **{name: int("".join(filter(str.isdigit, name.partition("_")[0]))) for name in _FLOATS},
}
"""dtype → bits of one element; a bool has 8."""

_IRREGULAR = """
i128:int128 u128:uint128 byte:uint8 char:int8 short:int16 int:int32 long:int64 half:float16 float:float32
double:float64 brain:bfloat16 bf16:bfloat16 chalf:complex32 cfloat:complex64 cdouble:complex128
f6e2m3fn:float6_e2m3fn f6e3m2fn:float6_e3m2fn float8e8m0:float8_e8m0fnu fp8:float8_e4m3fn
"""
"""Irregular spellings, each with the canonical name."""

ALIASES: dict[str, str] = dict([pair.split(":") for pair in _IRREGULAR.split()])
ALIASES |= dict.fromkeys(("b", "boolean", "i1", "pred"), "bool")
ALIASES |= dict.fromkeys(("fp4", "float4", "float4e2m1", "f4e2m1fn"), "float4_e2m1fn")
ALIASES |= {f"{prefix}{width}": f"int{width}" for width in (2, 4, 8, 16, 32, 64) for prefix in "is"}
ALIASES |= {f"{prefix}{width}": f"uint{width}" for width in (2, 4, 8, 16, 32, 64) for prefix in ("u", "ui")}
ALIASES |= {f"{prefix}{width}": f"float{width}" for width in (16, 32, 64) for prefix in ("f", "fp")}
ALIASES |= {f"c{width}": f"complex{width}" for width in (32, 64, 128)}
_FLOAT8 = [name for name in _FLOATS if name.startswith("float8_")]
ALIASES |= {prefix + name[7:]: name for name in _FLOAT8 for prefix in ("f8", "fp8", "float8", "fp8_", "f8_")}
"""Other spelling in lower case, without a prefix such as ``torch.`` or ``np.`` → canonical name."""

FLOATING: frozenset[str] = frozenset(name for name in BITS if "float" in name or name.startswith("complex"))


def canonical(dtype: str) -> str | None:
    """Return the canonical name of a dtype in any spelling; ``None`` if unknown."""
    if dtype in BITS:
        return dtype
    word = dtype.strip().lower().rpartition(".")[2]
    return word if word in BITS else ALIASES.get(word)


def normalise(dtype: str) -> str:
    """Return the canonical name of a dtype. Raises ``InvalidIrShapes`` (reason ``unknown_dtype``) if unknown."""
    name = canonical(dtype)
    if name is None:
        known = "bool, int1 … int128, uint1 … uint128, float4 … float64, bfloat16, complex32 … complex128"
        hint = f"Use {known}, or a common abbreviation of these."
        raise InvalidIrShapes(f"the dtype {dtype!r} is not known.", hint=hint, reason="unknown_dtype", dtype=dtype)
    return name


def bits(dtype: str) -> int:
    """Return the bits of one element. Raises ``InvalidIrShapes`` (reason ``unknown_dtype``)."""
    return BITS[normalise(dtype)]


def itemsize(dtype: str) -> int:
    """Return the bytes of one element, at least 1: the alignment of a view's offset (contract §3)."""
    return -(-bits(dtype) // 8)


def is_floating(dtype: str) -> bool:
    """Return whether a tensor of this dtype can have a gradient: real or complex floating point of any width."""
    return normalise(dtype) in FLOATING


def tensor_bytes(shape: Sequence[int], dtype: str) -> int:
    """Return the bytes of a tensor. Raises ``InvalidIrShapes``, and ``AllocationOverflow`` for more than 2^64 − 1."""
    elements = 1
    for axis, dim in enumerate(shape):
        if dim < 0:
            message = f"dimension {axis} of the shape {list(shape)} is negative."
            hint = 'Give an integer ≥ 0, or the name of a dimension declared in "dims".'
            raise InvalidIrShapes(message, hint=hint, reason="negative_dim", axis=axis)
        elements *= dim
    size = (elements * bits(dtype) + 7) // 8
    if size > U64_MAX:
        message = f"a tensor of shape {list(shape)} and dtype {dtype} has {size:,} bytes, more than 2^64 − 1."
        hint = "Check the shape for a wrong dimension."
        raise AllocationOverflow(message, hint=hint, arena="unknown", offset=0, size=str(size))
    return size
