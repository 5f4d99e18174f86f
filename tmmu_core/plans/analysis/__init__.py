"""Analyses of plans, one module each."""
