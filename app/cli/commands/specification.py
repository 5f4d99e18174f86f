"""Commands of the specification: ``trace``, ``checkpoint``, ``restore``, ``apply`` and ``schema``."""

from dataclasses import dataclass
from typing import Any

from app.cli.commands.checks import AgainstGraph, resolve_with_graph, solution_of_plan
from app.cli.commands.plan import write_plan
from app.cli.console import (
    STREAM,
    SUCCESS,
    UsageError,
    format_by_ending,
    print_lines,
    read_input,
    table,
    write_bytes,
    write_json,
    write_output,
)
from app.cli.options import OUTPUT, REQUIRED, AsJson, Out, Source, argument, option, read_token
from app.cli.plan_text import print_plan
from app.cli.resolve import OPERATORS, note_input_warnings, resolve
from app.texts import numbers
from tmmu_core.base import schemas, strict
from tmmu_core.formats.planfile import plan_file, trace
from tmmu_core.formats.planfile.checkpoint import checkpoint, restore
from tmmu_core.judge.verifier.finished_plan import refuse_invalid
from tmmu_core.plans.making.request import PlanRequest

TRACE_ENDINGS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".cborseq": "cbor", ".cbor": "cbor"}


def trace_command(
    graph: Source,
    request: PlanRequest,
    output: Out = STREAM,
    digest: bool = option("Write hashes instead of a record per tensor.", default=False),
    json: AsJson = False,
) -> int:
    """Write the trace of a plan.

    A trace has a header, a record per tensor and a summary.
    """
    found = resolve(graph, request)
    if found.findings:
        found.valid_plan("export")
    name = output or STREAM
    is_cbor = format_by_ending(name, TRACE_ENDINGS, "jsonl") == "cbor"
    write = trace.to_cbor_sequence if is_cbor else trace.to_json_lines
    data = write(found.plan, digest=digest, replans=found.trace.replans if found.trace else ())
    write_output(name, data, "the trace")
    return SUCCESS


def checkpoint_command(
    graph: Source,
    request: PlanRequest,
    output: str = option("Write to this file; - writes to standard output.", "FILE", *OUTPUT, default=REQUIRED),
    of: AgainstGraph = None,
    json: AsJson = False,
) -> int:
    """Write the checkpoint of a plan."""
    found, against = resolve_with_graph(graph, of, request)
    note_input_warnings(found)
    if against is None:
        what = f"{graph} does not name the producers of tensors."
        raise UsageError(what, "Pass the graph, or the graph of the plan with --graph.")
    plan = found.valid_plan("checkpoint")
    solved = solution_of_plan(found, against, request)
    if found.plan.ir_hash != (found.cut_from or solved.plan.ir_hash):
        what = f"{graph} is not a plan of {of}: the ir_hash differs."
        raise UsageError(what, "Pass the graph of the plan.")
    write_output(output, checkpoint(plan, solved.liveness), "the checkpoint")
    return SUCCESS


def restore_command(
    checkpoint: Source,
    token: str | None = option("Accept only a checkpoint with this replay token.", "HEX"),
    output: Out = None,
    json: AsJson = False,
) -> int:
    """Restore the plan of a checkpoint and verify its hash and rows."""
    plan = restore(read_input(checkpoint), checkpoint, token=None if token is None else read_token(token))
    refuse_invalid(plan, OPERATORS["checkpoint"])
    if output is not None:
        write_plan(plan, output)
    if json and output != STREAM:
        write_bytes(plan_file.to_json(plan))
    elif output != STREAM:
        print_lines("restored: the recomputed plan hash equals the stored hash", "")
        print_plan(plan)
    return SUCCESS


@dataclass(frozen=True)
class ApplyOptions:
    """Options for the security level and the content of the memory."""

    security: str = option(
        "Security level: standard, confidential or regulated. Only standard allows --debug-fill.",
        "LEVEL",
        default="standard",
    )
    debug_fill: int | None = option("Fill every tensor with the Philox random numbers of this seed.", "SEED")


def apply_command(
    plan: Source, request: PlanRequest, wanted: ApplyOptions, graph: AgainstGraph = None, json: AsJson = False
) -> int:
    """Map a plan to real memory and run its steps.

    The command allocates the arenas, binds and zeroes every tensor at its first write, and commits the state. An
    invalid plan is rejected.
    """
    from tmmu_core.runtime.apply import apply_plan, commit_execution

    found, _ = resolve_with_graph(plan, graph, request)
    note_input_warnings(found)
    applied = apply_plan(found.valid_plan("apply"), security=wanted.security, verified=True)
    if wanted.debug_fill is not None:
        for tensor_id in found.plan.tensor_ids:
            applied.debug_fill(tensor_id, wanted.debug_fill)
    zeroed = sum(applied.enter(step) for step in range(found.plan.steps))
    state = commit_execution(applied)
    arenas: list[dict[str, Any]] = [
        {
            "name": arena.name,
            "extent_bytes": arena.extent_bytes,
            "alignment_bytes": arena.alignment_bytes,
            "mapped_bytes": applied.arenas[arena.name].size_bytes,
        }
        for arena in found.plan.arenas
    ]
    if json:
        hashes = {"tmmu_plan_hash": found.plan.tmmu_plan_hash.hex(), "state_hash": state.state_hash.hex()}
        batch = {"batch": state.batch, "operations": state.operations, "barriers": list(state.barriers)}
        figures = {"zeroed_bytes": zeroed, "tensors_bound": len(found.plan), "arenas": arenas}
        write_json({**hashes, **batch, **figures, "warnings": found.warnings})
        return SUCCESS
    print_lines(f"applied: {numbers.count(len(found.plan), 'tensor')} bound, {numbers.full_bytes(zeroed)} zeroed", "")
    sizes = ("mapped_bytes", "extent_bytes", "alignment_bytes")
    rows = [[arena["name"], *(numbers.full_bytes(arena[size]) for size in sizes)] for arena in arenas]
    table(("arena", ">mapped", ">arena size", ">alignment"), rows)
    print_lines("", f"state hash {state.state_hash.hex()}")
    return SUCCESS


def schema_command(name: str | None = argument("Schema name; omit to list all.", "[NAME]", None)) -> int:
    """Print a JSON Schema of a file or of --json output."""
    if name is None:
        print_lines(*(f"{known:<10}{schemas.title(known)}" for known in schemas.NAMES))
        return SUCCESS
    if name not in schemas.NAMES:
        raise UsageError(f"unknown schema {name!r}.", strict.closest_hint(name, schemas.NAMES))
    write_bytes(schemas.file(name).read_bytes())
    return SUCCESS
