"""The shape that is kept: imports run one way, the judge stands apart, nobody below knows the app."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.arrows import COUNTED, rooms, said
from tmmu_core.extras import EXTRA_OF

ROOT = Path(__file__).resolve().parents[1]

MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "manifest": set(),
    "limits": {"errors"},
    "child": set(),
    "names": set(),
    "once": set(),
    "forking": set(),
    "loops": {"writing"},
    "compiled": {"forking", "loops"},
    "cbor": {"errors"},
    "writing": {"errors"},
    "extras": {"errors"},
    "door": set(),
    "schemas": set(),
    "graph": {"once", "forking", "errors", "limits", "extras", "child"},
    "liveness": {"once", "errors", "graph"},
    "planners": {"once", "errors", "compiled", "loops", "graph.model"},
    # Whoever takes a finished plan asks the judge first; of plans the judge knows the nouns alone.
    "plan": {"once", "errors", "limits", "manifest", "cbor", "names", "child", "compiled", "extras", "writing"}
    | {"graph", "liveness", "planners", "judge.finished", "library.callable"},
    "runtime": {"once", "errors", "cbor", "compiled", "extras", "graph", "liveness", "plan", "judge"},
    # The judge sees graphs, and of liveness and plans their nouns alone: it computes everything again.
    "judge": {"once", "errors", "extras", "graph", "liveness.model", "plan.model"},
    "fit": {"once", "errors", "compiled", "graph", "liveness", "planners", "plan", "library.callable"},
    "sweep": {"once", "errors", "extras", "graph", "plan", "planners.problem", "fit", "judge.finished"},
    # What is kept are plans and figures; who made them, and how, it need not know.
    "store": {"once", "errors", "limits", "names", "extras", "plan.figures", "plan.model", "plan.formats"},
    "library": {"once", "errors", "names", "extras", "writing", "door"}
    | {"graph", "planners.problem", "plan", "judge.finding", "judge.finished", "judge.verifier", "fit"},
}
"""Room → the rooms (or single modules) of ``tmmu_core`` that it may import, itself aside. ``plan`` and ``fit`` are
verbs as well, by ``library.callable``."""


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports_of(path: Path) -> set[str]:
    """Dotted names of everything that a module imports, at any depth of its code."""
    found: set[str] = set()
    for item in ast.walk(parsed(path)):
        if isinstance(item, ast.Import):
            found |= {alias.name for alias in item.names}
        elif isinstance(item, ast.ImportFrom) and item.module and item.level == 0:
            found |= {item.module} | {f"{item.module}.{alias.name}" for alias in item.names}
    return found


def inside(name: str, allowed: set[str]) -> bool:
    return any(name == room or name.startswith(f"{room}.") for room in allowed)


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def test_every_room_of_the_core_says_what_it_may_import() -> None:
    there = {path.stem for path in (ROOT / "tmmu_core").iterdir() if path.suffix == ".py" or any(path.glob("*.py"))}
    assert there - {"__init__", "__main__"} == MAY_IMPORT.keys()


@pytest.mark.parametrize("room", sorted(MAY_IMPORT))
def test_imports_run_one_way(room: str) -> None:
    paths = [single] if (single := ROOT / "tmmu_core" / f"{room}.py").exists() else modules(f"tmmu_core/{room}")
    assert paths
    broken = []
    for path in paths:
        for name in imports_of(path):
            own = name.removeprefix("tmmu_core.")
            if (
                name.startswith("tmmu_core.")
                and own.split(".")[0] in MAY_IMPORT
                and not inside(own, MAY_IMPORT[room] | {room})
            ):
                # ``from tmmu_core.liveness import model`` names the package first; the module decides.
                if any(allowed.startswith(f"{own}.") for allowed in MAY_IMPORT[room]):
                    continue
                broken.append(f"{path.relative_to(ROOT)} imports {name}")
    assert broken == []


ARROWS: dict[str, dict[str, str]] = {
    "app": {
        "canvas": "say",
        "charts": "say",
        "cli": "report say serving",
        "main": "parts serving session",
        "parts": "canvas charts report say session",
        "report": "canvas say",
        "serving": "session",
        "views": "charts parts say session",
    },
    "tmmu_core/plan": {
        "analysis": "figures model",
        "canonical": "model",
        "figures": "model",
        "formats": "analysis canonical figures model",
        "making": "canonical figures model",
    },
}
"""Room → the rooms beside it that it imports. The list only gets shorter, but for rooms that are new."""


@pytest.mark.parametrize("folder", sorted(ARROWS))
def test_arrows_between_rooms_get_fewer(folder: str) -> None:
    known = {(room, other) for room, others in ARROWS[folder].items() for other in others.split()}
    drawn = {(room, other): sorted(by) for room, others in rooms(folder).items() for other, by in others.items()}
    assert {arrow: by for arrow, by in drawn.items() if arrow not in known} == {}
    assert known - drawn.keys() == set(), "cut: take it off the list"


@pytest.mark.parametrize("folder", COUNTED)
def test_arrows_run_one_way_and_are_counted(folder: str) -> None:
    assert tuple(TopologicalSorter(rooms(folder)).static_order())  # ``CycleError`` names a circle
    assert said(folder) in " ".join((ROOT / "docs/architecture.md").read_text().split())


def modules_by_name() -> dict[str, Path]:
    """Every module of the core and the app by its dotted name; a package by its own."""
    paths = [path.relative_to(ROOT) for folder in ("tmmu_core", "app") for path in modules(folder)]
    return {".".join(path.with_suffix("").parts).removesuffix(".__init__"): ROOT / path for path in paths}


def reached_from(path: Path, known: Collection[str]) -> set[str]:
    """Modules that one names: imported at its top, inside a function, for a type alone, or by a text that is a name.

    Of ``from package import name`` it is the module called so, where there is one, else the package.
    """
    found: set[str] = set()
    for item in ast.walk(parsed(path)):
        if isinstance(item, ast.Import):
            found |= {alias.name for alias in item.names}
        elif isinstance(item, ast.ImportFrom) and item.module:
            inner = {alias.name: f"{item.module}.{alias.name}" for alias in item.names}
            found |= {inner[name] if inner[name] in known else item.module for name in inner}
        elif isinstance(item, ast.Constant) and isinstance(item.value, str) and "." in item.value:
            found.add(item.value)
    return found & set(known)


def test_no_module_comes_back_to_itself() -> None:
    """An import that waits in a function is one all the same: two modules that need each other are one, or three."""
    known = modules_by_name()
    drawn = {name: reached_from(path, known) - {name} for name, path in known.items()}
    assert tuple(TopologicalSorter(drawn).static_order())  # ``CycleError`` names a circle


def test_nobody_in_the_core_knows_the_app_or_what_it_draws_with() -> None:
    foreign = {"app", "streamlit", "plotly", "typer", "rich"}
    broken = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules("tmmu_core")
        for name in imports_of(path)
        if name.split(".")[0] in foreign
    ]
    assert broken == []


def test_the_app_is_known_by_one_name_that_a_wheel_can_change() -> None:
    """Its modules import each other by statements alone, and by full names; a text that names one is not renamed."""
    broken = []
    for path in modules("app"):
        for item in ast.walk(parsed(path)):
            if isinstance(item, ast.Import) and any(alias.name.split(".")[0] == "app" for alias in item.names):
                broken.append(f"{path.relative_to(ROOT)}: import app…")
            if (
                isinstance(item, ast.Constant)
                and isinstance(item.value, str)
                and re.fullmatch(r"app(\.\w+)*\.?", item.value)
            ):
                broken.append(f"{path.relative_to(ROOT)}: {item.value!r}")
    assert broken == []


def test_the_door_alone_finds_the_faces() -> None:
    naming = [str(path.relative_to(ROOT)) for path in modules("tmmu_core") if "tmmu_explorer" in path.read_text()]
    assert naming == ["tmmu_core/door.py"]


def test_what_comes_with_an_extra_is_loaded_where_it_is_used() -> None:
    """At the top of a module of the base nothing is imported that the base does not install."""
    faces = ("say", "cli", "report", "canvas", "serving/reach.py")
    base = modules("tmmu_core") + [p for p in modules("app") if str(p.relative_to(ROOT / "app")).startswith(faces)]
    broken = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in base
        if not path.name.startswith("fx_") and "store" not in path.parts
        for item in parsed(path).body
        if isinstance(item, ast.Import | ast.ImportFrom)
        for name in ([alias.name for alias in item.names] if isinstance(item, ast.Import) else [item.module or ""])
        if name.split(".")[0] in EXTRA_OF
    ]
    assert broken == []


def test_each_format_is_known_to_its_own_importer_alone() -> None:
    only = {"onnx": {"onnx.py"}, "torch": {"torch.py"}, "tflite": {"tflite.py"}}
    broken = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules("tmmu_core") + modules("app")
        for name in imports_of(path)
        if name.split(".")[0] in only
        and not path.name.startswith(tuple(Path(n).stem for n in only[name.split(".")[0]]))
    ]
    assert [line for line in broken if "importers" not in line and "onnx_run" not in line] == []


def test_only_the_store_knows_databases() -> None:
    broken = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules("tmmu_core") + modules("app")
        for name in imports_of(path)
        if name.split(".")[0] in {"sqlalchemy", "alembic", "psycopg"} and "tmmu_core/store/" not in path.as_posix()
    ]
    assert broken == []


def test_only_one_file_says_session_state() -> None:
    saying = [str(p.relative_to(ROOT)) for p in modules("app") if "session_state" in p.read_text()]
    assert saying in ([], ["app/session/state.py"])


def test_planners_know_no_clock_and_no_random_numbers_but_philox() -> None:
    broken = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules("tmmu_core/planners") + modules("tmmu_core/liveness")
        for name in imports_of(path)
        if name.split(".")[0] in {"time", "random", "datetime", "os", "secrets", "uuid"}
    ]
    assert broken == []


MOST_PARAMETERS = 5
VERBS: dict[str, str] = {"tmmu_core/graph/importers/torch.py": "import_torch"}
"""Module → the verb that people call of it, as they call those of ``library/verbs.py`` (decision 61)."""


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many there are, ``self`` and what is gathered with stars left out."""
    said = function.args
    return sum(one.arg not in ("self", "cls") for one in (*said.posonlyargs, *said.args, *said.kwonlyargs))


def compiled_in(tree: ast.Module) -> set[str]:
    """Functions that numba compiles: under a decorator, or given to ``njit`` by their names."""
    calls = [item for item in ast.walk(tree) if isinstance(item, ast.Call) and ast.unparse(item.func) == "njit"]
    return {argument.id for call in calls for argument in call.args if isinstance(argument, ast.Name)} | {
        item.name
        for item in ast.walk(tree)
        if isinstance(item, ast.FunctionDef) and any("njit" in ast.unparse(one) for one in item.decorator_list)
    }


def may_take_many(path: str, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """A loop that numba compiles (its arrays, one by one), a command and a verb (what a person says, one by one)."""
    compiled = function.name in compiled_in(ast.parse((ROOT / path).read_text()))
    command = path.startswith("app/cli/") and function.name == "command"
    return compiled or command or path == "tmmu_core/library/verbs.py" or VERBS.get(path) == function.name


def test_who_needs_more_than_five_things_takes_a_value() -> None:
    taking = {
        f"{path.relative_to(ROOT).as_posix()}::{item.name}"
        for path in modules("tmmu_core") + modules("app")
        for item in ast.walk(parsed(path))
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)
        and parameters(item) > MOST_PARAMETERS
        and not may_take_many(path.relative_to(ROOT).as_posix(), item)
    }
    assert sorted(taking) == []


NO_NAMES = {"told"}
"""Words that say nothing of a value: five kinds of things were called so once. A value is named by what it is."""


def names_in(path: Path) -> set[str]:
    """What a module itself names: variables, parameters, functions, classes, fields; without leading underscores."""
    found: set[str] = set()
    for item in ast.walk(parsed(path)):
        if isinstance(item, ast.Name):
            found.add(item.id)
        elif isinstance(item, ast.Attribute):
            found.add(item.attr)
        elif isinstance(item, ast.arg):
            found.add(item.arg)
        elif isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(item.name)
    return {name.strip("_").lower() for name in found}


def test_a_value_is_named_by_what_it_is() -> None:
    folders = ("app", "tmmu_core", "benchmarks", "sample_graphs", "tests")
    assert [
        str(path.relative_to(ROOT)) for folder in folders for path in modules(folder) if names_in(path) & NO_NAMES
    ] == []


WRITES: dict[str, set[str]] = {
    "app/cli/streams.py": {"os.open", "open"},  # the null device, in the place of a stream that is closed
    "app/report/pdf.py": {"write_bytes"},  # a page in a folder that is gone with the browser that prints it
    "app/session/workers.py": {"write_text"},  # the kernel's share for a session
    "tmmu_core/plan/formats/c_project.py": {"open"},  # a member of an archive that is made in memory
    "tmmu_core/runtime/measure_child.py": {"write_text"},  # the kernel's counter of memory
    "tmmu_core/writing.py": {"write_bytes", "open", "os.open"},
}
"""Module → the calls by which it writes files. Everything else writes by ``tmmu_core.writing``."""


def writing_calls(path: Path) -> set[str]:
    """The calls in a module that open files for writing."""
    found = set()
    for item in ast.walk(parsed(path)):
        if not isinstance(item, ast.Call):
            continue
        name = ast.unparse(item.func)
        last = name.rpartition(".")[2]
        modes = [a.value for a in [*item.args, *(k.value for k in item.keywords)] if isinstance(a, ast.Constant)]
        if last in ("write_bytes", "write_text", "mkstemp", "NamedTemporaryFile"):
            found.add(last)
        elif name == "os.open":
            found.add(name)
        elif last == "open" and any(
            isinstance(mode, str) and re.fullmatch(r"[wax]b?\+?|r\+b?|r?b\+", mode) for mode in modes
        ):
            found.add("open")
    return found


def test_one_module_opens_files_for_writing() -> None:
    found = {
        str(p.relative_to(ROOT)): calls for p in modules("tmmu_core") + modules("app") if (calls := writing_calls(p))
    }
    assert found == WRITES


def test_what_msgspec_reads_is_learned_by_the_module_that_defines_it() -> None:
    """Two threads that have it learn one type at once end the process; a module is run by one."""
    defined = {
        path: [item for item in parsed(path).body if isinstance(item, ast.ClassDef)] for path in modules("tmmu_core")
    }
    structs = {"msgspec.Struct"}
    of = {path: list[str]() for path in defined}
    while found := [
        (path, item.name)
        for path, classes in defined.items()
        for item in classes
        if item.name not in of[path] and structs & {ast.unparse(base) for base in item.bases}
    ]:
        for path, name in found:
            of[path].append(name)
            structs.add(name)
    assert sum(map(len, of.values())) > 40
    assert {path: sorted(names) for path, names in of.items() if names} == {
        path: sorted(names) for path in of if of[path] and (names := learned_in(path))
    }


def test_rows_of_a_store_and_moves_of_a_recipe_are_learned_too() -> None:
    from tmmu_core.fit.moves import Move
    from tmmu_core.fit.recipe import moves_of
    from tmmu_core.store import rows

    assert moves_of
    kinds = [kind for name, kind in vars(rows).items() if name.endswith("Row") and isinstance(kind, type)]
    assert len(kinds) == 7
    for kind in (*kinds, rows.Asked, rows.Refused, rows.Planned, Move):
        assert "__msgspec_cache__" in vars(kind)


def learned_in(path: Path) -> list[str]:
    """What a module has msgspec learn, by the names that it calls it."""
    calls = [
        item.value for item in parsed(path).body if isinstance(item, ast.Expr) and isinstance(item.value, ast.Call)
    ]
    return [ast.unparse(each) for call in calls if ast.unparse(call.func) == "learned" for each in call.args]
