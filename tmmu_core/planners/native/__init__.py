"""Inner loops in C: greedy placement, the searches of ``exact`` and ``reuse``, simulated recomputation, minimum cuts.

``*.c`` and ``native.h`` are the sources. :mod:`.load` loads the library of the platform, and :mod:`.native` passes
arrays to it. ``make native`` compiles the prebuilt libraries; ``hatch_build.py`` compiles one at installation if none
fits. If no library can be loaded, or the environment variable ``TMMU_NATIVE`` is ``0``, the same loops run as plain
Python with the same results.
"""
