"""Sample graphs of the explorer and of the tests. ``python -m sample_graphs.make`` writes all of them."""
