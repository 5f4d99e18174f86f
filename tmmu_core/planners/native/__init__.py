"""Inner loops in C: greedy placement, the searches of ``exact`` and ``reuse``, execution orders and recomputation.

``*.c`` and ``native.h`` are the sources. :mod:`.load` loads the prebuilt library of the platform, :mod:`.native` passes
arrays to it, and :mod:`.build` compiles the prebuilt ones (``make native``); ``hatch_build.py`` compiles one at
installation if none fits. If no library can be loaded, or the environment variable ``TMMU_NATIVE`` is ``0``, the same
loops run as plain Python with the same results.
"""
