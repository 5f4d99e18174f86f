"""The kinds of changes that `fit` can make to a graph or a request."""
