"""Every deliberately broken file is rejected with its error and place. ``tests/data/broken/expected.json`` is the
table; a file may fail when it is read, indexed or ordered.
"""

import json
from typing import Any

import pytest

from tests.support.paths import DATA, read_graph_file
from tmmu_core.base.errors import ContractError, TmmuError, UnreadableInput
from tmmu_core.formats.open_file import read_any
from tmmu_core.liveness.timeline import build_timeline

BROKEN = DATA / "broken"
EXPECTED: dict[str, dict[str, Any]] = json.loads((BROKEN / "expected.json").read_text(encoding="utf-8"))


def refusal(name: str) -> TmmuError:
    with pytest.raises(TmmuError) as caught:
        opened(name)
    return caught.value


def opened(name: str) -> None:
    if name.startswith("xla_"):  # a dump has a plan and no graph
        read_any((BROKEN / name).read_bytes(), name)
    else:
        build_timeline(read_graph_file(BROKEN / name), "inference", "inference")


RUN = ("custom_operator.onnx", "unknown_shape.onnx")
"""Models whose shapes are measured by onnxruntime in a process."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in RUN else []) for name in EXPECTED]
)
def test_broken_file_is_refused_with_error_and_place(name: str) -> None:
    expected, error = dict(EXPECTED[name]), refusal(name)
    assert type(error).__name__ == expected.pop("error")
    assert error.hint
    if isinstance(error, UnreadableInput):
        assert error.source == name
        assert expected.pop("place", "") in error.place
        assert expected.pop("tried", {}).items() <= dict(error.tried).items()
    else:
        assert isinstance(error, ContractError)
        assert {key: error.diagnostics.get(key) for key in expected} == expected
        expected.clear()
    assert expected == {}


def test_every_broken_file_has_an_expectation() -> None:
    assert sorted(path.name for path in BROKEN.iterdir() if path.name != "expected.json") == sorted(EXPECTED)


@pytest.mark.parametrize(
    "begins", ['{"graph": {"nodes": [{"id"', '{"name": "m", "layers": [1, 2', '{"ir_schema_hash": "x", "nod']
)
def test_truncated_json_is_reported_as_truncated(begins: str) -> None:
    with pytest.raises(TmmuError) as caught:
        read_any(begins.encode(), "model.json")
    assert "the text ends in the middle" in str(caught.value)
