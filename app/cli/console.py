"""What goes out: tables for people, JSON for machines, faults to standard error; and the exit codes (contract §10).

On a terminal a table is set by rich; in a pipe it is plain aligned text of any width, without a frame, so that it can
be cut and grepped.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from app.say import words
from app.say.refused import nearest, others
from tmmu_core.door import place
from tmmu_core.errors import ContractError, Misuse, TmmuError, UnreadableInput, spelled_out
from tmmu_core.graph.unpacking import read_stream, read_whole
from tmmu_core.names import for_log, visible
from tmmu_core.writing import put

FINE, FINDING, BAD_INPUT, NOT_COMPARABLE = 0, 1, 2, 3
OUR_FAULT = 70
"""A bug of ours: told apart from every verdict (sysexits' EX_SOFTWARE)."""

STREAM = "-"
"""The name of the standard streams."""


class UsageFault(Misuse):
    """The command was called in a way that makes no sense."""


@dataclass(frozen=True)
class Column:
    """A column of a table: its title, and whether it holds figures, which stand at the right."""

    title: str
    figures: bool = False


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """Write a table to standard output."""
    rows = [[for_log(cell) for cell in row] for row in rows]
    columns = [Column(for_log(column.title), column.figures) for column in columns]
    title = for_log(title)
    if not sys.stdout.isatty():
        if title:
            print(title)
        print(plain_table(columns, rows))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    set_table = Table(title=Text(title) if title else None, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for column in columns:
        set_table.add_column(Text(column.title), justify="right" if column.figures else "left", overflow="fold")
    for row in rows:
        set_table.add_row(*[Text(cell) for cell in row])
    Console().print(set_table)


def plain_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    """The table as aligned text: a head, and a line per row, two blanks between columns."""
    cells = [[column.title for column in columns], *[[cell.replace("\n", " ") for cell in row] for row in rows]]
    widths = [max(len(row[k]) for row in cells) for k in range(len(columns))]
    lines = []
    for row in cells:
        set_row = [
            cell.rjust(width) if column.figures else cell.ljust(width)
            for cell, width, column in zip(row, widths, columns, strict=True)
        ]
        lines.append("  ".join(set_row).rstrip())
    return "\n".join(lines)


def say(*lines: str) -> None:
    """Write lines to standard output; an end of line within one, which can only be a name's, is spelled out."""
    for line in lines:
        print(for_log(line))


def note(*lines: str) -> None:
    """Write a remark to standard error, where it does not mix with what is piped on; lines as in :func:`say`."""
    for line in lines:
        print(for_log(line), file=sys.stderr)


def say_json(value: Any) -> None:
    """Write a value as indented JSON to standard output. Takes what msgspec encodes; bytes must be hex by now."""
    try:
        written = msgspec.json.encode(value)
    except UnicodeEncodeError:  # of a file's name, which is bytes that are no text
        written = msgspec.json.encode(spelled_out(msgspec.to_builtins(value)))
    say_bytes(_for_log(msgspec.json.format(written, indent=2).decode()).encode() + b"\n")


_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]|#(?=#\\w*\\[)")


def _for_log(text: str) -> str:
    """The same JSON, with what a terminal or a log would take for a command as ``\\u…``: the values are the same."""
    return _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def say_bytes(data: bytes) -> None:
    """Write a document to standard output in its own encoding, whatever the terminal's is."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def fault(error: TmmuError, *, as_json: bool) -> None:
    """Tell an error on standard error: in words, or as one record on one line."""
    if as_json:
        record: Mapping[str, Any] = error.record()
        sys.stderr.write(_for_log(json.dumps(record, ensure_ascii=True)) + "\n")
        return
    note(*f"tmmu: {in_words(error)}".split("\n"))


def in_words(error: TmmuError) -> str:
    """An error as a sentence: the code, the thing, the place, the way out. No name in it ends a line."""
    if isinstance(error, UnreadableInput):
        return _unreadable(error)
    if not isinstance(error, ContractError):
        return visible(str(error))
    place = str(error.diagnostics.get("path", ""))
    sentence = error.message.rstrip(".")
    where = f" (at {place})" if place and place not in sentence else ""
    hint = f" {error.hint}" if error.hint else ""
    return visible(f"{error.code_id} ({error.numeric_code}): {sentence}{where}.{hint}")


def _unreadable(error: UnreadableInput) -> str:
    """The reader nearest to the bytes first, the others in a line per reason, the way out last."""
    near = nearest(error.tried, error.message, error.source)
    lines = [
        (f"{error.source}: " if error.source else "") + error.message + (f" (at {error.place})" * bool(error.place))
    ]
    if near is not None and near[1] != error.message:
        lines.append(f"  {near[0]}: {near[1]}")
    lines += [f"  not {readers}: {reason}" for readers, reason in others(error.tried, near)]
    said = [visible(line) for line in lines]
    return "\n".join([*said, error.hint] if error.hint else said)  # a hint may list files, a line each


def read_input(name: str) -> bytes:
    """The bytes of a file, or of standard input for ``-``. Raises ``UnreadableInput``."""
    if name == STREAM:
        return read_stream(sys.stdin.buffer, "standard input")
    try:
        return read_whole(Path(name))
    except OSError as error:
        raise UnreadableInput(
            f"the file cannot be opened: {(error.strerror or str(error)).lower()}.",
            source=name,
            hint=_sample(name) or "Check the name and the rights, or give - to read standard input.",
        ) from error


def _sample(name: str) -> str:
    """Where the sample of this name lies, as a sentence; an empty text where there is none."""
    folder, stem = place("sample_graphs"), Path(name).name.split(".")[0]
    try:
        listed = msgspec.json.decode((folder / "index.json").read_bytes())
    except (OSError, msgspec.DecodeError):  # no catalogue, or one that is being written: the file is what is told of
        return ""
    files = [Path(entry["file"]) for kind in ("samples", "instances") for entry in listed.get(kind, ())]
    return next((f"A sample is called so: {folder / file}" for file in files if file.name.split(".")[0] == stem), "")


def write_output(name: str, data: bytes, what: str) -> None:
    """Write to a file, and say so on standard error; to standard output for ``-``. Raises ``UnwritableOutput``."""
    if name == STREAM:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    put(Path(name), data)
    note(f"wrote {what} to {name} ({words.short_bytes(len(data))})")


def format_by_ending(name: str, endings: Mapping[str, str], fallback: str) -> tuple[str, bool]:
    """``(format, gzipped)`` that a file name asks for; ``fallback`` for ``-``. Raises :class:`UsageFault`."""
    if name == STREAM:
        return fallback, False
    plain = name.removesuffix(".gz")
    for ending, format_ in endings.items():
        if plain.endswith(ending):
            return format_, plain != name
    raise UsageFault(f"the ending of {name} asks for no known format.", f"End it in {', '.join(endings)}.")
