"""Sweeps: plan many combinations of options, in this process or on a Dask cluster."""
