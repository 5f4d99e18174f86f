"""Plans: the value, its hashes and figures, how it is made, and what is read from it."""
