"""What `fit` is given and returns: a graph, a capacity, calls of planners, bounds and the answer."""
