"""What goes out: tables for people, JSON for machines, faults to standard error; and the exit codes (contract §10).

On a terminal a table is set by rich; in a pipe it is plain aligned text of any width, without a frame, so that it can
be cut and grepped.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from app.say import words
from app.say.refused import nearest, others
from tmmu_core.errors import ContractError, TmmuError, UnreadableInput
from tmmu_core.names import visible

FINE, FINDING, BAD_INPUT, NOT_COMPARABLE = 0, 1, 2, 3
OUR_FAULT = 70
"""A bug of ours: told apart from every verdict (sysexits' EX_SOFTWARE)."""

STREAM = "-"
"""The name of the standard streams."""


class UsageFault(TmmuError):
    """The command was called in a way that makes no sense."""

    def __init__(self, message: str, hint: str = "") -> None:
        self.message, self.hint = message, hint
        super().__init__(message)

    def __str__(self) -> str:
        return " ".join(filter(None, (self.message, self.hint)))

    def record(self) -> dict[str, Any]:
        """The same as a JSON-ready mapping."""
        return {"code_id": "USAGE", "message": self.message, "hint": self.hint}


@dataclass(frozen=True)
class Column:
    """A column of a table: its title, and whether it holds figures, which stand at the right."""

    title: str
    figures: bool = False


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """Write a table to standard output."""
    rows = [[visible(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        if title:
            print(visible(title))
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
    """Write lines to standard output."""
    for line in lines:
        print("\n".join(visible(part) for part in line.split("\n")))


def note(line: str) -> None:
    """Write a remark to standard error, where it does not mix with what is piped on."""
    print("\n".join(visible(part) for part in line.split("\n")), file=sys.stderr)


def say_json(value: Any) -> None:
    """Write a value as indented JSON to standard output. Takes what msgspec encodes; bytes must be hex by now."""
    say_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


def say_bytes(data: bytes) -> None:
    """Write a document to standard output in its own encoding, whatever the terminal's is."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def fault(error: TmmuError, *, as_json: bool) -> None:
    """Tell an error on standard error: in words, or as one record on one line."""
    if as_json:
        record: Mapping[str, Any] = error.record()
        sys.stderr.write(json.dumps(record, ensure_ascii=True) + "\n")
        return
    note(f"tmmu: {in_words(error)}")


def in_words(error: TmmuError) -> str:
    """An error as a sentence: the code, the thing, the place, the way out."""
    if isinstance(error, UnreadableInput):
        return _unreadable(error)
    if not isinstance(error, ContractError):
        return str(error)
    place = str(error.diagnostics.get("path", ""))
    sentence = error.message.rstrip(".")
    where = f" (at {place})" if place and place not in sentence else ""
    return f"{error.code_id} ({error.numeric_code}): {sentence}{where}." + (f" {error.hint}" if error.hint else "")


def _unreadable(error: UnreadableInput) -> str:
    """The reader nearest to the bytes first, the others in a line per reason, the way out last."""
    near = nearest(error.tried, error.message, error.source)
    lines = [
        (f"{error.source}: " if error.source else "") + error.message + (f" (at {error.place})" * bool(error.place))
    ]
    if near is not None and near[1] != error.message:
        lines.append(f"  {near[0]}: {near[1]}")
    lines += [f"  not {readers}: {reason}" for readers, reason in others(error.tried, near)]
    return "\n".join([*lines, error.hint] if error.hint else lines)


def read_input(name: str) -> bytes:
    """The bytes of a file, or of standard input for ``-``. Raises ``UnreadableInput``."""
    if name == STREAM:
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise UnreadableInput(
            f"the file cannot be opened: {(error.strerror or str(error)).lower()}.",
            source=name,
            hint="Check the name and the rights, or give - to read standard input.",
        ) from error


def write_output(name: str, data: bytes, what: str) -> None:
    """Write to a file, and say so on standard error; to standard output for ``-``. Raises :class:`UsageFault`."""
    if name == STREAM:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    try:
        replace_file(Path(name), data)
    except OSError as error:
        raise UsageFault(
            f"{name} cannot be written: {(error.strerror or str(error)).lower()}.", "Check the folder and the rights."
        ) from error
    note(f"wrote {what} to {name} ({words.short_bytes(len(data))})")


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that a failure leaves what was there: first beside it, then in its place. Raises ``OSError``.

    A link stays one, a file keeps its rights. What is no plain file (a device, a pipe), or lies in a folder where
    nothing can be made, is written as it is.
    """
    path = Path(os.path.realpath(path))
    old = path.stat() if path.exists() else None
    if old is not None and (not stat.S_ISREG(old.st_mode) or not os.access(path.parent, os.W_OK)):
        path.write_bytes(data)
        return
    if old is not None and not os.access(path, os.W_OK):
        raise PermissionError(None, "permission denied")
    _sweep_up(path.parent)
    beside = path.with_name(f".tmmu-{os.getpid()}.part")
    try:
        _write_beside(beside, data, None if old is None else stat.S_IMODE(old.st_mode))
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    _synced(path.parent)


def replace_file_by_parts(path: Path, parts: Iterable[bytes]) -> None:
    """The same for bytes that are made part by part: whoever makes them may fail, and nothing has been written then."""
    beside = path.with_name(f".tmmu-{os.getpid()}.part")
    try:
        with beside.open("wb") as out:
            out.writelines(parts)
            out.flush()
            os.fsync(out.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _write_beside(beside: Path, data: bytes, mode: int | None) -> None:
    """Write ``data`` to disk, and only then give it a name, where the system can: who is killed leaves nothing then."""
    try:
        descriptor = os.open(beside.parent, os.O_TMPFILE | os.O_WRONLY, 0o666)
        nameless = True
    except (AttributeError, OSError):  # another system, or a file system without
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        nameless = False
    with open(descriptor, "wb") as out:
        out.write(data)
        out.flush()
        if mode is not None:
            os.chmod(descriptor, mode)
        os.fsync(descriptor)
        if nameless:
            beside.unlink(missing_ok=True)
            folder = os.open(beside.parent, os.O_RDONLY)
            try:  # named by its folder's descriptor, for only so is the link under /proc followed
                os.link(f"/proc/self/fd/{descriptor}", beside.name, dst_dir_fd=folder)
            finally:
                os.close(folder)


def _synced(folder: Path) -> None:
    """Bring a folder's names to disk, where folders can be opened."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _sweep_up(folder: Path) -> None:
    """Take away what a writer left that was killed between naming its file and putting it in its place."""
    for left in folder.glob(".tmmu-*.part"):
        owner = left.name.removeprefix(".tmmu-").removesuffix(".part")
        if owner.isdigit() and int(owner) != os.getpid():
            try:
                os.kill(int(owner), 0)
            except ProcessLookupError:
                left.unlink(missing_ok=True)
            except OSError:
                continue  # it lives, and is another's


def format_by_ending(name: str, endings: Mapping[str, str], fallback: str) -> tuple[str, bool]:
    """``(format, gzipped)`` that a file name asks for; ``fallback`` for ``-``. Raises :class:`UsageFault`."""
    if name == STREAM:
        return fallback, False
    plain = name.removesuffix(".gz")
    for ending, format_ in endings.items():
        if plain.endswith(ending):
            return format_, plain != name
    raise UsageFault(f"the ending of {name} asks for no known format.", f"End it in {', '.join(endings)}.")
