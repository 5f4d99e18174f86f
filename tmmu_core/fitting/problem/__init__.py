"""Input and output of `fit`: a graph, a capacity, planner calls, bounds and the result."""
