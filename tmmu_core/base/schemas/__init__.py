"""The JSON Schemas of graphs (in ``graph/native``), and of plans, traces and outputs of ``--json`` (in this folder).

A later version may add fields to an output, so programs that read it should ignore unknown fields.
``tests/app/cli/test_schemas.py`` validates every output.
"""

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
GRAPH = HERE.parents[1] / "graph" / "native" / "native.schema.json"
NAMES = ("graph", *sorted(path.name.removesuffix(".schema.json") for path in HERE.glob("*.schema.json")))


def file(name: str) -> Path:
    """Return the path of the schema ``name``."""
    return GRAPH if name == "graph" else HERE / f"{name}.schema.json"


def schema(name: str) -> dict[str, Any]:
    """Return the schema ``name``."""
    return json.loads(file(name).read_text(encoding="utf-8"))
