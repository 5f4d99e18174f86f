"""Shadow replay: run a plan on simulated memory."""
