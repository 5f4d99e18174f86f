"""``tmmu restore``: read the plan of a checkpoint."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.console import STREAM, SUCCESS, print_lines, read_input, write_bytes
from app.cli.first.plan import write_plan
from app.cli.options import OPERATORS, AsJson, Out, Source, read_token
from app.cli.plan_text import print_plan
from tmmu_core.formats.planfile import plan_file
from tmmu_core.formats.planfile.checkpoint import restore
from tmmu_core.judge.verifier.finished_plan import refuse_invalid

Token = Annotated[str | None, typer.Option(metavar="HEX", help="Accept only a checkpoint with this replay token.")]


def command(checkpoint: Source, token: Token = None, output: Out = None, json: AsJson = False) -> int:
    """Restore the plan of a checkpoint and verify its hash and rows."""
    plan = restore(read_input(checkpoint), checkpoint, token=None if token is None else read_token(token))
    refuse_invalid(plan, OPERATORS["checkpoint"])
    if output is not None:
        write_plan(plan, output)
    if output == STREAM:
        return SUCCESS
    if json:
        write_bytes(plan_file.to_json(plan))
        return SUCCESS
    print_lines("restored: the recomputed plan hash equals the stored one", "")
    print_plan(plan)
    return SUCCESS
