"""Print the arena size by planner and alignment: python sweep_planners.py MODEL. Install: base."""

import sys
from itertools import product

import tmmu

for planner, alignment in product(("slots", "greedy", "auto"), (16, 128)):
    plan = tmmu.plan(sys.argv[1], planner=planner, alignment=alignment)
    print(planner, alignment, plan.extent_bytes)
