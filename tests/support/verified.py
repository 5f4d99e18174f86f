"""``python -m tests.support.verified [--graphs N] [--seed S] [--seconds T]``: the verifier accepts every plan.

Random graphs (``tests/support/strategies.py``: views, alias groups, in-place writes, pairs apart, orders, backward
passes of their own), each in every mode × preset by every planner. The suite has a share of it
(``tests/laws/test_equivalence.py``). Exit code 1 when a plan is refused by the verifier; the graph is written to
``.fuzz/``.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.support.strategies import Case, cases
from tmmu_core.base.errors import ContractError
from tmmu_core.graph.model import MODES, PRESETS
from tmmu_core.graph.native import native_file
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.planners import PLANNERS
from tmmu_core.plans.making.engine import plan_graph

FOUND = Path(".fuzz")
OPTIONS = {"exact": {"budget": 20_000}, "search": {"iterations": 50}, "auto": {"budget": 20_000}}
"""Enough to end in every way; a plan is verified, not admired."""


def verify(case: Case, counts: Counter[str]) -> None:
    """Plan one graph in every way, and verify each plan. Raises ``AssertionError`` with the first that is refused."""
    given_ = {name: value for name, value in case.arguments().items() if name not in ("mode", "preset")}
    for mode in MODES:
        for preset in PRESETS:
            for planner in PLANNERS:
                options = {k: v for k, v in OPTIONS.get(planner, {}).items() if k in PLANNERS[planner].options}
                try:
                    plan = plan_graph(
                        case.graph, mode=mode, preset=preset, planner=planner, options=options, **given_
                    ).plan
                except ContractError as refusal:
                    counts[f"refused: {refusal.code_id}"] += 1
                    continue
                counts["plans"] += 1
                verdict = verify_plan(plan, case.graph, arenas=case.arenas)
                assert verdict.ok, f"{mode}, {preset}, {planner}, {given_}: {verdict.errors[0]}"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600.0)
    asked = parser.parse_args()
    counts: Counter[str] = Counter()
    ends = time.monotonic() + asked.seconds

    @seed(asked.seed)
    @settings(
        max_examples=asked.graphs,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases(max_nodes=12))
    def attack(case: Case) -> None:
        if time.monotonic() < ends:
            counts["graphs"] += 1
            try:
                verify(case, counts)
            except AssertionError:
                FOUND.mkdir(exist_ok=True)
                (FOUND / f"refused-{asked.seed}-{counts['graphs']}.tmmu.json").write_bytes(
                    native_file.encode_json(case.graph)
                )
                counts["REFUSED BY THE VERIFIER"] += 1
                raise

    failed = False
    try:
        attack()
    except AssertionError as error:
        failed = True
        print(error)
    print(", ".join(f"{n:,} {what}" for what, n in sorted(counts.items())))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
