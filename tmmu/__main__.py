"""Entry point of ``python -m tmmu``."""

from tmmu_core.__main__ import main

if __name__ == "__main__":
    main()
