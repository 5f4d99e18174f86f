"""The answer as a value: the plan, its bytes and hashes, its figures, its files, and how two of them compare."""
