"""Error records: the given token, and the bytes that an arena needs."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.cli.main import run
from tests.plans.examples import chain_plan
from tests.support.build import chain, graph, node, tensor
from tests.support.paths import SAMPLES
from tmmu_core.base.errors import AddressCollision, ArenaTooSmall, ContractError, InvalidIrShapes, TmmuError
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.making.sparse_addresses import with_sparse_addresses
from tmmu_core.runtime.apply import apply_plan

CHAIN = SAMPLES / "linear_chain.tmmu.json"
TOKEN = "ab" * 32


def record(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert run([*arguments, "--token", TOKEN, "--json"]) == 2
    fields: dict[str, Any] = json.loads(capsys.readouterr().err.splitlines()[-1])
    return fields


def test_record_of_an_invalid_file_has_the_token(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    document = json.loads(CHAIN.read_text())
    document["tensors"][2]["dtype"] = "float99"
    (tmp_path / "broken.json").write_text(json.dumps(document))
    for command in (["plan"], ["trace"], ["apply"], ["verify"]):
        fault = record(capsys, *command, str(tmp_path / "broken.json"))
        assert (fault["code_id"], fault["replay_token"]) == ("INVALID_IR_SHAPES", TOKEN)


def test_records_about_a_plan_have_its_token() -> None:
    plan = chain_plan(4, planner="naive", seed=7)
    applied = apply_plan(plan, security="regulated")
    with pytest.raises(InvalidIrShapes) as fill:
        applied.debug_fill(plan.tensor_ids[0], 1)
    with pytest.raises(InvalidIrShapes) as unbound:
        applied.pointer("nobody")
    with pytest.raises(AddressCollision) as collision:
        with_sparse_addresses(plan, bits=8)
    for refused in (fill, unbound, collision):
        assert refused.value.record()["replay_token"] == plan.replay_token.hex()


def test_record_of_an_undeclared_arena_has_its_required_bytes() -> None:
    graph = chain(3, "none")
    whole = plan_graph(graph).plan
    with pytest.raises(ArenaTooSmall) as refused:
        plan_graph(graph, arenas={"parameters": {}})
    diagnostics = refused.value.record()["diagnostics"]
    assert (diagnostics["arena"], diagnostics["capacity"]) == ("activations", 0)
    assert diagnostics["required"] == whole.arena_of["activations"].extent_bytes


def test_every_error_has_a_record() -> None:
    assert TmmuError("what went wrong").record() == {"code_id": "TMMU_ERROR", "message": "what went wrong", "hint": ""}


SMALL_ARENA = {"activations": {"capacity_bytes": 1}, "parameters": {}, "gradients": {}}
OFF_GRID = {"activations": {"alignment_bytes": 3}, "parameters": {}, "gradients": {}}
HUGE = graph(
    [tensor("x", 2**61, role="input"), tensor("y", 2**61), tensor("z", 2**61)],
    [node("a", "x", "y", inplace="none"), node("b", "x y", "z", inplace="none")],
    "x",
    "z",
)
DANGLING = graph([tensor("y")], [node("a", "nobody", "y")])


@pytest.mark.parametrize(
    ("code", "number", "severity", "fields", "does"),
    [
        ("ALIGNMENT_VIOLATION", 1301, "FATAL", "arena logical_slot", lambda: plan_graph(chain(3), arenas=OFF_GRID)),
        ("TMMU_ALLOCATION_FAILURE", 1302, "FATAL", "arena peak_required_bytes", lambda: plan_graph(chain(3), budget=1)),
        ("ALLOCATION_OVERFLOW", 1303, "FATAL", "arena offset size", lambda: plan_graph(HUGE)),
        ("ARENA_TOO_SMALL", 1304, "ERROR", "arena capacity required", lambda: plan_graph(chain(3), arenas=SMALL_ARENA)),
        ("LIVENESS_CYCLE", 1305, "ERROR", "ir_hash node_id", lambda: plan_graph(chain(2), order=["n001", "n000"])),
        ("INVALID_IR_SHAPES", 1306, "ERROR", "ir_hash node_id", lambda: plan_graph(DANGLING)),
        (
            *("ADDRESS_COLLISION", 1307, "FATAL", "arena logical_slot"),
            lambda: with_sparse_addresses(chain_plan(4, planner="naive"), bits=8),
        ),
    ],
)
def test_each_code_of_the_contract_has_its_number_severity_and_fields(
    code: str, number: int, severity: str, fields: str, does: Callable[[], object]
) -> None:
    """Contract §5."""
    with pytest.raises(ContractError) as caught:
        does()
    fault = caught.value.record()
    assert (fault["code_id"], fault["numeric_code"], fault["severity"]) == (code, number, severity)
    assert re.fullmatch(r"UML_OS\.[\w.]+_v\d+", fault["failure_operator"])
    assert len(fault["replay_token"]) == 64
    assert {"t", "rank", "subsystem", "message", "retryable"} <= set(fault)
    assert set(fields.split()) <= set(fault["diagnostics"])
    assert all(value is None or isinstance(value, int | float | str) for value in fault["diagnostics"].values())
