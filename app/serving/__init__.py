"""Access control and server process of the explorer."""
