"""Measure the installed package: ``python -m benchmarks.sizes`` writes a table of docs/how-to/install.md.

Each environment is created by ``python -m venv`` and ``pip install`` of a wheel of this checkout. Sizes are megabytes
(10^6 bytes) of all files with compiled bytecode, without ``pip`` and ``setuptools``.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.serving import ROOT
from tests.wheel.environment import build_wheel

PAGE = ROOT / "docs" / "how-to" / "install.md"
TABLE = re.compile(r"(?<=<!-- sizes -->\n).*?(?=<!-- /sizes -->)", re.S)
EXTRAS = {"": 150, "[app]": 680}
"""Extra → its limit in megabytes."""
LARGEST = 6  # number of packages in a row
OF_VENV = {"pip", "setuptools", "pkg_resources", "_distutils_hack"}


def folder_bytes(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def measured(wheel: Path, extra: str, folder: Path) -> tuple[dict[str, int], float]:
    """Install into ``folder``; return the bytes by package in site-packages, and the seconds of pip."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    began = time.perf_counter()
    subprocess.run([folder / "bin" / "pip", "install", "--quiet", f"{wheel}{extra}"], check=True, env=plain)
    seconds = time.perf_counter() - began
    (site,) = (folder / "lib").glob("python*/site-packages")
    sizes: dict[str, int] = {}
    for entry in site.iterdir():
        name = entry.name.partition("-")[0].removesuffix(".libs")
        sizes[name] = sizes.get(name, 0) + (folder_bytes(entry) if entry.is_dir() else entry.stat().st_size)
    return {name: size for name, size in sizes.items() if name not in OF_VENV}, seconds


def row(extra: str, sizes: dict[str, int], seconds: float) -> str:
    """Return one row of the table."""
    largest = sorted(sizes, key=lambda name: -sizes[name])[:LARGEST]
    shares = ", ".join(f"{name} {sizes[name] / 1e6:.0f}" for name in largest)
    command = f"pip install '.{extra}'" if extra else "pip install ."
    total = f"{sum(sizes.values()) / 1e6:.0f}"
    return f"| `{command}` | {total} | {EXTRAS[extra] or '–'} | {seconds:.0f} | {shares} |\n"


def main() -> None:
    """Measure every environment and write the table; exit with 1 if a size exceeds its limit."""
    table = "| command | MB | limit | seconds | largest packages, MB |\n|---|---:|---:|---:|---|\n"
    exceeded = False
    with tempfile.TemporaryDirectory() as folder:
        wheel = build_wheel(Path(folder) / "dist")
        for extra, limit in EXTRAS.items():
            sizes, seconds = measured(wheel, extra, Path(folder) / f"env{extra}")
            table += row(extra, sizes, seconds)
            exceeded |= limit is not None and sum(sizes.values()) > limit * 1_000_000
    print(table)
    PAGE.write_text(TABLE.sub(lambda _: table, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    sys.exit(exceeded)


if __name__ == "__main__":
    main()
