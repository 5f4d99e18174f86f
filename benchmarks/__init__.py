"""Measurements, each a function that returns rows; ``python -m benchmarks`` runs them and writes ``docs/``."""
