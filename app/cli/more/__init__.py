"""Commands of the specification, and rarely used ones."""
