"""The front door: a file per format, from bytes to a :class:`~tmmu_core.graph.model.Graph`.

The table that finds a reader by content is ``READERS`` in :mod:`tmmu_core.plan.formats.reading`, for plans and graphs
alike. An importer sees only ``graph`` and ``errors``; ``sniff`` says cheaply which format bytes are of.
"""
