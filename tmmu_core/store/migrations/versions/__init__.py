"""A file per revision."""
