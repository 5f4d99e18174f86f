"""The one place where files are written: beside, to disk, and only then in their place (contract §9).

Whatever happens (``kill -9``, a full disk, a lost rights), what was there is there in whole, or what is new is.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

from tmmu_core.base.errors import UnwritableOutput

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


def put(path: Path, data: bytes) -> None:
    """Write what a person asked for, as :func:`replace_file` does. Raises ``UnwritableOutput``."""
    try:
        replace_file(path, data)
    except (OSError, ValueError) as error:  # a ValueError of a name that no file can have
        why = (getattr(error, "strerror", None) or str(error)).lower()
        raise UnwritableOutput(f"{path} cannot be written: {why}.", "Check the folder and the rights.") from error


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that a failure leaves what was there: first beside it, then in its place. Raises ``OSError``.

    A link stays one, a file keeps its rights. What is no plain file (a device, a pipe) is written as it is. In a folder
    where nothing can be made nothing is written: over the old file, a full disk would leave half of the new one.
    """
    path = Path(os.path.realpath(path))
    try:
        old = path.stat()
    except FileNotFoundError:
        old = None
    if old is not None and not stat.S_ISREG(old.st_mode):
        path.write_bytes(data)
        return
    if old is not None and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    _sweep_up(path.parent)
    beside = _beside(path)
    try:
        with _new(beside, (data,), None if old is None else stat.S_IMODE(old.st_mode)):
            beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    synced(path.parent)


def replace_file_by_parts(path: Path, parts: Iterable[bytes]) -> int:
    """The same for bytes that are made part by part: whoever makes them may fail, and nothing has been written then.

    The bytes written.
    """
    path = Path(os.path.realpath(path))
    beside = _beside(path)
    try:
        with _new(beside, parts) as written:
            beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    synced(path.parent)
    return written


def _beside(path: Path) -> Path:
    """Where what comes in the place of ``path`` is written: nobody else writes there.

    Neither the process nor its thread tells two writers apart: in two containers that share a folder both are called 1.
    """
    return path.with_name(f".tmmu-{os.getpid()}-{secrets.token_hex(8)}.part")


def write_new(beside: Path, pieces: Iterable[bytes], mode: int | None = None) -> int:
    """Write a file to disk, and only then give it a name, where the system can: who is killed leaves nothing then.

    The bytes written. Raises ``OSError``.
    """
    with _new(beside, pieces, mode) as written:
        return written


@contextlib.contextmanager
def _new(beside: Path, pieces: Iterable[bytes], mode: int | None = None) -> Iterator[int]:
    """The same, held until the block ends: as long as it is, no other writer takes it for what a killed one left."""
    try:
        descriptor = os.open(beside.parent, os.O_TMPFILE | os.O_WRONLY, 0o666)
        nameless = True
    except (AttributeError, OSError):  # another system, or a file system without
        beside.unlink(missing_ok=True)  # what stands there may be a link to elsewhere
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        nameless = False
    with open(descriptor, "wb") as out:
        _taken(descriptor)
        written = sum(map(out.write, pieces))
        out.flush()
        if mode is not None and os.chmod in os.supports_fd:
            os.chmod(descriptor, mode)
        os.fsync(descriptor)
        if nameless:
            beside.unlink(missing_ok=True)
            folder = os.open(beside.parent, os.O_RDONLY)
            try:  # named by its folder's descriptor, for only so is the link under /proc followed
                os.link(f"/proc/self/fd/{descriptor}", beside.name, dst_dir_fd=folder)
            finally:
                os.close(folder)
        if fcntl is not None:
            yield written
    if fcntl is None:  # Windows replaces no open file
        yield written


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Inside, nobody else is alone in the folder, where the system can lock one. Raises ``OSError`` without it."""
    if fcntl is None:  # Windows opens no folder
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


RENAME_EXCHANGE = 2
AT_CWD = -100


def exchange(new: Path, old: Path) -> None:
    """Put the folder ``new`` in the place of ``old``, and ``old``, if it exists, where ``new`` was. Raises ``OSError``.

    On Linux both names change in one step; elsewhere ``old`` is renamed first.
    """
    if not old.exists():
        new.rename(old)
        return
    try:
        renameat2 = ctypes.CDLL(None).renameat2
        if renameat2(AT_CWD, os.fsencode(new), AT_CWD, os.fsencode(old), RENAME_EXCHANGE) == 0:
            return
    except (AttributeError, OSError, TypeError):  # another system, or a C library without it
        pass
    aside = new.with_name(f"{new.name}-old")
    old.rename(aside)
    try:
        new.rename(old)
    except OSError:
        aside.rename(old)
        raise
    aside.rename(new)


def _taken(descriptor: int) -> bool:
    """Take a file's lock, which goes with whoever holds it; false where somebody does."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: the number of the process is all that there is
        return True
    return True


def synced(folder: Path) -> None:
    """Bring a folder's names to disk, where folders can be opened."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _sweep_up(folder: Path) -> None:
    """Take away what a writer left that was killed between naming its file and putting it in its place.

    Whose process is not to be seen from here (another container's) holds what it writes all the same. What cannot be
    taken away stays: it is in nobody's way.
    """
    for left in folder.glob(".tmmu-*.part"):
        owner, _, _ = left.name.removeprefix(".tmmu-").removesuffix(".part").partition("-")
        if owner.isascii() and owner.isdigit() and len(owner) < 10 and _is_gone(int(owner)):
            with contextlib.suppress(OSError):
                _let_go(left)


def _is_gone(process: int) -> bool:
    """Whether no process that is seen from here is called so."""
    if fcntl is None:  # on Windows signal 0 is sent
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # it lives, and is another's
    return False


def _let_go(left: Path) -> None:
    """Take away a file that nobody holds. Raises ``OSError``."""
    descriptor = os.open(left, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        if _taken(descriptor):
            left.unlink()
    finally:
        os.close(descriptor)
