"""The faces of the planner: command line, pages, charts, canvas, reports. Computes nothing that the core knows."""
