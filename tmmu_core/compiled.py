"""``njit`` where numba is installed; where it is not, the same loops run as plain Python, slower, to the same bytes.

What the planners run by default comes compiled ahead (``tmmu_core/loops``) and waits for nobody; numba is for machines
that its libraries are not made for, and for the loops of fits, large ledgers and replays.
The first loop that is decorated loads numba, which costs more than planning a small graph: whoever has loops imports
their module where it is first needed. Machine code is kept beside the sources, or in numba's own folder where those
cannot be written to; the first run on a machine waits for the compiler, and a face may have a word to say meanwhile.
How it is kept is ours: of two processes that compile one loop for other types at once, numba's own way leaves the one's
code under the other's name, and whoever comes later runs it.
"""

from __future__ import annotations

import glob
import hashlib
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tmmu_core.forking import hold_while_forking
from tmmu_core.loops.library import library

ONCE = "compiling the inner loops, once on this machine; it takes some seconds"

AHEAD = ("planners.near_kernel", "planners.kernels", "planners.exact.")
"""Where the loops stand that ``tmmu_core/loops`` has as machine code: beside its library they stay as they are."""

_telling: list[Callable[[str], None]] = []


def njit(loop: Callable[..., Any]) -> Any:
    """Compile a loop when it is first called, kept on disk; it lets other threads run meanwhile."""
    compiler = _compiler_of(loop)
    return loop if compiler is None else _kept_apart(compiler(cache=True, nogil=True)(loop))


def njit_leaf(loop: Callable[..., Any]) -> Any:
    """The same for a loop that makes no array and gives none: nobody counts who holds those it is handed.

    Counting is one locked instruction per array of every tuple at every call, half the time of a short loop.
    """
    compiler = _compiler_of(loop)
    return loop if compiler is None else _kept_apart(compiler(cache=True, nogil=True, _nrt=False)(loop))


def njit_or(plain: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """A leaf, too; where nothing is compiled ``plain`` runs in its place, which gives the same by other means.

    ``plain.stands_for`` is the loop that it takes the place of.
    """

    def chosen(loop: Callable[..., Any]) -> Any:
        if _compiler_of(loop) is not None:
            return njit_leaf(loop)
        plain.stands_for = loop  # type: ignore[attr-defined]
        return plain

    return chosen


def when_compiling(tell: Callable[[str], None]) -> None:
    """Have ``tell`` called with a word when a loop is really compiled, not found on disk: once, by whoever is first."""
    _telling.append(tell)


def is_there() -> bool:
    """Whether loops would be compiled: numba is installed; it is not loaded for the answer."""
    if "numba" in sys.modules:
        return sys.modules["numba"] is not None
    return find_spec("numba") is not None


def _compiler_of(loop: Callable[..., Any]) -> Any:
    if loop.__module__.removeprefix("tmmu_core.").startswith(AHEAD) and library() is not None:
        return None
    return _compiler()


@cache
def _compiler() -> Any:
    """numba's ``njit``; ``None`` where it is not installed, and the loops run as they stand."""
    try:
        from numba import njit as compiler
        from numba.core import event
        from numba.core.compiler_lock import global_compiler_lock
    except ImportError:
        return None

    class Word(event.Listener):
        """Hears the compiler begin."""

        def on_start(self, event: Any) -> None:
            while _telling:
                _telling.pop()(ONCE)

        def on_end(self, event: Any) -> None:
            """Nothing to say."""

    event.register("numba:compile", Word())
    hold_while_forking(global_compiler_lock)
    return compiler


def _kept_apart(loop: Any) -> Any:
    """A compiled loop whose machine code is kept so that no two processes write one file, in whatever order they come.

    A loop that keeps none (numba was told so by its own variables) is as it was.
    """
    from numba.core.caching import IndexDataCacheFile

    file = getattr(getattr(loop, "_cache", None), "_cache_file", None)
    if type(file) is IndexDataCacheFile:
        file.__class__ = _cache_file()
    return loop


@cache
def _cache_file() -> type:
    from numba.core.caching import IndexDataCacheFile

    class CacheFile(IndexDataCacheFile):  # type: ignore[misc, unused-ignore]
        """The code lies under a name made of what it is of, and is there before the index says so."""

        def save(self, key: Any, data: Any) -> None:
            known = self._load_index()
            of = hashlib.sha256(self._dump((self._source_stamp, key))).hexdigest()[:16]
            name = self._data_name_pattern.format(number=int(of, 16))
            if not known:
                self._let_go()
            self._save_data(name, data)
            self._save_index({**known, key: name})

        def _let_go(self) -> None:
            """Of the code of an earlier version; whoever is about to name some of it compiles it once more."""
            for left in Path(self._cache_path).glob(f"{glob.escape(Path(self._index_name).stem)}.*.nbc"):
                with suppress(OSError):
                    left.unlink()

    return CacheFile
