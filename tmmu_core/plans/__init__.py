"""Plans as values: their columns, hashes and figures, the engine that makes them, and analyses of finished plans."""
