"""Graphs to open and learn from; ``python -m sample_graphs.make`` writes them all."""
