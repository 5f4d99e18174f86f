"""Other people's names as text, whatever they look like: one function for each place that reads more than text.

Names of tensors, nodes, arenas, dimensions, graphs and files are free text (contract §8). What shows them must not take
them for its own language: HTML has its own escape (``app/texts/markup.py``), the others are here.
"""

from __future__ import annotations

import re

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:&=@/\"'^])")
_ADDRESS = re.compile(r"(https?:|ftp:|mailto:|xmpp:|www|@)", re.I)
"""How what Markdown makes a link of by itself begins, escapes or not: a joiner without width stands behind it."""
_INVISIBLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\U00013430-\U00013438\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
"""What Unicode has drawn as nothing (``Default_Ignorable_Code_Point``) and its controls, but for what makes an emoji of
the sign before it (U+FE00 … U+FE0F), which stands in names that people write."""
_COMMAND = re.compile(r"^(\s*):(?=:)|#(?=#\w*\[)")
"""What a runner takes for its own in a log: ``::`` where a line begins and ``##[`` anywhere (GitHub Actions),
``##vso[`` (Azure Pipelines), ``##teamcity[``."""
_DIGITS = re.compile(r"([0-9]{1,18})")
_FORMULA = re.compile("(^|[;|\t\r\n])(?=[ \"']*[=+@\uff1d\uff0b\uff0d\uff20-]|[\t\r\n])")
"""What a spreadsheet would compute where a cell begins, behind whatever it takes for the end of one; also when wide."""


def for_markdown(name: str) -> str:
    """As it stands in Markdown: no image, no link, no emphasis, no formula, no icon; on one line."""
    parted = _ADDRESS.sub("\\1\u2060", " ".join(visible(name).split()))
    return _MARKDOWN.sub(r"\\\1", parted)


def for_cell(name: str) -> str:
    """As it stands in a CSV cell: what a spreadsheet would compute is led by an apostrophe.

    That is looked for behind a semicolon, a tab, a bar and a line's end as well: where a comma parts the digits of a
    number, spreadsheets part cells by a semicolon, and quotes count only where a cell begins.
    """
    return _FORMULA.sub(r"\1'", name)


def visible(name: str) -> str:
    """As it stands on a terminal or in a line: control characters, line ends and turns of direction are spelled out."""
    return _INVISIBLE.sub(lambda found: _spelled(found[0]), name)


def for_log(line: str) -> str:
    """As it stands on a line of a terminal or a log: visible, and no command to the runner that keeps the log.

    A name with ``::set-output name=…`` or ``##[add-path]`` in it would else set what the steps after it read.
    """
    return _COMMAND.sub(lambda found: (found[1] or "") + _spelled(found[0][-1]), visible(line))


def _spelled(character: str) -> str:
    number = ord(character)
    if number < 256:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 1 << 16 else f"\\U{number:08x}"


def natural(text: str) -> tuple[tuple[int, str], ...]:
    """A key that sorts names as people count: ``r2`` before ``r10``."""
    parts = (part for part in _DIGITS.split(text) if part)
    return (*((int(part), "") if _DIGITS.fullmatch(part) else (-1, part) for part in parts), (-2, text))


def shortened(text: str, width: int = 28) -> str:
    """Shorten a name in its middle to ``width`` characters."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"
