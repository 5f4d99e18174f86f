"""XLA dumps and memory reports."""
