"""The planners' inner loops as machine code that comes with the package: nobody waits for a compiler, nobody needs one.

``greedy.c``, ``exact.c`` and ``rebuild.c`` are the sources, written beside the loops in Python that they repeat;
``make native`` compiles them for each machine of :data:`~tmmu_core.loops.library.MACHINES`, and ``manifest.json`` says
from which sources, by which compiler, to which bytes.
:mod:`~tmmu_core.loops.library` loads the one that fits,
:mod:`~tmmu_core.loops.calls` hands it arrays. Where none fits the loops run as before, to the same bytes
(``docs/decisions/0111-loops-compiled-ahead.md``).
"""
