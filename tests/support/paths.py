"""Folders and graphs that tests read."""

from pathlib import Path

from tmmu_core.formats.open_file import read_graph
from tmmu_core.graph.model import Graph

ROOT = Path(__file__).resolve().parents[2]
"""The repository."""
SAMPLES = ROOT / "sample_graphs"
DATA = ROOT / "tests" / "data"


def read_graph_file(path: Path | str) -> Graph:
    return read_graph(Path(path).read_bytes(), Path(path).name)
