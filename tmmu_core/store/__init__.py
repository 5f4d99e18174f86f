"""Database of plans (by content hash), runs (by model and commit) and sweeps; uses SQLAlchemy."""
