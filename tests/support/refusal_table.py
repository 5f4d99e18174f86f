"""Write the table of refusals: ``python -m tests.support.refusal_table``.

``golden/refusals.json`` holds one row for each damaged file of the fuzz targets: the error's code, the place in the
file and the reason, or "read" if a reader accepts the file. Messages are not part of the table.
"""

import json
from random import Random

from tests.support.searches import SAMPLES
from tests.tools.fuzz.targets import targets
from tmmu_core.base.atomic_files import replace_file
from tmmu_core.base.errors import TmmuError

REFUSALS = SAMPLES / "golden" / "refusals.json"
INPUTS = 15
"""Damaged files per reader."""
LIBRARY_DEPENDENT = ("gzip", "stored", "sidecar", "torch-snapshot")
"""Targets whose input bytes depend on the release of a library, so that they have no fixed table."""


def readers() -> list[str]:
    """Return the names of the targets that read a file."""
    return [name for name in targets() if name not in LIBRARY_DEPENDENT and not name.startswith("link-")]


def refusals_of(reader: str) -> list[str]:
    """Return code, place and reason for each damaged file of one reader."""
    return [_refusal(reader, number) for number in range(INPUTS)]


def _refusal(reader: str, number: int) -> str:
    target = targets()[reader]
    try:
        target.use(target.make(Random(f"refusals/{reader}/{number}")))
    except TmmuError as error:
        record = error.record()  # type: ignore[attr-defined]
        details = record.get("diagnostics", {})
        place = record.get("place") or details.get("path") or ""
        text = " ".join(filter(None, (record["code_id"], place, details.get("reason"))))
        return text.encode("utf-8", "backslashreplace").decode()
    return "read"


def kept_refusals() -> dict[str, list[str]]:
    """Return the table as the file has it."""
    return json.loads(REFUSALS.read_text())  # type: ignore[no-any-return]


def main() -> None:
    """Write the file, one line for each damaged file."""
    blocks = []
    for reader in readers():
        rows = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in refusals_of(reader))
        blocks.append(f"{json.dumps(reader)}: [\n{rows}\n]")
    replace_file(REFUSALS, ("{\n" + ",\n".join(blocks) + "\n}\n").encode())


if __name__ == "__main__":
    main()
