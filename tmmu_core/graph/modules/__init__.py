"""The module tree of a graph and the views of it that fit on a screen."""
