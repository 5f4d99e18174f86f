"""Changes to a graph or a request until its plan fits a capacity."""
