"""``python -m tests.made``: write what is made of small inputs anew."""

from __future__ import annotations

import json

from tests.made.kinds import FILES, GOLDEN, answers, questions
from tmmu_core.writing import replace_file


def main() -> None:
    """Write the files, a line for each input."""
    for file in FILES:
        blocks = []
        for question in questions(file):
            lines = ",\n".join(f"  {json.dumps(text, ensure_ascii=False)}" for text in answers(file, question))
            blocks.append(f"{json.dumps(question, ensure_ascii=False)}: [\n{lines}\n]")
        replace_file(GOLDEN / file, ("{\n" + ",\n".join(blocks) + "\n}\n").encode())
        print(f"{file}: {len(blocks)} blocks")


if __name__ == "__main__":
    main()
