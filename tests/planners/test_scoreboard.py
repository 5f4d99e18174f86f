"""The scoreboard runs other planners and checks their offsets."""

import sys
from pathlib import Path

from benchmarks.scoreboard import fitted, foreign, live_bytes, minimised, planned

PLANNER = """
import csv, sys
rows = list(csv.DictReader(open(sys.argv[1])))[LEFT_OUT:]
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
    command = f"{sys.executable} {program} {{input}} {{output}}"
    for stacked, left_out, value, note in (
        (False, 0, 200, ""),
        (True, 0, None, "buffers 0 and 1 share bytes"),
        (False, 1, None, "buffers [0] have no offset"),
    ):
        text = PLANNER.replace("STACKED", str(stacked)).replace("LEFT_OUT", str(left_out))
        program.write_text(text, encoding="utf-8")
        run = foreign(instance, command)
        assert (run.value, run.note) == (value, note)


def test_a_planner_of_one_capacity_is_minimised_by_bisection(tmp_path: Path) -> None:
    instance, program = tmp_path / "x.csv", tmp_path / "planner.py"
    instance.write_text("id,lower,upper,size\na,0,5,100\nb,3,9,100\nc,5,9,100\n", encoding="utf-8")
    text = PLANNER.replace("0 if STACKED else 100 * k", "[0, 100, 0][k]").replace("LEFT_OUT", "0")
    program.write_text(f"{text}\nsys.exit(int(sys.argv[3]) < 200)\n", encoding="utf-8")
    run = minimised(instance, f"{sys.executable} {program} {{input}} {{output}} {{capacity}}")
    assert run.value == live_bytes(instance) == 200


def test_own_planners_and_fits_give_the_same_height_here(tmp_path: Path) -> None:
    instance = tmp_path / "x.300.csv"
    instance.write_text("id,lower,upper,size\na,0,5,100\nb,3,9,100\nc,5,9,100\n", encoding="utf-8")
    runs = [planned(instance, "auto"), fitted(instance, tightest=False), fitted(instance, tightest=True)]
    assert [run.value for run in runs] == [200, 200, 200]
    assert runs[0].bound == 200
