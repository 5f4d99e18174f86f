"""Rooms of a folder, and the arrows between them: ``python -m tests.arrows`` draws what docs/architecture.md counts.

A room is a folder, or a module that lies loose; an arrow stands where anything in one room imports the other, at the
top of a module or inside a function.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COUNTED = ("app", "tmmu_core/plan", "tmmu_core/judge")


def imported(tree: ast.Module, package: str) -> Iterator[str]:
    """Names directly under ``package`` that a module imports."""
    for item in ast.walk(tree):
        names: list[str] = []
        if isinstance(item, ast.Import):
            names = [alias.name for alias in item.names]
        elif isinstance(item, ast.ImportFrom) and item.module:
            names = [f"{item.module}.{alias.name}" for alias in item.names]
        yield from (name.removeprefix(f"{package}.").split(".")[0] for name in names if name.startswith(f"{package}."))


def rooms(folder: str) -> dict[str, dict[str, set[str]]]:
    """Room → room that it imports → the modules that do."""
    base, package = ROOT / folder, folder.replace("/", ".")
    found: dict[str, dict[str, set[str]]] = {
        path.stem: defaultdict(set)
        for path in base.iterdir()
        if (path.is_dir() and any(path.glob("*.py"))) or (path.suffix == ".py" and path.stem != "__init__")
    }
    for path in base.rglob("*.py"):
        within = path.relative_to(base)
        if (room := found.get(Path(within.parts[0]).stem)) is None:
            continue
        for name in imported(ast.parse(path.read_text()), package):
            if name in found and name != Path(within.parts[0]).stem:
                room[name].add(within.as_posix())
    return found


def said(folder: str) -> str:
    """What docs/architecture.md says of a folder."""
    of = rooms(folder)
    return f"`{folder}/` {len(of)} rooms and {sum(map(len, of.values()))} arrows"


if __name__ == "__main__":
    for folder in sys.argv[1:] or COUNTED:
        print(said(folder))
        for room, known in sorted(rooms(folder).items()):
            for other, modules in sorted(known.items()):
                print(f"  {room} → {other}: {', '.join(sorted(modules))}")
