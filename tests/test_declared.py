"""What the specification declares about itself (seed 0.E, 0.G, 0.H, 0.J, 0.Z, I.A): names, versions, pins, no state."""

import re
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from importlib import import_module

import msgspec

from tests.support.build import chain
from tests.support.paths import ROOT, SAMPLES, read_graph_file
from tmmu_core import SPEC_VERSION
from tmmu_core.base import errors
from tmmu_core.base.errors import OPERATORS, ContractError
from tmmu_core.plans.making.engine import plan_graph


def test_every_operator_of_the_manifest_exists() -> None:
    for place in OPERATORS.values():
        module, _, name = place.partition(":")
        assert callable(reduce(getattr, name.split("."), import_module(module)))


def test_operators_are_named_in_full() -> None:
    assert [name for name in OPERATORS if not re.fullmatch(r"UML_OS\.(TMMU|Model|Error)\.[A-Z]\w*_v\d+", name)] == []
    assert SPEC_VERSION in OPERATORS


def test_error_names_an_operator_of_the_manifest() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ContractError)]
    assert {kind.operator for kind in kinds} <= set(OPERATORS)


def test_concurrent_planning_gives_the_same_plans() -> None:
    graphs = [read_graph_file(SAMPLES / f"{name}.tmmu.json") for name in ("mixed_sizes", "residual_block")]
    alone = [plan_graph(graph).plan.tmmu_plan_hash for graph in graphs * 4]
    with ThreadPoolExecutor(8) as threads:
        together = [found.plan.tmmu_plan_hash for found in threads.map(plan_graph, graphs * 4)]
    assert together == alone


def test_planning_keeps_no_state() -> None:
    graph = chain(3)
    before = msgspec.json.encode(graph)
    first, other, again = plan_graph(graph), plan_graph(chain(5)), plan_graph(graph)
    assert first.plan.tmmu_plan_hash == again.plan.tmmu_plan_hash != other.plan.tmmu_plan_hash
    assert msgspec.json.encode(graph) == before


def test_dependencies_are_pinned() -> None:
    for name in ("requirements.lock", "requirements-dev.lock"):
        lines = [line for line in (ROOT / name).read_text().splitlines() if line.strip() and not line.startswith("#")]
        assert lines
        assert [line for line in lines if not re.match(r"[\w.\-\[\]]+==[\w.]+", line)] == []


def test_specification_version_is_hashed_into_tokens() -> None:
    """A change of ranges, slots or addresses is a new major version (0.J)."""
    assert SPEC_VERSION == "UML_OS.TMMU.PrepareMemory_v2"
    assert list((SAMPLES / "golden").iterdir())
