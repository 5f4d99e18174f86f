"""The structure of the code: imports run one way, folders are small, the judge shares no code with the planners."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from benchmarks import house
from tmmu_core.base.errors import EXTRA_OF

ROOT = house.ROOT
MOST_ROOMS = 18
MOST_ARROWS = {"tmmu_core": 70, "tmmu_core/planners": 46}
"""Folder → the most arrows between its rooms. All other folders have at most 40."""
JUDGE_MAY_IMPORT = ("base", "graph", "judge", "plans.model")
"""The judge computes everything again: of plans it knows the value types only."""


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@cache
def imports_of(path: Path) -> set[str]:
    """Return the dotted names of all imports of a module, at its top or inside a function."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def importing(folders: tuple[str, ...], roots: set[str]) -> list[str]:
    """Return ``module imports name`` for every import of one of the top-level packages."""
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for folder in folders
        for path in modules(folder)
        for name in sorted(imports_of(path))
        if name.split(".")[0] in roots
    ]


def test_core_has_few_rooms_and_no_arrow_up() -> None:
    core = house.rooms("tmmu_core")
    assert len(core) <= 16
    assert house.arrows_up(core) == []


@pytest.mark.parametrize("folder", house.package_folders())
def test_rooms_of_a_folder_are_few_and_have_no_cycle(folder: str) -> None:
    rooms = house.rooms(folder)
    assert not house.cycles(rooms)
    assert len(rooms) <= MOST_ROOMS
    assert sum(map(len, rooms.values())) <= MOST_ARROWS.get(folder, 40)


def test_judge_imports_value_types_only() -> None:
    broken = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules("tmmu_core/judge")
        for name in sorted(imports_of(path))
        if name.startswith("tmmu_core.") and not name.removeprefix("tmmu_core.").startswith(JUDGE_MAY_IMPORT)
    ]
    assert broken == []


def test_core_does_not_import_the_app_or_its_libraries() -> None:
    assert importing(("tmmu_core",), {"app", "streamlit", "plotly", "typer", "rich"}) == []


def test_planners_use_no_clock_no_environment_and_no_randomness() -> None:
    sources = {"time", "random", "datetime", "secrets", "uuid"}
    assert importing(("tmmu_core/planners", "tmmu_core/liveness"), sources) == []


def test_only_the_store_imports_databases() -> None:
    found = importing(("tmmu_core", "app"), {"sqlalchemy", "psycopg"})
    assert [line for line in found if not line.startswith("tmmu_core/store/")] == []


def test_extras_are_imported_where_they_are_used() -> None:
    """A module of the base installation imports no package of an extra at its top."""
    base = modules("tmmu_core") + [path for folder in ("texts", "cli", "report") for path in modules(f"app/{folder}")]
    broken = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in base
        if not path.name.startswith("fx_") and "store" not in path.parts
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""])
        if name.split(".")[0] in EXTRA_OF
    ]
    assert broken == []


def test_app_modules_are_imported_by_statements_that_a_wheel_can_rename() -> None:
    broken = []
    for path in modules("app"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import) and any(alias.name.split(".")[0] == "app" for alias in node.names):
                broken.append(f"{path.relative_to(ROOT)}: import app…")
            if isinstance(node, ast.Constant) and re.fullmatch(r"app(\.\w+)*\.?", str(node.value)):
                broken.append(f"{path.relative_to(ROOT)}: {node.value!r}")
    assert broken == []


def test_session_state_is_read_in_one_module() -> None:
    readers = [str(path.relative_to(ROOT)) for path in modules("app") if "session_state" in path.read_text()]
    assert readers in ([], ["app/session/state.py"])
