"""The JSON Schemas of all inputs and outputs (graphs, plans, traces, every ``--json``), in this folder.

Fields may be added within a schema's version; readers ignore unknown fields.
``tests/app/cli/test_schemas.py`` validates every output against them.
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
    """Return the schema as a dictionary."""
    found: dict[str, Any] = json.loads(file(name).read_text(encoding="utf-8"))
    return found


def title(name: str) -> str:
    """Return the description of a schema in one sentence."""
    return str(schema(name).get("title", ""))
