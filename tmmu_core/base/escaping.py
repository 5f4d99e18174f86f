"""Escape untrusted names for Markdown, CSV, terminals and CI logs (HTML: ``app/texts/markup.py``).

Names of tensors, nodes, arenas, dimensions, graphs and files are free text (contract §8).
"""

import csv
import io
import re
from collections.abc import Iterable
from typing import Any

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:&=@/\"'^])")
_ADDRESS = re.compile(r"(https?:|ftp:|mailto:|xmpp:|www|@)", re.I)
"""Prefixes of autolinks in Markdown; a word joiner (U+2060) after them prevents the link."""
_INVISIBLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\U00013430-\U00013438\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
"""Controls, surrogates and invisible Unicode characters (``Default_Ignorable_Code_Point`` and format controls), except
the variation selectors U+FE00 … U+FE0F, which occur in ordinary names."""
_COMMAND = re.compile(r"^(\s*):(?=:)|#(?=#\w*\[)")
"""Commands of CI runners in a log: ``::`` at the start of a line and ``##[`` anywhere (GitHub Actions),
``##vso[`` (Azure Pipelines), ``##teamcity[``."""
_DIGITS = re.compile(r"([0-9]{1,18})")
_FORMULA = re.compile("(^|[;|\t\r\n])(?=[ \"']*[=+@\uff1d\uff0b\uff0d\uff20-]|[\t\r\n])")
"""Place where a formula may begin: the start of a cell or a separator in it, before a sign (also full-width) or tab."""


def for_markdown(name: str) -> str:
    """Escape for Markdown, as one line without images, links, emphasis, formulas and icons."""
    return _MARKDOWN.sub(r"\\\1", _ADDRESS.sub("\\1\u2060", " ".join(visible(name).split())))


def for_cell(name: str) -> str:
    """Escape for a CSV cell: put an apostrophe before everything that a spreadsheet may evaluate as a formula."""
    return _FORMULA.sub(r"\1'", name)


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Return rows as CSV text with ``\\n`` as line end."""
    table = [list(row) for row in rows]
    # ``csv`` of Python 3.11 quotes a cell that contains a carriage return only if it quotes all cells.
    has_return = any(isinstance(cell, str) and "\r" in cell for row in table for cell in row)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL if has_return else csv.QUOTE_MINIMAL).writerows(table)
    return text.getvalue()


def visible(name: str) -> str:
    """Return a name with escape sequences in place of invisible characters: controls, line ends, direction marks."""
    return _INVISIBLE.sub(lambda match: _escape_sequence(match[0]), name)


def for_log(line: str) -> str:
    """Escape a line of a CI log: like :func:`visible`, and without commands, which could change later CI steps."""
    return _COMMAND.sub(lambda match: (match[1] or "") + _escape_sequence(match[0][-1]), visible(line))


def for_annotation(text: str, *, is_property: bool = False) -> str:
    """Escape ``TEXT`` (or, if ``is_property``, ``PROPERTY``) of GitHub's command ``::error file=PROPERTY::TEXT``."""
    escaped = visible(text).replace("%", "%25")
    return escaped.replace(":", "%3A").replace(",", "%2C") if is_property else escaped


def _escape_sequence(character: str) -> str:
    number = ord(character)
    if number < 256:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 1 << 16 else f"\\U{number:08x}"


def natural_key(text: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key that compares digits as numbers: ``r2`` before ``r10``."""
    # The last pair (−2, text) sorts before text parts (−1) and numbers, and distinguishes ``r1`` from ``r01``.
    parts = (part for part in _DIGITS.split(text) if part)
    return (*((int(part), "") if _DIGITS.fullmatch(part) else (-1, part) for part in parts), (-2, text))


def shortened(text: str, width: int = 28) -> str:
    """Return a name in at most ``width`` characters: "…" replaces the middle of a longer name."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"
