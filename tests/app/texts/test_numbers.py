import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.texts import numbers
from tmmu_core.base.escaping import natural_key
from tmmu_core.graph.quantities import parse_bytes


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1024, "1.00 KiB (1,024 B)"),
        (1_572_864, "1.50 MiB (1,572,864 B)"),
        (1024**2 - 1, "1.00 MiB (1,048,575 B)"),
        (12_900_000, "12.3 MiB (12,900,000 B)"),
        (None, "unknown"),
    ],
)
def test_bytes_have_their_exact_count(n: int | None, text: str) -> None:
    assert numbers.full_bytes(n) == text


def test_offset_is_decimal_and_hexadecimal() -> None:
    assert numbers.offset(1_998_848) == "1,998,848 (0x1E8000)"


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (104, 1000, "10.4 %"),
        (1, 2, "50 %"),
        (0, 0, "0 %"),
        (1, 0, "unknown"),
        (1, 100_000, "<0.1 %"),
        (12, 1, "1,200 %"),
    ],
)
def test_percentage_has_one_decimal_and_shows_small_rests(part: int, whole: int, text: str) -> None:
    assert numbers.percent(part, whole) == text


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("", None),
        ("64k", 65536),
        ("1.5 MiB", 1_572_864),
        ("1,048,576", 1_048_576),
        ("1,024.5 KiB", 1_049_088),
        ("0x1000", 4096),
        ("12B", 12),
    ],
)
def test_sizes_are_parsed(text: str, n: int | None) -> None:
    assert parse_bytes(text) == n


MALFORMED = ("much|0.5|1.5B|1.2.3|-4|MiB|4 hours|12kk", ".|1,5|1,5GiB|1,,024|1024,5|,5|1,024,|12,34")


@pytest.mark.parametrize("text", "|".join(MALFORMED).split("|"))
def test_malformed_size_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_bytes(text)


@pytest.mark.parametrize("text", ["9" * 5000, "0x" + "f" * 5000, "9" * 5000 + "KiB", "18446744073709551616", "16EiB"])
def test_size_over_64_bits_is_called_so(text: str) -> None:
    with pytest.raises(ValueError, match=r"is over 2\^64 − 1"):
        parse_bytes(text)


@given(st.integers(0, 2**64))
def test_short_size_has_at_most_four_digits(n: int) -> None:
    assert len(numbers.short_bytes(n).split()[0].replace(".", "")) <= 4


def test_names_are_sorted_naturally() -> None:
    assert sorted(["r10", "r2", "r1", "a", "r02"], key=natural_key) == ["a", "r1", "r02", "r2", "r10"]
