"""``python -m tests.golden``: write the golden traces anew. Review the difference like code.

Every sample has a trace for mode ``inference``, and one for its default mode where that is another. A sample of more
than ``TOLD`` tensors is told as a digest: hashes, arenas and metrics, without a record per tensor.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from tmmu_core.liveness.timeline import default_mode
from tmmu_core.plan.formats.reading import read_graph_file
from tmmu_core.plan.formats.trace import to_json_lines
from tmmu_core.plan.making.engine import plan_graph

SAMPLES = Path(__file__).resolve().parents[1] / "sample_graphs"
GOLDEN = SAMPLES / "golden"
TOLD = 500


def sample_files() -> list[str]:
    """File names of all samples, as the catalogue lists them."""
    return [entry["file"] for entry in msgspec.json.decode((SAMPLES / "index.json").read_bytes())["samples"]]


def golden_traces(file: str) -> dict[str, bytes]:
    """File name in ``golden/`` → trace, for one sample, planned now."""
    graph = read_graph_file(SAMPLES / file)
    traces = {}
    for mode in dict.fromkeys(("inference", default_mode(graph))):
        plan = plan_graph(graph, mode=mode).plan
        name = f"{file.split('.')[0]}.{mode}.trace.jsonl"
        traces[name] = to_json_lines(plan, digest=len(plan) > TOLD)
    return traces


def main() -> None:
    """Write every golden trace, and remove those of samples that are no more."""
    written = {}
    for file in sample_files():
        written.update(golden_traces(file))
    for old in sorted(GOLDEN.glob("*.trace.jsonl")):
        if old.name not in written:
            old.unlink()
            print(f"removed {old.name}")
    changed = 0
    for name, data in written.items():
        path = GOLDEN / name
        if not path.exists() or path.read_bytes() != data:
            path.write_bytes(data)
            changed += 1
    print(f"{len(written)} golden traces, {changed} of them changed")


if __name__ == "__main__":
    main()
