"""Write the arena map and live bytes of a plan: python plot_arena.py MODEL. Install: base."""

import sys

import tmmu

plan = tmmu.plan(sys.argv[1], planner="auto")
plan.report("plan.html")  # interactive map; open it in a browser
plan.report("plan.md")  # figures for a pull request
