"""``python -m tests.support.golden``: write the golden traces anew. Review the difference like code.

Every sample has a trace for mode ``inference``, and one for its default mode where that is another. All of them are
whole; one of more than ``PLAIN`` tensors is gzipped. ``golden/planners`` has a trace of every other planner, for the
small samples of ``BY_EVERY_PLANNER``.
"""

import msgspec

from tests.support.paths import SAMPLES, read_graph_file
from tmmu_core.base.atomic_files import replace_file
from tmmu_core.formats.planfile.trace import to_json_lines
from tmmu_core.graph.native import document
from tmmu_core.liveness.timeline import default_mode
from tmmu_core.planners import PLANNERS
from tmmu_core.plans.making.engine import plan_graph

GOLDEN = SAMPLES / "golden"
PLAIN = 500
BY_EVERY_PLANNER = tuple(
    f"{stem}.tmmu.json"
    for stem in ("in_place", "mixed_sizes", "must_not_alias", "training_step", "two_arenas", "views")
)


def sample_files() -> list[str]:
    """File names of all samples, as the catalogue lists them."""
    return [entry["file"] for entry in msgspec.json.decode((SAMPLES / "index.json").read_bytes())["samples"]]


def golden_traces(file: str) -> dict[str, bytes]:
    """Return file name in ``golden/`` → trace (not gzipped) of one sample, planned now."""
    graph = read_graph_file(SAMPLES / file)
    traces = {}
    for mode in dict.fromkeys(("inference", default_mode(graph))):
        plan = plan_graph(graph, mode=mode).plan
        gzipped = ".gz" if len(plan) > PLAIN else ""
        traces[f"{file.split('.')[0]}.{mode}.trace.jsonl{gzipped}"] = to_json_lines(plan)
    return traces


def planner_traces(planner: str) -> dict[str, bytes]:
    """Return file name in ``golden/planners/`` → trace of one planner, planned now."""
    traces = {}
    for file in BY_EVERY_PLANNER:
        plan = plan_graph(read_graph_file(SAMPLES / file), planner=planner).plan
        traces[f"{file.split('.')[0]}.{planner}.trace.jsonl"] = to_json_lines(plan)
    return traces


def main() -> None:
    """Write every golden trace, and remove those of samples and planners that no longer exist."""
    written = {}
    for file in sample_files():
        written.update(golden_traces(file))
    for planner in set(PLANNERS) - {"slots"}:
        written |= {f"planners/{name}": trace for name, trace in planner_traces(planner).items()}
    for old in sorted(GOLDEN.rglob("*.trace.jsonl*")):
        if old.relative_to(GOLDEN).as_posix() not in written:
            old.unlink()
            print(f"removed {old.name}")
    changed = 0
    (GOLDEN / "planners").mkdir(exist_ok=True)
    for name, data in written.items():
        path = GOLDEN / name
        # How well it is packed is the packer's business: what is in it is compared.
        if not path.exists() or document.unpack(path.read_bytes(), name) != data:
            replace_file(path, document.pack(data) if name.endswith(".gz") else data)
            changed += 1
    print(f"{len(written)} golden traces, {changed} of them changed")


if __name__ == "__main__":
    main()
