"""``tmmu restore``: a checkpoint back to its plan."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.console import FINE, STREAM, read_input, say, say_bytes
from app.cli.options import OPERATORS, AsJson, Out, Source, read_token
from app.cli.plan import write_plan
from app.cli.show import plan_in_words
from tmmu_core.judge.finished import refuse_invalid
from tmmu_core.plan.formats import files
from tmmu_core.plan.formats.checkpoint import restore

Token = Annotated[str | None, typer.Option(metavar="HEX", help="Take only a checkpoint made under this replay token.")]


def command(checkpoint: Source, token: Token = None, output: Out = None, json: AsJson = False) -> int:
    """Restore a plan; refused when its recomputed hash is not the stored one, or when it does not verify."""
    plan = restore(read_input(checkpoint), checkpoint, token=None if token is None else read_token(token))
    refuse_invalid(plan, OPERATORS["checkpoint"])
    if output is not None:
        write_plan(plan, output)
    if output == STREAM:
        return FINE
    if json:
        say_bytes(files.to_json(plan))
        return FINE
    say("restored: the plan hash recomputed from the rows is the stored one", "")
    plan_in_words(plan)
    return FINE
