"""Packing problems as CSV."""
