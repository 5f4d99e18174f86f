"""Input and output of the commands (files, tables, JSON, errors), and their exit codes (contract §10)."""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO, TypeVar

import msgspec

from app.texts import numbers
from tmmu_core.base.atomic_files import write_output_file
from tmmu_core.base.errors import Misuse, TmmuError, UnreadableInput, escaped_surrogates, open_error
from tmmu_core.base.escaping import for_log, visible
from tmmu_core.formats.open_file import UNRECOGNISED, nearest_reader, other_readers
from tmmu_core.graph.native.document import pack, read_stream, read_whole

SUCCESS, FINDING, BAD_INPUT, NOT_COMPARABLE = 0, 1, 2, 3
INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits

STREAM = "-"  # standard input or standard output
T = TypeVar("T")

_LONG_WORD = re.compile(r"(\S{1000})\S{1000,}")
"""Words to cut, because a name in a file can have megabytes. In JSON output, only error records are cut."""
_LONGEST_LINE = 20_000
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]|#(?=#\\w*\\[)")
"""Control characters, direction marks, and the ``#`` that starts a command in a CI log. All are escaped."""


def _cut(value: Any) -> Any:
    """Cut the long words and the long texts in a JSON value."""
    if isinstance(value, dict | list):
        return {k: _cut(v) for k, v in value.items()} if isinstance(value, dict) else [*map(_cut, value)]
    if not isinstance(value, str):
        return value
    text = _LONG_WORD.sub(r"\1…", value)
    return text if len(text) <= _LONGEST_LINE else f"{text[:_LONGEST_LINE]}…"


class UsageError(Misuse):
    """Raised for invalid options or arguments."""


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table. A title that begins with ">" aligns its column to the right."""
    to_right = [title.startswith(">") for title in titles]
    plain_titles = [title.removeprefix(">") for title in titles]
    heads, *texts = [[for_log(_cut(cell)) for cell in row] for row in (plain_titles, *rows)]
    widths = [max(map(len, column)) for column in zip(heads, *texts, strict=True)]
    for row in (heads, *texts):
        columns = zip(row, widths, to_right, strict=True)
        print("  ".join(cell.rjust(n) if right else cell.ljust(n) for cell, n, right in columns).rstrip())


def print_lines(*lines: str, file: TextIO | None = None) -> None:
    """Print lines (default: to standard output); control characters and line breaks in a line are escaped."""
    for line in lines:
        print(for_log(_cut(line)), file=file)


def print_note(*lines: str) -> None:
    """Print lines to standard error, escaped like :func:`print_lines`."""
    print_lines(*lines, file=sys.stderr)


def write_json(value: Any) -> None:
    """Write a value to standard output as indented JSON. msgspec must be able to encode its types."""
    try:
        data = msgspec.json.encode(value)
    except UnicodeEncodeError:  # a file name that is not valid UTF-8
        data = msgspec.json.encode(escaped_surrogates(msgspec.to_builtins(value)))
    write_bytes(_json_for_log(msgspec.json.format(data, indent=2).decode()).encode() + b"\n")


def _json_for_log(text: str) -> str:
    return _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def write_bytes(data: bytes) -> None:
    """Flush the printed text, and write bytes to standard output."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def print_error(error: TmmuError, *, as_json: bool, verbose: bool = False) -> None:
    """Write an error to standard error, as text or as one line of JSON. ``verbose``: see :func:`error_text`."""
    if as_json:
        record: Mapping[str, Any] = _cut(error.record())
        sys.stderr.write(_json_for_log(json.dumps(record, ensure_ascii=True)) + "\n")
        return
    print_note(*f"tmmu: {error_text(error, verbose=verbose)}".split("\n"))


def error_text(error: TmmuError, *, verbose: bool = False) -> str:
    """Return an error as text, with escaped names; ``verbose`` adds the reason why each reader rejected the file."""
    if not isinstance(error, UnreadableInput):
        return visible(str(error))
    closest = nearest_reader(error.tried, error.message, error.source)
    is_reader_message = any(reason == error.message for _, reason in error.tried)
    message = error.message_with_place
    if error.tried and not is_reader_message and error.message.startswith(UNRECOGNISED):
        message += f" Closest: {closest[0]} ({closest[1]})." if closest else ""
        message += "" if verbose else " With -v, the reason of each reader is listed."
    lines = [visible((f"{error.source}: " if error.source else "") + message)]
    if verbose:
        rejections = other_readers(error.tried, closest if is_reader_message else None)
        lines += [visible(f"  not {readers}: {reason}") for readers, reason in rejections]
    return "\n".join(filter(None, [*lines, error.hint]))  # a hint may have several lines


def read_input(name: str) -> bytes:
    """Return the bytes of a file, or of standard input for ``-``. Raises ``UnreadableInput``."""
    if name == STREAM:
        return read_stream(sys.stdin.buffer, "standard input")
    try:
        return read_whole(Path(name))
    except OSError as error:
        raise open_error(error, name, "Check the name and the permissions, or use - for standard input.") from error


def write_output(name: str, data: bytes, what: str) -> None:
    """Write a file (gzipped for ``.gz``) and print a note with ``what``. For ``-``, write only to standard output."""
    if name == STREAM:
        write_bytes(data)
        return
    data = pack(data) if name.lower().endswith(".gz") else data
    write_output_file(Path(name), data)
    print_note(f"wrote {what} to {name} ({numbers.short_bytes(len(data))})")


def format_by_ending(name: str, endings: Mapping[str, T], fallback: T) -> T:
    """Return the format of a file extension (before ``.gz``), or ``fallback`` for ``-``. Raises :class:`UsageError`."""
    if name == STREAM:
        return fallback
    for ending, format_ in endings.items():
        if name.lower().removesuffix(".gz").endswith(ending):
            return format_
    raise UsageError(f"{name} has no known file extension.", f"Use one of {', '.join(endings)}.")
