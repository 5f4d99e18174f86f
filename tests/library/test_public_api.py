"""``import tmmu``: signatures, help texts, suggestions and sources of the public functions."""

import doctest
import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tmmu
import tmmu_core
from tests.support.paths import ROOT, SAMPLES
from tmmu_core.library import functions, plan_result

SAMPLE = SAMPLES / "mixed_sizes.tmmu.json"
FUNCTIONS = ("plan", "fit", "pack", "compare", "read", "verify", "executorch_pass")
ERRORS = ("TmmuError", "ArenaTooSmall", "InvalidIrShapes", "MissingExtra", "UnreadableInput")


def test_dir_lists_the_public_names_only() -> None:
    assert dir(tmmu) == sorted([*FUNCTIONS, "fake_tensors", "Plan", "Graph", "PlanRequest", *ERRORS])
    assert all(getattr(tmmu, name) is getattr(tmmu_core, name) for name in dir(tmmu))
    with pytest.raises(AttributeError):
        tmmu.pln  # type: ignore[attr-defined]  # noqa: B018


def test_tmmu_is_importable_outside_of_the_checkout(tmp_path: Path) -> None:
    program = "import sys, tmmu; assert 'numpy' not in sys.modules; print(tmmu.pack([0], [1], [4]).extent_bytes)"
    printed = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert printed.stdout.strip() == "4"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_has_typed_parameters_and_a_numpy_docstring(name: str) -> None:
    function = getattr(tmmu, name)
    assert inspect.isfunction(function)
    parameters = inspect.signature(function).parameters.values()
    assert all(p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.annotation is not p.empty for p in parameters)
    text = inspect.getdoc(function) or ""
    for section in ("Parameters", "Returns", "Raises", "Examples"):
        assert f"\n{section}\n{'-' * len(section)}\n" in text
    documented = text.partition("Parameters\n")[2].partition("Returns\n")[0]
    assert [p.name for p in parameters if p.name not in documented] == []
    raised = text.partition("Raises\n------\n")[2].partition("\n\n")[0]
    assert {line for line in raised.splitlines() if not line.startswith(" ")} <= {*ERRORS}


def test_plan_accepts_every_field_of_a_request() -> None:
    fields = {"capacity" if name == "capacities" else name for name in inspect.signature(tmmu.PlanRequest).parameters}
    assert fields <= set(inspect.signature(tmmu.plan).parameters)
    assert fields <= set(inspect.signature(tmmu.fit).parameters)


@pytest.mark.parametrize("module", [functions, plan_result])
def test_docstring_examples_run(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    examples = doctest.DocTestFinder(exclude_empty=True).find(module)
    runner = doctest.DocTestRunner()
    for example in examples:
        runner.run(example)
    assert runner.tries > 0
    assert runner.failures == 0


@pytest.mark.parametrize(
    ("call", "closest"),
    [
        (lambda: tmmu.plan(SAMPLE, planer="auto"), "planner"),
        (lambda: tmmu.fit(SAMPLE, "1MiB", maxcost=5), "max_cost"),
        (lambda: tmmu.pack([0], [1], [4], align=4), "alignment"),
        (lambda: tmmu.read(SAMPLE, dim={}), "dims"),
        (lambda: tmmu.plan(SAMPLE).fit("1MiB", allowed="order"), "allow"),
        (lambda: tmmu.plan(SAMPLE).gate(max_gaps=5), "max_gap"),
    ],
)
def test_unknown_option_suggests_the_closest_one(call: Callable[[], Any], closest: str) -> None:
    with pytest.raises(TypeError, match=rf"Did you mean '{closest}'\? Choose from: (?!self)"):
        call()


def test_dict_is_read_as_a_native_graph() -> None:
    document = json.loads(SAMPLE.read_text())
    assert tmmu.plan(document).tmmu_plan_hash == tmmu.plan(SAMPLE).tmmu_plan_hash
    assert tmmu.fit(document, "300KiB").answer == "fits"


@pytest.mark.parametrize("function", [tmmu.plan, tmmu.fit])
def test_capacity_is_a_number_of_any_type(function: Callable[..., Any]) -> None:
    assert function(SAMPLE, capacity=np.int64(2**20)).extent_bytes <= 2**20
    with pytest.raises(tmmu.TmmuError, match=r"capacity: \[1, 2\] is not a number of bytes"):
        function(SAMPLE, capacity=[1, 2])


def test_help_names_every_task() -> None:
    for task in ("plan", "pack", "compare", "fit", "sweep", "plot", "gate", "snapshot", "store"):
        assert task in (tmmu.__doc__ or "")


@pytest.mark.parametrize("document", [{}, {"nodes": [object()]}, {1: {2}}])
def test_dict_without_a_graph_is_rejected(document: dict[Any, Any]) -> None:
    with pytest.raises(tmmu.TmmuError):
        tmmu.plan(document)
