"""Read, fit, rebuild, run and measure a training step of PyTorch, so that it runs as planned."""
