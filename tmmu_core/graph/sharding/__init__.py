"""Shard specs, and the part of a graph that one rank holds."""
