"""Environments to try the wheel in without a network: packages are linked from this environment."""

import re
import subprocess
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path

from tests.support.paths import ROOT

NAME = "tmmu-plan-explorer"


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout into ``folder``."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def environment(folder: Path, wheel: Path, extra: str = "") -> Path:
    """Return the folder ``bin`` of a new environment with the wheel and its requirements."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    binaries = folder / "bin"
    pip = [sys.executable, "-m", "pip", "--python", str(binaries / "python"), "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", "--no-index", "--no-deps", str(wheel)], check=True)
    (site,) = (folder / "lib").glob("python*/site-packages")
    (own,) = site.glob("*.dist-info")
    for found in required(Distribution.at(own), extra):
        for entry in {Path(file).parts[0] for file in found.files or () if ".." not in Path(file).parts}:
            if not (site / entry).exists() and entry != "__pycache__":
                (site / entry).symlink_to(Path(str(found.locate_file(entry))).resolve())
    return binaries


def required(own: Distribution, extra: str = "") -> list[Distribution]:
    """Return the requirements of a distribution with an extra, and their requirements."""
    from packaging.requirements import Requirement

    seen: dict[str, Distribution] = {}
    todo = [(own, extra)]
    asked = {(NAME, extra)}
    while todo:
        one, under = todo.pop()
        for text in one.requires or ():
            requirement = Requirement(text)
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": under}):
                continue
            name = re.sub(r"[-_.]+", "-", requirement.name).lower()
            for inner in requirement.extras or {""}:
                if (name, inner) in asked:
                    continue
                asked.add((name, inner))
                here = own if name == NAME else distribution(name)
                todo.append((here, inner))
                if name != NAME:
                    seen[name] = here
    return [seen[name] for name in sorted(seen)]


def weight(binaries: Path) -> int:
    """Return the bytes of the packages of an environment, without compiled Python files."""
    (site,) = (binaries.parent / "lib").glob("python*/site-packages")
    files = [p for entry in site.iterdir() for p in ([entry] if entry.is_file() else entry.resolve().rglob("*"))]
    return sum(p.stat().st_size for p in files if p.is_file() and "__pycache__" not in p.parts)
