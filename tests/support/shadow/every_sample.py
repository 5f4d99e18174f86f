"""Run the shadow replay on all samples and on plans with injected faults.

``python -m tests.support.shadow.every_sample [FAULTS]``: FAULTS is the number per sample, mode and kind [20]. The exit
code is 1 for a false alarm or a missed fault.
"""

from __future__ import annotations

import sys

from tests.runtime import faults
from tests.support.paths import SAMPLES
from tests.support.shadow.replay import shadow_replay
from tmmu_core.formats.open_file import read_graph_file
from tmmu_core.graph.model import MODES, PRESETS
from tmmu_core.plans.making.engine import plan_graph

ROOT = SAMPLES


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
