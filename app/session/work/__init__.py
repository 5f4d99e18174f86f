"""Background work: jobs, worker processes and their cache."""
