"""Write the HTML that a notebook cell shows for a plan: python notebook_cell.py MODEL. Install: base."""

import sys
from pathlib import Path

import tmmu

plan = tmmu.plan(sys.argv[1], planner="auto")
Path("cell.html").write_text(plan._repr_html_(), encoding="utf-8")
