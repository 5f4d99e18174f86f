"""Recomputation (activation checkpointing, rematerialization): drop idle storages and compute them again.

``recompute_model.py`` defines what can be dropped, ``live_curve.py`` simulates a choice, ``recompute_search.py``,
``settle.py`` and ``sweep.py`` search choices, ``write_graph.py`` writes a choice into the graph and
``recover_choice.py`` reads it back. ``recompute_moves.py`` offers choices as moves.
"""
