"""A training step of PyTorch that runs as the plan says: read, fit, rebuild, run and measure."""
