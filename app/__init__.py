"""User interfaces: command line, pages, charts, canvas, reports. All figures are computed in the core."""
