"""Plans: the value, its hashes and figures, the engine, and analyses of finished plans."""
