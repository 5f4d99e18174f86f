"""Folders that tests read."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The repository."""
SAMPLES = ROOT / "sample_graphs"
DATA = ROOT / "tests" / "data"
