"""Dropping what is idle and making it again: the moves of kind ``recompute``.

``model.py`` says what may be dropped, ``simulate.py`` what is alive then, ``cut.py`` and ``search.py`` what to drop,
``write.py`` writes it into the graph and ``unwrite.py`` reads it back. Offered to what-if and to the search of ``fit``
by the functions here.
"""

from tmmu_core.fit.recompute.moves import apply_recompute, lower, recompute_to, single_moves

__all__ = ["apply_recompute", "lower", "recompute_to", "single_moves"]
