"""The engine: from a request to packing problems, planner results and plan columns."""
