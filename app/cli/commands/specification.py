"""Commands of the specification: verify, lint, trace, checkpoint, restore, apply and schema."""

from collections.abc import Sequence
from typing import Any

from app.cli import console, options
from app.cli.commands.plan import print_plan, writer_of
from app.cli.console import FINDING, STREAM, SUCCESS, UsageError, print_lines, table, write_json
from app.cli.options import AS_JSON, GRAPH, SOURCE
from app.cli.resolve import OPERATORS, Resolved, note_input_warnings, open_any, resolve, resolve_opened, show_warnings
from app.texts import numbers
from tmmu_core.base import schemas, strict
from tmmu_core.formats.planfile import plan_file, trace
from tmmu_core.formats.planfile.plan_file import checkpoint, restore
from tmmu_core.formats.planfile.trace import Trace
from tmmu_core.graph.model import Graph
from tmmu_core.judge.finding import Finding, Verdict
from tmmu_core.judge.lint import lint_verdict
from tmmu_core.judge.verifier.finished_plan import refuse_invalid
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans.canonical import ir_hash
from tmmu_core.plans.making.plan_sets import plan_rank
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.model import Plan


def verify_command(request: PlanRequest, plan: str = SOURCE, graph: str | None = GRAPH, json: bool = AS_JSON) -> int:
    """Check that a plan is valid.

    Rules cover overlaps, alignment, bounds, capacity, slots and hashes. A graph is planned first. Use --graph to check
    the live ranges of a plan file too. For the plan of a rank, add --shard.

    Exit code: 0 valid, 1 invalid.
    """
    resolved, plan_graph = resolve_with_graph(plan, graph, request)
    verdict = _verdict(resolved, plan_graph, request)
    rules = numbers.count(len(verdict.checked), "rule")
    headlines = [f"{str(verdict).rstrip('.')}; {rules} checked: {', '.join(verdict.checked)}"]
    if verdict.not_checked:
        headlines.append("not checked: " + "; ".join(f"{rule} ({why})" for rule, why in verdict.not_checked))
    for arena in verdict.arenas if resolved.verdict is not None else ():
        if arena.proven_bytes is not None:
            claimed, bound = numbers.full_bytes(arena.proven_bytes), numbers.full_bytes(arena.bound_bytes)
            headlines.append(f"{arena.name}: the file claims a lower bound of {claimed}; recomputed: {bound}")
    recomputed_fields = ("status", "lower_bound_bytes", "witness", "witness_step", "reuse_cost_lower_bound")
    record = {
        "checked": verdict.checked,
        "not_checked": dict(verdict.not_checked),
        "examined": verdict.examined,
        "warnings": resolved.warnings,
        "certificates": [
            {"arena": a.name, "claimed_bytes": a.proven_bytes, **{key: getattr(a, key) for key in recomputed_fields}}
            for a in verdict.arenas
        ],
    }
    return report_findings(verdict.findings, headlines, json, **record)


def lint_command(request: PlanRequest, plan: str = SOURCE, graph: str | None = GRAPH, json: bool = AS_JSON) -> int:
    """Check a plan for errors and questionable choices.

    Rules cover slots, live ranges, addresses and undeclared in-place reuse. A graph is planned first. Use --graph to
    check a plan file against its graph. For the plan of a rank, add --shard.

    Exit code: 0 no errors, 1 errors.
    """
    resolved, plan_graph = resolve_with_graph(plan, graph, request)
    verdict = lint_verdict(resolved.plan, plan_graph, _verdict(resolved, plan_graph, request))
    errors, warnings = numbers.count(len(verdict.errors), "error"), numbers.count(len(verdict.warnings), "warning")
    headline = f"{errors}, {warnings}; rules: {', '.join(verdict.checked)}"
    return report_findings(verdict.findings, [headline], json, checked=verdict.checked, warnings=resolved.warnings)


def _verdict(resolved: Resolved, graph: Graph | None, request: PlanRequest) -> Verdict:
    plan, dims, whole_hash = resolved.complete_plan(), request.dims or None, resolved.whole_hash
    return resolved.verdict or verify_plan(plan, graph, dims=dims, arenas=request.arenas, whole_hash=whole_hash)


def resolve_with_graph(name: str, graph: str | None, request: PlanRequest) -> tuple[Resolved, Graph | None]:
    """Return ``(plan, graph)`` of the file ``name``; the graph is ``None`` if neither the file nor ``graph`` has one.

    For a finished plan, only ``--arenas`` is allowed; with ``graph``, also ``--dims`` and ``--shard``. Raises
    :class:`UsageError` for other planning options.
    """
    opened = open_any(name, request.dims)
    other_options = request
    if isinstance(opened, Plan | Trace):
        other_options = request.but(arenas=None, **({"dims": {}, "shard_spec": None} if graph else {}))
    settings: dict[str, Any] = {"dims": request.dims or None, "arenas": request.arenas}
    if graph is None:
        resolved = resolve_opened(opened, name, other_options, **settings)
        return resolved, resolved.graph
    if not isinstance(opened, Plan | Trace):
        raise UsageError(f"{name} is not a finished plan.", "Use --graph only with a finished plan.")
    plan_graph = open_any(graph, request.dims)
    if not isinstance(plan_graph, Graph):
        raise UsageError(f"{graph} is not a graph.", "Pass the graph of the plan.")
    plan, whole_hash = (opened if isinstance(opened, Plan) else opened.plan), None
    if request.shard_spec is not None:
        whole_hash = ir_hash(plan_graph)
        of_rank = request.but(rank=plan.rank, world_size=plan.world_size)
        plan_graph = plan_rank(plan_graph, _with_settings_of(of_rank, plan, plan_graph)).graph
    return resolve_opened(opened, name, other_options, graph=plan_graph, whole_hash=whole_hash, **settings), plan_graph


def _with_settings_of(request: PlanRequest, plan: Plan, graph: Graph) -> PlanRequest:
    """Return the request with mode, preset and order of a plan; the order has only nodes of ``graph``."""
    node_ids = {node.node_id for node in graph.nodes}
    order = tuple(node for node in plan.execution_order if node in node_ids)
    return request.but(mode=plan.mode, preset=plan.preset, order=order)


def report_findings(findings: Sequence[Finding], headlines: Sequence[str], as_json: bool, **more: Any) -> int:
    """Print findings and warnings; return the exit code. ``more``: other JSON fields, among them ``warnings``."""
    has_error = any(finding.severity == "error" for finding in findings)
    if as_json:
        write_json({"ok": not has_error, **more, "findings": findings})
    else:
        rows = [[f.severity, f.rule, f.arena, numbers.step(f.step) if f.step >= 0 else "", f.message] for f in findings]
        print_lines(*headlines, *([""] if rows else []))
        if rows:
            table(("severity", "rule", "arena", "step", "finding"), rows)
        show_warnings(more["warnings"])
    return FINDING if has_error else SUCCESS


def trace_command(
    request: PlanRequest,
    graph: str = options.SOURCE,
    output: str = options.OUT_OR_STREAM,
    digest: bool = options.flag("--digest", "Write hashes instead of a record per tensor."),
    json: bool = options.AS_JSON,
) -> int:
    """Write the trace of a plan: a header, a record per tensor and a summary."""
    writers = dict.fromkeys((".jsonl", ".ndjson", ".json"), trace.to_json_lines)
    writers |= dict.fromkeys((".cborseq", ".cbor"), trace.to_cbor_sequence)
    write = console.format_by_ending(output, writers, trace.to_json_lines)
    resolved = resolve(graph, request)
    if resolved.findings:
        resolved.valid_plan("export")  # raises an error
    data = write(resolved.plan, digest=digest, replans=resolved.trace.replans if resolved.trace else ())
    console.write_output(output, data, "the trace")
    return SUCCESS


def checkpoint_command(
    request: PlanRequest,
    graph: str = options.SOURCE,
    output: str = options.REQUIRED_OUT,
    graph_of_plan: str | None = options.GRAPH,
    json: bool = options.AS_JSON,
) -> int:
    """Write the checkpoint of a plan (CBOR): slots, live ranges, metrics and hashes. A plan file needs --graph."""
    resolved, plan_graph = resolve_with_graph(graph, graph_of_plan, request)
    note_input_warnings(resolved)
    if plan_graph is None:
        what = f"{graph} contains no graph, and a checkpoint needs one."
        raise UsageError(what, "Pass a graph file. For a plan file, add --graph with the file of its graph.")
    plan, solution = resolved.valid_plan("checkpoint"), resolved.solution
    if solution is None:  # plan the graph again with the settings of the finished plan
        settings = _with_settings_of(PlanRequest(token=plan.replay_token, dims=request.dims), plan, plan_graph)
        solution = resolve_opened(plan_graph, graph, settings).solution
        assert solution is not None
    if resolved.plan.ir_hash != (resolved.whole_hash or solution.plan.ir_hash):
        raise UsageError(f"{graph} is not a plan of {graph_of_plan}: ir_hash differs.", "Pass the graph of the plan.")
    console.write_output(output, checkpoint(plan, solution.liveness), "the checkpoint")
    return SUCCESS


def restore_command(
    checkpoint: str = options.argument("Checkpoint; - reads standard input.", "FILE"),
    token: str | None = options.option("Accept only a checkpoint with this replay token.", "HEX"),
    output: str | None = options.OUT,
    json: bool = options.AS_JSON,
) -> int:
    """Read the plan of a checkpoint, and verify it and its plan hash."""
    write = writer_of(output or STREAM)
    expected = None if token is None else options.read_option("token", token)
    plan = restore(console.read_input(checkpoint), checkpoint, token=expected)
    refuse_invalid(plan, OPERATORS["checkpoint"])
    if output is not None:
        console.write_output(output, write(plan), "the plan")
    if json and output != STREAM:
        console.write_bytes(plan_file.to_json(plan))
    elif output != STREAM:
        console.print_lines("restored: the recomputed plan hash equals the stored hash", "")
        print_plan(plan)
    return SUCCESS


def apply_command(
    request: PlanRequest,
    plan: str = options.SOURCE,
    graph: str | None = options.GRAPH,
    security: str = options.option(
        "Security level: standard (allows --debug-fill), confidential or regulated.", "LEVEL", default="standard"
    ),
    debug_fill: int | None = options.option("First fill all tensors with Philox random numbers of this seed.", "SEED"),
    json: bool = options.AS_JSON,
) -> int:
    """Allocate the arenas of a plan, and zero its buffers step by step.

    Each tensor is bound to an address. Each buffer is zeroed at its first write, except persistent tensors and bytes
    that are reused in place. Operators are not run. The output has a hash of plan, arenas and operations.
    """
    from tmmu_core.runtime.apply import apply_plan, commit_execution, refuse_larger_than_memory

    resolved, _ = resolve_with_graph(plan, graph, request)
    note_input_warnings(resolved)
    valid_plan = resolved.valid_plan("apply")
    refuse_larger_than_memory(valid_plan)
    applied = apply_plan(valid_plan, security=security, verified=True)
    if debug_fill is not None:
        for tensor_id in resolved.plan.tensor_ids:
            applied.debug_fill(tensor_id, debug_fill)
    zeroed = sum(applied.enter(step) for step in sorted(set(resolved.plan.birth.tolist())))
    state = commit_execution(applied)
    arenas: list[dict[str, Any]] = [
        {"name": a.name, "extent_bytes": a.extent_bytes, "alignment_bytes": a.alignment_bytes}
        | {"mapped_bytes": len(applied.arenas[a.name].memory)}
        for a in resolved.plan.arenas
    ]
    tensors = len(resolved.plan)
    if json:
        hashes = {"tmmu_plan_hash": resolved.plan.tmmu_plan_hash.hex(), "state_hash": state.state_hash.hex()}
        batch = {"batch": state.batch, "operations": state.operations, "barriers": list(state.barriers)}
        figures = {"zeroed_bytes": zeroed, "tensors_bound": tensors, "arenas": arenas}
        console.write_json({**hashes, **batch, **figures, "warnings": resolved.warnings})
        return SUCCESS
    console.print_lines(f"applied: {numbers.count(tensors, 'tensor')} bound, {numbers.full_bytes(zeroed)} zeroed", "")
    sizes = ("mapped_bytes", "extent_bytes", "alignment_bytes")
    rows = [[arena["name"], *(numbers.full_bytes(arena[size]) for size in sizes)] for arena in arenas]
    console.table(("arena", ">mapped", ">arena size", ">alignment"), rows)
    console.print_lines("", f"state hash {state.state_hash.hex()}")
    return SUCCESS


def schema_command(name: str | None = options.argument("Schema name; omit to list all.", "NAME", None)) -> int:
    """Print a JSON Schema of a file or of --json output."""
    if name is None:
        console.print_lines(*(f"{known:<10}{schemas.schema(known)['title']}" for known in schemas.NAMES))
        return SUCCESS
    if name not in schemas.NAMES:
        raise UsageError(f"unknown schema {name!r}.", strict.closest_hint(name, schemas.NAMES))
    console.write_bytes(schemas.file(name).read_bytes())
    return SUCCESS
