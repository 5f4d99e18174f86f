"""What the wheel holds: ``tmmu_core`` as it stands, and the faces under the one other name that is ours.

``app`` is a name that half the world's programs have for themselves. In a wheel the folder ``app/`` is therefore the
package ``tmmu_explorer``: its files are the same but for the statements that import from ``app``. The samples and the
glossary lie inside it. An editable install leaves everything where it is (``docs/decisions/0072-one-wheel.md``).
"""

from __future__ import annotations

import ast
import re
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
NAME = "tmmu_explorer"
LEFT_OUT = {"__pycache__", "golden", "canvas_demo"}
DATA = ("sample_graphs", "docs/glossary.md", "docs/schemas")
"""What the faces read from beside them in a checkout, and inside them in a wheel."""

_IMPORT = re.compile(r"^(\s*)from app(?=[.\s])", re.M)


def renamed(source: str, path: Path) -> str:
    """A module's text with its imports from ``app`` taken from the wheel's name. Fails where one is left."""
    text = _IMPORT.sub(rf"\1from {NAME}", source)
    for item in ast.walk(ast.parse(text)):
        names = [item.module or ""] if isinstance(item, ast.ImportFrom) else []
        names += [alias.name for alias in item.names] if isinstance(item, ast.Import) else []
        assert not any(name.split(".")[0] == "app" for name in names), f"{path}: write this import as 'from app…'"
    return text


def files(folder: Path) -> list[Path]:
    """Every file below a folder that belongs into a wheel; the file itself where it is one."""
    if folder.is_file():
        return [folder]
    return sorted(p for p in folder.rglob("*") if p.is_file() and not LEFT_OUT & set(p.parts))


def lay_out(target: Path) -> None:
    """Write the package ``tmmu_explorer`` below ``target``."""
    for path in files(ROOT / "app"):
        to = target / path.relative_to(ROOT / "app")
        to.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".py":
            to.write_text(renamed(path.read_text(encoding="utf-8"), path), encoding="utf-8")
        else:
            to.write_bytes(path.read_bytes())
    for name in DATA:
        for path in files(ROOT / name):
            if path.suffix == ".py":
                continue
            to = target / path.relative_to(ROOT)
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(path.read_bytes())


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Called by hatchling, for each wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Put the faces into the wheel; an editable one needs none of them."""
        if self.target_name != "wheel" or version == "editable":
            return
        self.laid_out = tempfile.TemporaryDirectory()
        lay_out(Path(self.laid_out.name))
        build_data["force_include"][self.laid_out.name] = NAME

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was laid out."""
        if hasattr(self, "laid_out"):
            self.laid_out.cleanup()
