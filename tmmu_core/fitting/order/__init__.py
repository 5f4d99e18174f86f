"""Orders with a lower peak, on the storages as they are planned: ``best_order`` in ``searching.py``."""
