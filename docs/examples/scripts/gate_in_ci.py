"""Fail a CI job if memory grows over a baseline: python gate_in_ci.py MODEL BASELINE. Install: base."""

import sys

import tmmu

verdict = tmmu.plan(sys.argv[1], planner="auto").gate(baseline=sys.argv[2], max_growth=0)
print(verdict)
sys.exit(0 if verdict else 1)
