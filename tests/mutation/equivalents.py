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


_NO_ARENA = "where there is no arena there is no row, and nothing is looked up in what stands for its extents"

SAME: tuple[Same, ...] = (
    Same(
        "tmmu_core/plan/figures/live.py",
        "change = np.zeros(steps + 1",
        "1",
        "(2)",
        "a cell more, which is cut off again",
    ),
    Same("tmmu_core/runtime/shadow_rules.py", "for arena in plan.arenas] or [0]", "0", "(1)", _NO_ARENA),
    Same("tmmu_core/judge/figures.py", "for arena in plan.arenas] or [0]", "0", "(1)", _NO_ARENA),
    Same("tmmu_core/graph/index.py", "for k in np.flatnonzero(bad)[:1]", "1", "(2)", "the first of them is raised"),
    Same("tmmu_core/graph/document.py", "CHUNK = 1 << 16", "16", "(17)", "how many bytes are unpacked at a time"),
    Same(
        *("tmmu_core/plan/formats/files.py", "pre_buffer=False", "False", "(True)"),
        "how a file is fetched that lies in memory already",
    ),
    Same(
        *(
            "tmmu_core/graph/importers/onnx_shapes.py",
            "size > LONG_VECTOR",
            "size > LONG_VECTOR",
            "(size >= LONG_VECTOR)",
        ),
        "two ways to the same sizes: only which of them is taken for vectors of just this length",
    ),
)


def reason_of(site: Site, line: str) -> str:
    """Why this mutant cannot be told from the original; empty where nothing says so."""
    for same in SAME:
        if (same.file, same.old, same.new) == (site.file, site.old, site.new) and same.line in line:
            return same.why
    return ""
