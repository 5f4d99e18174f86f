"""Measurements of the product. ``python -m benchmarks`` runs them and writes a page in ``docs/measured/``."""
