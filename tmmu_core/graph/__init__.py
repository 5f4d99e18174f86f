"""What is planned: the nouns of a graph, sizes, validation, the native file; ``importers/`` read everything else."""
