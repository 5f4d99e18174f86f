"""Measure the size and structure of the project and write the table of docs/house.md: ``python -m benchmarks.house``.

All figures except two are computed from the files that git tracks. ``make coverage`` writes ``.coverage.json`` and
``make mutate`` writes ``.mutation/results.json``. Without these files, the page keeps the last figures.
"""

import ast
import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "house.md"
ORDER = (
    "base",
    "graph",
    "liveness",
    "planners",
    "plans",
    "judge",
    "formats",
    "fitting",
    "runtime",
    "seed",
    "sweep",
    "store",
)
"""The folders of the core from the lowest to the highest. Imports of a later folder by an earlier one are counted."""

Arrows = dict[str, set[str]]


def tracked(*patterns: str) -> list[Path]:
    """Return the files that git tracks and that match the patterns, in git's order."""
    listed = subprocess.run(["git", "ls-files", "--", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def lines(paths: list[Path]) -> int:
    """Return the number of lines in all files together."""
    return sum(path.read_bytes().count(b"\n") for path in paths)


def product() -> list[Path]:
    """Return the source files of the core and the app, without third-party files (``vendor``)."""
    return [
        path
        for path in tracked("tmmu", "tmmu_core", "app")
        if path.suffix in {".py", ".c", ".h", ".js", ".css"} and "vendor" not in path.parts
    ]


def imported_names(tree: ast.AST, package: str) -> Iterator[str]:
    """Return the first name below ``package`` of each import of a module, also inside functions."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from (name.removeprefix(f"{package}.").split(".")[0] for name in names if name.startswith(f"{package}."))


def rooms(folder: str) -> Arrows:
    """Return ``room → rooms that it imports`` for a folder. A room is an inner folder or a single module."""
    base, package = ROOT / folder, folder.replace("/", ".")
    names = {
        path.stem
        for path in base.iterdir()
        if (path.is_dir() and any(path.rglob("*.py"))) or (path.suffix == ".py" and path.stem != "__init__")
    }
    found: Arrows = {name: set() for name in sorted(names)}
    for path in sorted(base.rglob("*.py")):
        room = Path(path.relative_to(base).parts[0]).stem
        if room in found:
            found[room] |= set(imported_names(ast.parse(path.read_text()), package)) & names - {room}
    return found


def arrows_up(arrows: Arrows) -> list[str]:
    """Return the imports of the core that run against :data:`ORDER`."""
    place = {name: k for k, name in enumerate(ORDER)}
    return [
        f"{room} → {other}"
        for room, others in arrows.items()
        for other in sorted(others)
        if place.get(room, len(ORDER)) < place.get(other, len(ORDER))
    ]


def cycles(arrows: Arrows) -> bool:
    """Return whether the arrows contain a cycle."""
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError:
        return True
    return False


def package_folders() -> list[str]:
    """Return every folder of the core and the app with Python modules."""
    return sorted({path.parent.relative_to(ROOT).as_posix() for path in product() if path.suffix == ".py"})


def flat_folder_sizes() -> dict[str, int]:
    """Return the number of source files, without ``__init__``, of each folder without inner folders."""
    sizes: dict[str, int] = defaultdict(int)
    inner = {path.parent.parent for path in product()}
    for path in product():
        if path.name != "__init__.py" and path.parent not in inner:
            sizes[path.parent.relative_to(ROOT).as_posix()] += 1
    return dict(sizes)


def functions() -> Iterator[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Return every function of the product, with methods and inner functions."""
    for path in product():
        if path.suffix == ".py":
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield path, node


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of parameters without ``self`` and ``cls``."""
    given = function.args
    return sum(one.arg not in ("self", "cls") for one in (*given.posonlyargs, *given.args, *given.kwonlyargs))


def private_names_in_tests() -> list[str]:
    """Return the private names of the product that tests use: ``module._name`` and ``import _name``."""
    found: list[str] = []
    for path in tracked("tests/**/*.py", "tests/*.py"):
        tree = ast.parse(path.read_text())
        modules: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("tmmu", "tmmu_core", "app"):
                modules |= {alias.asname or alias.name for alias in node.names}
                found += [f"{path.name}: {a.name}" for a in node.names if re.match(r"_[a-z]", a.name)]
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id in modules
                and re.match(r"_[a-zA-Z]", node.attr)
            ):
                found.append(f"{path.name}: {node.value.id}.{node.attr}")
    return found


def long_subjects(since: str) -> tuple[int, int]:
    """Return ``(subjects over 72 characters, all commits)`` since a commit, without merges."""
    command = ["git", "log", "--no-merges", "--format=%s", f"{since}..HEAD"]
    subjects = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return sum(len(subject) > 72 for subject in subjects), len(subjects)


def words_of_docs() -> int:
    """Return the number of words in the documentation, the README and the contributor pages, without the changelog."""
    pages = [path for path in tracked("docs", "*.md") if path.suffix == ".md" and path.name != "CHANGELOG.md"]
    return sum(len(path.read_text().split()) for path in pages)


COVERAGE = ROOT / ".coverage.json"
"""Report that ``make coverage`` writes, for the gate and the PyTorch tests with their child processes."""
MUTANTS = ROOT / ".mutation" / "results.json"
BRANCHES, KILLED = "branch coverage of the gate", "mutants killed by the tests"


def branch_coverage() -> str:
    """Return the percentage of branches that the gate and the PyTorch tests run."""
    if not COVERAGE.exists():
        return row_of_page(BRANCHES)
    totals = json.loads(COVERAGE.read_text())["totals"]
    return f"{100 * totals['covered_branches'] / totals['num_branches']:.1f} %"


def killed_mutants() -> str:
    """Return the number of killed mutants of the last sample."""
    if not MUTANTS.exists():
        return row_of_page(KILLED)
    outcomes = [row["outcome"] for row in json.loads(MUTANTS.read_text())]
    killed = sum(outcome != "alive" for outcome in outcomes)
    return f"{killed} of {len(outcomes)} ({100 * killed / len(outcomes):.0f} %)"


def row_of_page(figure: str) -> str:
    """Return the last column of a row on the current page; "" if the row is missing."""
    found = re.search(rf"^\| {re.escape(figure)} \|.*\| ([^|]*) \|$", PAGE.read_text(), re.MULTILINE)
    return found[1] if found else ""


LISTED = 12
"""Minimum number of rooms of a folder that is listed."""
BASELINE = "d0b5278"
"""Commit of the column "before"."""


def table() -> list[tuple[str, str, str, str]]:
    """Return the rows ``(figure, before, required, now)``."""
    core = rooms("tmmu_core")
    flat = flat_folder_sizes()
    widest = max(flat, key=lambda name: (flat[name], name))
    over_long = [node for _, node in functions() if (node.end_lineno or 0) - node.lineno + 1 > 60]
    over_wide = [(path.parent.name, node.name) for path, node in functions() if parameters(node) > 8]
    decisions = tracked("docs/decisions/*.md")
    long, commits = long_subjects(BASELINE)
    rows = [
        ("product lines (Python, JavaScript, C, CSS)", "72k", "≤ 55k", f"{lines(product()):,}"),
        ("test lines", "72k", "≤ 40k", f"{lines(tracked('tests/*.py', 'tests/**/*.py')):,}"),
        ("rooms of the core", "25", "≤ 16", f"{len(core)}"),
        ("arrows of the core", "90", "≤ 70", f"{sum(map(len, core.values()))}"),
        ("arrows up", "3", "0", f"{len(arrows_up(core))}"),
        ("most files in one folder without inner folders", "41", "15", f"{flat[widest]} (`{widest}`)"),
        ("private names in tests", "259", "0", f"{len(private_names_in_tests())}"),
        (BRANCHES, "", "≥ 90 %", branch_coverage()),
        (KILLED, "", "", killed_mutants()),
        ("functions over 60 lines", "26", "≤ 8", f"{len(over_long)}"),
        (
            "functions with more than 8 parameters",
            "up to 21",
            "0",
            ", ".join(f"`{folder}`: {name}" for folder, name in over_wide) or "0",
        ),
        ("words in the documentation", "62.8k", "≤ 35k", f"{words_of_docs():,}"),
        ("decision records", "53", "≤ 15", f"{sum(path.name[0].isdigit() for path in decisions)}"),
        ("commit subjects over 72 characters since `d0b5278`", "58 %", "0", f"{long} of {commits}"),
    ]
    return [row for row in rows if row[-1]]  # figures that are not measured yet are left out


def page() -> str:
    """Return the page as Markdown."""
    rows = "\n".join(f"| {figure} | {before} | {required} | {now} |" for figure, before, required, now in table())
    folders = "\n".join(
        f"| `{folder}` | {len(arrows)} | {sum(map(len, arrows.values()))} |"
        for folder in package_folders()
        if len(arrows := rooms(folder)) >= LISTED
    )
    return f"""# Size and structure

`python -m benchmarks.house` measures the files that git tracks and writes this page.

| figure | before (`{BASELINE}`) | required | now |
|---|---:|---:|---:|
{rows}

## Rooms and arrows

A room is an inner folder or a loose module of a folder. An arrow is an import of one room by another. Folders
with fewer than {LISTED} rooms are not listed.

| folder | rooms | arrows |
|---|---:|---:|
{folders}
"""


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE.relative_to(ROOT))
