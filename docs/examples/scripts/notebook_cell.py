"""The value of a notebook cell: python notebook_cell.py MODEL writes the same HTML. Install: base."""

import sys
from pathlib import Path

import tmmu

plan = tmmu.plan(sys.argv[1], planner="auto")
Path("cell.html").write_text(plan._repr_html_(), encoding="utf-8")
