"""The project's own plan files, traces and checkpoints."""
