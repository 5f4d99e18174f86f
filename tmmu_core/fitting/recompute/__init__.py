"""Recomputation (activation checkpointing, rematerialization): drop idle storages and compute them again before use.

``recompute_model.py`` defines what can be dropped, and ``live_curve.py`` simulates a choice of drops. The modules
``recompute_search.py`` and ``sweep.py`` search for the cheapest choice, ``schedule.py`` for an order and recomputation
together. ``write_graph.py`` writes a choice into the graph, ``drop_moves.py`` reads it back, and ``recompute_moves.py``
describes it as moves. ``offload.py`` copies storages instead, and ``recompute_bound.py`` has lower bounds.
"""
