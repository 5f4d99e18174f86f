"""Figures of a plan: live bytes, storages, metrics and totals."""
