"""Write files atomically: write a temporary file in the same folder, sync it, rename it.

After a failure or ``kill -9``, the old or the new file is there as a whole. A killed writer may leave ``.tmmu-*.part``.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path

from tmmu_core.base.errors import UnwritableOutput


def write_output_file(path: Path, data: bytes) -> None:
    """Write a file that the user named, like :func:`replace_file`. Raises ``UnwritableOutput``."""
    try:
        replace_file(path, data)
    except (OSError, ValueError) as error:  # ValueError: the name contains a null character
        raise write_error(path, error) from error


def write_error(path: object, error: OSError | ValueError) -> UnwritableOutput:
    """Return the error for a file or folder that cannot be written."""
    why = (getattr(error, "strerror", None) or str(error)).lower()
    return UnwritableOutput(f"{path} cannot be written: {why}.", "Check the folder and its permissions.")


def replace_file(path: Path, data: bytes | Iterable[bytes]) -> int:
    """Replace or create a file with ``data`` (bytes, or parts in order); return its size. Raises ``OSError``.

    If a part raises an error, the old file stays. Links are followed, permissions kept, and devices written directly.
    """
    path, parts = Path(os.path.realpath(path)), (data,) if isinstance(data, bytes) else data
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = None
    if mode is not None and not stat.S_ISREG(mode):
        with path.open("wb") as out:
            return sum(map(out.write, parts))
    if mode is not None and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    temporary = path.with_name(f".tmmu-{secrets.token_hex(8)}.part")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as out:
            written = sum(map(out.write, parts))
            out.flush()
            os.fsync(out.fileno())
        if mode is not None:
            temporary.chmod(stat.S_IMODE(mode))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # Windows cannot open folders
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    return written
