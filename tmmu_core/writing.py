"""The one place where files are written: beside, to disk, and only then in their place (contract §9).

Whatever happens (``kill -9``, a full disk, a lost rights), what was there is there in whole, or what is new is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Iterable
from pathlib import Path


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
        write_new(beside, (data,), None if old is None else stat.S_IMODE(old.st_mode))
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    synced(path.parent)


def replace_file_by_parts(path: Path, parts: Iterable[bytes]) -> None:
    """The same for bytes that are made part by part: whoever makes them may fail, and nothing has been written then."""
    path = Path(os.path.realpath(path))
    beside = _beside(path)
    try:
        write_new(beside, parts)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    synced(path.parent)


def _beside(path: Path) -> Path:
    """Where this thread writes what comes in the place of ``path``: no other that lives writes there."""
    return path.with_name(f".tmmu-{os.getpid()}-{threading.get_native_id()}.part")


def write_new(beside: Path, pieces: Iterable[bytes], mode: int | None = None) -> int:
    """Write a file to disk, and only then give it a name, where the system can: who is killed leaves nothing then.

    The bytes written. Raises ``OSError``.
    """
    try:
        descriptor = os.open(beside.parent, os.O_TMPFILE | os.O_WRONLY, 0o666)
        nameless = True
    except (AttributeError, OSError):  # another system, or a file system without
        beside.unlink(missing_ok=True)  # what stands there may be a link to elsewhere
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        nameless = False
    with open(descriptor, "wb") as out:
        written = sum(map(out.write, pieces))
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
    return written


def synced(folder: Path) -> None:
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
        owner, _, _ = left.name.removeprefix(".tmmu-").removesuffix(".part").partition("-")
        if owner.isascii() and owner.isdigit() and len(owner) < 10:  # what a process can be called
            try:
                os.kill(int(owner), 0)
            except ProcessLookupError:
                left.unlink(missing_ok=True)
            except OSError:
                continue  # it lives, and is another's
