"""The scoreboard runs other planners and checks their offsets."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.scoreboard import fitted, foreign, planned

PLANNER = """
import csv, sys
rows = list(csv.DictReader(open(sys.argv[1])))
with open(sys.argv[2], "w", newline="") as file:
    out = csv.writer(file)
    out.writerow(["id", "offset"])
    for k, row in enumerate(rows):
        out.writerow([row["id"], 0 if STACKED else 100 * k])
"""


def test_offsets_of_another_planner_are_checked(tmp_path: Path) -> None:
    instance = tmp_path / "x.300.csv"
    instance.write_text("id,lower,upper,size\na,0,5,100\nb,3,9,100\n", encoding="utf-8")
    program = tmp_path / "planner.py"
    for stacked, value in ((False, 200), (True, None)):
        program.write_text(PLANNER.replace("STACKED", str(stacked)), encoding="utf-8")
        run = foreign(instance, f"{sys.executable} {program}")
        assert run.value == value
    assert run.note == "buffers 0 and 1 share bytes"


def test_own_planners_and_fits_give_the_same_height_here(tmp_path: Path) -> None:
    instance = tmp_path / "x.300.csv"
    instance.write_text("id,lower,upper,size\na,0,5,100\nb,3,9,100\nc,5,9,100\n", encoding="utf-8")
    runs = [planned(instance, "auto"), fitted(instance, tightest=False), fitted(instance, tightest=True)]
    assert [run.value for run in runs] == [200, 200, 200]
    assert runs[0].bound == 200
