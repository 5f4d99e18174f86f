"""Make it fit: moves that lower what is alive, their costs, and the cheapest of them that fit. Only the app asks."""

import sys

from tmmu_core.library.callable import Verb

sys.modules[__name__].__class__ = Verb  # tmmu.fit(…) is a call
