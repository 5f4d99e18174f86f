"""Counts of bytes as people write them."""

from __future__ import annotations

_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5, "e": 6}


def parse_bytes(text: str) -> int | None:
    """Bytes as people write them (``1.5 MiB``, ``64k``, ``0x1000``, ``1,048,576``); ``None`` for an empty text.

    Units are binary, with or without the ``i``. Raises ``ValueError`` with a sentence for anything else.
    """
    word = text.strip().replace(",", "").replace("_", "").replace(" ", "").lower()
    if not word:
        return None
    try:
        if len(word) > 64:
            raise ValueError
        if word.startswith("0x"):
            return int(word, 16)
        digits = word.rstrip("bikmgtpe")
        unit = word[len(digits) :].removesuffix("b").removesuffix("i")
        whole, _, part = digits.partition(".")
        if not (whole + part).isdecimal():
            raise ValueError
        scale = 1024 ** _POWERS[unit]
        return int(whole or "0") * scale + (int(part) * scale // 10 ** len(part) if part else 0)
    except (KeyError, ValueError):
        raise ValueError(f"“{text[:80]}” is not a size. Write bytes, or a number with KiB, MiB or GiB.") from None
