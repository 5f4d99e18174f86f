"""Mutants that nothing can tell from the original, each with the reason. A reason that no line fits is out of date."""

from __future__ import annotations

from dataclasses import dataclass

from tests.mutation.sites import Site


@dataclass(frozen=True)
class Same:
    """In ``file``, on a line that holds ``line``: ``old`` may become ``new``, for ``why``."""

    file: str
    line: str
    old: str
    new: str
    why: str


SAME: tuple[Same, ...] = ()


def reason_of(site: Site, line: str) -> str:
    """Why this mutant cannot be told from the original; empty where nothing says so."""
    for same in SAME:
        if (same.file, same.old, same.new) == (site.file, site.old, site.new) and same.line in line:
            return same.why
    return ""
