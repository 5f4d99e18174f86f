"""Many plans at once: points as values, the work of one, and where they are worked (here, or on a Dask cluster)."""
