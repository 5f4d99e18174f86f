"""Errors, limits, escaping, strict parsing, canonical CBOR, output files and child processes."""
