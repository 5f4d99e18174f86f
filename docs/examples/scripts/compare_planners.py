"""Compare two plans of a model: python compare_planners.py MODEL. Install: base."""

import sys

import tmmu

before, after = (tmmu.plan(sys.argv[1], planner=planner) for planner in ("slots", "auto"))
print(before.extent_bytes, "->", after.extent_bytes)
print("identical:", after.compare(before).identical)
