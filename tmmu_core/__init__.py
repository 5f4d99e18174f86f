"""The planner under the explorer: graph → liveness → planners → plan → runtime, with the judge apart.

Imports run one way along that line (``tests/test_architecture.py``); nothing in here knows the app.
"""

__version__ = "0.1.0"
SPEC_VERSION = "UML_OS.TMMU.PrepareMemory_v2"


def version_line() -> str:
    """What ``tmmu --version`` says."""
    return f"tmmu {__version__} ({SPEC_VERSION})"
