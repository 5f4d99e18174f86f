"""An error's record says what is known: the token that was given, and the bytes that an arena would have needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.cli.main import run
from tests.build import chain
from tests.plan.examples import chain_plan
from tmmu_core.errors import AddressCollision, ArenaTooSmall, InvalidIrShapes, TmmuError
from tmmu_core.plan.making.engine import plan_graph
from tmmu_core.plan.making.sparse import with_sparse_addresses
from tmmu_core.runtime.apply import apply_plan

SAMPLES = Path(__file__).resolve().parents[2] / "sample_graphs"
CHAIN = SAMPLES / "linear_chain.tmmu.json"
TOKEN = "ab" * 32


def record(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert run([*arguments, "--token", TOKEN, "--json"]) == 2
    told: dict[str, Any] = json.loads(capsys.readouterr().err.splitlines()[-1])
    return told


def test_the_token_is_in_the_record_of_a_file_that_breaks_the_contract(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    document = json.loads(CHAIN.read_text())
    document["tensors"][2]["dtype"] = "float99"
    (tmp_path / "broken.json").write_text(json.dumps(document))
    for command in (["plan"], ["trace"], ["apply"], ["verify"]):
        told = record(capsys, *command, str(tmp_path / "broken.json"))
        assert (told["code_id"], told["replay_token"]) == ("INVALID_IR_SHAPES", TOKEN)


def test_the_token_is_in_the_record_of_a_refused_debug_fill(capsys: pytest.CaptureFixture[str]) -> None:
    told = record(capsys, "apply", str(CHAIN), "--security", "confidential", "--debug-fill", "1")
    assert (told["diagnostics"]["reason"], told["replay_token"]) == ("debug_fill_forbidden", TOKEN)


def test_the_plans_own_token_is_in_the_records_of_what_is_done_with_it() -> None:
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


def test_an_arena_that_is_not_declared_requires_what_it_would_have_taken() -> None:
    graph = chain(3, "none")
    whole = plan_graph(graph).plan
    with pytest.raises(ArenaTooSmall) as refused:
        plan_graph(graph, arenas={"parameters": {}})
    told = refused.value.record()["diagnostics"]
    assert (told["arena"], told["capacity"]) == ("activations", 0)
    assert told["required"] == whole.arena_of["activations"].extent_bytes


def test_every_error_has_a_record() -> None:
    assert TmmuError("what went wrong").record() == {
        "code_id": "TMMU_ERROR",
        "message": "what went wrong",
        "hint": "",
    }
