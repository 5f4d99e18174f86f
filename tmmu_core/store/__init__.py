"""The history a team keeps: plans by their content, runs by model and commit, sweeps by their points (SQLAlchemy)."""
