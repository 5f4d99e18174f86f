#!/usr/bin/env python3
"""First fit by size, spoken to as MiniMalloc is: --capacity=, --input=, --output=, --timeout=."""

import csv
import sys

shown_text = dict(word[2:].split("=", 1) for word in sys.argv[1:])
with open(shown_text["input"], newline="") as file:
    rows = list(csv.DictReader(file))
lies: list[tuple[int, int, int, int]] = []
for row in sorted(rows, key=lambda row: -int(row["size"])):
    lower, upper, size = (int(row[name]) for name in ("lower", "upper", "size"))
    row["offset"] = at = 0
    for begin, end in sorted((b, e) for b, e, lo, hi in lies if lo < upper and lower < hi):
        if at + size <= begin:
            break
        at = max(at, end)
    row["offset"] = at
    lies.append((at, at + size, lower, upper))
if max(end for _, end, _, _ in lies) > int(shown_text["capacity"]):
    sys.exit(1)
with open(shown_text["output"], "w", newline="") as file:
    writer = csv.DictWriter(file, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
