"""Execute every sample in every mode and preset on symbols, then break each plan on purpose and count what is caught.

``python -m tests.shadow_execution [FAULTS]`` prints a line per sample and exits 1 for a false alarm or a fault that is
missed. FAULTS (20) is how many plans are broken per sample, mode and kind of fault, spread over all that there are.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.runtime import faults
from tmmu_core.graph.model import MODES, PRESETS
from tmmu_core.plan.formats.reading import read_graph_file
from tmmu_core.plan.making.engine import plan_graph
from tmmu_core.runtime.shadow import shadow_replay

ROOT = Path(__file__).parents[1] / "sample_graphs"


def main(most: int) -> int:
    runs = alarms = broken = missed = 0
    for path in [*sorted(ROOT.glob("*.tmmu.*")), ROOT / "node_centric.json"]:
        ir, here, injected, lost = read_graph_file(path), 0, 0, 0
        for mode in MODES:
            for preset in PRESETS:
                solution = plan_graph(ir, mode=mode, preset=preset)
                here += not (shadow_replay(solution).ok and shadow_replay(solution.plan).ok)
                runs += 1
            for make in faults.KINDS.values():
                for plan in faults.spread(make(solution), most):
                    injected += 1
                    lost += shadow_replay(plan, solution.liveness.timeline).ok
        alarms, broken, missed = alarms + here, broken + injected, missed + lost
        print(f"{path.name:45} {9 - here} of 9 clean, {injected - lost} of {injected} faults caught", flush=True)
    print(f"{runs} runs, {alarms} false alarms; {broken} broken plans, {missed} missed.")
    return 1 if alarms or missed or not broken else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
