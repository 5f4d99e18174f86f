"""Errors, limits, text escaping, file input and output, child processes."""
