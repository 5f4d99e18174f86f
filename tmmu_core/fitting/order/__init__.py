"""Search for execution orders with a lower peak: ``best_order`` in ``order_search.py``."""
