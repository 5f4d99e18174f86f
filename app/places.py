"""Where what lies beside the faces is found: the samples, the glossary, the schemas."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).resolve().parent


def place(name: str) -> Path:
    """A file or folder of the project: in a wheel it lies inside this package, in a checkout beside it."""
    inside = HERE / name
    return inside if inside.exists() else HERE.parent / name
