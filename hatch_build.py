"""Build hook: put ``app/`` into the wheel as ``tmmu_explorer``, and compile the native library if none is prebuilt.

``app`` is too common a name for an installed package, so the wheel contains it under another name, with changed
imports, and with the samples and the glossary inside. An editable install uses the sources in place.

If no prebuilt library fits the platform, a C compiler (``CC``, ``cc``, ``gcc`` or ``clang``) builds one, and the wheel
is platform-specific. Without a compiler the loops run as plain Python. With ``AUDITWHEEL_PLAT`` (set by the containers
of cibuildwheel; ``manylinux2014_x86_64`` …) the wheel has that tag and the library of that machine only.
"""

from __future__ import annotations

import ast
import os
import re
import runpy
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = Path(__file__).resolve().parent
NAME = "tmmu_explorer"
LEFT_OUT = {"__pycache__", "golden", "canvas_demo"}  # folders that a wheel does not contain
DATA = ("sample_graphs", "docs/glossary.md")  # files that ``app`` reads: beside it in a checkout, inside it in a wheel

NATIVE = ROOT / "tmmu_core" / "planners" / "native"
FLAGS = ("-std=c11", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-fwrapv")

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)")
"""A relative link or picture of a Markdown file."""
_IMPORT = re.compile(r"^(\s*)from app(?=[.\s])", re.M)


def renamed(source: str, path: Path) -> str:
    """Return the text of a module with ``app`` renamed in its imports. Fails if an import of ``app`` remains."""
    text = _IMPORT.sub(rf"\1from {NAME}", source)
    for item in ast.walk(ast.parse(text)):
        names = [item.module or ""] if isinstance(item, ast.ImportFrom) else []
        names += [alias.name for alias in item.names] if isinstance(item, ast.Import) else []
        assert not any(name.split(".")[0] == "app" for name in names), f"{path}: write this import as 'from app…'"
    return text


def files(folder: Path) -> list[Path]:
    """Return the files in a folder, or the file itself, that a wheel contains."""
    if folder.is_file():
        return [folder]
    return sorted(p for p in folder.rglob("*") if p.is_file() and not LEFT_OUT & set(p.parts))


def lay_out(target: Path) -> None:
    """Write the package ``tmmu_explorer`` below ``target``."""
    sources = [(path, path.relative_to(ROOT / "app")) for path in files(ROOT / "app")]
    data = [path for name in DATA for path in files(ROOT / name) if path.suffix != ".py"]
    for path, place in [*sources, *((path, path.relative_to(ROOT)) for path in data)]:
        to = target / place
        to.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".py":
            to.write_text(renamed(path.read_text(encoding="utf-8"), path), encoding="utf-8")
        else:
            to.write_bytes(path.read_bytes())


def compile_native(folder: Path) -> Path | None:
    """Compile the native library into ``folder``; return ``None`` if a prebuilt one fits or no C compiler works."""
    loader = SimpleNamespace(**runpy.run_path(str(NATIVE / "__init__.py")))  # its package needs dependencies
    names = [os.environ.get("CC", ""), "cc", "gcc", "clang"]
    compiler = next((found for name in names if name and (found := shutil.which(name))), None)
    if compiler is None or not loader.is_supported() or loader.prebuilt() is not None:
        return None
    path = folder / str(loader.built_file_name())
    sources = [str(source) for source in sorted(NATIVE.glob("*.c"))]
    done = subprocess.run([compiler, *FLAGS, "-o", str(path), *sources], capture_output=True)
    return path if done.returncode == 0 and loader.load(path) is not None else None


def repository() -> str:
    """Return the address of the repository: that of the running workflow, or a placeholder to replace."""
    server, name = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
    return f"{server}/{name}" if server and name else "https://github.com/OWNER/tmmu-plan-explorer"


class CustomMetadataHook(MetadataHookInterface):
    """Metadata hook of hatchling: the README with absolute links, and the project's URLs."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set ``readme`` and ``urls``."""
        home, tag = repository(), f"v{metadata['version']}"
        text = LINK.sub(
            lambda link: f"{link[1]}[{link[2]}]({home}/{'raw' if link[1] else 'blob'}/{tag}/{link[3]})",
            (ROOT / "README.md").read_text(encoding="utf-8"),
        )
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        pages = {"Documentation": "docs/index.md", "Changelog": "CHANGELOG.md", "Security": "SECURITY.md"}
        metadata["urls"] = {"Homepage": home, "Repository": home, "Issues": f"{home}/issues"} | {
            name: f"{home}/blob/{tag}/{page}" for name, page in pages.items()
        }


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Build hook of hatchling."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the renamed package and the compiled library to a wheel; compile into the sources of an editable one."""
        if self.target_name != "wheel":
            return
        if version == "editable":
            compile_native(NATIVE)
            return
        self.laid_out = tempfile.TemporaryDirectory()
        lay_out(Path(self.laid_out.name))
        build_data["force_include"][self.laid_out.name] = NAME
        platform = os.environ.get("AUDITWHEEL_PLAT")
        if platform:
            others = [path.name for path in NATIVE.glob("linux-*.so") if not platform.endswith(path.stem[6:])]
            self.build_config.target_config.setdefault("exclude", []).extend(others)
            build_data |= {"pure_python": False, "tag": f"py3-none-{platform}"}
            return
        self.compiled = tempfile.TemporaryDirectory()
        library = compile_native(Path(self.compiled.name))
        if library is not None:
            build_data["force_include"][str(library)] = f"{NATIVE.relative_to(ROOT).as_posix()}/{library.name}"
            build_data["pure_python"] = False
            build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary folders."""
        for name in ("laid_out", "compiled"):
            if hasattr(self, name):
                getattr(self, name).cleanup()
