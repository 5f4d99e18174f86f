"""Parse and format byte counts and ``NAME=VALUE`` lists."""

import json
import re
from collections.abc import Iterable
from contextlib import suppress

from tmmu_core.base import strict
from tmmu_core.base.errors import U64_MAX

_SIZE = re.compile(r"0x(?P<hex>[0-9a-f]+)|(?P<whole>\d*)(?:\.(?P<frac>\d{0,60}))?(?:(?P<unit>[kmgtpe])i?)?b?", re.ASCII)
_grouped = re.compile(r"(?:[^,]*\D)?\d{1,3}(?:,\d{3})+(?:[^\d,][^,]*)?", re.ASCII).fullmatch
"""Match a size in which commas separate groups of three digits, so that a decimal comma is rejected."""

_COMMA = re.compile(r",(?!(?<=\d,)\d{3}(?!\d)[^,=]*(?:,|$))", re.ASCII)
"""A comma between two pairs. The other commas separate groups of three digits in a value, such as ``1,048,576 B``."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5, "e": 6}


def parse_bytes(text: str) -> int | None:
    """Parse bytes (``1.5 MiB``, ``64k``, ``0x1000``, ``1,048,576``); ``None`` for no text. Raises ``ValueError``."""
    word = text.strip().replace(",", "").replace("_", "").replace(" ", "").lower()
    if not word:
        return None
    found = _SIZE.fullmatch(word)
    has_digits = found is not None and (found["hex"] or found["whole"] or found["frac"])
    is_part_of_byte = found is not None and found["frac"] and not found["unit"] and int(found["frac"])
    if found is None or not has_digits or is_part_of_byte or ("," in text and not _grouped(text)):
        decimal = " Write 1.5 with a point: a comma separates thousands." if "," in text else ""
        raise ValueError(f"{strict.shown(text)} is not a size. Write bytes, or a number with KiB, MiB or GiB.{decimal}")
    if found["hex"]:
        return strict.whole_number(found["hex"], base=16)
    unit, fraction = 1024 ** _POWERS[found["unit"] or ""], found["frac"] or "0"
    size = strict.whole_number(found["whole"] or "0") * unit + int(fraction) * unit // 10 ** len(fraction)
    if size > U64_MAX:
        raise ValueError(f"{strict.shown(text)} is over 2^64 − 1 bytes.")
    return size


def short_bytes(n: int | None) -> str:
    """Return a size in its largest binary unit, with at most four digits: ``1.50 MiB``; ``None`` is ``unknown``."""
    if n is None:
        return "unknown"
    sign, n = "−" if n < 0 else "", abs(int(n))
    unit = min((max(n, 1).bit_length() - 1) // 10, len(_UNITS) - 1)
    if unit == 0:
        return f"{sign}{n} B"
    hundredths = (n * 100 + 1024**unit // 2) // 1024**unit  # rounded half up
    if hundredths >= 102_400 and unit < len(_UNITS) - 1:  # 1023.999 KiB is 1.00 MiB
        unit, hundredths = unit + 1, 100
    if hundredths >= 10_000:
        text = str((hundredths + 50) // 100)
    elif hundredths >= 1_000:
        text = "{}.{}".format(*divmod((hundredths + 5) // 10, 10))
    else:
        text = "{}.{:02d}".format(*divmod(hundredths, 100))
    return f"{sign}{text} {_UNITS[unit]}"


def read_pairs(text: str) -> list[tuple[str | None, str]]:
    """Parse ``NAME=VALUE,…`` into ``(name, value)`` pairs in order. A value without ``NAME=`` has the name ``None``.

    A name that begins with a quote is a JSON string: ``"a,b"=8``. Empty parts are skipped. Raises ``ValueError`` for a
    name that occurs twice, for a second value without a name, and for ``=`` without a name.
    """
    pairs: list[tuple[str | None, str]] = []
    rest = text
    while rest := rest.strip():
        name: str | None = None
        if rest.startswith('"'):
            with suppress(ValueError):  # the quote is part of a value
                quoted, end = json.JSONDecoder().raw_decode(rest)
                if rest[end:].lstrip().startswith("="):
                    name, rest = quoted, rest[end:].lstrip()[1:]
        value, rest = [*_COMMA.split(rest, maxsplit=1), ""][:2]
        if name is None:
            before, equals, value = value.rpartition("=")
            name = before.strip() or None
            if equals and name is None:
                raise ValueError(f"{text[:80]!r} has no name before =.")
        if name is None and not value.strip():
            continue
        if name in [other for other, _ in pairs]:
            several = f"{text[:80]!r} has several values without a name. Write NAME=VALUE for each."
            raise ValueError(f"{name!r} occurs twice." if name else several)
        pairs.append((name, value.strip()))
    return pairs


def pair_texts(pairs: Iterable[tuple[str | None, int]]) -> list[str]:
    """Return the texts that :func:`read_pairs` parses: ``NAME=VALUE``, or only the value if the name is ``None``."""
    texts = []
    for name, value in pairs:
        if name is not None and (not name or name != name.strip() or "," in name or name.startswith('"')):
            name = json.dumps(name, ensure_ascii=False)
        texts.append(str(value) if name is None else f"{name}={value}")
    return texts
